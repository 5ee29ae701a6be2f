//! The state of a route's load gates: thresholds and averages, adaptive limits, refusals by reason,
//! warm and new sessions.
//!
//! Pools are named by their `peers_by_model` key; the single pool of a flat route is named `_`.
//! Where a name ends in `_ms` or `_tps`, the unit is that of the signal: an answer has only the
//! fields of its own signal.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};

/// The key of a flat route's pool.
pub const FLAT_POOL: &str = "_";

/// `GET /<route>/_rate_limit_status`: the master switch of the three load gates.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateLimitStatus {
    /// The route.
    pub route: String,
    /// When false, the gates refuse no request and only count.
    pub enabled: bool,
    /// The layer that sets the switch.
    pub source: String,
    /// Requests that were admitted although a gate tripped, by gate; one request may trip two. The
    /// refusals do not include them.
    pub trips: Trips,
}

/// Trips while the master switch was off, since the start or the last reset.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trips {
    /// The concurrency gate.
    pub concurrency: u64,
    /// The TTFT gate.
    pub ttft: u64,
    /// The decode rate gate.
    pub tps: u64,
}

/// Refused requests by reason. Every reason is always present.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reasons {
    /// The pool was full, answered with `full_status`.
    pub concurrency: u64,
    /// The pool's time to first token was too high.
    pub ttft: u64,
    /// The pool's decode rate was too low.
    pub tps: u64,
    /// A content rule matched.
    pub rule: u64,
}

impl Reasons {
    /// Sum of all reasons.
    pub fn total(&self) -> u64 {
        self.concurrency + self.ttft + self.tps + self.rule
    }

    /// Adds the numbers of another route.
    pub fn add(&mut self, other: &Self) {
        self.concurrency += other.concurrency;
        self.ttft += other.ttft;
        self.tps += other.tps;
        self.rule += other.rule;
    }
}

/// `GET /<route>/_429_status`, `?all=1` for every route: refusals since the start or the last reset.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusalStatus {
    /// The route, or `all`.
    pub scope: String,
    /// Sum of the reasons.
    pub total: u64,
    /// Sums over the scope.
    pub by_reason: Reasons,
    /// Every route of the scope.
    pub by_route: BTreeMap<String, Reasons>,
    /// The master switch of the requested route.
    pub rate_limit: RateLimitStatus,
}

/// `POST /<route>/_429_status?reset=1`, with `all=1` for every route. `/metrics` is not reset.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusalReset {
    /// Always true.
    pub reset: bool,
    /// The route, or `all`.
    pub scope: String,
    /// The numbers before the reset.
    pub before: Reasons,
}

/// `GET /<route>/_session_status`: `session_prio` and its effects.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionStatus {
    /// The route.
    pub route: String,
    /// Whether turns affect admission now.
    pub enabled: bool,
    /// The layer that sets the switch.
    pub source: String,
    /// The buckets in force, ascending.
    pub table: Vec<SessionBucket>,
    /// Requests without a usable header. They are judged as the last bucket, but counted only here.
    pub nohdr: u64,
    /// Number of these requests that were placed.
    pub nohdr_admitted: u64,
    /// Number of these requests that a load gate refused.
    pub nohdr_refused: u64,
    /// Prompt tokens of finished requests, over all buckets and the requests without a header.
    pub ptok: u64,
    /// Prompt tokens that came from a cache.
    pub ctok: u64,
    /// `ctok` ÷ `ptok`; absent before the first token.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hit_rate: Option<f64>,
    /// At threshold × this every bucket is refused.
    pub severe: f64,
    /// Turn 1 is admitted again below threshold × this.
    pub release: f64,
    /// Probe slots of turn 1 per window.
    pub t1_probes: u32,
    /// Share of requests without a header in one minute that triggers a warning.
    pub warn_frac: f64,
    /// Whether turn 1 is held out, by pool.
    pub held: BTreeMap<String, bool>,
}

/// One bucket of [`SessionStatus`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionBucket {
    /// First turn of the bucket.
    pub min_turn: u32,
    /// Share of the concurrency limit that the bucket may fill.
    pub share: f64,
    /// Tolerance: multiplies the TTFT threshold and divides the TPS threshold.
    pub tol: f64,
    /// Number of placed requests.
    pub admitted: u64,
    /// Number of requests that a load gate refused.
    pub refused: u64,
    /// Prompt tokens.
    pub ptok: u64,
    /// Cached tokens.
    pub ctok: u64,
    /// `ctok` ÷ `ptok`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hit_rate: Option<f64>,
}

/// `GET /<route>/_cluster_avg`: the five-minute average of in-flight, of the route and per pool. A
/// peer that two pools name counts in both.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterAvg {
    /// The route.
    pub route: String,
    /// All pools together.
    #[serde(flatten)]
    pub sum: PoolAvg,
    /// Each pool by its key.
    pub pools: BTreeMap<String, PoolAvg>,
}

