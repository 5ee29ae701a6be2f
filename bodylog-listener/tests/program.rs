//! Tests of the program itself, killed and started again.

#![expect(
    clippy::unwrap_used,
    reason = "a test helper that fails has found the failure"
)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use proto::codec::{Codec, Decoded, encode};
use proto::control::Hello;
use proto::frame::{Compression, Data, Flags, Frame, Protocol};
use rustix::process::{Pid, Signal, kill_process};
use tokio_util::codec::Decoder;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bodylog-listener");
/// Timeout for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

fn command(dir: &Path) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .env_clear()
        .arg("--dir")
        .arg(dir)
        .args([
            "--listen",
            "127.0.0.1:0",
            "--http-listen",
            "127.0.0.1:0",
            "--min-free",
            "0%",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

struct Listener {
    child: Child,
    frames: SocketAddr,
}

impl Listener {
    fn start(dir: &Path) -> Self {
        Self::start_as(&mut command(dir))
    }

    fn start_as(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        let frames = line
            .split_whitespace()
            .find_map(|word| word.strip_prefix("tcp://"))
            .unwrap_or_else(|| panic!("no ready line: {line:?}"));
        Self {
            frames: frames.parse().unwrap(),
            child,
        }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn terminate(mut self) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

struct Sender {
    stream: TcpStream,
    buffer: BytesMut,
    codec: Codec,
}

impl Sender {
    /// Connects and sends the HELLO. Returns what the listener has stored.
    fn connect(address: SocketAddr) -> (Self, u64) {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut sender = Self {
            stream,
            buffer: BytesMut::new(),
            codec: Codec::default(),
        };
        let hello = Hello {
            proto: vec![2],
            producer: "p".into(),
            epoch: 1,
            next_seq: 1,
            codecs: vec![],
            max_frame: 0,
            token: None,
            router: String::new(),
            version: String::new(),
        };
        assert!(sender.send(&Frame::Hello(hello)));
        match sender.next() {
            Some(Frame::Welcome(welcome)) => (sender, welcome.last_durable_seq),
            other => panic!("{other:?}"),
        }
    }

    fn send(&mut self, frame: &Frame) -> bool {
        let mut out = BytesMut::new();
        encode(frame, Compression::None, &mut out).unwrap();
        self.stream.write_all(&out).is_ok()
    }

    fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(Decoded::Frame(frame)) = self.codec.decode(&mut self.buffer).unwrap() {
                return Some(frame);
            }
            let mut piece = [0; 4096];
            match self.stream.read(&mut piece) {
                Ok(0) | Err(_) => return None,
                Ok(n) => self.buffer.extend_from_slice(&piece[..n]),
            }
        }
    }
}

fn data(seq: u64) -> Frame {
    Frame::Data(Data {
        protocol: Protocol::V2,
        seq,
        flags: Flags::default(),
        meta: Bytes::from(format!(r#"{{"v":2,"request_id":"r{seq}","status":200}}"#)),
        req: Bytes::from(vec![b'q'; 1 + (seq as usize * 7919) % 40_000]),
        resp: Bytes::from_static(br#"{"choices":[{"message":{"content":"Hi"}}]}"#),
    })
}

/// How often each sequence is stored, and how many lines are not records.
fn stored(dir: &Path) -> (BTreeMap<u64, u32>, u32) {
    let mut counts = BTreeMap::new();
    let mut torn = 0;
    let days = std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .map(|day| day.unwrap().path());
    for day in days.filter(|day| day.is_dir()) {
        for file in std::fs::read_dir(day)
            .unwrap()
            .map(|file| file.unwrap().path())
        {
            if file
                .extension()
                .is_none_or(|extension| extension != "jsonl")
            {
                continue;
            }
            for line in std::fs::read_to_string(file).unwrap().lines() {
                match serde_json::from_str::<serde_json::Value>(line) {
                    Ok(line) => *counts.entry(line["seq"].as_u64().unwrap()).or_default() += 1,
                    Err(_) => torn += 1,
                }
            }
        }
    }
    (counts, torn)
}

#[test]
fn killed_at_any_point_it_has_every_acknowledged_record_exactly_once() {
    const ROUNDS: u64 = 12;
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("log");
    let mut acked = 0;
    for round in 0..ROUNDS {
        let listener = Listener::start(&dir);
        let (mut sender, durable) = Sender::connect(listener.frames);
        assert!(
            durable >= acked,
            "{acked} was acknowledged, {durable} is stored"
        );
        // Kill the listener after this many acknowledgements, while as many frames are in flight.
        let until = durable + 1 + (round * 37) % 90;
        let mut next = durable + 1;
        while acked < until {
            while next < acked.max(durable) + 100 {
                assert!(sender.send(&data(next)));
                next += 1;
            }
            match sender.next() {
                Some(Frame::Ack(seq)) => acked = seq,
                other => panic!("{other:?}"),
            }
        }
        if round + 1 < ROUNDS {
            listener.kill();
        } else {
            listener.terminate();
        }
    }
    let dirs = [dir.clone(), dir.join("details")];
    for dir in dirs {
        let (counts, torn) = stored(&dir);
        for seq in 1..=acked {
            assert_eq!(
                counts.get(&seq),
                Some(&1),
                "sequence {seq} in {}",
                dir.display()
            );
        }
        assert!(counts.values().all(|count| *count == 1));
        assert!(u64::from(torn) <= ROUNDS, "{torn} lines are no records");
    }
}

#[test]
fn hours_are_utc_whatever_the_zone_of_the_machine() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("log");
    let now = || proto::layout::Hour::of(chrono::Utc::now());
    let before = now();
    // A time zone 14 hours ahead, in the form that needs no database.
    let listener = Listener::start_as(command(&dir).env("TZ", "XXX-14"));
    let (mut sender, _) = Sender::connect(listener.frames);
    assert!(sender.send(&data(1)));
    assert!(matches!(sender.next(), Some(Frame::Ack(1))));
    let expected = [before.plain(), now().plain()];
    assert!(
        expected.iter().any(|hour| dir.join(hour).is_file()),
        "none of {expected:?} in {}",
        dir.display()
    );
    listener.terminate();
}

fn refused(command: &mut Command) -> (i32, String) {
    let Output { status, stderr, .. } = command.output().unwrap();
    (status.code().unwrap(), String::from_utf8(stderr).unwrap())
}

#[test]
fn a_start_that_cannot_be_is_explained() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("log");
    let running = Listener::start(&dir);
    let (code, text) = refused(&mut command(&dir));
    assert_eq!(code, 1);
    assert!(
        text.contains("another bodylog-listener is at work there"),
        "{text}"
    );
    running.terminate();

    std::fs::write(home.path().join("file"), "").unwrap();
    let (code, text) = refused(&mut command(&home.path().join("file/log")));
    assert_eq!(code, 1);
    assert!(text.contains("bodylog-listener: failed to use "), "{text}");

    let (code, text) = refused(
        command(&dir)
            .arg("--token-file")
            .arg(home.path().join("none")),
    );
    assert_eq!(code, 1);
    assert!(text.contains("cannot read the token file"), "{text}");

    for wrong in [
        ["--keep-days", "0"],
        ["--min-free", "much"],
        ["--memory", "1m"],
        ["--allow", "somebody"],
        ["--tls-cert", "cert.pem"],
    ] {
        let (code, text) = refused(command(&dir).args(wrong));
        assert_eq!(code, 2, "{text}");
    }
}

#[path = "../fuzz/check.rs"]
mod check;

#[test]
fn the_corpus_of_the_fuzzer_passes_its_check() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/record");
    let mut seen = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        check::record(&std::fs::read(entry.unwrap().path()).unwrap());
        seen += 1;
    }
    assert!(seen >= 20, "{seen} files in {corpus}");
}
