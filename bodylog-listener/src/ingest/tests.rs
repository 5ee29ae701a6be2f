//! Silence, on a paused clock and an in-memory connection. Nothing is stored here.

use std::time::Duration;

use bytes::BytesMut;
use proto::codec::{Codec, Decoded, encode};
use proto::control::{GoAwayCode, Hello};
use proto::frame::{Compression, Frame};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::Instant;
use tokio_util::codec::Decoder;

use super::*;

fn ingest(root: &std::path::Path) -> Arc<Ingest> {
    let metrics = Arc::new(Metrics::new());
    let clock = WallClock::default();
    Arc::new(Ingest {
        budget: Budget::new(1 << 20, Arc::clone(&metrics)),
        streams: Arc::default(),
        outputs: Outputs {
            records: mpsc::channel(1).0,
            details: mpsc::channel(1).0,
        },
        pool: Pool::new(1),
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

/// A welcomed sender and the task that serves it.
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
    let bye = loop {
        match wire.next().await {
            Some(Frame::Ping) => {}
            other => break other,
        }
    };
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
    let header = proto::frame::Header {
        kind: 3,
        flags: proto::frame::Flags::default(),
        seq: 1,
        payload_len: 500_000,
        raw_len: 500_000,
        payload_crc: 0,
    };
    wire.stream.write_all(&header.to_bytes()).await.unwrap();
    let began = Instant::now();
    assert_eq!(wire.next().await, Some(Frame::Ping));
    assert!(ingest.budget.taken() >= 500_000);
    let bye = loop {
        match wire.next().await {
            Some(Frame::Ping) => {}
            other => break other,
        }
    };
    assert!(matches!(bye, Some(Frame::GoAway(bye)) if bye.code == GoAwayCode::Idle));
    assert_eq!(Instant::now() - began, Duration::from_secs(30));
    serving.await.unwrap();
    assert_eq!(ingest.budget.taken(), 0);
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
    assert_eq!(Instant::now() - began, Duration::from_secs(15));
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
    // Three broken frames in a row would end it; two do not.
    for _ in 0..2 {
        ours.write_all(b"\0\0\0\x01x").await.unwrap();
        tokio::time::sleep(Duration::from_secs(7200)).await;
        assert!(!serving.is_finished());
    }
    drop(ours);
    serving.await.unwrap();
}
