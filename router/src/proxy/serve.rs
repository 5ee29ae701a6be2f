//! Accepts connections on either port, and ends them in order.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::head::{HeadWatch, Watched};
use super::tunnel::TunnelSlot;
use super::{Proxy, limits};
use crate::admin::PeerAddr;
use crate::clock::now;
use crate::upstream::headers::Remote;

/// Time limit for a client to send a head, and for an idle connection to begin one (nginx's
/// `keepalive_timeout`).
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(75);

/// Interval of pings on an HTTP/2 connection. Nothing else detects a client that vanished while its
/// streams are silent.
const H2_PING: Duration = Duration::from_secs(30);

/// Time limit for the answer to a ping.
const H2_PONG: Duration = Duration::from_secs(20);

/// Heads with more headers than the documented limit are still parsed up to this number, so that
/// the client gets an answer that states the limit.
const PARSED_HEADERS_MAX: usize = 2 * limits::HEADERS_MAX;

/// Maximum concurrent streams of one HTTP/2 connection.
const H2_STREAMS_MAX: u32 = 1024;

/// Maximum header list of one HTTP/2 request. HTTP/2 counts more bytes per header than the
/// documented limit; that limit is checked separately, with an answer that states it.
const H2_HEADER_LIST_MAX: u32 = 2 * limits::HEADER_BYTES_MAX as u32;

/// Pause before the next accept when the process is out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Minimum time between two log lines about that: the state may last.
const ACCEPT_QUIET: Duration = Duration::from_secs(10);

/// TCP keepalive starts after this idle time. A machine that lost its power or its network does not
/// close its connections, and its request would keep its slot.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// Interval between two keepalive probes. After nine without an answer the system closes the
/// connection.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// The two steps that end a port's work.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    /// No new connections; current requests finish.
    pub drain: CancellationToken,
    /// The remaining connections are cut.
    pub cut: CancellationToken,
}

/// Serves the public port until `stop.drain`, then waits for current requests until `stop.cut`.
pub async fn public(listener: TcpListener, proxy: Arc<Proxy>, stop: Stop) {
    let builder = Arc::new(builder());
    accept(listener, stop, move |stream, peer, watcher| {
        let proxy = Arc::clone(&proxy);
        let builder = Arc::clone(&builder);
        async move {
            let head = Arc::new(HeadWatch::default());
            let io = TokioIo::new(Watched::new(stream, Arc::clone(&head)));
            let remote = Remote::new(peer.ip().to_canonical());
            let slot = TunnelSlot::default();
            let lent = slot.clone();
            let service = service_fn(move |mut request: Request<Incoming>| {
                lent.lend(&mut request);
                let proxy = Arc::clone(&proxy);
                let head = Arc::clone(&head);
                let remote = remote.clone();
                async move {
                    Ok::<_, std::convert::Infallible>(proxy.handle(request, &remote, &head).await)
                }
            });
            let connection = builder
                .serve_connection_with_upgrades(io, service)
                .into_owned();
            if let Err(error) = watcher.watch(connection).await {
                tracing::debug!(%error, "a client connection ended early");
            }
            if let Some(tunnel) = slot.take() {
                tunnel.await;
            }
        }
    })
    .await;
}

/// Serves the admin port the same way. Handlers find the caller's address as an `Extension` of
/// [`PeerAddr`].
pub async fn admin(listener: TcpListener, router: axum::Router, stop: Stop) {
    let builder = Arc::new(builder());
    accept(listener, stop, move |stream, peer, watcher| {
        let router = router.clone().layer(axum::Extension(PeerAddr(peer)));
        let builder = Arc::clone(&builder);
        async move {
            let io = TokioIo::new(Watched::new(stream, Arc::default()));
            let connection = builder
                .serve_connection(io, TowerToHyperService::new(router))
                .into_owned();
            if let Err(error) = watcher.watch(connection).await {
                tracing::debug!(%error, "an admin connection ended early");
            }
        }
    })
    .await;
}

/// The HTTP server settings of either port.
pub(super) fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        // hyper copies the parts into one buffer. A chunk that is dropped at once lets its read
        // buffer be used again, and any number of chunks leaves in one write.
        .writev(false)
        .max_headers(PARSED_HEADERS_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(H2_PING)
        .keep_alive_timeout(H2_PONG)
        .max_concurrent_streams(H2_STREAMS_MAX)
        .max_header_list_size(H2_HEADER_LIST_MAX);
    builder
}

async fn accept<F, C>(listener: TcpListener, stop: Stop, connection: F)
where
    F: Fn(TcpStream, SocketAddr, Watcher) -> C,
    C: Future<Output = ()> + Send + 'static,
{
    let mut said = None;
    let graceful = GracefulShutdown::new();
    let tasks = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = stop.drain.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                if let Err(error) = tune(&stream) {
                    tracing::debug!(%error, "an option of the socket was refused");
                }
                let connection = connection(stream, peer, graceful.watcher());
                let cut = stop.cut.clone();
                tasks.spawn(async move {
                    tokio::select! {
                        () = connection => {}
                        () = cut.cancelled() => {}
                    }
                });
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                let now = now();
                if said.is_none_or(|at| now.saturating_duration_since(at) >= ACCEPT_QUIET) {
                    said = Some(now);
                    tracing::error!(%error, "accepting connections is failing");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    tasks.close();
    tokio::select! {
        () = graceful.shutdown() => {}
        () = stop.cut.cancelled() => {}
    }
    tasks.wait().await;
}

fn tune(stream: &TcpStream) -> io::Result<()> {
    // Without this option, one peer adds 22 ms to every time to first token.
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE)
        .with_interval(KEEPALIVE_INTERVAL);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_client_that_vanishes_is_asked_after() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (stream, _) = accepted.unwrap();
        tune(&stream).unwrap();
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap() && socket.tcp_nodelay().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE);
        drop(client);
    }
}
