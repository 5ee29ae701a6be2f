//! Whether a request may come in at all. One file per gate; a refusal is a value, not an error.

pub mod concurrency;
pub mod priority;

use serde::{Deserialize, Serialize};

/// Why a request was not placed, with the numbers that caused it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Refusal {
    /// The pool has no usable peer.
    NoHealthyPeer {
        /// Peers of the pool, banned and disabled ones included.
        peers: u32,
        /// How many of them are banned.
        banned: u32,
    },
    /// The pool's in-flight has reached its limit.
    ConcurrencyLimit {
        /// Sum over the active tier's unbanned peers, before this request.
        in_flight: u64,
        /// Sum of `max_concurrency` over the same peers.
        limit: u64,
        /// `rt_limit_factor` in force.
        factor: f64,
        /// Unbanned peers of the active tier.
        healthy_peers: u32,
        /// Priority of the active tier.
        tier: i64,
    },
}

impl Refusal {
    /// The error code of the response body; also the reason in logs and counters.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoHealthyPeer { .. } => "no_healthy_peer",
            Self::ConcurrencyLimit { .. } => "concurrency_limit",
        }
    }

    /// `Retry-After` in seconds: a ban takes a probe to lift, a slot frees within the second.
    pub fn retry_after_s(&self) -> u64 {
        match self {
            Self::NoHealthyPeer { .. } => 5,
            Self::ConcurrencyLimit { .. } => 1,
        }
    }
}
