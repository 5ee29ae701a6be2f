//! What a router knows of its engines' load, and where sessions live.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `GET /proxy/metrics` with `Accept: application/json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Backends {
    /// The peers of the routes that the caller's key opens, by route, then in file order.
    pub backends: Vec<Backend>,
    /// The same routes, each as a whole, by name.
    #[serde(default)]
    pub routes: Vec<RouteLoad>,
}

/// One route's requests as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RouteLoad {
    /// The route.
    pub route: String,
    /// Requests that wait for a slot now.
    pub waiting: u32,
    /// Requests finished, by the status sent to the client.
    pub requests: BTreeMap<u16, u64>,
    /// Requests that no peer was chosen for, by the error's code.
    pub rejected: BTreeMap<String, u64>,
    /// Sessions pushed out by `max_sessions`.
    pub sessions_evicted: u64,
    /// Sessions that expired.
    pub sessions_expired: u64,
}

/// One peer of one route, as it is now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Backend {
    /// The route.
    pub route: String,
    /// The peer's name.
    pub backend: String,
    /// Requests that its engine said it had, whoever sent them; absent without a sample.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub busy: Option<u32>,
    /// Those of [`busy`](Self::busy) that others sent; absent without a sample.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub external: Option<u32>,
    /// The router's own requests on it.
    pub in_flight: u32,
    /// What placement compares.
    pub load: u32,
    /// Requests it runs at once, as placement takes it.
    pub slots: u32,
    /// The same, as its engine says; absent where it does not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub slots_reported: Option<u32>,
    /// Its last sample is recent, or it is not polled.
    pub fresh: bool,
    /// Alive, too busy to be read, taken for full.
    pub held: bool,
    /// Age of its last sample; absent without one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sample_age_seconds: Option<f64>,
    /// How long it has had nothing to do, 0 while it has; absent when it never had, and where it is
    /// not polled.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub idle_seconds: Option<f64>,
    /// Sessions that live on it; absent where none are remembered.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sessions: Option<u32>,
    /// Requests placed on it, by why.
    #[serde(default)]
    pub selected: BTreeMap<String, u64>,
    /// Polls of its load, by what they found; absent where it is not polled.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub polls: Option<BTreeMap<String, u64>>,
}

/// `GET /<route>/_sessions`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sessions {
    /// The route.
    pub route: String,
    /// Whether it remembers where sessions live.
    pub remembered: bool,
    /// What each pool remembers.
    pub pools: BTreeMap<String, PoolSessions>,
    /// Where the session of `?session_id=` lives: at most one entry a pool, none when it is unknown or has
    /// expired. Absent unless asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub homes: Option<Vec<SessionHome>>,
}

/// The sessions of one pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolSessions {
    /// How many there are, expired ones that no sweep has met included.
    pub sessions: u64,
    /// How many were pushed out by `max_sessions`, since the start.
    pub evicted: u64,
    /// How many a sweep found expired, since the start.
    pub expired: u64,
}

/// Where a session lives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionHome {
    /// The pool.
    pub pool: String,
    /// The peer's `host:port`.
    pub peer: String,
    /// The peer's name.
    pub name: String,
    /// Seconds since it was placed there.
    pub age_s: f64,
    /// Seconds since it was used.
    pub idle_s: f64,
}

/// `GET /_sessions`: of every route that the caller may see.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AllSessions {
    /// By name.
    pub routes: Vec<Sessions>,
}

/// `POST …/finish_session?session_id=`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinishedSession {
    /// `ok`, whether or not the session was known.
    pub status: String,
    /// The session.
    pub session_id: String,
    /// In how many pools it lived; 0 when it was unknown, which is no error.
    pub released: u32,
}
