//! A finished exchange. The access line, the metrics, the receipt and the body log's record all
//! read this value, so that they agree. The value does not change.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use http::uri::PathAndQuery;
use http::{Method, Uri};
use router_bodylog::{End, Facts, PeerNames};
use router_core::decision::{self, Attempt, Choice, Hop, Mode, Receipt};
use router_core::pool::PeerKey;

use answers::{Meter, Usage};

/// The facts about one exchange at its end. A fact is absent when the exchange ended before it was
/// known.
#[derive(Debug)]
pub struct Settled {
    /// `x-request-id`.
    pub rid: Arc<str>,
    /// Request method.
    pub method: Method,
    /// The target, as the client sent it.
    pub uri: Uri,
    /// Offset of the path without the route prefix.
    pub path_at: usize,
    /// The trace ID from `traceparent`.
    pub trace_id: Option<Box<str>>,
    /// The route.
    pub route: Option<Arc<str>>,
    /// The owner of the key.
    pub owner: Option<Arc<str>>,
    /// The body's `model`, limited to 128 bytes.
    pub model: Option<Arc<str>>,
    /// The model's name at the engine, when the client asked for it by an alias.
    pub served_model: Option<Arc<str>>,
    /// The session in the form of `X-Routed-Session`; `-` without one.
    pub session: Arc<str>,
    /// The source of the session ID, in the form of `X-Routed-Source`.
    pub source: Arc<str>,
    /// The decision.
    pub choice: Option<Choice>,
    /// The routes that could not take the request, in the order of trial.
    pub hops: Vec<Hop>,
    /// One entry per peer tried.
    pub attempts: Vec<Attempt>,
    /// Pings that the client got because the engine was silent.
    pub pings: u32,
    /// The configured name of the peer that was tried last.
    pub peer_name: Option<Arc<str>>,
    /// Status sent to the client; 499 when the client disconnected before that.
    pub status: u16,
    /// Bytes of the request body.
    pub bytes_in: u64,
    /// Bytes of the response body that were sent to the client.
    pub bytes_out: u64,
    /// Monotonic times.
    pub times: Times,
    /// End time of the exchange.
    pub ended_at: DateTime<Utc>,
    /// How the answer ended.
    pub end: End,
    /// Measurements from the answer; absent when the answer was not parsed.
    pub meter: Option<Meter>,
}

/// The times of the steps of an exchange.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// The request's headers were read.
    pub arrived: Instant,
    /// The request's body was read.
    pub received: Option<Instant>,
    /// The request was first passed to a peer's connection.
    pub sent: Option<Instant>,
    /// The first body bytes of a peer's answer arrived.
    pub first_chunk: Option<Instant>,
    /// The first event with generated content arrived.
    pub first_token: Option<Instant>,
    /// The last body bytes arrived.
    pub last_chunk: Option<Instant>,
    /// The exchange ended.
    pub ended: Instant,
}

impl Times {
    /// Time from arrival to `at`.
    pub fn since_arrival(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.arrived)
    }

    /// Time from the request's last byte to its first send: the router's own part of the latency.
    pub fn overhead(&self) -> Option<Duration> {
        Some(self.sent?.saturating_duration_since(self.received?))
    }
}

impl Settled {
    /// The path without the route prefix and without the query.
    pub fn path(&self) -> &str {
        self.uri.path().get(self.path_at..).unwrap_or_default()
    }

    /// `host:port` of the peer that answered, or that was tried last.
    pub fn peer(&self) -> Option<&PeerKey> {
        self.attempts.last().map(|attempt| &attempt.peer)
    }

    /// Attempts beyond the first.
    pub fn retries(&self) -> usize {
        self.attempts.len().saturating_sub(1)
    }

    /// How the router found the peer.
    pub fn mode(&self) -> Option<Mode> {
        match self.choice {
            Some(Choice::Send { mode, .. }) => Some(mode),
            _ => None,
        }
    }

    /// Time from arrival to the last byte.
    pub fn took(&self) -> Duration {
        self.times.since_arrival(self.times.ended)
    }

    /// Time from arrival to the first body byte of any peer's answer.
    pub fn ttfb(&self) -> Option<Duration> {
        self.times
            .first_chunk
            .map(|at| self.times.since_arrival(at))
    }

    /// Time from arrival to the first event of a stream with generated content. Absent for a stream
    /// with a compression that the router does not decode.
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

    /// Token counts, when the answer reports them.
    pub fn usage(&self) -> Option<Usage> {
        self.meter.as_ref().and_then(Meter::usage)
    }

    /// Generated tokens, when the answer reports them.
    pub fn completion(&self) -> Option<u64> {
        self.meter.as_ref().and_then(Meter::completion)
    }

    /// Arrival, milliseconds since the Unix epoch.
    pub fn arrived_unix_ms(&self) -> i64 {
        (self.ended_at - self.took()).timestamp_millis()
    }

    /// The receipt; absent without a route or a decision.
    pub fn receipt(&self) -> Option<Receipt> {
        let meter = self.meter.as_ref();
        Some(Receipt {
            request_id: Arc::clone(&self.rid),
            at_unix_ms: u64::try_from(self.arrived_unix_ms()).unwrap_or_default(),
            route: self.route.clone()?,
            decision: self.choice.clone()?,
            model: self.model.clone(),
            served_model: self.served_model.clone(),
            method: Arc::from(self.method.as_str()),
            path: Arc::from(self.path()),
            session: Arc::clone(&self.session),
            source: Arc::clone(&self.source),
            hops: self.hops.clone(),
            attempts: self.attempts.clone(),
            pings: self.pings,
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
            first_token: self.ttft(),
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

/// The header value for an absent fact.
pub fn dash() -> Arc<str> {
    static DASH: std::sync::LazyLock<Arc<str>> = std::sync::LazyLock::new(|| Arc::from("-"));
    Arc::clone(&DASH)
}

/// The value of `X-Routed-Source` for a request without a session.
pub fn no_source() -> Arc<str> {
    static NONE: std::sync::LazyLock<Arc<str>> = std::sync::LazyLock::new(|| Arc::from("none"));
    Arc::clone(&NONE)
}
