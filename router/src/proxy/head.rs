//! Inspects each request's raw head before hyper reads it.
//!
//! [`service::framing`] counts the header lines about the length, which hyper resolves silently, and
//! hyper gets the bytes of one request at a time. So the count belongs to the request whose handler
//! takes it, pipelined or not.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use futures_util::task::AtomicWaker;
use service::framing::{Fed, Framing, INVALID, Requests};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::first_byte_timeout::FirstByteTimeout;
use super::lingering_close::LingeringClose;
use super::unparsed::{self, Rewrite};
use super::write_timeout::{WriteBounds, WriteTimeout};

/// Marks a slot of [`HeadWatch::framings`] as taken.
const WAITS: u8 = 0x80;

/// State shared by the connection and its handler.
#[derive(Debug)]
pub struct HeadWatch {
    /// The next bytes belong to a head.
    expecting: AtomicBool,
    /// The framing of the heads that no handler took yet, oldest in the lowest 16 bits: hyper may
    /// read the head of a pipelined request before it calls the handler of the one before.
    framings: AtomicU64,
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
            framings: AtomicU64::new(0),
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
        let waiting = self.framings.load(Ordering::Acquire);
        self.framings.store(waiting >> 16, Ordering::Release);
        let [.., lengths, encodings] = waiting.to_be_bytes();
        let lengths = lengths & !WAITS;
        Framing { lengths, encodings }
    }

    /// Adds the framing of a head that was read. Called by the connection's task, as `take` is.
    fn put(&self, framing: Framing) {
        let counts = [framing.lengths.min(!WAITS) | WAITS, framing.encodings];
        let waiting = self.framings.load(Ordering::Acquire);
        let slot = (u64::BITS - waiting.leading_zeros()).div_ceil(16);
        // hyper reads no further than one request ahead, so there is always room.
        let added = u64::from(u16::from_be_bytes(counts)).checked_shl(slot * 16);
        self.framings
            .store(waiting | added.unwrap_or(0), Ordering::Release);
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
    requests: Requests,
    /// Bytes of later requests than the one that hyper reads.
    held: BytesMut,
    rewrite: Rewrite,
    lingering_close: LingeringClose,
    write_timeout: WriteTimeout,
    /// No handler looks at the framing: an ambiguous head is replaced by an invalid one.
    refuses: bool,
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
            requests: Requests::default(),
            held: BytesMut::new(),
            rewrite: Rewrite::default(),
            lingering_close: LingeringClose::default(),
            write_timeout: WriteTimeout::default(),
            refuses: false,
            is_given_up: false,
        }
    }

    /// Watches a fresh connection whose handlers do not look at the framing.
    pub(super) fn refusing(stream: S) -> Self {
        let mut watched = Self::new(stream, Arc::default());
        watched.refuses = true;
        watched
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
        let is_shared = self.requests.is_http2();
        ready!(self.write_timeout.poll(&self.watch.writes, is_shared, cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Keeps what was found in the bytes that hyper gets now.
    fn note(&mut self, fed: Fed, buf: &mut ReadBuf<'_>, before: usize) {
        if let Some(framing) = fed.head {
            if self.refuses && framing.is_ambiguous() && buf.capacity() - before >= INVALID.len() {
                buf.set_filled(before);
                buf.put_slice(INVALID);
            }
            self.watch.put(framing);
            self.watch.expecting.store(false, Ordering::Release);
        }
        if self.requests.is_http2() {
            self.watch.is_shared.store(true, Ordering::Release);
        }
    }

    /// Whether the client may still be sending: an unread body, or a head that could not be parsed.
    fn has_more_to_read(&self) -> bool {
        let in_head = self.requests.is_in_head() && self.watch.expecting.load(Ordering::Acquire);
        !self.requests.is_http2()
            && (in_head || self.is_given_up || self.watch.unread.load(Ordering::Acquire))
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
        if !this.held.is_empty() {
            let room = this.held.len().min(buf.remaining());
            let fed = this.requests.feed(&this.held[..room]);
            buf.put_slice(&this.held[..fed.end]);
            this.held.advance(fed.end);
            this.note(fed, buf, before);
            return Poll::Ready(Ok(()));
        }
        let polled = Pin::new(&mut this.stream).poll_read(cx, buf);
        let read = &buf.filled()[before..];
        this.first_byte_timeout.hear(read);
        if polled.is_pending() {
            let is_in_head =
                this.requests.is_in_head() && this.watch.expecting.load(Ordering::Acquire);
            ready!(this.first_byte_timeout.poll(is_in_head, cx));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        if !read.is_empty() && !this.requests.is_http2() {
            let fed = this.requests.feed(read);
            this.held.extend_from_slice(&read[fed.end..]);
            buf.set_filled(before + fed.end);
            this.note(fed, buf, before);
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
        if let Some(answer) = unparsed::answer(buf).filter(|_| !this.requests.is_http2()) {
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

    #[test]
    fn each_handler_takes_the_framing_of_its_own_head() {
        let framing = |lengths, encodings| Framing { lengths, encodings };
        let watch = HeadWatch::default();
        assert_eq!(watch.take(false), Framing::default());
        watch.put(framing(0, 0));
        watch.put(framing(1, 1));
        assert_eq!(watch.take(false), framing(0, 0));
        watch.put(framing(255, 2));
        assert_eq!(watch.take(false), framing(1, 1));
        assert_eq!(watch.take(false), framing(127, 2));
        assert_eq!(watch.take(false), Framing::default());
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
}
