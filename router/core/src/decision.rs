//! The receipt: every fact a decision used.

use serde::{Deserialize, Serialize};

use crate::admission::Refusal;
use crate::affinity::Hash;
use crate::pool::PeerKey;

/// How the peer was found; the text of `X-Routed-Mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The session's home.
    Hash,
    /// The session's home is banned or saturated: `balance` among the healthy.
    HashFallback,
    /// No session: `balance: least_conn`.
    LeastConn,
    /// No session: `balance: round_robin`.
    RoundRobin,
    /// No session: `balance: power_of_two`.
    PowerOfTwo,
}

impl Mode {
    /// The header's text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::HashFallback => "hash_fallback",
            Self::LeastConn => "least_conn",
            Self::RoundRobin => "round_robin",
            Self::PowerOfTwo => "power_of_two",
        }
    }
}

/// Whether a session's home could take the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HomeState {
    /// It took the request.
    Usable,
    /// It is banned.
    Banned,
    /// It is at its own maximum.
    Saturated,
}

/// The home of a session, as the hash gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Home {
    /// The function used.
    pub hash: Hash,
    /// Index in the pool, file order.
    pub index: u32,
    /// The `crc32` value, or the winning weight.
    pub score: u64,
    /// Whether it could take the request.
    pub state: HomeState,
}

/// The facts of one decision, taken under the route's lock. Small and `Copy`: it is made for every
/// request.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// Priority of the active tier.
    pub tier: i64,
    /// Sum of `max_concurrency` over the active tier's unbanned peers.
    pub limit: u64,
    /// `rt_limit_factor` in force.
    pub factor: f64,
    /// In-flight over the same peers, before this request.
    pub in_flight: u64,
    /// Unbanned peers of the active tier.
    pub healthy_peers: u32,
    /// Where the session lives; absent without one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub home: Option<Home>,
    /// The chosen peer's own in-flight before this request.
    pub peer_in_flight: u32,
    /// The chosen peer's `max_concurrency`.
    pub peer_slots: u32,
}

/// One peer as an explanation shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerFacts {
    /// `host:port`.
    pub peer: PeerKey,
    /// The operator's name for it.
    pub name: String,
    /// Its tier.
    pub priority: i64,
    /// Requests reserved on it and not released.
    pub in_flight: u32,
    /// `max_concurrency`.
    pub slots: u32,
    /// False: never chosen.
    pub enabled: bool,
    /// Whether it is banned now.
    pub banned: bool,
    /// Seconds until the ban ends by itself.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ban_left_s: Option<u64>,
    /// Whether the choice could take it now (enabled, unbanned, in the active tier).
    pub candidate: bool,
    /// Its weight for this session, with the rendezvous hashes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub score: Option<u64>,
}

/// What would happen to a request, with every fact behind it. Nothing is counted or reserved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// Every peer of the pool, file order.
    pub peers: Vec<PeerFacts>,
    /// The placement, or the refusal.
    pub outcome: Outcome,
}

/// The end of an explanation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It would be sent.
    Send {
        /// `host:port`.
        peer: PeerKey,
        /// The operator's name for it.
        name: String,
        /// How it was found.
        mode: Mode,
        /// The numbers.
        facts: Facts,
    },
    /// It would be refused.
    Refuse(Refusal),
}
