//! The listener under test, and a sender that the test controls.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use chrono::{DateTime, Utc};
use parking_lot::Mutex;
use proto::codec::{Codec, Decoded, encode};
use proto::control::{Hello, Welcome};
use proto::frame::{Compression, Data, Flags, Frame, Outgoing, Protocol, encode_v1};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use tokio_util::codec::Decoder;

use super::disk::Faults;
use crate::config::Config;
use crate::run::{Listeners, Outside, StartError, run_with};
use crate::space::Room;
use crate::stream::Output;
use crate::{WallClock, lines};

/// Timeout of every step.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// A clock that changes only when the test sets it.
#[derive(Clone)]
pub(super) struct Hands(Arc<Mutex<DateTime<Utc>>>);

impl Hands {
    pub(super) fn at(text: &str) -> Self {
        Self(Arc::new(Mutex::new(text.parse().unwrap())))
    }

    pub(super) fn set(&self, text: &str) {
        *self.0.lock() = text.parse().unwrap();
    }

    fn clock(&self) -> WallClock {
        let hands = self.clone();
        WallClock::new(move || *hands.0.lock())
    }
}

/// The state of a listener that survives restarts.
pub(super) struct Home {
    pub(super) dir: tempfile::TempDir,
    pub(super) hands: Hands,
    pub(super) faults: Faults,
    pub(super) room: Arc<Mutex<Room>>,
    pub(super) config: Config,
}

impl Home {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = Config::new(dir.path().join("log"));
        Self {
            dir,
            hands: Hands::at("2026-01-02T10:30:00Z"),
            faults: Faults::default(),
            room: Arc::new(Mutex::new(Room {
                free: 500,
                total: 1000,
            })),
            config,
        }
    }

    pub(super) fn root(&self) -> &Path {
        &self.config.dir
    }

    pub(super) async fn start(&self) -> Running {
        self.try_start()
            .await
            .unwrap_or_else(|error| panic!("{error}"))
    }

    pub(super) async fn try_start(&self) -> Result<Running, StartError> {
        let bind = || async { TcpListener::bind("127.0.0.1:0").await.unwrap() };
        let listeners = Listeners {
            frames: bind().await,
            http: Some(bind().await),
        };
        let frames = listeners.frames.local_addr().unwrap();
        let http = listeners.http.as_ref().unwrap().local_addr().unwrap();
        let faults = self.faults.clone();
        let room = Arc::clone(&self.room);
        let outside = Outside {
            clock: self.hands.clock(),
            storage: Box::new(move |output| Box::new(faults.storage(output))),
            ask_room: Arc::new(move || Ok(*room.lock())),
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let (is_ready, ready) = oneshot::channel();
        let config = self.config.clone();
        // Each test owns its listener in one task and stops it.
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(async move {
            let shutdown = async {
                let _ = stopped.await;
            };
            run_with(config, outside, listeners, shutdown, || {
                let _ = is_ready.send(());
            })
            .await
        });
        tokio::select! {
            Ok(()) = ready => {}
            ended = tasks.join_next() => return Err(ended.unwrap().unwrap().unwrap_err()),
        }
        Ok(Running {
            frames,
            http,
            stop: Some(stop),
            tasks,
        })
    }

    pub(super) fn files(&self, output: Output) -> Vec<PathBuf> {
        let dir = crate::ledger::dir_of(self.root(), output);
        lines::hour_files(&dir)
            .unwrap()
            .into_iter()
            .map(|file| file.path)
            .collect()
    }

    /// All stored lines of an output, by file name below the root.
    pub(super) fn stored(&self, output: Output) -> BTreeMap<String, Vec<Value>> {
        self.files(output)
            .into_iter()
            .map(|path| {
                let mut lines = Vec::new();
                lines::each_line(&mut *lines::open(&path).unwrap(), 0, |line| {
                    lines.push(serde_json::from_slice(line).unwrap_or(Value::Null));
                    lines::Continue::Yes
                })
                .unwrap();
                let name = path
                    .strip_prefix(self.root())
                    .unwrap()
                    .display()
                    .to_string();
                (name, lines)
            })
            .collect()
    }

    /// The sequences of all stored lines, in the order of the files.
    pub(super) fn seqs(&self, output: Output) -> Vec<u64> {
        self.stored(output)
            .into_values()
            .flatten()
            .filter_map(|line| line["seq"].as_u64())
            .collect()
    }
}

pub(super) struct Running {
    pub(super) frames: SocketAddr,
    pub(super) http: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    tasks: tokio::task::JoinSet<Result<(), StartError>>,
}

impl Running {
    /// Shuts the listener down gracefully.
    pub(super) async fn stop(mut self) {
        drop(self.stop.take());
        let ended = tokio::time::timeout(PATIENCE, self.tasks.join_next()).await;
        ended
            .expect("the listener stops")
            .unwrap()
            .unwrap()
            .unwrap();
    }

    pub(super) async fn connect(&self) -> Wire {
        Wire::new(TcpStream::connect(self.frames).await.unwrap())
    }

