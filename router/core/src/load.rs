//! How busy a peer is: what its engine said last, how far that can be trusted, and our own requests.
//!
//! A *sample* is one reading of an engine's load. A peer with a recent one is *fresh*. A peer whose
//! engine is alive but too busy to answer the poll is *held*: still a candidate, assumed full, for a
//! bounded time; a long prefill on llama.cpp blocks its metrics page for as long as it lasts, and
//! dropping the busiest engines would pile their traffic on the rest. Anything else that does not
//! answer is out.

mod idle;
mod reading;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use idle::Idle;
pub(crate) use idle::IdleSince;
pub use reading::Reading;

/// One reading of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Requests it computes.
    pub running: u32,
    /// Requests it queues.
    pub waiting: u32,
    /// Share of its KV cache in use, 0 to 1, where it says.
    pub kv_usage: Option<f64>,
    /// It batches continuously: it is full when it queues or its cache is, whatever its slots.
    pub batches: bool,
}

impl Sample {
    /// Requests that the engine has, whoever sent them.
    pub fn busy(self) -> u32 {
        self.running.saturating_add(self.waiting)
    }

    /// Whether the engine itself shows that it can take no more.
    fn is_saturated(self) -> bool {
        self.batches && (self.waiting > 0 || self.kv_usage.is_some_and(|usage| usage >= KV_FULL))
    }
}

/// A cache this full starts to evict what running requests need.
const KV_FULL: f64 = 0.95;

/// What one poll found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Report {
    /// A reading.
    Sampled(Sample),
    /// No load to be had from this engine, but it answers its health check: its load is our own
    /// in-flight.
    Blind,
    /// It sleeps; nothing may wake it but a request.
    Sleeping,
    /// It refused, reset, does not resolve or fails TLS.
    Dead,
    /// It is loading its model.
    Loading,
    /// It does not accept our credential.
    Misconfigured,
    /// It accepted the connection and did not answer in time. `answers_health`: its health check did.
    Hung {
        /// Whether `/health` answered 200.
        answers_health: bool,
    },
    /// An error, or a page without usable numbers: no new sample, the last one ages, and an engine
    /// that was silent is held no longer.
    Unusable,
}

impl Report {
    /// Whether the engine has answered as one does that can serve.
    pub(crate) fn is_good(self) -> bool {
        match self {
            Self::Sampled(_) | Self::Blind | Self::Sleeping => true,
            Self::Dead
            | Self::Loading
            | Self::Misconfigured
            | Self::Hung { .. }
            | Self::Unusable => false,
        }
    }
}

/// How much a peer's reading is worth now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Freshness {
    /// A recent sample, or polling is off.
    Fresh,
    /// Alive, too busy to be read: assumed full.
    Held,
    /// The last sample is too old, or there never was one.
    Stale,
    /// It refuses connections.
    Dead,
    /// It is loading its model.
    Loading,
    /// It does not accept our credential.
    Misconfigured,
}

impl Freshness {
    /// Whether the choice may pick such a peer.
    pub fn is_candidate(self) -> bool {
        matches!(self, Self::Fresh | Self::Held)
    }

    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Held => "held",
            Self::Stale => "stale",
            Self::Dead => "dead",
            Self::Loading => "loading",
            Self::Misconfigured => "misconfigured",
        }
    }
}

/// What becomes of a peer that cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StalePolicy {
    /// Alive but silent: held, for at most `hold_max`.
    #[default]
    Hold,
    /// Out as soon as its sample is too old.
    Exclude,
}

/// How own requests and the engine's count are added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadModel {
    /// Own requests that were in flight when the sample was taken are taken out of it.
    #[default]
    Corrected,
    /// `busy + in_flight`: own requests count twice once a poll has seen them.
    Additive,
}

/// The rules of a route.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadSpec {
    /// A sample older than this is not fresh.
    pub stale_after: Duration,
    /// What becomes of a peer that cannot be read.
    pub stale_policy: StalePolicy,
    /// The longest time from the last sample that a peer is held.
    pub hold_max: Duration,
    /// How counts are added up.
    pub model: LoadModel,
}

impl Default for LoadSpec {
    fn default() -> Self {
        Self {
            stale_after: Duration::from_secs(3),
            stale_policy: StalePolicy::Hold,
            hold_max: Duration::from_secs(60),
            model: LoadModel::Corrected,
        }
    }
}
