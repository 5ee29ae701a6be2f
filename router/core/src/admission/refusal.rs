//! A refusal is a value: what was compared with what, and what would have admitted the request.
//!
//! Serialized, `reason` names the variant and the numbers stand beside it; absent ones are left out,
//! and numbers that are whole are written whole.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Gate;

/// No `Retry-After` is longer, in seconds: what is known about the load ages quickly.
pub const RETRY_AFTER_S_MAX: u64 = 60;

/// `Retry-After` without a usable peer, seconds: a ban takes a probe to lift.
const RETRY_NO_PEER_S: u64 = 5;

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
        /// How many cannot be read: their metrics are silent, or say that they take nothing.
        #[serde(skip_serializing_if = "is_zero", default)]
        stale: u32,
        /// How many are ejected, suspect or being probed.
        #[serde(skip_serializing_if = "is_zero", default)]
        ejected: u32,
        /// How many drain.
        #[serde(skip_serializing_if = "is_zero", default)]
        draining: u32,
    },
    /// The pool's in-flight has reached its limit, or this bucket's share of it.
    ConcurrencyLimit(Box<Full>),
    /// The pool's time to first token has reached its threshold.
    TtftLimit(Box<Slow>),
    /// The pool's decode rate has fallen to its threshold.
    TpsLimit(Box<Slow>),
}

/// The numbers of a full pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Full {
    /// Sum over the active tier's unbanned peers, before this request; only ours while `held` counts
    /// any. Of a pinned request only the
    /// peers that list its model, unless the adaptive limit, which is the whole tier's, is in force.
    pub in_flight: u64,
    /// The limit in force: of `pool_limit` and `adaptive` the one that leaves less room.
    #[serde(serialize_with = "crate::number::whole")]
    pub limit: f64,
    /// Sum of `max_concurrency` over the active tier's unbanned peers.
    pub pool_limit: u64,
    /// The adaptive value, stored or start point; absent while none acts.
    #[serde(serialize_with = "crate::number::whole_opt")]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub adaptive: Option<f64>,
    /// `rt_limit_factor` in force.
    #[serde(serialize_with = "crate::number::whole")]
    pub factor: f64,
    /// Share of the limit that the request's bucket may fill; absent while `session_prio` is off.
    #[serde(serialize_with = "crate::number::whole_opt")]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub share: Option<f64>,
    /// The most requests that may run for this one to be admitted, itself included.
    pub ceiling: u64,
    /// How many of those in flight would have had to end.
    pub must_end: u64,
    /// The five-minute average of in-flight.
    #[serde(serialize_with = "crate::number::whole")]
    pub avg_5min: f64,
    /// Unbanned peers of the active tier.
    pub healthy_peers: u32,
    /// How many of them are held: alive, too busy to be read, and assumed full.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub held: u32,
    /// Seconds for which the longest held one could not be read; absent without any.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub held_s: Option<u64>,
    /// Priority of the active tier.
    pub tier: i64,
    /// First turn of the request's bucket; absent while `session_prio` is off.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bucket: Option<u32>,
    /// The turn it named; absent without a usable header.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub turn: Option<u32>,
    /// When as many as had to will have ended, at the rate at which requests ended lately; seconds,
    /// 1 to [`RETRY_AFTER_S_MAX`].
    pub retry_after_s: u64,
}

/// The numbers of a pool that is too slow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slow {
    /// The metric that tripped, the first one in the table's order.
    pub metric: Arc<str>,
    /// Its average: milliseconds, or tokens per second.
    #[serde(serialize_with = "crate::number::whole")]
    pub ewma: f64,
    /// Its threshold, same unit.
    #[serde(serialize_with = "crate::number::whole")]
    pub threshold: f64,
    /// The bucket's tolerance; absent while `session_prio` is off.
    #[serde(serialize_with = "crate::number::whole_opt")]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tolerance: Option<f64>,
    /// `session_prio_severe`; absent while `session_prio` is off.
    #[serde(serialize_with = "crate::number::whole_opt")]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub severe: Option<f64>,
    /// True: the average is below the threshold again, but turn 1 is held out until it is below the
    /// release point.
    pub held: bool,
    /// The average below which (TTFT) or above which (TPS; at which, with `session_prio`) this
    /// request needs no probe slot.
    #[serde(serialize_with = "crate::number::whole")]
    pub admits_at: f64,
    /// The probe slots it could have had.
    #[serde(flatten)]
    pub probes: Probes,
    /// Unbanned peers of the active tier.
    pub healthy_peers: u32,
    /// Priority of the active tier.
    pub tier: i64,
    /// First turn of the request's bucket; absent while `session_prio` is off.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bucket: Option<u32>,
    /// The turn it named; absent without a usable header.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub turn: Option<u32>,
    /// When probe slots are given out again or, without any for this request, when the average is
    /// next renewed; seconds, 1 to [`RETRY_AFTER_S_MAX`].
    pub retry_after_s: u64,
}

/// The probe slots of one gate in one probe window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probes {
    /// Whose slots these are.
    #[serde(rename = "probe_budget")]
    pub budget: Budget,
    /// Taken in the current window.
    #[serde(rename = "probes_used")]
    pub used: u32,
    /// Given out in each window. Turn 1 gets none after a warm request has probed.
    #[serde(rename = "probes_per_window")]
    pub per_window: u32,
    /// Taken by warm requests in the current window; only beside turn 1's budget.
    #[serde(rename = "probes_used_by_warm")]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub used_by_warm: Option<u32>,
    /// Seconds until the window ends, rounded up.
    #[serde(rename = "probe_window_left_s")]
    pub window_left_s: u64,
}

/// Who shares a number of probe slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Budget {
    /// Everybody: `session_prio` is off.
    All,
    /// Buckets from the second on, and requests without a usable header.
    Warm,
    /// The first bucket.
    FirstTurn,
    /// Nobody: turn 1 while it is held out.
    None,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Refusal {
    /// The error code of the response body; also the reason in logs and counters.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoHealthyPeer { .. } => "no_healthy_peer",
            Self::ConcurrencyLimit(_) => "concurrency_limit",
            Self::TtftLimit(_) => "ttft_limit",
            Self::TpsLimit(_) => "tps_limit",
        }
    }

    /// The load gate that refused; `None` for want of a peer.
    pub fn gate(&self) -> Option<Gate> {
        match self {
            Self::NoHealthyPeer { .. } => None,
            Self::ConcurrencyLimit(_) => Some(Gate::Concurrency),
            Self::TtftLimit(_) => Some(Gate::Ttft),
            Self::TpsLimit(_) => Some(Gate::Tps),
        }
    }

    /// `Retry-After` in seconds, at least 1.
    pub fn retry_after_s(&self) -> u64 {
        match self {
            Self::NoHealthyPeer { .. } => RETRY_NO_PEER_S,
            Self::ConcurrencyLimit(full) => full.retry_after_s,
            Self::TtftLimit(slow) | Self::TpsLimit(slow) => slow.retry_after_s,
        }
    }

    /// First turn of the request's bucket; `None` while `session_prio` is off and for a request
    /// without a usable header, which no bucket counts.
    pub fn bucket(&self) -> Option<u32> {
        let (bucket, turn) = match self {
            Self::NoHealthyPeer { .. } => (None, None),
            Self::ConcurrencyLimit(full) => (full.bucket, full.turn),
            Self::TtftLimit(slow) | Self::TpsLimit(slow) => (slow.bucket, slow.turn),
        };
        turn.and(bucket)
    }
}
