//! What a pool's gates show: the numbers behind every status page and metric.

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
    /// Requests that wait for a slot.
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

/// Which layer a pool's thresholds come from.
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
    /// No threshold: measured, never refused.
    #[default]
    None,
}

/// One signal of one pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SignalState {
    /// Thresholds in force with their averages, in the order they are asked. Without a threshold the
    /// default metric is still measured: its `threshold` is `None`.
    pub metrics: Vec<MetricState>,
    /// Where the thresholds come from.
    pub source: ThresholdSource,
    /// A runtime override, effective or not, and what is left of its life (`None` = for ever).
    pub runtime: Option<(f64, Option<Duration>)>,
    /// How long that override has been set.
    pub runtime_age: Option<Duration>,
    /// What would hold without the override.
    pub shadowed: Option<f64>,
    /// Probe slots taken in the current probe window, all buckets together.
    pub probes_used: u32,
    /// Whether the gate refuses anybody now (turn 1 is refused first), probe slots aside.
    pub tripped: bool,
    /// `session_prio`'s turn-1 hold flag (TTFT only).
    pub held: bool,
    /// 2xx replies without usage that could be read (TPS only).
    pub no_usage: u64,
    /// Streams the client left before usage was seen (TPS only).
    pub aborted: u64,
}

/// One metric of a signal.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricState {
    /// Its name.
    pub name: Arc<str>,
    /// The quantile; `None` for the mean.
    pub q: Option<f64>,
    /// Milliseconds or tokens per second.
    pub threshold: Option<f64>,
    /// The average now; `None` when cold or expired.
    pub ewma: Option<f64>,
}

/// The adaptive limit of one pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdaptiveState {
    /// False while neither signal has a threshold and a switch that is on: the pool limit holds.
    pub acting: bool,
    /// The stored limit; `None`: the start point is in force.
    pub stored: Option<f64>,
    /// Bounds and start point.
    pub min: u64,
    /// The largest tier sum.
    pub max: u64,
    /// Where a fresh or expired limit starts.
    pub init: u64,
    /// In-flight as the next tick would read it.
    pub concurrency: u64,
    /// Refusals for concurrency since the last tick that used them.
    pub rejected: u64,
    /// What a healthy tick would find.
    pub at_pressure: bool,
    /// What a healthy tick would find.
    pub at_slack: bool,
    /// Whether any signal is there; without one a tick does nothing.
    pub has_signal: bool,
}

/// Ten slots of in-flight, one per `cluster_avg_interval`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Average {
    /// Slot number and in-flight, of the slots that hold one.
    pub slots: Vec<(u32, u64)>,
    /// The slot of now.
    pub current: u32,
    /// The mean of the slots; 0 without any.
    pub mean: f64,
}

/// Requests that tripped a gate while the master switch was off. One that trips two gates counts on
/// both; a probe slot might have admitted it.
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
    /// Counts one request that tripped these.
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
    /// Requests without a usable header: judged as the last bucket, counted here alone.
    pub no_header: BucketCounters,
}

/// One bucket with its counters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BucketState {
    /// The row.
    pub bucket: Bucket,
    /// What became of its requests.
    pub counters: BucketCounters,
}

/// What became of requests while `session_prio` was on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BucketCounters {
    /// Placed.
    pub admitted: u64,
    /// Refused by a load gate.
    pub refused: u64,
    /// Prompt tokens of the finished ones.
    pub prompt_tokens: u64,
    /// How many of them came from a cache.
    pub cached_tokens: u64,
}

/// The requests of one minute, where too many had no usable `x-phanrouter-session` header.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NoHeader {
    /// How many had none.
    pub no_header: u64,
    /// Of how many.
    pub requests: u64,
    /// The share that is worth a warning.
    pub warn_frac: f64,
}
