//! Requests beside the request path, on a connection that is kept for the next one.
//!
//! Each request drives its own connection. No task is spawned or woken for it, and between two
//! requests only the stream remains. This is how the router polls hundreds of engines each second.

use std::error::Error;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::Builder;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::connect::{Connector, Stream, is_time_out};
use super::driven::Driven;

/// How long a connection is kept. This is below the five seconds after which llama.cpp closes its
/// side.
pub(super) const KEEP_IDLE: Duration = Duration::from_secs(4);

/// Bytes read at once. Most load pages come in one or two reads. Allocated only while a request
/// runs. The head of a response must fit.
const READ_SIZE: usize = 32 << 10;

/// The largest rest of a body that is read only to keep its connection.
const REST_MAX: usize = 16 << 10;

const USER_AGENT: HeaderValue = HeaderValue::from_static(concat!(
    "llm-router/",
    env!("CARGO_PKG_VERSION"),
    " (probe)"
));

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Sends the router's own requests. It uses no proxy, redirect, compression or time-out: the caller has one
/// time-out over the whole.
#[derive(Clone, Debug)]
pub(super) struct ProbeClient {
    connector: Connector,
    http: Builder,
}

/// A page and the request for it, built once and sent often.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    uri: Uri,
    request: Request<Full<Bytes>>,
}

/// The kind of request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question<'q> {
    /// The page to fetch.
    pub(super) place: &'q Endpoint,
    /// Time until the same endpoint is asked next. A connection is kept only when that is soon.
    pub(super) next_within: Duration,
}

/// The idle connection to one endpoint, at most one. A request that finds it in use opens another.
#[derive(Debug, Default)]
pub(super) struct KeptConnection(Mutex<Option<Kept>>);

#[derive(Debug)]
struct Kept {
    stream: Stream,
    scheme: Scheme,
    authority: Authority,
    since: Instant,
}

/// The reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    /// The peer refused, is unreachable, does not resolve, or TLS failed.
    #[error("connect: {0}")]
    Connect(#[source] Box<dyn Error + Send + Sync>),
    /// The peer took the request and broke off, or does not speak HTTP.
    #[error("no answer: {0}")]
    Broken(#[from] hyper::Error),
}

impl AskError {
    /// Whether the operating system timed out, which may happen before the caller's time-out.
    pub(super) fn is_time_out(&self) -> bool {
        is_time_out(self)
    }
}

/// The head of an answer. Dropping it closes the connection.
#[derive(Debug)]
pub(super) struct Answer<'l> {
    status: StatusCode,
    headers: HeaderMap,
    body: Incoming,
    /// Boxed, because an answer is moved through several futures.
    wire: Box<Driven<Stream, Full<Bytes>>>,
    line: &'l KeptConnection,
    kept_as: Option<(Scheme, Authority)>,
}

/// How reading a body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// All of it was read.
    Whole,
    /// It is longer than it may be.
    TooLong,
}

impl ProbeClient {
    /// A client that trusts the certificates of the platform.
    pub(super) fn new() -> Self {
        let mut http = Builder::new();
        http.read_buf_exact_size(Some(READ_SIZE));
        // Requests are small, so each goes out in one piece.
        http.writev(false);
        Self {
            connector: Connector::new(),
            http,
        }
    }

    /// Sends a request on the kept connection. Without one, or if it turns out to be dead, it opens
    /// a new connection: an engine may have closed the old one while it was idle, which says
    /// nothing about the engine. `connected` is set once a connection has taken the request. Cancel
    /// safe.
    ///
    /// # Errors
    /// When no new connection can be made, or a new one gives no answer.
    pub(super) async fn ask<'l>(
        &self,
        line: &'l KeptConnection,
        question: Question<'_>,
        connected: &AtomicBool,
    ) -> Result<Answer<'l>, AskError> {
        if let Some(stream) = line.take(&question.place.uri) {
            connected.store(true, Ordering::Relaxed);
            if let Ok(answer) = self.send(stream, line, question).await {
                return Ok(answer);
            }
            connected.store(false, Ordering::Relaxed);
        }
        let connecting = self.connector.connect(question.place.uri.clone());
        let stream = connecting.await.map_err(AskError::Connect)?;
        connected.store(true, Ordering::Relaxed);
        Ok(self.send(stream, line, question).await?)
    }

    async fn send<'l>(
        &self,
        stream: Stream,
        line: &'l KeptConnection,
        question: Question<'_>,
    ) -> Result<Answer<'l>, hyper::Error> {
        let mut wire = Box::new(Driven::new(&self.http, stream).await?);
        let (head, body) = wire
            .send(question.place.request.clone())
            .await?
            .into_parts();
        Ok(Answer {
            status: head.status,
            headers: head.headers,
            body,
            wire,
            line,
            kept_as: question.origin(),
        })
    }
}

