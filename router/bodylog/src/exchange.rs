//! The interface from the router to the body log: plain values at the beginning of an exchange, and
//! a view of the settled exchange at its end.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::HeaderMap;
use router_core::decision::Choice;

use super::counters::RouteCounters;
use answers::Meter;

/// A path in a JSON body: names and list indices, outermost first. `*` matches every member.
pub type BodyPath = Arc<[Box<str>]>;

/// The data about a route that its records need, and its counters.
#[derive(Debug)]
pub struct RecordedRoute {
    /// The route's name.
    pub name: Arc<str>,
    /// Values of JSON bodies that are recorded as `[REDACTED]`.
    pub redact_paths: Vec<BodyPath>,
    /// Its counters.
    pub counters: Arc<RouteCounters>,
}

/// The recording settings of a route while recording is on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wanted {
    /// Share of requests, 0 to 100 percent. Fractions are allowed.
    pub pct: f64,
    /// Slower requests are recorded regardless of the share.
    pub slow: Option<Duration>,
    /// Bytes kept of each body: the beginning of a request, the beginning and the end of an answer.
    /// 0 keeps none. The capture's own caps limit larger values.
    pub body_bytes_max: u64,
}

/// An admitted request.
#[derive(Debug)]
pub struct Begun<'a> {
    /// Its route.
    pub route: &'a Arc<RecordedRoute>,
    /// Its recording settings.
    pub wanted: Wanted,
    /// Its headers, as the client sent them.
    pub headers: &'a HeaderMap,
    /// The client's address.
    pub client: IpAddr,
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The whole answer was relayed.
    Whole,
    /// The peer aborted it or took too long.
    Broken,
    /// The client disconnected.
    Left,
}

/// The names of the peer that answered, or of the last one tried.
#[derive(Clone, Copy, Debug)]
pub struct PeerNames<'e> {
    /// `host:port`.
    pub key: &'e str,
    /// Its name in the route file.
    pub name: &'e str,
}

/// The values of a record other than the captured ones, borrowed from the settled exchange.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'e> {
    /// `x-request-id`.
    pub rid: &'e str,
    /// Method.
    pub method: &'e str,
    /// Path and query as the client sent them, without the route's prefix.
    pub target: &'e str,
    /// The owner of the API key.
    pub owner: Option<&'e str>,
    /// The requested model.
    pub model: Option<&'e str>,
    /// Where the session id was found.
    pub source: &'e str,
    /// The routing decision, if one was made.
    pub choice: Option<&'e Choice>,
    /// The peer that answered, or the last one tried.
    pub peer: Option<PeerNames<'e>>,
    /// Number of attempts.
    pub attempts: u32,
    /// The status sent to the client.
    pub status: u16,
    /// Arrival, milliseconds since the Unix epoch.
    pub unix_ms: i64,
    /// When the request's headers had been read.
    pub arrived: Instant,
    /// Time from the request's last byte to its first send.
    pub queued: Option<Duration>,
    /// Time from arrival to the first event of a stream with generated content.
    pub first_token: Option<Duration>,
    /// Time from arrival to the last byte.
    pub took: Duration,
    /// How the answer ended.
    pub end: End,
    /// The values read from the answer; `None` if it was not read.
    pub meter: Option<&'e Meter>,
}

impl Facts<'_> {
    /// Whether a success was aborted by the peer or ended before it was complete. A client that
    /// disconnects is not the peer's fault.
    pub(super) fn is_truncated(&self) -> bool {
        let is_success = (200..300).contains(&self.status);
        let fell_short =
            self.end == End::Whole && self.meter.is_some_and(|meter| !meter.is_complete());
        is_success && (self.end == End::Broken || fell_short)
    }
}

/// A settled exchange. The record owns it until the encoder has read it.
pub trait Settled: fmt::Debug + Send {
    /// The values for its record.
    fn facts(&self) -> Facts<'_>;
}
