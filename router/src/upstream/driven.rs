//! An HTTP/1.1 connection that only moves while its user polls it.
//!
//! hyper's `Connection` is usually spawned as a task. Then each chunk wakes one task from another, and passes through a
//! one-slot channel between them. Here the task that sends the request, or reads the answer, polls the connection itself.

use std::cell::Cell;
use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use http::{Request, Response};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper::rt::{Read, Write};

/// Polls of a connection in one go. A connection that still has work after them yields to other tasks.
const TURNS_MAX: usize = 8;

thread_local! {
    /// The gate whose connection this thread polls at this moment.
    static DRIVING: Cell<*const Gate> = const { Cell::new(ptr::null()) };
}

/// Where a connection's wake-ups arrive.
///
/// A connection and its user wake each other several times in an exchange. On the thread that drives both, such a wake
/// only sets `woken`: the driver looks at it before it returns. Any other wake-up reaches the task. That the gate is muted
/// is a fact about a thread: with a flag in the gate itself, a close that arrives meanwhile on the thread of the I/O
/// driver would be lost.
#[derive(Debug)]
struct Gate {
    task: AtomicWaker,
    /// The connection has work.
    woken: AtomicBool,
}

impl Wake for Gate {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        let driving = DRIVING.try_with(Cell::get).unwrap_or(ptr::null());
        if !ptr::eq(driving, Arc::as_ptr(self)) {
            self.task.wake();
        }
    }
}

/// Mutes a gate on this thread while it lives.
struct Muted(*const Gate);

impl Muted {
    fn new(gate: &Arc<Gate>) -> Self {
        Self(DRIVING.replace(Arc::as_ptr(gate)))
    }
}

impl Drop for Muted {
    fn drop(&mut self) {
        DRIVING.set(self.0);
    }
}

/// A connection, its sender, and what wakes them.
pub(super) struct Driven<T, B>
where
    T: Read + Write,
    B: Body + 'static,
{
    sender: SendRequest<B>,
    connection: Connection<T, B>,
    /// The connection must not be polled again.
    has_ended: bool,
    gate: Arc<Gate>,
    /// Wakes the gate.
    waker: Waker,
}

impl<T, B> fmt::Debug for Driven<T, B>
where
    T: Read + Write,
    B: Body + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driven")
            .field("has_ended", &self.has_ended)
            .finish_non_exhaustive()
    }
}

impl<T, B> Driven<T, B>
where
    T: Read + Write + Unpin,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// Speaks HTTP over `io`.
    ///
    /// # Errors
    /// hyper's.
    pub(super) async fn new(http: &Builder, io: T) -> hyper::Result<Self> {
        let (sender, connection) = http.handshake(io).await?;
        let gate = Arc::new(Gate {
            task: AtomicWaker::new(),
            // It was never polled, so it is registered for nothing.
            woken: AtomicBool::new(true),
        });
        Ok(Self {
            sender,
            connection,
            has_ended: false,
            waker: Waker::from(Arc::clone(&gate)),
            gate,
        })
    }

    /// Sends a request and waits for the head of its answer. After a drop of the future before its end the connection
    /// must be dropped too.
    ///
    /// # Errors
    /// When the connection ends before a whole head.
    pub(super) async fn send(&mut self, request: Request<B>) -> hyper::Result<Response<Incoming>> {
        let mut sent = pin!(self.sender.send_request(request));
        poll_fn(|cx| self.poll_with(cx, |cx| sent.as_mut().poll(cx))).await
    }

    /// Polls the answer's body, and the connection until it has a frame.
    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut Incoming,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        self.poll_with(cx, |cx| Pin::new(&mut *body).poll_frame(cx))
    }

    /// Polls `what` waits for the connection, and the connection whenever it has work, in turns.
    fn poll_with<O>(
        &mut self,
        cx: &mut Context<'_>,
        mut what: impl FnMut(&mut Context<'_>) -> Poll<O>,
    ) -> Poll<O> {
        // Before `woken` is read: a wake-up from now on finds the task.
        self.gate.task.register(cx.waker());
        let _muted = Muted::new(&self.gate);
        for _ in 0..TURNS_MAX {
            if let Poll::Ready(output) = what(&mut Context::from_waker(&self.waker)) {
                return Poll::Ready(output);
            }
            if !self.turn() {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Polls the connection if it has work. False when there was none.
    fn turn(&mut self) -> bool {
        if !self.gate.woken.swap(false, Ordering::AcqRel) || self.has_ended {
            return false;
        }
        let mut cx = Context::from_waker(&self.waker);
        // How it ended is told to whoever waits for the answer.
        self.has_ended = Pin::new(&mut self.connection).poll(&mut cx).is_ready();
        true
    }

    /// Lets the connection do what it can without waiting, and forgets the task. True when it takes another request.
    pub(super) fn rest(&mut self) -> bool {
        let muted = Muted::new(&self.gate);
        for _ in 0..TURNS_MAX {
            if !self.turn() {
                break;
            }
        }
        drop(muted);
        drop(self.gate.task.take());
        !self.has_ended && self.sender.is_ready()
    }

    /// Something happened to the connection since it was last polled: of an idle one, most likely the peer closed it.
    pub(super) fn is_woken(&self) -> bool {
        self.gate.woken.load(Ordering::Acquire)
    }

    /// The stream, and what was read from it but belongs to no answer.
    pub(super) fn into_parts(self) -> (T, Bytes) {
        let parts = self.connection.into_parts();
        (parts.io, parts.read_buf)
    }
}
