//! Finds where each HTTP/1 request begins and ends in the bytes of a connection, and counts what
//! its head says about the length of its body.
//!
//! hyper resolves a head with both `Content-Length` and `Transfer-Encoding`, or with the same
//! length twice, safely but silently: the extra header is gone when a handler runs. A server must
//! refuse such a message, because a proxy in front of it may have read it the other way (RFC 9112,
//! section 6.3). Bytes of one request at a time are passed on, so the head of a pipelined request is
//! counted as well.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use memchr::memchr;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The headers about the body's length, in the head of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Framing {
    /// Number of `Content-Length` lines.
    pub lengths: u8,
    /// Number of `Transfer-Encoding` lines.
    pub encodings: u8,
}

impl Framing {
    /// Whether the head states the length more than once. Another hop may follow the other
    /// statement.
    pub fn is_ambiguous(self) -> bool {
        usize::from(self.lengths) + usize::from(self.encodings) > 1
    }
}

const LENGTH: &[u8] = b"content-length:";
const ENCODING: &[u8] = b"transfer-encoding:";

/// Bytes of a line that are kept across reads: the longest name, its colon, and room for a length
/// of 64 bits or the word `chunked`.
const KEPT_MAX: usize = ENCODING.len() + 24;

/// What the next bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Head,
    /// So many bytes of a body.
    Body(u64),
    /// The line with the size of a chunk.
    ChunkSize,
    /// So many bytes of a chunk and of its line end.
    Chunk(u64),
    /// Lines after the last chunk.
    Trailers,
    /// Not to be told: whoever parses the request refuses it, or it is not HTTP/1.
    Rest,
}

/// Follows the requests of one connection, across reads.
#[derive(Debug)]
pub struct Requests {
    part: Part,
    /// The first bytes of a line that earlier reads began.
    line: Vec<u8>,
    /// Lines of the current head so far.
    lines: usize,
    framing: Framing,
    /// What the current head said last.
    length: Option<u64>,
    is_chunked: bool,
    is_http2: bool,
}

impl Default for Requests {
    fn default() -> Self {
        Self {
            part: Part::Head,
            line: Vec::new(),
            lines: 0,
            framing: Framing::default(),
            length: None,
            is_chunked: false,
            is_http2: false,
        }
    }
}

/// What [`Requests::feed`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fed {
    /// Bytes up to the end of the current request, at least one; all of them when it goes on.
    pub end: usize,
    /// The head's framing, when the head ended within these bytes.
    pub head: Option<Framing>,
}

impl Requests {
    /// Takes bytes up to the end of the current request; the rest belongs to the next one.
    pub fn feed(&mut self, bytes: &[u8]) -> Fed {
        let mut at = 0;
        let mut head = None;
        while at < bytes.len() {
            let rest = &bytes[at..];
            match self.part {
                Part::Rest => at = bytes.len(),
                Part::Body(left) | Part::Chunk(left) => {
                    let taken = left.min(rest.len() as u64);
                    at += taken as usize;
                    let left = left - taken;
                    self.part = match (self.part, left) {
                        (Part::Body(_), 0) => {
                            self.part = Part::Head;
                            break;
                        }
                        (Part::Body(_), left) => Part::Body(left),
                        (_, 0) => Part::ChunkSize,
                        (_, left) => Part::Chunk(left),
                    };
                }
                Part::Head | Part::ChunkSize | Part::Trailers => {
                    let Some(end) = memchr(b'\n', rest) else {
                        self.keep(rest);
                        at = bytes.len();
                        break;
                    };
                    at += end + 1;
                    let has_ended = if self.line.is_empty() {
                        self.end_line(&rest[..=end], &mut head)
                    } else {
                        self.keep(&rest[..=end]);
                        let line = std::mem::take(&mut self.line);
                        self.end_line(&line, &mut head)
                    };
                    if has_ended {
                        break;
                    }
                }
            }
        }
        Fed { end: at, head }
    }

    /// Whether a part of a head was read, and not its end.
    pub fn is_in_head(&self) -> bool {
        self.part == Part::Head && !self.is_http2 && (self.lines > 0 || !self.line.is_empty())
    }

    /// Whether the connection speaks HTTP/2, which has its own framing.
    pub fn is_http2(&self) -> bool {
        self.is_http2
    }

