//! The load of a peer: the engine's last sample, how far it can be trusted, and our own requests.
//!
//! A *sample* is one reading of an engine's load. A peer with a recent sample is *fresh*. A peer
//! whose engine is alive but too busy to answer the poll is *held*: it stays a candidate, assumed
//! full, for a bounded time. A long prefill on llama.cpp blocks its metrics page until it ends, and
//! dropping the busiest engines would move their traffic to the others. A peer that does not answer
//! for any other reason is out.

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
    /// Number of running requests.
    pub running: u32,
    /// Number of queued requests.
    pub waiting: u32,
    /// Share of the KV cache in use, 0 to 1, if the engine reports it.
    pub kv_usage: Option<f64>,
    /// The engine batches continuously: it is full when it queues or its cache is full, whatever
    /// its slots.
    pub batches: bool,
}

impl Sample {
    /// Requests on the engine, from all senders.
    pub fn busy(self) -> u32 {
        self.running.saturating_add(self.waiting)
    }

    /// Whether the engine's own numbers show that it has no room.
    fn is_saturated(self) -> bool {
        self.batches && (self.waiting > 0 || self.kv_usage.is_some_and(|usage| usage >= KV_FULL))
    }
}

/// From this usage on, the cache evicts data that running requests need.
const KV_FULL: f64 = 0.95;

/// The result of one poll.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Report {
    /// A sample.
    Sampled(Sample),
    /// The engine reports no load, but it answers its health check. Its load is our own in-flight.
    Blind,
    /// The engine sleeps, and only a request may wake it.
    Sleeping,
    /// The engine refused or reset the connection, its name does not resolve, or TLS fails.
    Dead,
    /// The engine is loading its model.
    Loading,
    /// The engine does not accept our credential.
    Misconfigured,
    /// The engine accepted the connection and did not answer in time. `answers_health`: its health
    /// check did.
    Hung {
        /// Whether `/health` answered 200.
        answers_health: bool,
    },
    /// An error, or a page without usable numbers. It gives no new sample and the last one ages. An
    /// engine that was silent is no longer held.
    Unusable,
}

impl Report {
    /// Whether the answer shows an engine that can serve.
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

/// How far a peer's reading can be trusted now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Freshness {
    /// A recent sample, or polling is off.
    Fresh,
    /// Alive, but too busy to answer the poll: assumed full.
    Held,
    /// The last sample is too old, or there never was one.
    Stale,
    /// The engine refuses connections.
    Dead,
    /// The engine is loading its model.
    Loading,
    /// The engine does not accept our credential.
    Misconfigured,
}

impl Freshness {
    /// Whether the choice may pick a peer in this state.
    pub fn is_candidate(self) -> bool {
        matches!(self, Self::Fresh | Self::Held)
    }

    /// The word for the state.
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

/// Treatment of a peer that cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StalePolicy {
    /// Alive but silent: held, for at most `hold_max`.
    #[default]
    Hold,
    /// Out as soon as its sample is too old.
    Exclude,
}

/// How our own requests and the engine's count are added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadModel {
    /// Own requests that were in flight when the sample was taken are taken out of it.
    #[default]
    Corrected,
    /// `busy + in_flight`: own requests count twice once a poll has seen them.
    Additive,
}

/// The load options of a route.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadSpec {
    /// A sample older than this is not fresh.
    pub stale_after: Duration,
    /// Treatment of a peer that cannot be read.
    pub stale_policy: StalePolicy,
    /// The longest time since the last sample for which a peer is held.
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