impl Endpoint {
    /// The page at an absolute `uri`; `authorization` is the peer's credential.
    pub(super) fn new(uri: Uri, authorization: Option<&HeaderValue>) -> Self {
        let path = uri.path_and_query().cloned();
        let mut request = Request::new(Full::default());
        *request.uri_mut() = path
            .unwrap_or_else(|| PathAndQuery::from_static("/"))
            .into();
        let headers = request.headers_mut();
        let host = uri.authority().map_or("", Authority::as_str);
        if let Ok(host) = HeaderValue::from_str(host) {
            headers.insert(header::HOST, host);
        }
        headers.insert(header::ACCEPT, HeaderValue::from_static("*/*"));
        headers.insert(header::USER_AGENT, USER_AGENT);
        if let Some(authorization) = authorization {
            headers.insert(header::AUTHORIZATION, authorization.clone());
        }
        Self { uri, request }
    }

    /// The same place, for a POST of this JSON.
    pub(super) fn posting(mut self, json: Bytes) -> Self {
        *self.request.method_mut() = Method::POST;
        let headers = self.request.headers_mut();
        headers.insert(header::CONTENT_TYPE, JSON);
        *self.request.body_mut() = Full::new(json);
        self
    }
}

impl Question<'_> {
    /// The origin whose connection may be kept; `None` when the connection would be too old for the
    /// next request.
    fn origin(&self) -> Option<(Scheme, Authority)> {
        if self.next_within >= KEEP_IDLE {
            return None;
        }
        let uri = &self.place.uri;
        let (scheme, authority) = (uri.scheme()?, uri.authority()?);
        Some((scheme.clone(), authority.clone()))
    }
}

impl KeptConnection {
    /// The kept connection, if it leads to this endpoint and is young enough.
    fn take(&self, uri: &Uri) -> Option<Stream> {
        let kept = self.0.lock().take()?;
        let is_there =
            uri.scheme() == Some(&kept.scheme) && uri.authority() == Some(&kept.authority);
        let idle = Instant::now().duration_since(kept.since);
        (is_there && idle < KEEP_IDLE).then_some(kept.stream)
    }

    fn keep(&self, stream: Stream, (scheme, authority): (Scheme, Authority)) {
        let kept = Kept {
            stream,
            scheme,
            authority,
            since: Instant::now(),
        };
        // Another request's connection may be in the slot. Its socket is closed outside the lock.
        let other = self.0.lock().replace(kept);
        drop(other);
    }
}

impl Answer<'_> {
    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    pub(super) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Passes the body to `take`, chunk by chunk, and keeps the connection after the last chunk.
    /// Cancel safe: dropping the future closes the connection.
    ///
    /// # Errors
    /// When the connection ends within the body.
    pub(super) async fn read(
        mut self,
        max: usize,
        mut take: impl FnMut(&[u8]),
    ) -> Result<Read, AskError> {
        let mut left = max;
        while let Some(frame) = poll_fn(|cx| self.wire.poll_frame(cx, &mut self.body)).await {
            let Ok(chunk) = frame?.into_data() else {
                continue;
            };
            let Some(rest) = left.checked_sub(chunk.len()) else {
                return Ok(Read::TooLong);
            };
            left = rest;
            take(&chunk);
        }
        if let Some(origin) = self.kept_as
            && self.wire.rest()
            && let (stream, read) = self.wire.into_parts()
            // Unsolicited bytes answer nothing.
            && read.is_empty()
        {
            self.line.keep(stream, origin);
        }
        Ok(Read::Whole)
    }

    /// Drops an answer when only its head counts. The connection is kept if the rest has arrived
    /// already; this never waits.
    pub(super) fn leave(self) {
        let _ = self.read(REST_MAX, |_| ()).now_or_never();
    }
}

#[cfg(test)]
mod tests;
