//! One exchange on a stream, driven by the task that asks.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use http::{Request, Response};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper_rustls::MaybeHttpsStream;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

pub(super) type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;

/// How often a task polls both sides in one go before it lets others run: a side that is out of budget
/// wakes itself and gets nowhere before that.
const TURNS_MAX: usize = 8;

/// A connection and its sender. It only moves while it is driven.
#[derive(Debug)]
pub(super) struct DrivenConnection {
    /// `None` once it has ended.
    connection: Option<Connection<Stream, Empty<Bytes>>>,
    sender: SendRequest<Empty<Bytes>>,
    bell: Arc<Bell>,
    /// Rings the bell.
    waker: Waker,
}

/// Wakes the task, unless it is the task itself that rings. A connection and its user wake each other
/// several times in an exchange; for the runtime each of them would be a task to be queued, and
/// perhaps a thread to be woken for it.
#[derive(Debug, Default)]
struct Bell {
    task: AtomicWaker,
    is_heard: AtomicBool,
    rang: AtomicBool,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rang.store(true, Ordering::SeqCst);
        if !self.is_heard.load(Ordering::SeqCst) {
            self.task.wake();
        }
    }
}

impl DrivenConnection {
    pub(super) async fn new(http: &Builder, stream: Stream) -> hyper::Result<Self> {
        let (sender, connection) = http.handshake(stream).await?;
        let bell = Arc::<Bell>::default();
        Ok(Self {
            connection: Some(connection),
            sender,
            waker: Waker::from(Arc::clone(&bell)),
            bell,
        })
    }

    /// Sends the one request of this wire. Cancel safe.
    ///
    /// # Errors
    /// When the connection ends before a whole response head.
    pub(super) async fn send(
        &mut self,
        request: Request<Empty<Bytes>>,
    ) -> hyper::Result<Response<Incoming>> {
        let sent = self.sender.send_request(request);
        self.drive(sent).await
    }

    /// Polls the connection and what waits for it in one.
    pub(super) async fn drive<F: Future>(&mut self, what: F) -> F::Output {
        let mut what = pin!(what);
        poll_fn(|cx| {
            self.bell.task.register(cx.waker());
            self.bell.is_heard.store(true, Ordering::SeqCst);
            let polled = self.turns(what.as_mut());
            self.bell.is_heard.store(false, Ordering::SeqCst);
            // Rung from elsewhere in the last moment, or out of turns.
            if polled.is_pending() && self.bell.rang.load(Ordering::SeqCst) {
                cx.waker().wake_by_ref();
            }
            polled
        })
        .await
    }

    fn turns<F: Future>(&mut self, mut what: Pin<&mut F>) -> Poll<F::Output> {
        let mut cx = Context::from_waker(&self.waker);
        for _ in 0..TURNS_MAX {
            self.bell.rang.store(false, Ordering::SeqCst);
            // First, because a reader's poll is what lets the connection read on.
            if let Poll::Ready(output) = what.as_mut().poll(&mut cx) {
                return Poll::Ready(output);
            }
            if let Some(connection) = &mut self.connection
                && Pin::new(connection).poll(&mut cx).is_ready()
            {
                // How it ended is told to the one who waits, at the latest when it is dropped.
                self.connection = None;
            }
            if !self.bell.rang.load(Ordering::SeqCst) {
                break;
            }
        }
        Poll::Pending
    }

    /// The stream, if another request may go over it.
    pub(super) fn into_stream(self) -> Option<Stream> {
        let connection = self.connection.filter(|_| self.sender.is_ready())?;
        // What is taken apart rings for nobody, and so does the stream while it lies idle.
        self.bell.is_heard.store(true, Ordering::SeqCst);
        let parts = connection.into_parts();
        // What came unasked is nobody's answer.
        parts.read_buf.is_empty().then_some(parts.io)
    }
}
