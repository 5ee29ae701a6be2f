//! Connections to peers: TCP with `TCP_NODELAY`, TLS for `https`, and one time-out for both. Each
//! connection keeps a note of what the current request has seen on it.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use http::uri::Scheme;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tower::Service;

use super::here::is_exhausted;

/// After this much silence TCP keep-alive probes the peer. A host that lost its power closes
/// nothing, and a stream from it would otherwise hang for the whole `idle_timeout`.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// Interval between two keep-alive probes. After nine without an answer the system ends the
/// connection.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// The connect time-out in force. The connector shares it, so that a reload takes effect.
#[derive(Clone, Debug)]
pub struct ConnectTimeout(Arc<AtomicU64>);

impl ConnectTimeout {
    /// Starts at `timeout`.
    pub fn new(timeout: Duration) -> Self {
        let shared = Self(Arc::default());
        shared.set(timeout);
        shared
    }

    /// Changes the time-out for connections that begin from now on.
    pub fn set(&self, timeout: Duration) {
        let millis = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        self.0.store(millis, Ordering::Relaxed);
    }

    fn get(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

/// The reason why no connection was made. It decides whether the peer is banned.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The peer refused, is unreachable, does not resolve, or TLS failed. It cannot serve anyone
    /// now.
    #[error("connect: {0}")]
    Dead(#[source] Box<dyn Error + Send + Sync>),
    /// No answer within the connect time-out. The peer may only be slow.
    #[error("connect timed out")]
    TimedOut,
    /// This host has no descriptor or no memory left for a connection.
    #[error("no connection can be made: {0}")]
    Exhausted(#[source] Box<dyn Error + Send + Sync>),
}

type BoxFuture<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

/// Makes connections to peers.
#[derive(Clone, Debug)]
pub struct PeerConnector {
    inner: Connector,
    timeout: ConnectTimeout,
}

impl PeerConnector {
    /// A connector that trusts the certificates of the platform (or of `SSL_CERT_FILE`). On a
    /// system without any certificate store, `https` peers fail their handshake; `http` peers are
    /// not affected.
    pub fn new(timeout: ConnectTimeout) -> Self {
        Self {
            inner: Connector::new(),
            timeout,
        }
    }
}

/// A connection to a peer.
pub(super) type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;

type BoxError = Box<dyn Error + Send + Sync>;

/// TLS over TCP, created for the first `https` peer. Reading the platform's certificates costs some
/// megabytes and ten milliseconds, which a router without such a peer saves.
static TLS: LazyLock<HttpsConnector<HttpConnector>> = LazyLock::new(tls);

/// TCP, and TLS for `https`, with HTTP/1.1 only and no time-out of its own. It trusts the
/// certificates of the platform (or of `SSL_CERT_FILE`); on a system without any certificate store
/// it trusts none.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    tcp: HttpConnector,
}

impl Connector {
    pub(super) fn new() -> Self {
        Self { tcp: tcp() }
    }

    /// Connects to the authority of a URI.
    pub(super) fn connect(&self, uri: Uri) -> BoxFuture<Stream, BoxError> {
        if uri.scheme() == Some(&Scheme::HTTPS) {
            return TLS.clone().call(uri);
        }
        let connecting = self.tcp.clone().call(uri);
        Box::pin(async move { Ok(MaybeHttpsStream::Http(connecting.await?)) })
    }
}

fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    tcp
}

fn tls() -> HttpsConnector<HttpConnector> {
    let builder = match HttpsConnectorBuilder::new().try_with_platform_verifier() {
        Ok(builder) => builder,
        Err(error) => {
            tracing::warn!(%error, "no certificate store: peers with an https url cannot be verified");
            let trusting_nobody = rustls::ClientConfig::builder()
                .with_root_certificates(rustls::RootCertStore::empty())
                .with_no_client_auth();
            HttpsConnectorBuilder::new().with_tls_config(trusting_nobody)
        }
    };
    let builder = builder.https_or_http().enable_http1();
    builder.wrap_connector(tcp())
}

impl Service<Uri> for PeerConnector {
    type Response = TokioIo<Observed>;
    type Error = ConnectError;
    type Future = BoxFuture<Self::Response, ConnectError>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.inner.connect(uri);
        let timeout = self.timeout.get();
        let began = Instant::now();
        Box::pin(async move {
            match tokio::time::timeout(timeout, connecting).await {
                Ok(Ok(stream)) => Ok(TokioIo::new(Observed {
                    stream: Wire::of(stream),
                    history: Arc::new(History::new(Instant::now().duration_since(began))),
                })),
                Ok(Err(error)) if is_time_out(&*error) => Err(ConnectError::TimedOut),
                Ok(Err(error)) if is_exhausted(&*error) => Err(ConnectError::Exhausted(error)),
                Ok(Err(error)) => Err(ConnectError::Dead(error)),
                Err(_) => Err(ConnectError::TimedOut),
            }
        })
    }
}

