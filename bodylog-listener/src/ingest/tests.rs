//! Tests of silence, with a paused clock and an in-memory connection. Nothing is stored here.

use std::time::Duration;

use bytes::BytesMut;
use proto::codec::{Codec, Decoded, encode};
use proto::control::{GoAwayCode, Hello, NackCode};
use proto::frame::{Compression, Frame};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::Instant;
use tokio_util::codec::Decoder;

use super::*;

fn ingest(root: &std::path::Path) -> Arc<Ingest> {
    let metrics = Arc::new(Metrics::new(&service::connections::Connections::new(
        service::http::CONNECTIONS,
    )));
    let clock = WallClock::default();
    Arc::new(Ingest {
        budget: Budget::new(1 << 20, Arc::clone(&metrics)),
        streams: Arc::default(),
        outputs: Outputs {
            records: mpsc::channel(1).0,
            details: mpsc::channel(1).0,
        },
        pool: Pool::new(1),
        buffers: Arc::default(),
        quarantine: Arc::new(Quarantine::new(
            root.into(),
            clock.clone(),
            Arc::clone(&metrics),
        )),
        spill: Spill::open(root).unwrap(),
        recent: Mutex::default(),
        pressure: Arc::default(),
        metrics,
        clock,
        token: None,
        max_frame: proto::frame::MAX_PAYLOAD,
        server_epoch: 1,
        tasks: TaskTracker::new(),
    })
}

struct Wire {
    stream: DuplexStream,
    buffer: BytesMut,
    codec: Codec,
}

impl Wire {
    async fn send(&mut self, frame: &Frame) {
        let mut out = BytesMut::new();
        encode(frame, Compression::None, &mut out).unwrap();
        self.stream.write_all(&out).await.unwrap();
    }

    async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(Decoded::Frame(frame)) = self.codec.decode(&mut self.buffer).unwrap() {
                return Some(frame);
            }
            if self.stream.read_buf(&mut self.buffer).await.unwrap() == 0 {
                return None;
            }
        }
    }
}

/// A sender that has its WELCOME, and the task that serves it.
async fn welcomed(ingest: &Arc<Ingest>) -> (Wire, tokio::task::JoinHandle<()>) {
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let peer = Peer {
        source: "127.0.0.1".parse().unwrap(),
        may_speak_v1: true,
    };
    let serving =
        ingest
            .tasks
            .spawn(Arc::clone(ingest).serve(theirs, peer, CancellationToken::new()));
    let mut wire = Wire {
        stream: ours,
        buffer: BytesMut::new(),
        codec: Codec::default(),
    };
    wire.send(&Frame::Hello(Hello {
        proto: vec![2],
        producer: "p".into(),
        epoch: 1,
        next_seq: 1,
        codecs: vec![],
        max_frame: 0,
        token: None,
        router: String::new(),
        version: String::new(),
    }))
    .await;
    assert!(matches!(wire.next().await, Some(Frame::Welcome(_))));
    (wire, serving)
}

/// The header of a frame with a payload of this many bytes and a different checksum.
fn header(payload_len: u32) -> [u8; proto::frame::HEADER_LEN] {
    proto::frame::Header {
        kind: 3,
        flags: proto::frame::Flags::default(),
        seq: 1,
        payload_len,
        raw_len: payload_len,
        payload_crc: 0,
    }
    .to_bytes()
}

/// The next frame that is not a ping.
async fn answer(wire: &mut Wire) -> Option<Frame> {
    loop {
        match wire.next().await {
            Some(Frame::Ping) => {}
            other => return other,
        }
    }
}

fn is_crc(answer: &Option<Frame>) -> bool {
    matches!(answer, Some(Frame::Nack(nack)) if (nack.seq, nack.code) == (1, NackCode::Crc))
}

