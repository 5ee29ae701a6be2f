//! One request to one peer: a connection from the pool or a new one, and what its failures mean.

use std::error::Error;
use std::sync::Arc;

use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{Request, Response, StatusCode, Uri};
use hyper::client::conn::http1::Builder;
use tokio_util::sync::CancellationToken;
use tower::Service;

use super::address::Address;
use super::body::PeerBody;
use super::connect::{ConnectError, ConnectTimeout, PeerConnector};
use super::driven::Driven;
use super::pool::{Link, Pools, SWEEP};
use super::request_body::RequestBody;

/// The most header lines in the head of an answer, which engines behind gateways come near. An
/// answer with more counts as broken. With its own limit of 100, hyper's scratch would lie on the
/// stack, which spares 3 000 instructions.
const ANSWER_HEADERS_MAX: usize = 256;

/// Bytes of an answer read ahead of a client that reads slowly, and the largest head of an answer.
const READ_AHEAD_MAX: usize = 32 << 10;

/// The client of the request path. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PeerClient {
    connector: PeerConnector,
    http: Builder,
    pools: Arc<Pools>,
}

/// The reason why a request got no response. The caller decides what each reason allows.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The peer refused, is unreachable, does not resolve, or TLS failed. No byte was sent.
    #[error("the peer cannot be reached")]
    Dead(#[source] Arc<dyn Error + Send + Sync>),
    /// No connection within the connect time-out. No byte was sent.
    #[error("the connection timed out")]
    ConnectTimeout,
    /// This host could not open a connection. No byte was sent, and this says nothing about the
    /// peer.
    #[error("the router has no room for a connection")]
    Exhausted(#[source] Arc<dyn Error + Send + Sync>),
    /// A reused connection ended before any byte of the response.
    #[error("a reused connection ended before the response")]
    Stale(#[source] Arc<dyn Error + Send + Sync>),
    /// A new connection took the request and then ended, or the head of the response was broken.
    #[error("the peer broke off before the response headers")]
    Broken(#[source] Arc<dyn Error + Send + Sync>),
}

impl PeerClient {
    /// A client over its own pool.
    pub fn new(connect_timeout: ConnectTimeout) -> Self {
        let mut http = Builder::new();
        http.max_headers(ANSWER_HEADERS_MAX)
            .max_buf_size(READ_AHEAD_MAX);
        Self {
            connector: PeerConnector::new(connect_timeout),
            http,
            pools: Arc::default(),
        }
    }

    /// Sends a request with a path and a `Host` to an address, and waits for the head of the answer.
    /// Dropping the future, or later the answer's body, closes the connection, so the peer sees
    /// that the client has gone. A `fresh` request takes no connection from the pool; it is for the
    /// retry after a pooled connection died.
    ///
    /// # Errors
    /// [`SendError`]. It is never `Stale` after a byte of the answer arrived on a reused
    /// connection.
    pub async fn send(
        &self,
        to: &Address,
        request: Request<RequestBody>,
        fresh: bool,
    ) -> Result<Response<PeerBody>, SendError> {
        let pool = self.pools.of(to);
        let kept = if fresh { None } else { pool.take() };
        let mut link = match kept {
            Some(link) => link,
            // Boxed, because every request reserves room for this future and few requests connect.
            None => Box::pin(self.connect(to.uri())).await?,
        };
        link.history.begin();
        match link.driven.send(request).await {
            Ok(answer) => {
                let (mut head, body) = answer.into_parts();
                if head.headers.contains_key(TRANSFER_ENCODING) {
                    // The body was read by its transfer encoding (RFC 9112 section 6.3), so a
                    // length beside it is wrong.
                    head.headers.remove(CONTENT_LENGTH);
                }
                let is_tunnel = head.status == StatusCode::SWITCHING_PROTOCOLS;
                let body = PeerBody::new(body, link, pool, is_tunnel);
                Ok(Response::from_parts(head, body))
            }
            Err(error) if link.is_reused && !link.history.is_answered() => {
                Err(SendError::Stale(Arc::new(error)))
            }
            Err(error) => Err(SendError::Broken(Arc::new(error))),
        }
    }

    async fn connect(&self, to: Uri) -> Result<Box<Link>, SendError> {
        let stream = self
            .connector
            .clone()
            .call(to)
            .await
            .map_err(|error| match error {
                ConnectError::TimedOut => SendError::ConnectTimeout,
                ConnectError::Exhausted(_) => SendError::Exhausted(Arc::new(error)),
                ConnectError::Dead(_) => SendError::Dead(Arc::new(error)),
            })?;
        let history = stream.inner().history();
        let driven = Driven::new(&self.http, stream).await;
        Ok(Box::new(Link {
            driven: driven.map_err(|error| SendError::Broken(Arc::new(error)))?,
            history,
            is_reused: false,
        }))
    }

    /// Closes idle connections when their time is up. Runs until `end`.
    pub async fn close_idle(self, end: CancellationToken) {
        let mut ticks = tokio::time::interval(SWEEP);
        loop {
            tokio::select! {
                _ = ticks.tick() => self.pools.sweep(),
                () = end.cancelled() => return,
            }
        }
    }
}

/// An error and its causes as text, for the log.
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

#[cfg(test)]
mod tests;