/// One average of [`ClusterAvg`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolAvg {
    /// In-flight now.
    pub realtime_sum: u64,
    /// In-flight by slot number (0 to 9), for the slots that have a value.
    pub buckets: BTreeMap<String, u64>,
    /// Number of these slots.
    pub samples: usize,
    /// Mean of these slots; 0 without any.
    #[serde(serialize_with = "plain")]
    pub avg_5min: f64,
    /// The current slot.
    pub cur_bucket_idx: u32,
}

/// `GET /<route>/_ttft_status`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TtftStatus {
    /// The fields that both signals have.
    #[serde(flatten)]
    pub signal: SignalStatus,
    /// Whether TTFT refuses requests (`ttft_429`). When off, TTFT only shrinks the adaptive limit.
    pub ttft_429_enabled: bool,
    /// The layer that sets this switch.
    pub ttft_429_source: String,
    /// `ttft_limit_ms` of the files.
    #[serde(
        skip_serializing_if = "Option::is_none",
        default,
        serialize_with = "plain_option"
    )]
    pub ttft_limit_ms: Option<f64>,
    /// `ttft_limit_by_model`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub ttft_limit_by_model: BTreeMap<String, f64>,
    /// Average of each pool's first metric; pools without one are left out.
    pub ewma_ms: BTreeMap<String, f64>,
}

/// `GET /<route>/_tps_status`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TpsStatus {
    /// The fields that both signals have.
    #[serde(flatten)]
    pub signal: SignalStatus,
    /// Whether the files set a limit. `active` says whether it has an effect.
    pub opt_in: bool,
    /// The layer of the thresholds: `declared`, `override`, `route`, `global_default` or `none`.
    pub tps_limit_source: String,
    /// `tps_limit_tps` of the files.
    #[serde(
        skip_serializing_if = "Option::is_none",
        default,
        serialize_with = "plain_option"
    )]
    pub tps_limit_tps: Option<f64>,
    /// `tps_limit_by_model`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub tps_limit_by_model: BTreeMap<String, f64>,
    /// Average of each pool's first metric; pools without one are left out.
    pub ewma_tps: BTreeMap<String, f64>,
    /// 2xx replies without readable usage, by pool.
    pub nousage_samples: BTreeMap<String, u64>,
    /// Streams that the client left before usage was seen, by pool.
    pub aborted_samples: BTreeMap<String, u64>,
    /// Whether the route has an adaptive limit. Its numbers are present only in that case.
    pub adaptive_cc_on: bool,
    /// The adaptive limits.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub adaptive: Option<AdaptiveStatus>,
}

/// The common fields of `_ttft_status` and `_tps_status`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SignalStatus {
    /// The route.
    pub route: String,
    /// The switch in the files.
    pub global_enabled: bool,
    /// Whether the signal is switched off on the running router.
    pub runtime_off: bool,
    /// The switch in force.
    pub active: bool,
    /// The layer that sets it.
    pub source: String,
    /// Whether the signal is active and some pool has a threshold.
    pub enforcing: bool,
    /// Weight of the newest window.
    pub alpha: f64,
    /// Seconds from one window's start to the next.
    #[serde(serialize_with = "plain")]
    pub window: f64,
    /// Seconds that an average lives without a new window.
    #[serde(serialize_with = "plain")]
    pub ttl: f64,
    /// Length of a probe window, seconds.
    #[serde(serialize_with = "plain")]
    pub probe_window: f64,
    /// Requests admitted per probe window while the gate is tripped.
    pub probe_per_window: u32,
    /// Probe slots taken in the current window, over all pools.
    pub probe_used_cur_window: u64,
    /// Each pool.
    pub metrics: Vec<PoolSignal>,
}

/// One pool of a [`SignalStatus`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolSignal {
    /// The pool.
    pub model: String,
    /// `declared`, `override`, `static` or `none`.
    pub source: String,
    /// The layer in full: `declared`, `model_override`, `override`, `model`, `route`, `global`,
    /// `none`.
    pub layer: String,
    /// Thresholds with their averages, in evaluation order.
    pub items: Vec<MetricItem>,
    /// The threshold that would apply without the override in force.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub shadowed: Option<Shadowed>,
    /// An override that a declared table makes ineffective.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ignored_override: Option<IgnoredOverride>,
    /// Seconds until the override expires; absent without an override, and if it does not expire.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub override_left_s: Option<u64>,
    /// Seconds since the override was set; absent without one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub override_age_s: Option<u64>,
    /// Whether the gate refuses requests now, apart from probe slots.
    pub tripped: bool,
    /// Whether turn 1 is held out (TTFT, `session_prio`).
    pub held: bool,
    /// Probe slots taken in the current window.
    pub probe_used: u32,
}