#[tokio::test(start_paused = true)]
async fn a_silent_sender_is_asked_and_then_sent_away() {
    let root = tempfile::tempdir().unwrap();
    let ingest = ingest(root.path());
    let (mut wire, serving) = welcomed(&ingest).await;
    let began = Instant::now();
    assert_eq!(wire.next().await, Some(Frame::Ping));
    assert_eq!(Instant::now() - began, Duration::from_secs(15));
    // An answer counts as a sign of life.
    wire.send(&Frame::Pong).await;
    let began = Instant::now();
    let bye = answer(&mut wire).await;
    assert!(matches!(bye, Some(Frame::GoAway(bye)) if bye.code == GoAwayCode::Idle));
    assert_eq!(Instant::now() - began, Duration::from_secs(45));
    assert_eq!(wire.next().await, None);
    serving.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_frame_that_stops_midway_ends_the_connection_and_gives_its_room_back() {
    let root = tempfile::tempdir().unwrap();
    let ingest = ingest(root.path());
    let (mut wire, serving) = welcomed(&ingest).await;
    wire.stream.write_all(&header(500_000)).await.unwrap();
    let began = Instant::now();
    assert_eq!(wire.next().await, Some(Frame::Ping));
    assert!(ingest.budget.taken() >= 500_000);
    let bye = answer(&mut wire).await;
    assert!(matches!(bye, Some(Frame::GoAway(bye)) if bye.code == GoAwayCode::Idle));
    assert_eq!(Instant::now() - began, Duration::from_secs(30));
    serving.await.unwrap();
    assert_eq!(ingest.budget.taken(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_frame_that_trickles_in_ends_the_connection_and_gives_its_room_back() {
    let root = tempfile::tempdir().unwrap();
    let ingest = ingest(root.path());
    let (mut wire, serving) = welcomed(&ingest).await;
    wire.stream.write_all(&header(500_000)).await.unwrap();
    let began = Instant::now();
    let mut sent = 0;
    // One byte every ten seconds is not silence, but does not complete a frame in time either.
    while wire.stream.write_all(b"x").await.is_ok() {
        sent += 1;
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(sent < 10, "it is still listened to");
    }
    assert!(Instant::now() - began < Duration::from_secs(50));
    let bye = answer(&mut wire).await;
    assert!(matches!(bye, Some(Frame::GoAway(bye)) if bye.code == GoAwayCode::Idle));
    serving.await.unwrap();
    assert_eq!(ingest.budget.taken(), 0);
}

#[tokio::test(start_paused = true)]
async fn frames_of_version_1_take_room_as_they_arrive_and_may_not_trickle() {
    let root = tempfile::tempdir().unwrap();
    let ingest = ingest(root.path());
    let mut wires = Vec::new();
    for _ in 0..7 {
        let (mut ours, theirs) = tokio::io::duplex(64 << 10);
        let peer = Peer {
            source: "127.0.0.1".parse().unwrap(),
            may_speak_v1: true,
        };
        let serve = Arc::clone(&ingest).serve(theirs, peer, CancellationToken::new());
        let serving = ingest.tasks.spawn(serve);
        ours.write_all(&900_000_u32.to_be_bytes()).await.unwrap();
        wires.push((ours, serving));
    }
    let began = Instant::now();
    // 17 000 bytes every 25 seconds: after 20 seconds of grace this is too slow.
    while !wires.is_empty() {
        assert!(Instant::now() - began < Duration::from_secs(60));
        for (wire, _) in &mut wires {
            let _ = wire.write_all(&[b'x'; 17_000]).await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(
            ingest.budget.taken() <= 7 * 40_000,
            "{}",
            ingest.budget.taken()
        );
        tokio::time::sleep(Duration::from_secs(24)).await;
        wires.retain(|(_, serving)| !serving.is_finished());
    }
    assert_eq!(ingest.budget.taken(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_large_frame_over_a_slow_line_is_waited_for() {
    let root = tempfile::tempdir().unwrap();
    let ingest = ingest(root.path());
    let (mut wire, _serving) = welcomed(&ingest).await;
    let pieces = 20;
    wire.stream
        .write_all(&header(pieces * 20_000))
        .await
        .unwrap();
    let began = Instant::now();
    for _ in 0..pieces {
        wire.stream.write_all(&[b'x'; 20_000]).await.unwrap();
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
    assert!(Instant::now() - began >= Duration::from_secs(400));
    let answer = answer(&mut wire).await;
    assert!(is_crc(&answer), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn a_sender_that_waits_for_room_is_told_that_somebody_is_there() {
    let root = tempfile::tempdir().unwrap();
    let ingest = ingest(root.path());
    let (mut wire, serving) = welcomed(&ingest).await;
    let others = ingest.budget.take(1 << 20).await;
    wire.stream.write_all(&header(50_000)).await.unwrap();
    // Longer than the silence limit of either side.
    for _ in 0..8 {
        let began = Instant::now();
        assert_eq!(wire.next().await, Some(Frame::Ping));
        assert_eq!(Instant::now() - began, Duration::from_secs(15));
    }
    assert_eq!(ingest.budget.taken(), 1 << 20);
    assert!(!serving.is_finished());
    drop(others);
    wire.stream.write_all(&[b'x'; 50_000]).await.unwrap();
    let answer = answer(&mut wire).await;
    assert!(is_crc(&answer), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn a_sender_that_never_introduces_itself_is_sent_away() {
    let root = tempfile::tempdir().unwrap();
    let ingest = ingest(root.path());
    let (mut ours, theirs) = tokio::io::duplex(1024);
    let peer = Peer {
        source: "127.0.0.1".parse().unwrap(),
        may_speak_v1: true,
    };
    let serving =
        ingest
            .tasks
            .spawn(Arc::clone(&ingest).serve(theirs, peer, CancellationToken::new()));
    ours.write_all(b"LBL2").await.unwrap();
    let began = Instant::now();
    let mut answer = Vec::new();
    ours.read_to_end(&mut answer).await.unwrap();
    assert_eq!(Instant::now() - began, Duration::from_secs(5));
    assert!(answer.starts_with(b"LBL2"));
    serving.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_sender_of_version_1_may_be_silent_between_frames_for_ever() {
    let root = tempfile::tempdir().unwrap();
    let ingest = ingest(root.path());
    let (mut ours, theirs) = tokio::io::duplex(1024);
    let peer = Peer {
        source: "127.0.0.1".parse().unwrap(),
        may_speak_v1: true,
    };
    let serving =
        ingest
            .tasks
            .spawn(Arc::clone(&ingest).serve(theirs, peer, CancellationToken::new()));
    // Three broken frames in a row would end the connection; two do not.
    for _ in 0..2 {
        ours.write_all(b"\0\0\0\x01x").await.unwrap();
        tokio::time::sleep(Duration::from_secs(7200)).await;
        assert!(!serving.is_finished());
    }
    drop(ours);
    serving.await.unwrap();
}