/// Whether the operating system itself timed out.
pub(super) fn is_time_out(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error
            .downcast_ref::<io::Error>()
            .is_some_and(|e| e.kind() == io::ErrorKind::TimedOut)
        {
            return true;
        }
        next = error.source();
    }
    false
}

/// What a connection has seen of the current request.
#[derive(Debug)]
pub(super) struct History {
    is_answered: AtomicBool,
    is_write_broken: AtomicBool,
    /// The time that connecting took, TLS included.
    connect: Duration,
}

impl History {
    fn new(connect: Duration) -> Self {
        Self {
            is_answered: AtomicBool::new(false),
            is_write_broken: AtomicBool::new(false),
            connect,
        }
    }

    /// Starts a new request: no byte of its answer has arrived yet.
    pub(super) fn begin(&self) {
        self.is_answered.store(false, Ordering::Release);
    }

    /// At least one byte of the request's answer has arrived.
    pub(super) fn is_answered(&self) -> bool {
        self.is_answered.load(Ordering::Acquire)
    }

    /// The peer takes no more bytes.
    pub(super) fn is_write_broken(&self) -> bool {
        self.is_write_broken.load(Ordering::Acquire)
    }

    /// The time that connecting took.
    pub(super) fn connect(&self) -> Duration {
        self.connect
    }
}

/// A stream that keeps its `History`. It sees only what HTTP sees: a TLS handshake, session
/// ticket or close notification does not count as an answer.
///
/// An engine may answer 401 or 413 and close before it has read the whole upload. Writing then
/// fails while the answer waits to be read, and hyper would give up at the first failed write. So
/// the rest of such a request is dropped here, and reading decides how the exchange ends.
#[derive(Debug)]
pub struct Observed {
    stream: Wire,
    history: Arc<History>,
}

/// The bytes of a connection. The state of TLS takes over a kilobyte, so only a connection that is
/// encrypted has room for it.
enum Wire {
    Tcp(TcpStream),
    Tls(Box<TokioIo<Stream>>),
}

impl Wire {
    fn of(stream: Stream) -> Self {
        match stream {
            MaybeHttpsStream::Http(tcp) => Self::Tcp(tcp.into_inner()),
            tls @ MaybeHttpsStream::Https(_) => Self::Tls(Box::new(TokioIo::new(tls))),
        }
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp(_) => "Tcp",
            Self::Tls(_) => "Tls",
        })
    }
}

impl Observed {
    pub(super) fn history(&self) -> Arc<History> {
        Arc::clone(&self.history)
    }

    /// Returns what `write` did with the `len` bytes, or reports them as written when the peer
    /// takes no more.
    fn write(
        &mut self,
        len: usize,
        write: impl FnOnce(&mut Wire) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if self.history.is_write_broken() {
            return Poll::Ready(Ok(len));
        }
        match write(&mut self.stream) {
            Poll::Ready(Err(error)) if is_closed_by_peer(&error) => {
                self.history.is_write_broken.store(true, Ordering::Release);
                Poll::Ready(Ok(len))
            }
            polled => polled,
        }
    }
}

fn is_closed_by_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    matches!(
        error.kind(),
        BrokenPipe | ConnectionAborted | ConnectionReset
    )
}

impl AsyncRead for Observed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = match &mut self.stream {
            Wire::Tcp(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Wire::Tls(tls) => Pin::new(tls).poll_read(cx, buf),
        };
        if buf.filled().len() > before {
            self.history.is_answered.store(true, Ordering::Release);
        }
        polled
    }
}

impl AsyncWrite for Observed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write(buf.len(), |wire| match wire {
            Wire::Tcp(tcp) => Pin::new(tcp).poll_write(cx, buf),
            Wire::Tls(tls) => Pin::new(tls).poll_write(cx, buf),
        })
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let len = bufs.iter().map(|buf| buf.len()).sum();
        self.write(len, |wire| match wire {
            Wire::Tcp(tcp) => Pin::new(tcp).poll_write_vectored(cx, bufs),
            Wire::Tls(tls) => Pin::new(tls).poll_write_vectored(cx, bufs),
        })
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Wire::Tcp(tcp) => tcp.is_write_vectored(),
            Wire::Tls(tls) => tls.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = self.write(0, |wire| match wire {
            Wire::Tcp(tcp) => Pin::new(tcp).poll_flush(cx).map_ok(|()| 0),
            // A flush also writes what TLS has left.
            Wire::Tls(tls) => Pin::new(tls).poll_flush(cx).map_ok(|()| 0),
        });
        flushed.map_ok(|_| ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Wire::Tcp(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Wire::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_peer_that_vanishes_is_asked_after() {
        service::tls::install_crypto_provider();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}/", listener.local_addr().unwrap());
        let mut connector = PeerConnector::new(ConnectTimeout::new(Duration::from_secs(10)));
        let stream = connector.call(uri.parse().unwrap()).await.unwrap();
        let Wire::Tcp(tcp) = &stream.inner().stream else {
            panic!("http is not encrypted");
        };
        let socket = socket2::SockRef::from(tcp);
        assert!(socket.tcp_nodelay().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE);
    }
}
