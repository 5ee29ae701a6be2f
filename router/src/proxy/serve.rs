//! Accepts connections on either port, and ends them in order.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::Watcher;
use hyper_util::service::TowerToHyperService;
use router_config::valid::Server;
pub use service::accept::Stop;
use service::accept::{Port, Serve, accept};
use service::connections::{ConnectionLimits, Connections};
use service::http::overloaded;
use service::limits::connections_max;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};

use super::head::{HeadWatch, Watched};
use super::tunnel::TunnelSlot;
use super::{Proxy, limits, unparsed};
use crate::admin::PeerAddr;
use crate::upstream::headers::Remote;

/// Time limit for an idle connection to begin a head (nginx's `keepalive_timeout`).
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(75);

/// Time limit for a client to send its first byte, and for a head or the preface of HTTP/2 that it
/// has begun.
pub(super) const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(30);

/// Interval of pings on an HTTP/2 connection. Nothing else detects a client that vanished while its
/// streams are silent.
const H2_PING: Duration = Duration::from_secs(30);

/// Time limit for the answer to a ping.
const H2_PONG: Duration = Duration::from_secs(20);

/// Maximum concurrent streams of one HTTP/2 connection.
const H2_STREAMS_MAX: u32 = 1024;

/// Maximum header list of one HTTP/2 request. HTTP/2 counts more bytes per header than the
/// documented limit; that limit is checked separately, with an answer that states it.
const H2_HEADER_LIST_MAX: u32 = 2 * limits::HEADER_BYTES_MAX as u32;

/// TCP keepalive starts after this idle time. A machine that lost its power or its network does not
/// close its connections, and its request would keep its slot.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// Interval between two keepalive probes. After nine without an answer the system closes the
/// connection.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Connections on the admin port. They are no part of the public port's, so that an operator gets in
/// while clients do not.
const ADMIN_CONNECTIONS: ConnectionLimits = ConnectionLimits {
    total: 256,
    per_source: None,
};

/// The bounds of the public port.
pub fn limits(server: &Server) -> ConnectionLimits {
    let number = |given: u32| usize::try_from(given).unwrap_or(usize::MAX);
    ConnectionLimits {
        total: server.max_connections.map_or_else(connections_max, number),
        per_source: server.max_connections_per_source.map(number),
    }
}

/// Serves the public port until `stop.drain`, then waits for current requests until `stop.cut`.
pub async fn public(
    listener: TcpListener,
    connections: Connections,
    proxy: Arc<Proxy>,
    stop: Stop,
) {
    let port = Port {
        listener,
        connections,
        first_byte: FIRST_BYTE_TIMEOUT,
        last_accepts: 0,
    };
    let builder = Arc::new(builder());
    accept(port, stop, Public { builder, proxy }).await;
}

/// Serves the admin port the same way. Handlers find the caller's address as an `Extension` of
/// [`PeerAddr`].
pub async fn admin(listener: TcpListener, router: axum::Router, stop: Stop) {
    let port = Port {
        listener,
        connections: Connections::new(ADMIN_CONNECTIONS),
        first_byte: FIRST_BYTE_TIMEOUT,
        last_accepts: 0,
    };
    let builder = Arc::new(builder());
    accept(port, stop, Admin { builder, router }).await;
}

#[derive(Clone)]
struct Public {
    builder: Arc<Builder<TokioExecutor>>,
    proxy: Arc<Proxy>,
}

impl Serve for Public {
    async fn serve(self, stream: TcpStream, peer: SocketAddr, watcher: Watcher) {
        tune_or_say(&stream);
        let Self { builder, proxy } = self;
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
            async move { Ok::<_, Infallible>(proxy.handle(request, &remote, &head).await) }
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

    async fn reject(self, stream: TcpStream) {
        reject(stream).await;
    }
}

#[derive(Clone)]
struct Admin {
    builder: Arc<Builder<TokioExecutor>>,
    router: axum::Router,
}

impl Serve for Admin {
    async fn serve(self, stream: TcpStream, peer: SocketAddr, watcher: Watcher) {
        tune_or_say(&stream);
        let router = self.router.layer(axum::Extension(PeerAddr(peer)));
        let io = TokioIo::new(Watched::refusing(stream));
        let connection = self
            .builder
            .serve_connection(io, TowerToHyperService::new(router))
            .into_owned();
        if let Err(error) = watcher.watch(connection).await {
            tracing::debug!(%error, "an admin connection ended early");
        }
    }

    async fn reject(self, stream: TcpStream) {
        reject(stream).await;
    }
}

async fn reject(stream: TcpStream) {
    static ANSWER: LazyLock<Bytes> = LazyLock::new(unparsed::too_many_connections);
    overloaded(stream, &ANSWER).await;
}

fn tune_or_say(stream: &TcpStream) {
    if let Err(error) = tune(stream) {
        tracing::debug!(%error, "an option of the socket was refused");
    }
}

/// The HTTP server settings of either port.
pub(super) fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_TIMEOUT)
        // hyper copies the parts into one buffer. A chunk that is dropped at once lets its read
        // buffer be used again, and any number of chunks leaves in one write.
        .writev(false)
        // hyper answers a head with more by 431, which `unparsed` completes. With its own limit of
        // 100, its scratch would lie on the stack; every line above costs time in each request.
        .max_headers(limits::HEADERS_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(H2_PING)
        .keep_alive_timeout(H2_PONG)
        .max_concurrent_streams(H2_STREAMS_MAX)
        .max_header_list_size(H2_HEADER_LIST_MAX);
    builder
}

fn tune(stream: &TcpStream) -> io::Result<()> {
    // Without this option, one peer adds 22 ms to every time to first token.
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE)
        .with_interval(KEEPALIVE_INTERVAL);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
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
