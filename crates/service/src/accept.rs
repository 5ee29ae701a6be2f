//! The accept loop of a port: who is served, and how the port ends in order.

use std::future::Future;
use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::connections::{Connections, Rejected, SilentConnection};
use crate::log::Throttle;

/// How long accepting pauses when the process is out of descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// A port and its bounds.
#[derive(Debug)]
pub struct Port {
    /// The socket.
    pub listener: TcpListener,
    /// What is served, and what may be.
    pub connections: Connections,
    /// A client has this long to send its first byte.
    pub first_byte: Duration,
    /// Most connections that are still accepted from the queue when the port stops, for protocols
    /// in which a queued connection may carry what is not sent again.
    pub last_accepts: usize,
}

/// What ends a port's work.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    /// No new connections; requests under way finish.
    pub drain: CancellationToken,
    /// What is left is cut.
    pub cut: CancellationToken,
}

/// What a port does with its connections.
///
/// The connection is dropped when [`Stop::cut`] fires, in either method.
pub trait Serve: Clone + Send + 'static {
    /// Serves one connection to its end.
    fn serve(
        self,
        stream: TcpStream,
        peer: SocketAddr,
        watcher: Watcher,
    ) -> impl Future<Output = ()> + Send;

    /// Answers a connection that is one too many. It has a moment to do so.
    fn reject(self, stream: TcpStream) -> impl Future<Output = ()> + Send;
}

/// How long a connection that is one too many may take to hear so.
const REJECTION: Duration = Duration::from_secs(1);

/// Accepts until `stop.drain`, then waits for what is served until `stop.cut`.
pub async fn accept(port: Port, stop: Stop, serve: impl Serve) {
    static FAILING: Throttle = Throttle::new();
    let Port {
        listener,
        connections,
        first_byte,
        last_accepts,
    } = port;
    let mut left = last_accepts;
    let graceful = GracefulShutdown::new();
    // Aborted at the cut. A connection that watched the token itself would pay for it at each poll.
    let mut tasks = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            accepted = listener.accept() => accepted,
            // Frees the memory of a connection that has ended.
            Some(_) = tasks.join_next() => continue,
            () = stop.drain.cancelled() => break,
            () = stop.cut.cancelled() => break,
        };
        if stop.drain.is_cancelled() {
            if left == 0 {
                break;
            }
            left -= 1;
        }
        match accepted {
            Ok((stream, peer)) => {
                let arrived = Arrived {
                    // Here, not in the task: tasks do not start in the order of arrival.
                    silent: connections.wait_for_first_byte(),
                    stream,
                    peer,
                    first_byte,
                    drain: stop.drain.clone(),
                };
                let (connections, serve) = (connections.clone(), serve.clone());
                let watcher = graceful.watcher();
                tasks.spawn(async move { arrived.carry(&connections, serve, watcher).await });
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                connections.reject(Rejected::Descriptors);
                if let Some(unsaid) = FAILING.pass(now()) {
                    tracing::error!(%error, unsaid, "accepting connections is failing");
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    drop(listener);
    tokio::select! {
        () = graceful.shutdown() => {}
        () = stop.cut.cancelled() => {}
    }
    tokio::select! {
        () = ended(&mut tasks) => {}
        () = stop.cut.cancelled() => tasks.shutdown().await,
    }
}

/// Waits for all connections.
async fn ended(tasks: &mut JoinSet<()>) {
    while tasks.join_next().await.is_some() {}
}

struct Arrived {
    silent: SilentConnection,
    stream: TcpStream,
    peer: SocketAddr,
    first_byte: Duration,
    drain: CancellationToken,
}

impl Arrived {
    async fn carry(self, connections: &Connections, serve: impl Serve, watcher: Watcher) {
        if !self.has_spoken(connections).await {
            return;
        }
        let Self {
            silent,
            stream,
            peer,
            ..
        } = self;
        drop(silent);
        match connections.admit(peer.ip().to_canonical()) {
            Ok(place) => {
                serve.serve(stream, peer, watcher).await;
                drop(place);
            }
            // Boxed, because every connection would reserve room for the buffer of a rejection.
            Err(_) => drop(timeout(REJECTION, Box::pin(serve.reject(stream))).await),
        }
    }

    /// Waits for the first byte: false when there is none in time, or its place is needed.
    async fn has_spoken(&self, connections: &Connections) -> bool {
        // A new socket may count as readable before it has bytes; peeking waits for them.
        let mut first = [0];
        let heard = tokio::select! {
            biased;
            peeked = self.stream.peek(&mut first) => return matches!(peeked, Ok(1..)),
            () = tokio::time::sleep(self.first_byte) => false,
            () = self.silent.evicted.cancelled() => has_sent(&self.stream),
            () = self.drain.cancelled() => return has_sent(&self.stream),
        };
        if !heard {
            connections.reject(Rejected::Silent);
        }
        heard
    }
}

/// Whether bytes wait to be read, of which the runtime may not have heard yet.
fn has_sent(stream: &TcpStream) -> bool {
    let mut first = [MaybeUninit::uninit()];
    SockRef::from(stream)
        .peek(&mut first)
        .is_ok_and(|read| read > 0)
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}
