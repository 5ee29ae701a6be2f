//! Inspects each request's raw head before hyper reads it.
//!
//! hyper resolves a head with both `Content-Length` and `Transfer-Encoding`, or with the same
//! length twice, safely but silently: the extra header is gone when the handler runs. A proxy must
//! refuse such a message, because the proxy in front of it may have read it the other way. So this
//! module counts the header lines about the length and parses nothing else.
//!
//! It counts only a head at the beginning of a read: with pipelining, later heads are not seen.
//! hyper still reads those safely; they are merely not refused.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use futures_util::task::AtomicWaker;
use memchr::memchr;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::first_byte_timeout::FirstByteTimeout;
use super::limits::Framing;
use super::lingering_close::LingeringClose;
use super::unparsed::{self, Rewrite};
use super::write_timeout::{WriteBounds, WriteTimeout};

/// State shared by the connection and its handler.
#[derive(Debug)]
pub struct HeadWatch {
    /// The next bytes belong to a head.
    expecting: AtomicBool,
    /// The framing of the last head: the number of lengths in the high byte, of encodings in the
    /// low byte.
    framing: AtomicU16,
    /// Body bytes of the current request are still to come.
    unread: AtomicBool,
    /// Number of times that all written bytes have reached the socket.
    flushes: AtomicU32,
    /// The task to wake at the next flush: a response with enough unflushed bytes.
    flushed: AtomicWaker,
    /// HTTP/2: several responses share the connection.
    is_shared: AtomicBool,
    /// How long a blocked write may last.
    writes: WriteBounds,
    /// The connection ends with a reset.
    resets: AtomicBool,
}

impl Default for HeadWatch {
    fn default() -> Self {
        Self {
            expecting: AtomicBool::new(true),
            framing: AtomicU16::new(0),
            unread: AtomicBool::new(false),
            flushes: AtomicU32::new(0),
            flushed: AtomicWaker::new(),
            is_shared: AtomicBool::new(false),
            writes: WriteBounds::new(),
            resets: AtomicBool::new(false),
        }
    }
}

impl HeadWatch {
    /// The framing of the request whose head was just read. The argument says whether a body
    /// follows.
    pub fn take(&self, has_body: bool) -> Framing {
        self.unread.store(has_body, Ordering::Release);
        self.writes.clear();
        let [lengths, encodings] = self.framing.swap(0, Ordering::AcqRel).to_be_bytes();
        Framing { lengths, encodings }
    }

    /// The current request has been read to its end.
    pub fn body_was_read(&self) {
        self.unread.store(false, Ordering::Release);
    }

    /// Limits the time for writing the current response, because the client may not read.
    pub fn bound_writes(&self, idle: Duration, deadline: Option<Instant>) {
        self.writes.set(idle, deadline);
    }

    /// Makes the connection end with a reset when it is dropped.
    pub fn reset(&self) {
        self.resets.store(true, Ordering::Release);
    }

    /// A count that grows each time all bytes written so far have reached the socket.
    pub fn flushes(&self) -> u32 {
        self.flushes.load(Ordering::Acquire)
    }

    /// All bytes written so far have reached the socket.
    pub(super) fn count_flush(&self) {
        self.flushes.fetch_add(1, Ordering::AcqRel);
        self.flushed.wake();
    }

    /// Wakes a task when all bytes written so far have reached the socket.
    pub fn wake_when_flushed(&self, waker: &Waker) {
        self.flushed.register(waker);
    }

    /// Whether several responses share the connection. Its flushes then say nothing about a single
    /// one.
    pub fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Acquire)
    }

    /// The response is complete: the next read is a head.
    pub fn expect(&self) {
        self.expecting.store(true, Ordering::Release);
    }
}

/// A client's socket.
pub(super) trait Socket: AsyncRead + AsyncWrite + Unpin {
    /// Makes the connection end with a reset.
    fn reset_on_close(&self);
}

impl Socket for TcpStream {
    fn reset_on_close(&self) {
        // If setting the option fails, the socket closes normally.
        let _ = SockRef::from(self).set_linger(Some(Duration::ZERO));
    }
}

#[cfg(test)]
impl Socket for tokio::io::DuplexStream {
    fn reset_on_close(&self) {}
}

/// A stream whose request heads are inspected.
#[derive(Debug)]
pub(super) struct Watched<S: Socket> {
    stream: S,
    watch: Arc<HeadWatch>,
    first_byte_timeout: FirstByteTimeout,
    scan: Scan,
    rewrite: Rewrite,
    lingering_close: LingeringClose,
    write_timeout: WriteTimeout,
    /// hyper rejected a head: bytes after it are not inspected.
    is_given_up: bool,
}

