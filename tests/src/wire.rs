//! An HTTP/1.1 client that hides nothing. It sends the given bytes and shows the bytes that come
//! back, chunk by chunk, as they arrive. It has no retry and no pool, and adds no headers of its
//! own.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::wait::within;

/// Buffer size of one read. The buffer is on the heap, because a buffer inside a future makes every
/// enclosing future as large.
pub(crate) const READ: usize = 64 * 1024;

/// Header lines in order of arrival, with names as written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(pub Vec<(String, String)>);

impl Headers {
    /// Parses the lines after the first one of a message head.
    ///
    /// # Panics
    ///
    /// On a line without a colon.
    pub fn parse<'a>(lines: impl Iterator<Item = &'a str>) -> Self {
        let pair = |line: &'a str| {
            let (name, value) = line
                .split_once(':')
                .unwrap_or_else(|| panic!("header line without a colon: {line:?}"));
            (name.to_owned(), value.trim().to_owned())
        };
        Self(lines.filter(|line| !line.is_empty()).map(pair).collect())
    }

    /// The first value of a header. The case of the name does not matter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// Every value of a header.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}

/// How a body is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Length(usize),
    Chunked,
    Close,
    Done,
}

/// How a body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// As its framing announced.
    Clean,
    /// The connection broke before the end.
    Broken,
}

/// The head of a response.
#[derive(Clone, Debug)]
pub struct Head {
    /// The status code.
    pub status: u16,
    /// The header lines.
    pub headers: Headers,
    /// The head as it came, without the blank line.
    pub raw: String,
}

/// A whole response.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// The header lines.
    pub headers: Headers,
    /// The body without its framing.
    pub body: Vec<u8>,
    /// How the body ended.
    pub end: End,
}

impl Reply {
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    ///
    /// # Panics
    ///
    /// When it is not JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("not JSON ({error}): {}", self.text()))
    }

    /// The first value of a header, or the empty string.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_default()
    }
}

/// One connection to a server.
pub struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
    framing: Framing,
}

impl Wire {
    /// Opens a connection.
    ///
    /// # Panics
    ///
    /// When the address does not accept the connection.
    pub async fn connect(address: SocketAddr) -> Self {
        let connected = within("a connection", TcpStream::connect(address)).await;
        let stream = connected.unwrap_or_else(|error| panic!("connect to {address}: {error}"));
        Self::over(stream)
    }

    /// Uses an existing connection.
    pub fn over(stream: TcpStream) -> Self {
        stream
            .set_nodelay(true)
            .expect("a TCP socket takes TCP_NODELAY");
        Self {
            stream,
            buffer: Vec::new(),
            framing: Framing::Done,
        }
    }

