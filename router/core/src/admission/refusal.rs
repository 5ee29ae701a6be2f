//! A refusal is a value: the numbers that were compared, and the value that would have admitted the
//! request.
//!
//! In serialized form, `reason` names the variant and the numbers stand beside it. Absent numbers
//! are left out, and whole numbers are written without a fraction.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Gate;

/// Upper bound of `Retry-After`, in seconds: knowledge about the load ages quickly.
pub const RETRY_AFTER_S_MAX: u64 = 60;

/// `Retry-After` without a usable peer, in seconds: lifting a ban takes a probe.
const RETRY_NO_PEER_S: u64 = 5;

/// Why a request was not placed, with the numbers that caused it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Refusal {
    /// The pool has no usable peer.
    NoHealthyPeer {
        /// Peers of the pool, including banned and disabled ones.
        peers: u32,
        /// Number of banned peers.
        banned: u32,
        /// Number of peers whose metrics are silent or report that the peer accepts no requests.
        #[serde(skip_serializing_if = "is_zero", default)]
        stale: u32,
        /// Number of peers that are ejected, suspect or being probed.
        #[serde(skip_serializing_if = "is_zero", default)]
        ejected: u32,
        /// Number of draining peers.
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

/// The numbers behind the refusal of a full pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Full {
    /// In-flight of the active tier's unbanned peers, before this request. Counts only our requests
    /// while `held` is not 0. For a pinned request it covers only the peers that list its model,
    /// unless the adaptive limit is in force, which applies to the whole tier.
    pub in_flight: u64,
    /// The limit in force: whichever of `pool_limit` and `adaptive` leaves less room.
    #[serde(serialize_with = "crate::number::whole")]
    pub limit: f64,
    /// Sum of `max_concurrency` over the active tier's unbanned peers.
    pub pool_limit: u64,
    /// The adaptive limit, stored or start point; absent while no adaptive limit acts.
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
    /// The most requests that may run, including this one, for this one to be admitted.
    pub ceiling: u64,
    /// How many of the requests in flight have to end first.
    pub must_end: u64,
    /// The five-minute average of in-flight.
    #[serde(serialize_with = "crate::number::whole")]
    pub avg_5min: f64,
    /// Number of unbanned peers of the active tier.
    pub healthy_peers: u32,
    /// Number of these peers that are held: alive, too busy to answer the poll, and assumed full.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub held: u32,
    /// Seconds since the last successful poll of the peer that is held longest; absent without held
    /// peers.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub held_s: Option<u64>,
    /// Priority of the active tier.
    pub tier: i64,
    /// First turn of the request's bucket; absent while `session_prio` is off.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bucket: Option<u32>,
    /// The turn of the request; absent without a usable header.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub turn: Option<u32>,
    /// Estimated time until `must_end` requests have ended, from the recent rate of ending
    /// requests; seconds, 1 to [`RETRY_AFTER_S_MAX`].
    pub retry_after_s: u64,
}

/// The numbers behind the refusal of a slow pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slow {
    /// The metric that tripped; the first one in table order.
    pub metric: Arc<str>,
    /// Average of the metric: milliseconds, or tokens per second.
    #[serde(serialize_with = "crate::number::whole")]
    pub ewma: f64,
    /// Threshold of the metric, in the same unit.
    #[serde(serialize_with = "crate::number::whole")]
    pub threshold: f64,
    /// Tolerance of the bucket; absent while `session_prio` is off.
    #[serde(serialize_with = "crate::number::whole_opt")]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tolerance: Option<f64>,
    /// `session_prio_severe`; absent while `session_prio` is off.
    #[serde(serialize_with = "crate::number::whole_opt")]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub severe: Option<f64>,
    /// True when the average is below the threshold again, but turn 1 stays out until the average
    /// is below the release point.
    pub held: bool,
    /// The average below which (TTFT) or above which (TPS; also at it with `session_prio`) this
    /// request needs no probe slot.
    #[serde(serialize_with = "crate::number::whole")]
    pub admits_at: f64,
    /// The probe slots that this request could have used.
    #[serde(flatten)]
    pub probes: Probes,
    /// Number of unbanned peers of the active tier.
    pub healthy_peers: u32,
    /// Priority of the active tier.
    pub tier: i64,
    /// First turn of the request's bucket; absent while `session_prio` is off.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bucket: Option<u32>,
    /// The turn of the request; absent without a usable header.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub turn: Option<u32>,
    /// Seconds until the probe slots are reset or, for a request that gets no probe slots, until
    /// the average is next updated; 1 to [`RETRY_AFTER_S_MAX`].
    pub retry_after_s: u64,
}

/// The probe slots of one gate in one probe window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probes {
    /// Which requests share these slots.
    #[serde(rename = "probe_budget")]
    pub budget: Budget,
    /// Slots taken in the current window.
    #[serde(rename = "probes_used")]
    pub used: u32,
    /// Slots per window. Turn 1 gets none after a warm request has probed.
    #[serde(rename = "probes_per_window")]
    pub per_window: u32,
    /// Slots taken by warm requests in the current window; present only with turn 1's budget.
    #[serde(rename = "probes_used_by_warm")]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub used_by_warm: Option<u32>,
    /// Seconds until the window ends, rounded up.
    #[serde(rename = "probe_window_left_s")]
    pub window_left_s: u64,
}

/// Which requests share a number of probe slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Budget {
    /// All requests: `session_prio` is off.
    All,
    /// Buckets from the second on, and requests without a usable header.
    Warm,
    /// The first bucket.
    FirstTurn,
    /// No request: turn 1 while it is held out.
    None,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Refusal {
    /// The error code of the response body. Logs and counters use it as the reason.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoHealthyPeer { .. } => "no_healthy_peer",
            Self::ConcurrencyLimit(_) => "concurrency_limit",
            Self::TtftLimit(_) => "ttft_limit",
            Self::TpsLimit(_) => "tps_limit",
        }
    }

    /// The load gate that refused; `None` when the pool has no usable peer.
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

    /// First turn of the request's bucket. `None` while `session_prio` is off, and for a request
    /// without a usable header, which is counted in no bucket.
    pub fn bucket(&self) -> Option<u32> {
        let (bucket, turn) = match self {
            Self::NoHealthyPeer { .. } => (None, None),
            Self::ConcurrencyLimit(full) => (full.bucket, full.turn),
            Self::TtftLimit(slow) | Self::TpsLimit(slow) => (slow.bucket, slow.turn),
        };
        turn.and(bucket)
    }
}