impl<S: Socket> Watched<S> {
    /// Watches a fresh connection.
    pub(super) fn new(stream: S, watch: Arc<HeadWatch>) -> Self {
        Self {
            stream,
            watch,
            first_byte_timeout: FirstByteTimeout::default(),
            scan: Scan::default(),
            rewrite: Rewrite::default(),
            lingering_close: LingeringClose::default(),
            write_timeout: WriteTimeout::default(),
            is_given_up: false,
        }
    }

    /// The result of a write. A write that stays blocked too long becomes an error.
    fn bounded<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.write_timeout.over();
            return written;
        }
        let is_shared = self.scan.off;
        ready!(self.write_timeout.poll(&self.watch.writes, is_shared, cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Whether the client may still be sending: an unread body, or a head that could not be parsed.
    fn has_more_to_read(&self) -> bool {
        let in_head = self.scan.lines > 0 && self.watch.expecting.load(Ordering::Acquire);
        !self.scan.off && (in_head || self.is_given_up || self.watch.unread.load(Ordering::Acquire))
    }
}

/// Longest line prefix that must be kept across reads: the longest name and its colon.
const PREFIX_MAX: usize = "transfer-encoding:".len();

/// Counts the lines of one head, across reads.
#[derive(Debug, Default)]
struct Scan {
    /// The first bytes of a line that earlier reads began.
    prefix: Vec<u8>,
    lines: usize,
    framing: Framing,
    off: bool,
}

impl Scan {
    /// Scans more bytes of a head. Returns whether the head has ended.
    fn feed(&mut self, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        while let Some(end) = memchr(b'\n', rest) {
            let (line, after) = rest.split_at(end + 1);
            rest = after;
            let has_ended = if self.prefix.is_empty() {
                self.end_line(&line[..line.len().min(PREFIX_MAX)])
            } else {
                self.hold(line);
                let prefix = std::mem::take(&mut self.prefix);
                self.end_line(&prefix)
            };
            if has_ended {
                return true;
            }
        }
        self.hold(rest);
        false
    }

    /// Keeps the beginning of a line that continues in the next read.
    fn hold(&mut self, line: &[u8]) {
        let room = PREFIX_MAX - self.prefix.len();
        self.prefix.extend_from_slice(&line[..line.len().min(room)]);
    }

    /// Whether a part of a head was read.
    fn has_begun(&self) -> bool {
        !self.off && (self.lines > 0 || !self.prefix.is_empty())
    }

    /// Counts a line, given its first bytes. Returns whether it ends the head.
    fn end_line(&mut self, prefix: &[u8]) -> bool {
        let blank = prefix == b"\r\n" || prefix == b"\n";
        if blank && self.lines > 0 {
            return true;
        }
        // The rest of an unread body may come before a head. A request line begins with a method.
        let begins = self.lines > 0 || prefix.first().is_some_and(u8::is_ascii_uppercase);
        if !blank && begins {
            self.lines += 1;
            let is = |name: &[u8]| {
                let start = prefix.get(..name.len());
                start.is_some_and(|start| start.eq_ignore_ascii_case(name))
            };
            if is(b"content-length:") {
                self.framing.lengths = self.framing.lengths.saturating_add(1);
            } else if is(b"transfer-encoding:") {
                self.framing.encodings = self.framing.encodings.saturating_add(1);
            } else if self.lines == 1 && is(b"PRI * HTTP/2.0") {
                // HTTP/2 has its own framing.
                self.off = true;
            }
        }
        false
    }

    fn finish(&mut self) -> Framing {
        let framing = self.framing;
        let off = self.off;
        *self = Self {
            off,
            ..Self::default()
        };
        framing
    }
}

impl<S: Socket> Drop for Watched<S> {
    fn drop(&mut self) {
        if self.watch.resets.load(Ordering::Acquire) {
            self.stream.reset_on_close();
        }
    }
}

impl<S: Socket> AsyncRead for Watched<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let polled = Pin::new(&mut this.stream).poll_read(cx, buf);
        let read = &buf.filled()[before..];
        this.first_byte_timeout.hear(read);
        if polled.is_pending() {
            let is_in_head = this.scan.has_begun() && this.watch.expecting.load(Ordering::Acquire);
            ready!(this.first_byte_timeout.poll(is_in_head, cx));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        if !read.is_empty()
            && !this.scan.off
            && this.watch.expecting.load(Ordering::Acquire)
            && this.scan.feed(read)
        {
            let framing = this.scan.finish();
            this.watch.framing.store(
                u16::from_be_bytes([framing.lengths, framing.encodings]),
                Ordering::Release,
            );
            this.watch.expecting.store(false, Ordering::Release);
        }
        if this.scan.off {
            this.watch.is_shared.store(true, Ordering::Release);
        }
        polled
    }
}

