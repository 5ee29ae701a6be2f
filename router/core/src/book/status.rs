//! The numbers of a pool's gates, behind every status page and metric.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::admission::priority::Bucket;
use crate::admission::{Gate, Gates};

/// The gates of one pool at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Protection {
    /// In-flight over the active tier's usable peers.
    pub in_flight: u64,
    /// Sum of `max_concurrency` over the same peers.
    pub pool_limit: u64,
    /// The limit in force: the pool limit, or the adaptive one below it.
    pub limit: f64,
    /// Number of requests that wait for a slot.
    pub waiting: u32,
    /// TTFT.
    pub ttft: SignalState,
    /// Decode rate.
    pub tps: SignalState,
    /// Present with `adaptive_cc`.
    pub adaptive: Option<AdaptiveState>,
    /// The five-minute average of in-flight.
    pub average: Average,
}

/// The layer that a pool's thresholds come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThresholdSource {
    /// `*_metrics`.
    Declared,
    /// A limit set on the running router for this model.
    ModelOverride,
    /// A limit set on the running router for the route.
    Override,
    /// `*_limit_by_model`.
    Model,
    /// The route's own limit.
    Route,
    /// `defaults:`.
    Global,
    /// No threshold: measured, but never a reason to refuse.
    #[default]
    None,
}

/// One signal of one pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SignalState {
    /// Thresholds in force with their averages, in evaluation order. Without a threshold the
    /// default metric is still measured; its `threshold` is `None`.
    pub metrics: Vec<MetricState>,
    /// The layer that the thresholds come from.
    pub source: ThresholdSource,
    /// A runtime override, effective or not, and its remaining lifetime (`None` = for ever).
    pub runtime: Option<(f64, Option<Duration>)>,
    /// Time since the override was set.
    pub runtime_age: Option<Duration>,
    /// The threshold that would apply without the override.
    pub shadowed: Option<f64>,
    /// Probe slots taken in the current probe window, over all buckets.
    pub probes_used: u32,
    /// Whether the gate refuses any request now (turn 1 is refused first), apart from probe slots.
    pub tripped: bool,
    /// `session_prio`'s turn-1 hold flag (TTFT only).
    pub held: bool,
    /// Number of 2xx replies without readable usage (TPS only).
    pub no_usage: u64,
    /// Number of streams that the client left before usage was seen (TPS only).
    pub aborted: u64,
}

/// One metric of a signal.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricState {
    /// Name of the metric.
    pub name: Arc<str>,
    /// The quantile; `None` for the mean.
    pub q: Option<f64>,
    /// The threshold, in milliseconds or tokens per second.
    pub threshold: Option<f64>,
    /// The average now; `None` when cold or expired.
    pub ewma: Option<f64>,
}

/// The adaptive limit of one pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdaptiveState {
    /// False while neither signal has both a threshold and a switch that is on. The pool limit then
    /// applies.
    pub acting: bool,
    /// The stored limit; `None`: the start point is in force.
    pub stored: Option<f64>,
    /// The lower bound.
    pub min: u64,
    /// The largest tier sum.
    pub max: u64,
    /// Start point of a fresh or expired limit.
    pub init: u64,
    /// In-flight as the next tick would read it.
    pub concurrency: u64,
    /// Refusals for concurrency since the last tick that used them.
    pub rejected: u64,
    /// Whether a healthy tick would find that the load fills the limit.
    pub at_pressure: bool,
    /// Whether a healthy tick would find that the load leaves much of the limit unused.
    pub at_slack: bool,
    /// Whether any signal is present; without one a tick does nothing.
    pub has_signal: bool,
}

/// Ten slots of in-flight, one per `cluster_avg_interval`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Average {
    /// Slot number and in-flight of each filled slot.
    pub slots: Vec<(u32, u64)>,
    /// The current slot.
    pub current: u32,
    /// The mean of the slots; 0 without any.
    pub mean: f64,
}

/// Requests that tripped a gate while the master switch was off. A request that trips two gates
/// counts on both, even if a probe slot might have admitted it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trips {
    /// In-flight had reached the limit, or the bucket's share of it.
    pub concurrency: u64,
    /// TTFT had reached the threshold.
    pub ttft: u64,
    /// The decode rate had fallen to the threshold.
    pub tps: u64,
}

impl Trips {
    /// Counts one request that tripped these gates.
    pub(super) fn add(&mut self, tripped: Gates) {
        self.concurrency += u64::from(tripped.contains(Gate::Concurrency));
        self.ttft += u64::from(tripped.contains(Gate::Ttft));
        self.tps += u64::from(tripped.contains(Gate::Tps));
    }
}

/// `session_prio` of a route.
#[derive(Clone, Debug, PartialEq)]
pub struct PriorityState {
    /// The table in force with its counters, ascending.
    pub buckets: Vec<BucketState>,
    /// Requests without a usable header. They are judged as the last bucket, but counted only here.
    pub no_header: BucketCounters,
}

/// One bucket with its counters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BucketState {
    /// The row.
    pub bucket: Bucket,
    /// Outcomes of its requests.
    pub counters: BucketCounters,
}

/// Outcomes of requests while `session_prio` was on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BucketCounters {
    /// Number of placed requests.
    pub admitted: u64,
    /// Number of requests that a load gate refused.
    pub refused: u64,
    /// Prompt tokens of finished requests.
    pub prompt_tokens: u64,
    /// Prompt tokens of finished requests that came from a cache.
    pub cached_tokens: u64,
}

/// The requests of a minute in which too many had no usable `x-phanrouter-session` header.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NoHeader {
    /// Number of requests without a usable header.
    pub no_header: u64,
    /// Number of all requests.
    pub requests: u64,
    /// The share that triggers the warning.
    pub warn_frac: f64,
}