/// One metric of a pool.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MetricItem {
    /// Name of the metric.
    pub metric: String,
    /// The quantile; absent for the mean.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub q: Option<f64>,
    /// Milliseconds; absent without a threshold.
    #[serde(
        skip_serializing_if = "Option::is_none",
        default,
        serialize_with = "plain_option"
    )]
    pub threshold_ms: Option<f64>,
    /// The average; absent when cold or expired.
    #[serde(
        skip_serializing_if = "Option::is_none",
        default,
        serialize_with = "plain_option"
    )]
    pub ewma_ms: Option<f64>,
    /// Tokens per second.
    #[serde(
        skip_serializing_if = "Option::is_none",
        default,
        serialize_with = "plain_option"
    )]
    pub threshold_tps: Option<f64>,
    /// The average.
    #[serde(
        skip_serializing_if = "Option::is_none",
        default,
        serialize_with = "plain_option"
    )]
    pub ewma_tps: Option<f64>,
}

/// The threshold that an override hides.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shadowed {
    /// `static`.
    pub source: String,
    /// Milliseconds.
    #[serde(
        skip_serializing_if = "Option::is_none",
        default,
        serialize_with = "plain_option"
    )]
    pub threshold_ms: Option<f64>,
    /// Tokens per second.
    #[serde(
        skip_serializing_if = "Option::is_none",
        default,
        serialize_with = "plain_option"
    )]
    pub threshold_tps: Option<f64>,
}

/// An override that has no effect.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IgnoredOverride {
    /// Milliseconds.
    #[serde(
        skip_serializing_if = "Option::is_none",
        default,
        serialize_with = "plain_option"
    )]
    pub override_ms: Option<f64>,
    /// Tokens per second.
    #[serde(
        skip_serializing_if = "Option::is_none",
        default,
        serialize_with = "plain_option"
    )]
    pub override_tps: Option<f64>,
    /// The reason.
    pub reason: String,
}

/// The adaptive limits of a route. Every map is keyed by pool.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdaptiveStatus {
    /// The stored limit. A pool without one is at its start point.
    pub adaptive_cc: BTreeMap<String, f64>,
    /// The limit in force; at most the pool's own limit.
    pub adaptive_cc_limit: BTreeMap<String, f64>,
    /// Floor.
    pub adaptive_cc_min: BTreeMap<String, u64>,
    /// The largest tier sum.
    pub adaptive_cc_max: BTreeMap<String, u64>,
    /// Start point.
    pub adaptive_cc_init: BTreeMap<String, u64>,
    /// Whether the limit stays during low traffic: it then neither shrinks nor expires.
    pub adaptive_cc_hold_when_idle: bool,
    /// In-flight as the next tick would read it.
    pub adaptive_cc_conc: BTreeMap<String, u64>,
    /// Whether a healthy tick would find that the load fills the limit.
    pub adaptive_cc_at_pressure: BTreeMap<String, bool>,
    /// Whether a healthy tick would find that the load leaves much of the limit unused.
    pub adaptive_cc_at_slack: BTreeMap<String, bool>,
    /// Whether any signal is present. Without one a tick changes nothing.
    pub adaptive_cc_has_signal: BTreeMap<String, bool>,
    /// False while neither signal has both a threshold and a switch that is on. The pool limit then
    /// applies.
    pub adaptive_cc_acting: BTreeMap<String, bool>,
    /// The limit grows only if in-flight is at least this share of it.
    pub adaptive_cc_pressure_frac: f64,
    /// Below this share the limit follows the load down.
    pub adaptive_cc_slack_frac: f64,
    /// Slots kept above the current in-flight.
    #[serde(serialize_with = "plain")]
    pub adaptive_cc_abs: f64,
    /// Refusals that no tick has used yet.
    pub adaptive_cc_rej: BTreeMap<String, u64>,
    /// Seconds between two ticks.
    #[serde(serialize_with = "plain")]
    pub adaptive_cc_interval: f64,
}

/// Writes whole numbers without a fraction, because people read the thresholds.
fn plain<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() < EXACT {
        serializer.serialize_i64(*value as i64)
    } else {
        serializer.serialize_f64(*value)
    }
}

pub(super) fn plain_option<S: Serializer>(
    value: &Option<f64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => plain(value, serializer),
        None => serializer.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_thresholds_are_written_without_a_fraction_and_read_back() {
        let item = MetricItem {
            metric: "p80".to_owned(),
            q: Some(0.8),
            threshold_ms: Some(30000.0),
            ewma_ms: Some(6850.5),
            ..MetricItem::default()
        };
        let text = r#"{"metric":"p80","q":0.8,"threshold_ms":30000,"ewma_ms":6850.5}"#;
        assert_eq!(serde_json::to_string(&item).unwrap(), text);
        assert_eq!(serde_json::from_str::<MetricItem>(text).unwrap(), item);
    }

    #[test]
    fn a_cluster_average_reads_back() {
        let text = r#"{"route":"chat-a","realtime_sum":7,"buckets":{"3":9,"4":11,"5":7},"samples":3,"avg_5min":9,"cur_bucket_idx":5,"pools":{}}"#;
        let read: ClusterAvg = serde_json::from_str(text).unwrap();
        assert_eq!(read.sum.buckets["4"], 11);
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
    }
}