impl<S: Socket> AsyncWrite for Watched<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if let Some(answer) = unparsed::answer(buf).filter(|_| !this.scan.off) {
            this.is_given_up = true;
            this.rewrite.begin(answer);
            return Poll::Ready(Ok(buf.len()));
        }
        ready!(this.rewrite.poll(&mut this.stream, cx))?;
        let written = Pin::new(&mut this.stream).poll_write(cx, buf);
        this.bounded(written, cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let [only] = bufs {
            return self.poll_write(cx, only);
        }
        let this = self.get_mut();
        ready!(this.rewrite.poll(&mut this.stream, cx))?;
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, bufs);
        this.bounded(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.rewrite.poll(&mut this.stream, cx))?;
        ready!(Pin::new(&mut this.stream).poll_flush(cx))?;
        this.watch.count_flush();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.rewrite.poll(&mut this.stream, cx))?;
        if !this.lingering_close.is_under_way() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
            if !this.has_more_to_read() {
                return Poll::Ready(Ok(()));
            }
        }
        this.lingering_close.poll(&mut this.stream, cx).map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::super::serve::FIRST_BYTE_TIMEOUT;
    use super::*;
    use crate::clock::now;

    const HEAD: &[u8] =
        b"POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-length: 3\r\nX-Content-Length: 9\r\ntransfer-ENCODING: chunked\r\n\r\nabc";

    #[test]
    fn lengths_are_counted_however_the_head_is_split() {
        for at in 0..HEAD.len() {
            let mut scan = Scan::default();
            let ended = scan.feed(&HEAD[..at]) || scan.feed(&HEAD[at..]);
            assert!(ended, "split at {at}");
            assert_eq!(
                scan.finish(),
                Framing {
                    lengths: 1,
                    encodings: 1
                },
                "split at {at}"
            );
        }
    }

    #[test]
    fn one_statement_is_not_ambiguous() {
        assert!(
            !Framing {
                lengths: 1,
                encodings: 0
            }
            .is_ambiguous()
        );
        assert!(
            !Framing {
                lengths: 0,
                encodings: 1
            }
            .is_ambiguous()
        );
        assert!(
            Framing {
                lengths: 2,
                encodings: 0
            }
            .is_ambiguous()
        );
        assert!(
            Framing {
                lengths: 1,
                encodings: 1
            }
            .is_ambiguous()
        );
    }

    #[test]
    fn the_rest_of_an_unread_body_is_not_a_head() {
        let mut scan = Scan::default();
        assert!(!scan.feed(b"{\"x\":1}\r\ncontent-length: 1\r\n\r\n"));
        assert!(scan.feed(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(scan.finish(), Framing::default());
    }

    async fn write_until_it_fails(watch: &Arc<HeadWatch>) -> io::ErrorKind {
        use tokio::io::AsyncWriteExt;
        let (_client, server) = tokio::io::duplex(16);
        let mut watched = Watched::new(server, Arc::clone(watch));
        watched.write_all(&[b'x'; 100]).await.unwrap_err().kind()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_has_its_time() {
        let watch = Arc::new(HeadWatch::default());
        let second = Duration::from_secs(1);
        let begun = now();
        watch.bound_writes(second, None);
        assert_eq!(write_until_it_fails(&watch).await, io::ErrorKind::TimedOut);
        let after = now();
        assert_eq!(after - begun, second);
        watch.bound_writes(10 * second, Some(after + 2 * second));
        assert_eq!(write_until_it_fails(&watch).await, io::ErrorKind::TimedOut);
        assert_eq!(now() - after, 2 * second);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_says_nothing_has_its_time() {
        use tokio::io::AsyncReadExt;
        let (_client, server) = tokio::io::duplex(16);
        let mut watched = Watched::new(server, Arc::default());
        let begun = now();
        let read = watched.read_u8().await;
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(now() - begun, FIRST_BYTE_TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_stops_within_a_head_has_its_time_and_an_idle_one_more() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut client, server) = tokio::io::duplex(256);
        let watch = Arc::new(HeadWatch::default());
        let mut watched = Watched::new(server, Arc::clone(&watch));
        let mut read = [0; 256];
        client
            .write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            .await
            .unwrap();
        assert!(watched.read(&mut read).await.unwrap() > 0);
        watch.expect();
        let idle = tokio::time::timeout(2 * FIRST_BYTE_TIMEOUT, watched.read(&mut read));
        assert!(idle.await.is_err(), "an idle connection is hyper's to end");
        client.write_all(b"GET / HT").await.unwrap();
        assert!(watched.read(&mut read).await.unwrap() > 0);
        let begun = now();
        let error = watched.read(&mut read).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(now() - begun, FIRST_BYTE_TIMEOUT);
    }

    #[test]
    fn http2_is_left_alone() {
        let mut scan = Scan::default();
        scan.feed(b"PRI * HTTP/2.0\r\n\r\n");
        assert!(scan.off);
    }
}
