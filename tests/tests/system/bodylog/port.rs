//! Strangers on the listener's port while a router keeps sending.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use bytes::{Bytes, BytesMut};
use proto::codec::{Codec, Decoded, encode};
use proto::control::{Hello, Nack, NackCode};
use proto::frame::{Compression, Data, Flags, Frame, HEADER_LEN, Protocol};
use tokio_util::codec::Decoder;

use super::*;

fn bytes_of(frame: &Frame) -> Vec<u8> {
    let mut out = BytesMut::new();
    encode(frame, Compression::None, &mut out).unwrap();
    out.to_vec()
}

fn data(seq: u64, meta: &'static str) -> Frame {
    Frame::Data(Data {
        protocol: Protocol::V2,
        seq,
        flags: Flags::default(),
        meta: Bytes::from_static(meta.as_bytes()),
        req: Bytes::from_static(b"{}"),
        resp: Bytes::from_static(b"{}"),
    })
}

/// A connection that writes arbitrary bytes.
struct Stranger(TcpStream);

impl Stranger {
    fn connect(listener: &Listener) -> Self {
        let stream = TcpStream::connect(listener.frames).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    fn write(&mut self, bytes: &[u8]) {
        // The listener may have closed already, which is allowed.
        let _ = self.0.write_all(bytes);
    }

    /// Closes the writing side and waits until the listener has closed too.
    fn leave(mut self) {
        let _ = self.0.shutdown(Shutdown::Write);
        let mut rest = Vec::new();
        let _ = self.0.read_to_end(&mut rest);
    }

    /// A sender with its own name that has completed the introduction.
    fn introduced(listener: &Listener) -> Self {
        let hello = Hello {
            proto: vec![2],
            producer: "stranger".into(),
            epoch: 1,
            next_seq: 1,
            codecs: Vec::new(),
            max_frame: 0,
            token: None,
            router: String::new(),
            version: String::new(),
        };
        let mut stranger = Self::connect(listener);
        stranger.write(&bytes_of(&Frame::Hello(hello)));
        stranger
    }

    /// Reads answers until one is `wanted`.
    fn until(&mut self, wanted: impl Fn(&Frame) -> bool) {
        let (mut codec, mut buffer) = (Codec::default(), BytesMut::new());
        loop {
            while let Some(decoded) = codec.decode(&mut buffer).unwrap() {
                if matches!(&decoded, Decoded::Frame(frame) if wanted(frame)) {
                    return;
                }
            }
            let mut piece = [0; 4096];
            let read = self.0.read(&mut piece).unwrap();
            assert!(read > 0, "the listener closed");
            buffer.extend_from_slice(&piece[..read]);
        }
    }
}

fn resident_bytes(listener: &Listener) -> u64 {
    let id = i32::try_from(listener.id()).unwrap();
    let status = procfs::process::Process::new(id).and_then(|process| process.status());
    status.unwrap().vmrss.unwrap() * 1024
}

/// Kinds of bad input: the name of the counter, and the bytes.
fn rubbish() -> Vec<(&'static str, Vec<u8>)> {
    let mut header = bytes_of(&Frame::Ping);
    header[20] ^= 1;
    let frame = bytes_of(&data(1, r#"{"v":2}"#));
    vec![
        (
            "too_large",
            b"GET / HTTP/1.1\r\nHost: listener\r\n\r\n".to_vec(),
        ),
        (
            "too_large",
            b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03".to_vec(),
        ),
        ("bad_magic", b"LOGIN now\r\n".to_vec()),
        ("too_large", b"\x04\0\0\x01".to_vec()),
        ("zero_len", b"\0\0\0\0".to_vec()),
        ("truncated", b"\0\0\0\x0c\0\x02{".to_vec()),
        ("header_crc", header),
        ("truncated", frame[..HEADER_LEN - 5].to_vec()),
        ("truncated", frame[..HEADER_LEN + 5].to_vec()),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn rubbish_on_the_port_is_counted_and_disturbs_no_sender() {
    let engine = engine(Options::default()).await;
    let store = directory();
    let listener = listener(&store).await;
    let router = over(&engine, "")
        .main(&spooled(listener.frames))
        .start()
        .await;
    let load = Load::begin(&router, 2);

    let mut expected = BTreeMap::new();
    for _ in 0..3 {
        for (kind, bytes) in rubbish() {
            let mut stranger = Stranger::connect(&listener);
            stranger.write(&bytes);
            stranger.leave();
            *expected.entry(kind).or_insert(0) += 1;
        }
    }
    // A valid introduction, then bad input.
    let mut stranger = Stranger::introduced(&listener);
    let mut flipped = bytes_of(&data(
        1,
        r#"{"v":2,"request_id":"stranger-1","status":200}"#,
    ));
    let whole = flipped.clone();
    let last = flipped.len() - 1;
    flipped[last] ^= 1;
    stranger.write(&flipped);
    stranger.until(|frame| {
        matches!(
            frame,
            Frame::Nack(Nack {
                seq: 1,
                code: NackCode::Crc,
                ..
            })
        )
    });
    stranger.write(&whole);
    stranger.write(&bytes_of(&data(2, "no json")));
    stranger.until(|frame| {
        matches!(
            frame,
            Frame::Nack(Nack {
                seq: 2,
                code: NackCode::BadMeta,
                ..
            })
        )
    });
    stranger.write(&bytes_of(&data(3, r#"{"v":3}"#)));
    stranger.until(|frame| {
        matches!(
            frame,
            Frame::Nack(Nack {
                seq: 3,
                code: NackCode::Schema,
                ..
            })
        )
    });
    stranger.write(&bytes_of(&data(
        4,
        r#"{"v":2,"request_id":"stranger-4","status":200}"#,
    )));
    stranger.until(|frame| matches!(frame, Frame::Ack(4)));
    stranger.leave();
    expected.insert("payload_crc", 1);

    for (kind, count) in expected {
        let series = format!("frame_errors_total{{kind=\"{kind}\"}}");
        until_answer(&format!("{count} frames counted as {kind}"), async || {
            (listener.metric(&series).await == count).then_some(())
        })
        .await;
    }
    assert_eq!(
        listener
            .metric("frames_total{proto=\"v2\",result=\"bad\"}")
            .await,
        3
    );
    let mut asked = load.end().await;
    settled(&router, asked.len()).await;
    assert_eq!(metric(&router, "reconnects_total").await, 0);
    asked.extend(["stranger-1".to_owned(), "stranger-4".to_owned()]);
    assert_once(&listener, &asked);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_length_that_lies_takes_no_memory() {
    let store = directory();
    let listener = listener(&store).await;
    let before = resident_bytes(&listener);
    let mut liars = Vec::new();
    for _ in 0..50 {
        let mut liar = Stranger::connect(&listener);
        // Announces 64 MiB.
        liar.write(b"\x04\0\0\0\0\x02{}");
        liars.push(liar);
    }
    until_answer("all of them to be heard", async || {
        (listener.metric("connections ").await == 50).then_some(())
    })
    .await;
    let grown = resident_bytes(&listener).saturating_sub(before);
    assert!(grown < 32 << 20, "{} MiB for 500 bytes", grown >> 20);
    drop(liars);
}

/// More silent connections than the HTTP port may have.
const SILENT: usize = 300;

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_do_not_keep_callers_from_the_http_port() {
    let store = directory();
    let listener = listener(&store).await;
    let mut silent = Vec::new();
    for _ in 0..SILENT {
        silent.push(tokio::net::TcpStream::connect(listener.http).await.unwrap());
    }
    assert_eq!(listener.get("/healthz").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_fills_counters_and_not_the_log() {
    let store = directory();
    let listener = listener(&store).await;
    for _ in 0..60 {
        let mut stranger = Stranger::connect(&listener);
        stranger.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n");
        stranger.leave();
    }
    for _ in 0..60 {
        Stranger::introduced(&listener).leave();
    }
    let log = listener.log();
    for line in ["cannot be read", "is connected"] {
        let count = log.matches(line).count();
        assert!((1..=10).contains(&count), "{line}: {count}\n{log}");
    }
}
