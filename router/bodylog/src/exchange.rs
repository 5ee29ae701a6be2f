//! What the body log asks of the router: plain values at the beginning of an exchange, and a look at
//! the settled exchange at its end.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::HeaderMap;
use router_core::decision::Choice;

use super::counters::RouteCounters;
use answers::Meter;

/// A place in a JSON body: names and list indices, outermost first, `*` for every member.
pub type BodyPath = Arc<[Box<str>]>;

/// What records say of their route, and where they are counted.
#[derive(Debug)]
pub struct RecordedRoute {
    /// The route's name.
    pub name: Arc<str>,
    /// Values of JSON bodies that are recorded as `[REDACTED]`.
    pub redact_paths: Vec<BodyPath>,
    /// Its counts.
    pub counters: Arc<RouteCounters>,
}

/// What is recorded of a route's exchanges while its switch is on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wanted {
    /// Share of requests, 0 to 100 percent; fractions count.
    pub pct: f64,
    /// Slower requests are recorded whatever the share.
    pub slow: Option<Duration>,
    /// Bytes kept of each body: of a request the first, of an answer the beginning and the end.
    /// 0 keeps none; above the capture's own caps those hold.
    pub body_bytes_max: u64,
}

/// A request whose caller may come in.
#[derive(Debug)]
pub struct Begun<'a> {
    /// Its route.
    pub route: &'a Arc<RecordedRoute>,
    /// What is recorded.
    pub wanted: Wanted,
    /// Its headers, as the client sent them.
    pub headers: &'a HeaderMap,
    /// The client's address.
    pub client: IpAddr,
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was relayed whole.
    Whole,
    /// The peer broke it off, or took too long.
    Broken,
    /// The client left.
    Left,
}

/// The names of the peer that answered, or was tried last.
#[derive(Clone, Copy, Debug)]
pub struct PeerNames<'e> {
    /// `host:port`.
    pub key: &'e str,
    /// Its name in the route file.
    pub name: &'e str,
}

/// What a record says beside what was captured, lent by the settled exchange.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'e> {
    /// `x-request-id`.
    pub rid: &'e str,
    /// Method.
    pub method: &'e str,
    /// Path and query as the client sent them, without the route's prefix.
    pub target: &'e str,
    /// Owner of the key.
    pub owner: Option<&'e str>,
    /// The model that was asked for.
    pub model: Option<&'e str>,
    /// Where the session id was found.
    pub source: &'e str,
    /// The decision, once one was made.
    pub choice: Option<&'e Choice>,
    /// The peer that answered, or was tried last.
    pub peer: Option<PeerNames<'e>>,
    /// Attempts made.
    pub attempts: u32,
    /// Status sent to the client.
    pub status: u16,
    /// Arrival, milliseconds since the Unix epoch.
    pub unix_ms: i64,
    /// The request's headers were read.
    pub arrived: Instant,
    /// From the request's last byte to its first send.
    pub queued: Option<Duration>,
    /// Arrival to the last byte.
    pub took: Duration,
    /// How the answer ended.
    pub end: End,
    /// What was read in the answer; `None` where it was not read.
    pub meter: Option<&'e Meter>,
}

impl Facts<'_> {
    /// A success that the peer broke off, or ended before it was complete. A client that left is no
    /// fault of the peer.
    pub(super) fn is_truncated(&self) -> bool {
        let is_success = (200..300).contains(&self.status);
        let fell_short =
            self.end == End::Whole && self.meter.is_some_and(|meter| !meter.is_complete());
        is_success && (self.end == End::Broken || fell_short)
    }
}

/// A settled exchange. The record owns it until the encoder has read it.
pub trait Settled: fmt::Debug + Send {
    /// What its record says.
    fn facts(&self) -> Facts<'_>;
}
