//! A client that shows what is on the wire, and waiting for what must come true.

use std::time::Duration;

use serde_json::Value;
use sim_engine::{Engine, EngineHandle, Options, Pace};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// How long anything here may take before the test fails.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) async fn engine(options: Options) -> EngineHandle {
    Engine::local(options).await.expect("a free port")
}

/// Slow enough that a request sent is still running when it is looked at.
pub(crate) fn slow() -> Options {
    let itl = Duration::from_secs(3600);
    Options {
        slots: 1,
        pace: Pace {
            itl,
            ..Pace::default()
        },
        ..Options::default()
    }
}

/// One connection to an engine.
pub(crate) struct Wire(TcpStream);

/// An answer as it was read.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    /// Decoded from chunks where it came in chunks.
    pub(crate) body: String,
    /// The body came to its proper end.
    pub(crate) whole: bool,
}

impl Wire {
    pub(crate) async fn to(engine: &EngineHandle) -> Self {
        Self(
            TcpStream::connect(engine.addr)
                .await
                .expect("the engine listens"),
        )
    }

    pub(crate) async fn send(&mut self, method: &str, path: &str, headers: &str, body: &str) {
        let len = body.len();
        let text = format!(
            "{method} {path} HTTP/1.1\r\nhost: t\r\ncontent-length: {len}\r\n{headers}\r\n{body}"
        );
        self.0
            .write_all(text.as_bytes())
            .await
            .expect("the engine reads");
    }

    /// Sends a text over a WebSocket, in a frame with the mask 0.
    pub(crate) async fn send_frame(&mut self, text: &str) {
        let len = u8::try_from(text.len()).expect("a short text");
        assert!(len < 126, "a short text");
        let frame = [&[0x81, 0x80 | len, 0, 0, 0, 0], text.as_bytes()].concat();
        self.0.write_all(&frame).await.expect("the engine reads");
    }

    /// Reads until this text has come, and returns everything read so far.
    pub(crate) async fn read_until(&mut self, text: &str) -> String {
        let mut read = Vec::new();
        while !String::from_utf8_lossy(&read).contains(text) {
            assert_ne!(
                self.read_some(&mut read).await,
                0,
                "closed before {text:?} came"
            );
        }
        // The heads of WebSocket frames are no text.
        String::from_utf8_lossy(&read).into_owned()
    }

    /// Reads to the end of an answer, or of the connection.
    pub(crate) async fn answer(&mut self) -> Option<Answer> {
        let mut read = Vec::new();
        loop {
            let text = String::from_utf8_lossy(&read).into_owned();
            if let Some(answer) = Answer::of(&text).filter(|answer| answer.whole) {
                return Some(answer);
            }
            if self.read_some(&mut read).await == 0 {
                return Answer::of(&text);
            }
        }
    }

    /// Waits until the engine closes the connection.
    pub(crate) async fn closed(&mut self) -> bool {
        self.read_some(&mut Vec::new()).await == 0
    }

    async fn read_some(&mut self, into: &mut Vec<u8>) -> usize {
        let mut buffer = [0; 16 * 1024];
        let reading = tokio::time::timeout(PATIENCE, self.0.read(&mut buffer)).await;
        // A reset is an end like any other here.
        let n = reading.expect("bytes or an end in time").unwrap_or(0);
        into.extend_from_slice(&buffer[..n]);
        n
    }
}

impl Answer {
    fn of(text: &str) -> Option<Self> {
        let (head, rest) = text.split_once("\r\n\r\n")?;
        let head = head.to_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let (body, whole) = match length {
            Some(length) => (rest.to_owned(), rest.len() >= length),
            None if status == 204 => (String::new(), true),
            None => dechunked(rest),
        };
        Some(Self {
            status,
            head,
            body,
            whole,
        })
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The `data:` of every event, in order; `[DONE]` as a text.
    pub(crate) fn data(&self) -> Vec<Value> {
        let lines = self
            .body
            .lines()
            .filter_map(|line| line.strip_prefix("data: "));
        lines
            .map(|data| serde_json::from_str(data).unwrap_or_else(|_| data.into()))
            .collect()
    }

    /// The names of the events, in order.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.body
            .lines()
            .filter_map(|line| line.strip_prefix("event: "))
            .collect()
    }
}

fn dechunked(mut rest: &str) -> (String, bool) {
    let mut body = String::new();
    while let Some((size, tail)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("a chunk size");
        let Some(chunk) = tail.get(..size) else { break };
        if size == 0 {
            return (body, true);
        }
        body.push_str(chunk);
        rest = tail.get(size + 2..).unwrap_or_default();
    }
    (body, false)
}

/// One request on a connection of its own.
pub(crate) async fn ask(
    engine: &EngineHandle,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> Answer {
    let mut wire = Wire::to(engine).await;
    wire.send(method, path, headers, body).await;
    wire.answer().await.expect("an answer")
}

pub(crate) async fn post(engine: &EngineHandle, path: &str, body: &Value) -> Answer {
    ask(engine, "POST", path, "", &body.to_string()).await
}

pub(crate) async fn get(engine: &EngineHandle, path: &str) -> Answer {
    ask(engine, "GET", path, "", "").await
}

/// Waits until this holds.
pub(crate) async fn until(what: &str, holds: impl Fn() -> bool) {
    let looking = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, looking)
        .await
        .unwrap_or_else(|_| panic!("never: {what}"));
}