    /// Sends bytes as they are. A closed connection is not an error here, because tests look at
    /// what the peer sent before it closed.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _peer_may_be_gone =
            within("room in the socket", self.stream.write_all(bytes.as_ref())).await;
    }

    /// Sends a request with `host`, `content-length` (if it has a body) and the given headers.
    pub async fn request(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) {
        self.send(encode(method, target, headers, body)).await;
    }

    /// Reads more bytes into the buffer. Returns `false` when the connection ends, however it ends.
    async fn fill(&mut self) -> bool {
        self.buffer.reserve(READ);
        let read = self.stream.read_buf(&mut self.buffer);
        matches!(within("bytes from the server", read).await, Ok(n) if n > 0)
    }

    /// Reads the head of a response. `None` when the connection ends first.
    pub async fn try_head(&mut self, method: &str) -> Option<Head> {
        let end = loop {
            if let Some(at) = find(&self.buffer, b"\r\n\r\n") {
                break at;
            }
            if !self.fill().await {
                return None;
            }
        };
        let raw = String::from_utf8_lossy(&self.buffer[..end]).into_owned();
        self.buffer.drain(..end + 4);
        let mut lines = raw.split("\r\n");
        let first = lines.next().unwrap_or_default();
        let status = first.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status: u16 = status.unwrap_or_else(|| panic!("not a status line: {first:?}"));
        let headers = Headers::parse(lines);
        self.framing = framing(method, status, &headers);
        Some(Head {
            status,
            headers,
            raw,
        })
    }

    /// Reads the head of the final response to a request with `method`. Interim responses are
    /// skipped.
    ///
    /// # Panics
    ///
    /// When the connection ends first.
    pub async fn head(&mut self, method: &str) -> Head {
        loop {
            let head = self
                .try_head(method)
                .await
                .expect("a response before the connection ends");
            if head.status >= 200 {
                return head;
            }
        }
    }

    /// Reads the next piece of the body: one chunk of a chunked body, or whatever has arrived of
    /// any other. `Err(end)` after the end.
    ///
    /// # Errors
    ///
    /// [`End::Clean`] or [`End::Broken`].
    pub async fn piece(&mut self) -> Result<Vec<u8>, End> {
        loop {
            match self.framing {
                Framing::Done => return Err(End::Clean),
                Framing::Length(0) => self.framing = Framing::Done,
                Framing::Length(left) if !self.buffer.is_empty() => {
                    let taken: Vec<u8> = self.buffer.drain(..left.min(self.buffer.len())).collect();
                    self.framing = Framing::Length(left - taken.len());
                    return Ok(taken);
                }
                Framing::Close if !self.buffer.is_empty() => {
                    return Ok(std::mem::take(&mut self.buffer));
                }
                Framing::Chunked => {
                    if let Some(chunk) = self.buffered_chunk() {
                        return if chunk.is_empty() {
                            Err(End::Clean)
                        } else {
                            Ok(chunk)
                        };
                    }
                }
                Framing::Length(_) | Framing::Close => {}
            }
            if self.framing != Framing::Done && !self.fill().await {
                let end = if self.framing == Framing::Close {
                    End::Clean
                } else {
                    End::Broken
                };
                self.framing = Framing::Done;
                return Err(end);
            }
        }
    }

    /// Takes a complete chunk from the buffer. The empty chunk ends the body.
    fn buffered_chunk(&mut self) -> Option<Vec<u8>> {
        let line = find(&self.buffer, b"\r\n")?;
        let text = String::from_utf8_lossy(&self.buffer[..line]).into_owned();
        let size = text.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16)
            .unwrap_or_else(|_| panic!("not a chunk size: {text:?}"));
        let (start, end) = (line + 2, line + 2 + size);
        if self.buffer.len() < end + 2 {
            return None;
        }
        let chunk = self.buffer[start..end].to_vec();
        self.buffer.drain(..end + 2);
        if size == 0 {
            self.framing = Framing::Done;
        }
        Some(chunk)
    }

    /// Reads the rest of the body.
    pub async fn body(&mut self) -> (Vec<u8>, End) {
        let mut body = Vec::new();
        loop {
            match self.piece().await {
                Ok(piece) => body.extend_from_slice(&piece),
                Err(end) => return (body, end),
            }
        }
    }

    /// Reads a body until it contains `text`.
    ///
    /// # Panics
    ///
    /// When the body ends first.
    pub async fn body_until(&mut self, text: &str) -> Vec<u8> {
        let mut body = Vec::new();
        while find(&body, text.as_bytes()).is_none() {
            match self.piece().await {
                Ok(piece) => body.extend_from_slice(&piece),
                Err(end) => panic!(
                    "the body ended ({end:?}) without {text:?}: {:?}",
                    String::from_utf8_lossy(&body)
                ),
            }
        }
        body
    }

    /// Reads a whole response.
    pub async fn reply(&mut self, method: &str) -> Reply {
        let head = self.head(method).await;
        let (body, end) = self.body().await;
        Reply {
            status: head.status,
            headers: head.headers,
            body,
            end,
        }
    }

    /// Waits until the server sends more or closes. Returns `true` when it closed without sending
    /// more.
    pub async fn is_closed_by_server(&mut self) -> bool {
        self.buffer.is_empty() && !self.fill().await
    }

    /// Closes with a reset, as a crashing client does.
    pub fn reset(self) {
        reset(self.stream);
    }
}

/// Closes a connection with RST.
pub fn reset(stream: TcpStream) {
    let Ok(stream) = stream.into_std() else {
        return;
    };
    let socket = socket2::Socket::from(stream);
    let _best_effort = socket.set_linger(Some(std::time::Duration::ZERO));
}

/// The bytes of a normal request.
pub fn encode(method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{method} {target} HTTP/1.1\r\n").into_bytes();
    if !headers
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case("host"))
    {
        bytes.extend_from_slice(b"host: localhost\r\n");
    }
    for (name, value) in headers {
        bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    if !body.is_empty() || method == "POST" {
        bytes.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(body);
    bytes
}

/// Sends one request on a new connection.
pub async fn call(
    address: SocketAddr,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: impl AsRef<[u8]>,
) -> Reply {
    let mut wire = Wire::connect(address).await;
    wire.request(method, target, headers, body.as_ref()).await;
    wire.reply(method).await
}

/// Sends exact bytes on a new connection. Reads until the server closes or one response is
/// complete.
///
/// # Errors
///
/// When the connection cannot be made.
pub async fn exchange(address: SocketAddr, bytes: &[u8]) -> io::Result<Option<Head>> {
    let mut wire = Wire::over(TcpStream::connect(address).await?);
    wire.send(bytes).await;
    Ok(wire.try_head("POST").await)
}

fn framing(method: &str, status: u16, headers: &Headers) -> Framing {
    if method == "HEAD" || status < 200 || status == 204 || status == 304 {
        return Framing::Done;
    }
    let chunked = headers
        .get("transfer-encoding")
        .is_some_and(|value| value.eq_ignore_ascii_case("chunked"));
    match headers.get("content-length").map(str::parse) {
        _ if chunked => Framing::Chunked,
        Some(Ok(length)) => Framing::Length(length),
        _ => Framing::Close,
    }
}

/// The position where `needle` begins in `hay`.
pub fn find(hay: &[u8], needle: &[u8]) -> Option<usize> {
    hay.windows(needle.len())
        .position(|window| window == needle)
}