    /// A sender that has its WELCOME.
    pub(super) async fn sender(&self, producer: &str, epoch: u64, next_seq: u64) -> Wire {
        let mut wire = self.connect().await;
        wire.send(&Frame::Hello(hello(producer, epoch, next_seq)))
            .await;
        let welcome = wire.welcome().await;
        wire.durable = welcome.last_durable_seq;
        wire
    }

    /// The status and body of an HTTP response.
    pub(super) async fn get(&self, path: &str, headers: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.http).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nconnection: close\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let body = answer.split_once("\r\n\r\n").unwrap().1.to_owned();
        (status, body)
    }

    pub(super) async fn local(&self, path: &str) -> (u16, String) {
        self.get(path, "host: localhost\r\n").await
    }

    /// The value of a series on the metrics page.
    pub(super) async fn metric(&self, series: &str) -> f64 {
        let (_, page) = self.local("/metrics").await;
        page.lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
            .unwrap_or_else(|| panic!("no {series} in\n{page}"))
    }

    pub(super) async fn metric_becomes(&self, series: &str, value: f64) {
        eventually(series, async || self.metric(series).await == value).await;
    }
}

/// Waits until a condition holds.
pub(super) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(waited.await.is_ok(), "never: {what}");
}

pub(super) fn hello(producer: &str, epoch: u64, next_seq: u64) -> Hello {
    Hello {
        proto: vec![2],
        producer: producer.into(),
        epoch,
        next_seq,
        codecs: vec!["gzip".into()],
        max_frame: 0,
        token: None,
        router: "test".into(),
        version: String::new(),
    }
}

/// Frame `seq` of a sender.
pub(super) fn data(seq: u64) -> Data {
    with_meta(
        seq,
        &format!(r#"{{"v":2,"request_id":"r{seq}","status":200}}"#),
    )
}

pub(super) fn with_meta(seq: u64, meta: &str) -> Data {
    Data {
        protocol: Protocol::V2,
        seq,
        flags: Flags::default(),
        meta: Bytes::copy_from_slice(meta.as_bytes()),
        req: Bytes::from_static(br#"{"model":"m"}"#),
        resp: Bytes::from_static(
            br#"{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}"#,
        ),
    }
}

pub(super) fn bytes_of(frame: &Frame) -> Vec<u8> {
    let mut out = BytesMut::new();
    encode(frame, Compression::None, &mut out).unwrap();
    out.to_vec()
}

pub(super) fn v1(meta: &str, resp: &[u8]) -> Vec<u8> {
    let mut out = BytesMut::new();
    encode_v1(meta.as_bytes(), b"", resp, &mut out).unwrap();
    out.to_vec()
}

/// A compressed frame.
pub(super) fn packed(data: &Data) -> Vec<u8> {
    let mut out = BytesMut::new();
    Outgoing {
        seq: data.seq,
        flags: data.flags,
        meta: &data.meta,
        req: std::slice::from_ref(&data.req),
        resp: std::slice::from_ref(&data.resp),
    }
    .encode(Compression::Gzip, &mut out)
    .unwrap();
    out.to_vec()
}

/// A connection to the listener.
pub(super) struct Wire {
    pub(super) stream: TcpStream,
    buffer: BytesMut,
    codec: Codec,
    /// The WELCOME it received.
    pub(super) durable: u64,
}

impl Wire {
    fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            buffer: BytesMut::new(),
            codec: Codec::default(),
            durable: 0,
        }
    }

    pub(super) async fn raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    pub(super) async fn send(&mut self, frame: &Frame) {
        self.raw(&bytes_of(frame)).await;
    }

    pub(super) async fn data(&mut self, seqs: impl IntoIterator<Item = u64>) {
        for seq in seqs {
            self.send(&Frame::Data(data(seq))).await;
        }
    }

    /// The next frame; `None` if the listener has closed the connection.
    pub(super) async fn next(&mut self) -> Option<Frame> {
        let next = async {
            loop {
                match self.codec.decode(&mut self.buffer).unwrap() {
                    Some(Decoded::Frame(frame)) => return Some(frame),
                    Some(Decoded::Bad(bad)) => panic!("{bad:?}"),
                    None => {}
                }
                match self.stream.read_buf(&mut self.buffer).await {
                    Ok(0) | Err(_) => return None,
                    Ok(_) => {}
                }
            }
        };
        tokio::time::timeout(PATIENCE, next)
            .await
            .expect("an answer")
    }

    pub(super) async fn welcome(&mut self) -> Welcome {
        match self.next().await {
            Some(Frame::Welcome(welcome)) => welcome,
            other => panic!("{other:?}"),
        }
    }

    /// Reads acknowledgements until one covers `seq`.
    pub(super) async fn acked(&mut self, seq: u64) {
        loop {
            match self.next().await {
                Some(Frame::Ack(acked)) if acked >= seq => return assert_eq!(acked, seq),
                Some(Frame::Ack(_)) => {}
                other => panic!("{other:?} instead of ACK {seq}"),
            }
        }
    }
}