    /// Keeps the beginning of a line that continues in the next read.
    fn keep(&mut self, bytes: &[u8]) {
        let room = KEPT_MAX - self.line.len();
        self.line.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// Takes a line, or its first bytes. Returns whether it ends the request.
    fn end_line(&mut self, line: &[u8], head: &mut Option<Framing>) -> bool {
        let is_blank = matches!(line, b"\r\n" | b"\n");
        match self.part {
            Part::ChunkSize => {
                self.part = match chunk_size(line) {
                    Some(0) => Part::Trailers,
                    // With the line end behind it.
                    Some(size) => Part::Chunk(size.saturating_add(2)),
                    None => Part::Rest,
                };
                false
            }
            Part::Trailers if is_blank => {
                self.part = Part::Head;
                true
            }
            Part::Head if is_blank && self.lines > 0 => {
                *head = Some(self.framing);
                self.end_head()
            }
            Part::Head if !is_blank => {
                self.count(line);
                false
            }
            _ => false,
        }
    }

    fn count(&mut self, line: &[u8]) {
        self.lines += 1;
        if let Some(value) = value_of(line, LENGTH) {
            self.framing.lengths = self.framing.lengths.saturating_add(1);
            self.length = std::str::from_utf8(value)
                .ok()
                .and_then(|value| value.parse().ok());
        } else if let Some(value) = value_of(line, ENCODING) {
            self.framing.encodings = self.framing.encodings.saturating_add(1);
            self.is_chunked = value.eq_ignore_ascii_case(b"chunked");
        } else if self.lines == 1 && line.starts_with(b"PRI * HTTP/2.0") {
            self.is_http2 = true;
            self.part = Part::Rest;
        }
    }

    /// Returns whether the request has no body.
    fn end_head(&mut self) -> bool {
        let framing = std::mem::take(&mut self.framing);
        let (length, is_chunked) = (self.length.take(), std::mem::take(&mut self.is_chunked));
        self.lines = 0;
        self.part = match (framing.lengths, framing.encodings) {
            (0, 0) => Part::Head,
            (1, 0) => match length {
                Some(0) => Part::Head,
                Some(length) => Part::Body(length),
                None => Part::Rest,
            },
            (0, 1) if is_chunked => Part::ChunkSize,
            _ => Part::Rest,
        };
        self.part == Part::Head
    }
}

/// The value of a header line with this name and colon.
fn value_of<'l>(line: &'l [u8], name: &[u8]) -> Option<&'l [u8]> {
    let (start, value) = line.split_at_checked(name.len())?;
    start.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
}

/// The size of a chunk; `None` where none can be read.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line
        .iter()
        .take_while(|byte| byte.is_ascii_hexdigit())
        .count();
    let digits = std::str::from_utf8(&line[..digits]).ok()?;
    u64::from_str_radix(digits, 16).ok()
}

/// What stands for an ambiguous head: no parser takes it, and each answers 400.
pub const INVALID: &[u8] = b"\0\r\n\r\n";

/// A stream that passes on one request at a time, and an invalid head in place of an ambiguous one.
#[derive(Debug)]
pub struct Checked<S> {
    stream: S,
    requests: Requests,
    /// Bytes of later requests.
    held: BytesMut,
    is_refused: bool,
}

