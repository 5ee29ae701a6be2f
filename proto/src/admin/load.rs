//! The load of the engines as the router knows it, and the peers of sessions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `GET /proxy/metrics` with `Accept: application/json`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Backends {
    /// The peers of the routes that the caller's key may use, by route, then in file order.
    pub backends: Vec<Backend>,
    /// The same routes as a whole, by name.
    #[serde(default)]
    pub routes: Vec<RouteLoad>,
}

/// The requests of one route as a whole.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RouteLoad {
    /// The route.
    pub route: String,
    /// Requests that wait for a slot now.
    pub waiting: u32,
    /// Finished requests, by the status sent to the client.
    pub requests: BTreeMap<u16, u64>,
    /// Requests without a chosen peer, by error code.
    pub rejected: BTreeMap<String, u64>,
    /// Sessions evicted because of `max_sessions`.
    pub sessions_evicted: u64,
    /// Sessions that expired.
    pub sessions_expired: u64,
}

/// The current state of one peer of one route.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Backend {
    /// The route.
    pub route: String,
    /// The peer's name.
    pub backend: String,
    /// Requests that the engine reported, from all senders; absent without a sample.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub busy: Option<u32>,
    /// Requests of other senders among [`busy`](Self::busy); absent without a sample.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub external: Option<u32>,
    /// The router's own requests on the peer.
    pub in_flight: u32,
    /// The load that placement compares.
    pub load: u32,
    /// Number of requests that the peer runs at once, as placement uses it.
    pub slots: u32,
    /// The number of slots that the engine reports; absent if it reports none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub slots_reported: Option<u32>,
    /// The last sample is recent, or the peer is not polled.
    pub fresh: bool,
    /// Alive, but too busy to answer the poll, and assumed full.
    pub held: bool,
    /// Age of the last sample; absent without one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sample_age_seconds: Option<f64>,
    /// How long the peer has been idle, 0 while it has work; absent if it never had any, and where
    /// it is not polled.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub idle_seconds: Option<f64>,
    /// Sessions that live on the peer; absent where sessions are not remembered.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sessions: Option<u32>,
    /// Requests placed on the peer, by reason.
    #[serde(default)]
    pub selected: BTreeMap<String, u64>,
    /// Polls of the peer's load, by result; absent where it is not polled.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub polls: Option<BTreeMap<String, u64>>,
}

/// `GET /<route>/_sessions`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sessions {
    /// The route.
    pub route: String,
    /// Whether the route remembers the peers of sessions.
    pub remembered: bool,
    /// The session counts of each pool.
    pub pools: BTreeMap<String, PoolSessions>,
    /// The peers of the session in `?session_id=`: at most one entry per pool, none when the
    /// session is unknown or expired. Absent without `?session_id=`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub homes: Option<Vec<SessionHome>>,
}

/// The sessions of one pool.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolSessions {
    /// Number of sessions, including expired ones that no sweep has visited.
    pub sessions: u64,
    /// Sessions evicted because of `max_sessions`, since the start.
    pub evicted: u64,
    /// Sessions that a sweep found expired, since the start.
    pub expired: u64,
}

/// The peer on which a session lives.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionHome {
    /// The pool.
    pub pool: String,
    /// The peer's `host:port`.
    pub peer: String,
    /// The peer's name.
    pub name: String,
    /// Seconds since the session was placed there.
    pub age_s: f64,
    /// Seconds since the session was last used.
    pub idle_s: f64,
}

/// `GET /_sessions`: the sessions of every route that the caller may see.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AllSessions {
    /// Routes by name.
    pub routes: Vec<Sessions>,
}

/// `POST …/finish_session?session_id=`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinishedSession {
    /// Always `ok`, even if the session was unknown.
    pub status: String,
    /// The session.
    pub session_id: String,
    /// Number of pools that had the session; 0 when it was unknown, which is not an error.
    pub released: u32,
}
