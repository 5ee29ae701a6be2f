//! One exchange at its end. The access line, the metrics, the receipt and the body log's record all
//! read this value, so that they agree; nothing changes it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use http::uri::PathAndQuery;
use http::{Method, Uri};
use router_bodylog::{End, Facts, PeerNames};
use router_core::decision::{self, Attempt, Choice, Mode, Receipt};
use router_core::pool::PeerKey;

use answers::{Meter, Usage};

/// What is known of one exchange at its end. An absent fact means that the exchange ended before
/// there was one.
#[derive(Debug)]
pub struct Settled {
    /// `x-request-id`.
    pub rid: Arc<str>,
    /// Request method.
    pub method: Method,
    /// As the client sent it.
    pub uri: Uri,
    /// The path without the route prefix starts here.
    pub path_at: usize,
    /// The trace id of `traceparent`.
    pub trace_id: Option<Box<str>>,
    /// The route.
    pub route: Option<Arc<str>>,
    /// Owner of the key.
    pub owner: Option<Arc<str>>,
    /// The body's `model`, its first 128 bytes.
    pub model: Option<Arc<str>>,
    /// The session as `X-Routed-Session` shows it, `-` without one.
    pub session: Arc<str>,
    /// Where the session id was found, as `X-Routed-Source` shows it.
    pub source: Arc<str>,
    /// The decision.
    pub choice: Option<Choice>,
    /// One entry per peer tried.
    pub attempts: Vec<Attempt>,
    /// The operator's name of the peer tried last.
    pub peer_name: Option<Arc<str>>,
    /// Status sent to the client; 499 when it left before one was.
    pub status: u16,
    /// Bytes of the request body.
    pub bytes_in: u64,
    /// Bytes of the response body that the client was sent.
    pub bytes_out: u64,
    /// Monotonic times.
    pub times: Times,
    /// When it ended.
    pub ended_at: DateTime<Utc>,
    /// How the answer ended.
    pub end: End,
    /// What was read in the answer; absent where it was not read.
    pub meter: Option<Meter>,
}

/// When the steps of an exchange happened.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// The request's headers were read.
    pub arrived: Instant,
    /// Its body was read.
    pub received: Option<Instant>,
    /// It was first handed to a peer's connection.
    pub sent: Option<Instant>,
    /// The first body bytes of a peer's answer came.
    pub first_chunk: Option<Instant>,
    /// The first event of a stream with generated content came.
    pub first_token: Option<Instant>,
    /// The last ones came.
    pub last_chunk: Option<Instant>,
    /// The exchange was over.
    pub ended: Instant,
}

impl Times {
    /// From arrival to `at`.
    pub fn since_arrival(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.arrived)
    }

    /// From the request's last byte to its first send: the router's own share of the wait.
    pub fn overhead(&self) -> Option<Duration> {
        Some(self.sent?.saturating_duration_since(self.received?))
    }
}

impl Settled {
    /// The path without the route prefix and without the query.
    pub fn path(&self) -> &str {
        self.uri.path().get(self.path_at..).unwrap_or_default()
    }

    /// `host:port` of the peer that answered, or was tried last.
    pub fn peer(&self) -> Option<&PeerKey> {
        self.attempts.last().map(|attempt| &attempt.peer)
    }

    /// Attempts beyond the first.
    pub fn retries(&self) -> usize {
        self.attempts.len().saturating_sub(1)
    }

    /// How the peer was found.
    pub fn mode(&self) -> Option<Mode> {
        match self.choice {
            Some(Choice::Send { mode, .. }) => Some(mode),
            _ => None,
        }
    }

    /// Arrival to the last byte.
    pub fn took(&self) -> Duration {
        self.times.since_arrival(self.times.ended)
    }

    /// Arrival to the first body byte of whatever a peer answered.
    pub fn ttfb(&self) -> Option<Duration> {
        self.times
            .first_chunk
            .map(|at| self.times.since_arrival(at))
    }

    /// Arrival to the first event of a stream that carries generated content. A stream that is not
    /// read, because it is compressed in a way that is not decoded, has none.
    pub fn ttft(&self) -> Option<Duration> {
        self.times
            .first_token
            .map(|at| self.times.since_arrival(at))
    }

    /// The same in whole milliseconds.
    pub fn ttft_ms(&self) -> Option<u64> {
        let ms = self.ttft()?.as_millis();
        Some(u64::try_from(ms).unwrap_or(u64::MAX))
    }

    /// Tokens, where the answer told them.
    pub fn usage(&self) -> Option<Usage> {
        self.meter.as_ref().and_then(Meter::usage)
    }

    /// Tokens generated, where the answer told them.
    pub fn completion(&self) -> Option<u64> {
        self.meter.as_ref().and_then(Meter::completion)
    }

    /// Arrival, milliseconds since the Unix epoch.
    pub fn arrived_unix_ms(&self) -> i64 {
        (self.ended_at - self.took()).timestamp_millis()
    }

    /// Its receipt, where it had a route and a decision was made.
    pub fn receipt(&self) -> Option<Receipt> {
        let meter = self.meter.as_ref();
        Some(Receipt {
            request_id: Arc::clone(&self.rid),
            at_unix_ms: u64::try_from(self.arrived_unix_ms()).unwrap_or_default(),
            route: self.route.clone()?,
            decision: self.choice.clone()?,
            model: self.model.clone(),
            method: Arc::from(self.method.as_str()),
            path: Arc::from(self.path()),
            session: Arc::clone(&self.session),
            source: Arc::clone(&self.source),
            attempts: self.attempts.clone(),
            status: self.status,
            duration_ms: u64::try_from(self.took().as_millis()).unwrap_or(u64::MAX),
            ttft_ms: self.ttft_ms(),
            usage: self.usage().map(receipt_usage),
            finish_reason: meter.and_then(Meter::finish_reason).map(Arc::from),
            client_gone: self.end == End::Left,
        })
    }
}

impl router_bodylog::Settled for Settled {
    fn facts(&self) -> Facts<'_> {
        let target = self.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let peer = self.peer().zip(self.peer_name.as_deref());
        Facts {
            rid: &self.rid,
            method: self.method.as_str(),
            target: target.get(self.path_at..).unwrap_or("/"),
            owner: self.owner.as_deref(),
            model: self.model.as_deref(),
            source: &self.source,
            choice: self.choice.as_ref(),
            peer: peer.map(|(key, name)| PeerNames {
                key: key.as_str(),
                name,
            }),
            attempts: u32::try_from(self.attempts.len()).unwrap_or(u32::MAX),
            status: self.status,
            unix_ms: self.arrived_unix_ms(),
            arrived: self.times.arrived,
            queued: self.times.overhead(),
            took: self.took(),
            end: self.end,
            meter: self.meter.as_ref(),
        }
    }
}

fn receipt_usage(usage: Usage) -> decision::Usage {
    decision::Usage {
        prompt: usage.prompt,
        completion: usage.completion,
        cached: usage.cached,
        reasoning: usage.reasoning,
        total: usage.total,
    }
}

/// What a header says where there is nothing to say.
pub fn dash() -> Arc<str> {
    static DASH: std::sync::LazyLock<Arc<str>> = std::sync::LazyLock::new(|| Arc::from("-"));
    Arc::clone(&DASH)
}

/// What `X-Routed-Source` says of a request without a session.
pub fn no_source() -> Arc<str> {
    static NONE: std::sync::LazyLock<Arc<str>> = std::sync::LazyLock::new(|| Arc::from("none"));
    Arc::clone(&NONE)
}