impl<S> Checked<S> {
    /// A fresh connection.
    pub fn new(stream: S) -> Self {
        Self {
            stream,
            requests: Requests::default(),
            held: BytesMut::new(),
            is_refused: false,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Checked<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        if this.is_refused {
            // Whatever comes is read, so that the close does not reset the answer away.
            let mut lost = [0; 4096];
            let mut lost = ReadBuf::new(&mut lost);
            return Pin::new(&mut this.stream).poll_read(cx, &mut lost);
        }
        let fed = if this.held.is_empty() {
            ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
            let fed = this.requests.feed(&buf.filled()[before..]);
            this.held
                .extend_from_slice(&buf.filled()[before + fed.end..]);
            buf.set_filled(before + fed.end);
            fed
        } else {
            let room = this.held.len().min(buf.remaining());
            let fed = this.requests.feed(&this.held[..room]);
            buf.put_slice(&this.held[..fed.end]);
            this.held.advance(fed.end);
            fed
        };
        if fed.head.is_some_and(Framing::is_ambiguous) && buf.capacity() - before >= INVALID.len() {
            this.is_refused = true;
            this.held.clear();
            buf.set_filled(before);
            buf.put_slice(INVALID);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Checked<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const REQUESTS: [&[u8]; 6] = [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nX-Content-Length: 9\r\n\r\nab\r\nc",
        b"POST /v1/x HTTP/1.1\r\ncontent-length:0\r\n\r\n",
        b"POST /v1/x HTTP/1.1\r\nTRANSFER-encoding: Chunked\r\n\r\n4;x=y\r\n\r\n\r\n\r\nA\r\n0123456789\r\n0\r\nx: y\r\n\r\n",
        b"GET / HTTP/1.1\nHost: a\n\n",
        b"\r\nDELETE /x HTTP/1.1\r\nHost: a\r\n\r\n",
    ];

    /// Where requests end, and what their heads said, with `bytes` split before `at`.
    fn ends(bytes: &[u8], at: usize) -> (Vec<usize>, Vec<Framing>) {
        let (mut requests, mut seen) = (Requests::default(), 0);
        let (mut ends, mut heads) = (Vec::new(), Vec::new());
        for mut part in [&bytes[..at], &bytes[at..]] {
            while !part.is_empty() {
                let fed = requests.feed(part);
                assert!(fed.end > 0);
                seen += fed.end;
                part = &part[fed.end..];
                heads.extend(fed.head);
                if requests.part == Part::Head && !requests.is_in_head() {
                    ends.push(seen);
                }
            }
        }
        (ends, heads)
    }

    #[test]
    fn each_request_ends_where_it_ends_however_the_bytes_are_split() {
        let bytes = REQUESTS.concat();
        let mut expected = Vec::new();
        for request in REQUESTS {
            expected.push(expected.last().unwrap_or(&0) + request.len());
        }
        for at in 0..bytes.len() {
            let (ends, heads) = ends(&bytes, at);
            // A split right behind a blank line between two requests may look like one more end.
            let ends: Vec<_> = ends
                .into_iter()
                .filter(|end| expected.contains(end))
                .collect();
            assert_eq!(ends, expected, "split at {at}");
            assert_eq!(heads.len(), REQUESTS.len(), "split at {at}");
            assert!(!heads.iter().any(|head| head.is_ambiguous()));
        }
    }

    #[test]
    fn two_statements_of_one_length_are_ambiguous_wherever_their_request_stands() {
        for lines in [
            "content-length: 3\r\ntransfer-encoding: chunked",
            "content-length: 3\r\nContent-Length: 3",
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked",
        ] {
            let bytes = [
                REQUESTS[3],
                format!("POST / HTTP/1.1\r\nhost: a\r\n{lines}\r\n\r\nabc").as_bytes(),
            ]
            .concat();
            for at in 0..bytes.len() {
                let (_, heads) = ends(&bytes, at);
                let seen: Vec<_> = heads.iter().map(|head| head.is_ambiguous()).collect();
                assert_eq!(seen, [false, true], "{lines} split at {at}");
            }
        }
    }

    #[test]
    fn http2_and_what_cannot_be_read_are_passed_on_whole() {
        for start in [
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n",
            "POST / HTTP/1.1\r\ntransfer-encoding: gzip\r\n\r\n",
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        ] {
            let mut requests = Requests::default();
            requests.feed(start.as_bytes());
            let more = REQUESTS.concat();
            assert_eq!(
                requests.feed(&more),
                Fed {
                    end: more.len(),
                    head: None
                },
                "{start}"
            );
            assert_eq!(requests.is_http2(), start.starts_with("PRI"));
        }
    }

    #[tokio::test]
    async fn a_reader_gets_one_request_at_a_time_and_an_invalid_head_for_an_ambiguous_one() {
        let ambiguous = b"POST / HTTP/1.1\r\ncontent-length: 3\r\ncontent-length: 3\r\n\r\nabc";
        let (mut client, server) = tokio::io::duplex(4096);
        let sent = [REQUESTS[0], REQUESTS[1], ambiguous].concat();
        client.write_all(&sent).await.unwrap();
        let mut checked = Checked::new(server);
        for expected in [REQUESTS[0], REQUESTS[1], INVALID] {
            let mut read = [0; 4096];
            let count = checked.read(&mut read).await.unwrap();
            assert_eq!(&read[..count], expected);
        }
    }
}
