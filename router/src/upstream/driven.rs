//! An HTTP/1.1 connection that only moves while its user polls it.
//!
//! hyper's `Connection` is usually spawned as a task. Each chunk then wakes one task from another
//! and passes through a one-slot channel between them. Here the task that sends the request or
//! reads the answer polls the connection itself.

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

/// The most polls of a connection in one go. After them, a connection that still has work yields to
/// other tasks.
const TURNS_MAX: usize = 8;

thread_local! {
    /// The gate whose connection this thread is polling.
    static DRIVING: Cell<*const Gate> = const { Cell::new(ptr::null()) };
}

/// Receives the wake-ups of a connection.
///
/// A connection and its user wake each other several times in an exchange. On the thread that
/// drives both, such a wake-up only sets `woken`, and the driver checks it before it returns. Any
/// other wake-up reaches the task. Muting is a property of a thread: with a flag in the gate
/// itself, a close that arrives meanwhile on the thread of the I/O driver would be lost.
#[derive(Debug)]
struct Gate {
    task: AtomicWaker,
    /// Whether the connection has work.
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

/// Mutes a gate on this thread for as long as it lives.
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

/// A connection, its sender, and the gate that wakes them.
pub(super) struct Driven<T, B>
where
    T: Read + Write,
    B: Body + 'static,
{
    sender: SendRequest<B>,
    connection: Connection<T, B>,
    /// Whether the connection has ended and must not be polled again.
    has_ended: bool,
    /// Whether the last poll ended with nothing to do. Only a poll of the connection can give its
    /// user something, so the user is not polled again before the connection was woken.
    is_waiting: bool,
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
            // The connection was never polled, so it is registered for nothing.
            woken: AtomicBool::new(true),
        });
        Ok(Self {
            sender,
            connection,
            has_ended: false,
            is_waiting: false,
            waker: Waker::from(Arc::clone(&gate)),
            gate,
        })
    }

    /// Sends a request and waits for the head of its answer. If the future is dropped before its
    /// end, the connection must be dropped too.
    ///
    /// # Errors
    /// When the connection ends before the head is complete.
    pub(super) async fn send(&mut self, request: Request<B>) -> hyper::Result<Response<Incoming>> {
        self.is_waiting = false;
        let mut sent = pin!(self.sender.send_request(request));
        poll_fn(|cx| self.poll_with(cx, |cx| sent.as_mut().poll(cx))).await
    }

    /// Polls the answer's body, driving the connection until the body has a frame.
    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut Incoming,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        self.poll_with(cx, |cx| Pin::new(&mut *body).poll_frame(cx))
    }

    /// Polls in turns: `what` waits for the connection, and the connection is polled whenever it
    /// has work.
    fn poll_with<O>(
        &mut self,
        cx: &mut Context<'_>,
        mut what: impl FnMut(&mut Context<'_>) -> Poll<O>,
    ) -> Poll<O> {
        // Registered before `woken` is read, so that a wake-up from now on finds the task.
        self.gate.task.register(cx.waker());
        if self.is_waiting && !self.is_woken() {
            return Poll::Pending;
        }
        self.is_waiting = false;
        let _muted = Muted::new(&self.gate);
        for _ in 0..TURNS_MAX {
            if let Poll::Ready(output) = what(&mut Context::from_waker(&self.waker)) {
                return Poll::Ready(output);
            }
            if !self.turn() {
                self.is_waiting = true;
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Polls the connection if it has work. Returns `false` when it had none.
    fn turn(&mut self) -> bool {
        if !self.gate.woken.swap(false, Ordering::AcqRel) || self.has_ended {
            return false;
        }
        let mut cx = Context::from_waker(&self.waker);
        // The waiter for the answer gets the error, so it is ignored here.
        self.has_ended = Pin::new(&mut self.connection).poll(&mut cx).is_ready();
        true
    }

    /// Lets the connection do what it can without waiting, and forgets the task. Returns whether
    /// the connection can take another request.
    pub(super) fn rest(&mut self) -> bool {
        self.is_waiting = false;
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

    /// Whether something happened to the connection since the last poll. For an idle connection
    /// this most likely means that the peer closed it.
    pub(super) fn is_woken(&self) -> bool {
        self.gate.woken.load(Ordering::Acquire)
    }

    /// The stream, and the bytes read from it that belong to no answer.
    pub(super) fn into_parts(self) -> (T, Bytes) {
        let parts = self.connection.into_parts();
        (parts.io, parts.read_buf)
    }
}
