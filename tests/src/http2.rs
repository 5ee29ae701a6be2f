//! One HTTP/2 stream, frame by frame, so that a test sees what is on the wire. HTTP/2 clients drop
//! data that they have not delivered when a reset arrives.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::wait::within;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
/// A flag of DATA and HEADERS.
const END_STREAM: u8 = 1;
/// A flag of HEADERS.
const END_HEADERS: u8 = 4;

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// The stream ended with its last frame.
    Clean,
    /// The stream ended by `RST_STREAM`.
    Reset,
}

/// The only stream of a connection with prior knowledge.
#[derive(Debug)]
pub struct Stream {
    tcp: TcpStream,
    /// Body bytes so far.
    pub body: Vec<u8>,
}

impl Stream {
    /// Posts a body of at most one frame.
    ///
    /// # Panics
    ///
    /// When the port does not accept the connection.
    pub async fn post(address: SocketAddr, path: &str, body: &str) -> Self {
        let mut tcp = TcpStream::connect(address).await.expect("the port accepts");
        let mut head = Vec::new();
        for (name, value) in [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", "localhost"),
        ] {
            // A literal field without indexing. Lengths below 127 take one byte.
            head.push(0);
            for text in [name, value] {
                head.push(u8::try_from(text.len()).expect("names and values are short"));
                head.extend_from_slice(text.as_bytes());
            }
        }
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        bytes.extend(frame(SETTINGS, 0, 0, b""));
        bytes.extend(frame(HEADERS, END_HEADERS, 1, &head));
        bytes.extend(frame(DATA, END_STREAM, 1, body.as_bytes()));
        tcp.write_all(&bytes).await.expect("the port reads");
        Self {
            tcp,
            body: Vec::new(),
        }
    }

    async fn read(&mut self, into: &mut [u8]) {
        let read = self.tcp.read_exact(into).await;
        read.expect("the connection outlives its stream");
    }

    /// Reads one frame.
    async fn advance(&mut self) -> Option<StreamEnd> {
        let mut head = [0; 9];
        self.read(&mut head).await;
        let [a, b, c, kind, flags, ..] = head;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        let mut payload = vec![0; length];
        self.read(&mut payload).await;
        match kind {
            DATA => self.body.extend(payload),
            RESET => return Some(StreamEnd::Reset),
            HEADERS => {}
            _ => return None,
        }
        (flags & END_STREAM != 0).then_some(StreamEnd::Clean)
    }

    /// Reads until the body holds `text`.
    ///
    /// # Panics
    ///
    /// When the stream ends first.
    pub async fn body_until(&mut self, text: &str) {
        within("a piece of the stream", async {
            while !String::from_utf8_lossy(&self.body).contains(text) {
                assert_eq!(self.advance().await, None, "the stream ended");
            }
        })
        .await;
    }

    /// Reads to the stream's end.
    ///
    /// # Panics
    ///
    /// When the connection ends first.
    pub async fn end(&mut self) -> StreamEnd {
        within("the stream's end", async {
            loop {
                if let Some(end) = self.advance().await {
                    return end;
                }
            }
        })
        .await
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = u32::try_from(payload.len())
        .expect("a frame is short")
        .to_be_bytes();
    let mut bytes = vec![a, b, c, kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}
