//! One request to one peer: hyper-util's pooled client, and what its failures mean.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::connect::{ConnectError, ConnectTimeout, History, PeerConnector};

/// How long an idle connection to a peer is kept. Below the five seconds after which llama.cpp and
/// uvicorn (vLLM, SGLang) close theirs, so that a request seldom meets a closing connection.
const POOL_IDLE: Duration = Duration::from_secs(4);

/// Idle connections kept per peer. A peer runs at most some hundred requests at once; beyond this
/// the rest of a burst's connections are closed rather than parked.
const POOL_IDLE_MAX: usize = 256;

/// The clients of the request path. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PeerClient {
    pooled: Client<PeerConnector, Full<Bytes>>,
    /// Never reuses: for the retry after a reused connection died.
    fresh: Client<PeerConnector, Full<Bytes>>,
}

/// Why a request got no response. What it allows is decided by the caller.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The address refused, is unreachable, does not resolve, or TLS failed. No byte was sent.
    #[error("the peer cannot be reached")]
    Dead(#[source] Arc<dyn Error + Send + Sync>),
    /// No connection within the connect time-out. No byte was sent.
    #[error("the connection timed out")]
    ConnectTimeout,
    /// This host could not make a connection. No byte was sent, and nothing is known of the peer.
    #[error("the router has no room for a connection")]
    Exhausted(#[source] Arc<dyn Error + Send + Sync>),
    /// A reused connection ended before any response byte.
    #[error("a reused connection ended before the response")]
    Stale(#[source] Arc<dyn Error + Send + Sync>),
    /// A fresh connection took the request and ended, or the response's head was broken.
    #[error("the peer broke off before the response headers")]
    Broken(#[source] Arc<dyn Error + Send + Sync>),
}

impl PeerClient {
    /// A client over its own pool.
    pub fn new(connect_timeout: ConnectTimeout) -> Self {
        let connector = PeerConnector::new(connect_timeout);
        let mut builder = Client::builder(TokioExecutor::new());
        // `Host` is set by the caller, once per peer, and must not be derived again per request.
        builder
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(POOL_IDLE)
            .set_host(false);
        let pooled = builder
            .pool_max_idle_per_host(POOL_IDLE_MAX)
            .build(connector.clone());
        let fresh = builder.pool_max_idle_per_host(0).build(connector);
        Self { pooled, fresh }
    }

    /// Sends a request and waits for the response's head. Dropping the future, or later the
    /// response's body, closes the connection: the peer sees the client gone.
    ///
    /// # Errors
    /// [`SendError`]; never after a response byte arrived on a reused connection is it `Stale`.
    pub async fn send(
        &self,
        request: Request<Full<Bytes>>,
        fresh: bool,
    ) -> Result<Response<Incoming>, SendError> {
        let client = if fresh { &self.fresh } else { &self.pooled };
        client.request(request).await.map_err(classify)
    }
}

fn classify(error: ClientError) -> SendError {
    if error.is_connect() {
        return match connect_error(&error) {
            Some(ConnectError::TimedOut) => SendError::ConnectTimeout,
            Some(ConnectError::Exhausted(_)) => SendError::Exhausted(Arc::new(error)),
            _ => SendError::Dead(Arc::new(error)),
        };
    }
    match error.connect_info().and_then(History::of) {
        Some(history) if history.is_reused() && !history.is_answered() => {
            SendError::Stale(Arc::new(error))
        }
        _ => SendError::Broken(Arc::new(error)),
    }
}

fn connect_error(error: &ClientError) -> Option<&ConnectError> {
    let mut next = error.source();
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// The text of an error and its causes, for the log.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}
