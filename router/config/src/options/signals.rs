//! The two load signals of a route: time to first token and decode rate.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use router_core::signal::Metric;

use super::{Bounds, Kind, Meta, OptionDef, within};
use crate::check;

/// The options that both signals have.
pub(crate) struct SignalKnobs {
    /// `*_enabled`.
    pub(crate) enabled: &'static OptionDef<bool>,
    /// `ttft_limit_ms`, `tps_limit_tps`.
    pub(crate) limit: &'static OptionDef<Option<f64>>,
    /// `*_limit_by_model`.
    pub(crate) limit_by_model: &'static OptionDef<BTreeMap<Arc<str>, f64>>,
    /// `*_metrics`.
    pub(crate) metrics: &'static OptionDef<Option<Arc<[Metric]>>>,
    /// `*_ewma_alpha`.
    pub(crate) ewma_alpha: &'static OptionDef<f64>,
    /// `*_window`.
    pub(crate) window: &'static OptionDef<Duration>,
    /// `*_ttl`.
    pub(crate) ttl: &'static OptionDef<Duration>,
    /// `*_probe_window`.
    pub(crate) probe_window: &'static OptionDef<Duration>,
    /// `*_probe_per_window`.
    pub(crate) probe_per_window: &'static OptionDef<u32>,
}

/// `ttft_*`.
pub(crate) static TTFT: SignalKnobs = SignalKnobs {
    enabled: &TTFT_ENABLED,
    limit: &TTFT_LIMIT_MS,
    limit_by_model: &TTFT_LIMIT_BY_MODEL,
    metrics: &TTFT_METRICS,
    ewma_alpha: &TTFT_EWMA_ALPHA,
    window: &TTFT_WINDOW,
    ttl: &TTFT_TTL,
    probe_window: &TTFT_PROBE_WINDOW,
    probe_per_window: &TTFT_PROBE_PER_WINDOW,
};

/// `tps_*`.
pub(crate) static TPS: SignalKnobs = SignalKnobs {
    enabled: &TPS_ENABLED,
    limit: &TPS_LIMIT_TPS,
    limit_by_model: &TPS_LIMIT_BY_MODEL,
    metrics: &TPS_METRICS,
    ewma_alpha: &TPS_EWMA_ALPHA,
    window: &TPS_WINDOW,
    ttl: &TPS_TTL,
    probe_window: &TPS_PROBE_WINDOW,
    probe_per_window: &TPS_PROBE_PER_WINDOW,
};

/// The greatest threshold: a day in milliseconds, and far more than any engine's rate.
const THRESHOLD_MAX: f64 = 86_400_000.0;

/// What a threshold may be.
const THRESHOLD: Bounds = Bounds::above(0.0, THRESHOLD_MAX);

/// What a threshold in a table may be.
const IN_TABLE: Bounds = Bounds::within(0.0, THRESHOLD_MAX);

/// A share that is more than nothing.
pub(super) const SHARE: Bounds = Bounds::above(0.0, 1.0);

/// How many requests a window may let through. At least one, because a gate that lets nobody
/// through never learns that the pool has recovered.
const PROBES: Kind = Kind::Whole {
    min: 1,
    max: 1_000_000,
};

/// The keys of one row of `ttft_metrics` or `tps_metrics`.
pub(crate) static METRIC_ROW: &[&Meta] =
    &[&METRIC_NAME.meta, &METRIC_Q.meta, &METRIC_THRESHOLD.meta];

/// `*_metrics[].metric`.
pub(crate) static METRIC_NAME: OptionDef<Arc<str>> =
    OptionDef::new("metric", "metric", Kind::Text, check::text)
        .default("required")
        .doc("Its name: `avg`, or a name for the quantile such as `p95`. The average is kept under it, so a table may be re-ordered.");
/// `*_metrics[].q`.
pub(crate) static METRIC_Q: OptionDef<f64> = OptionDef::new(
    "metric",
    "q",
    Kind::Number(Bounds::between(0.0, 1.0)),
    check::number,
)
.default("required, unless `metric` is `avg`")
.doc("The quantile of a window's distribution, literally: a decode rate that 95 % of requests reach is `.05`. `avg` ignores it.");
/// `*_metrics[].threshold`.
pub(crate) static METRIC_THRESHOLD: OptionDef<f64> =
    OptionDef::new("metric", "threshold", Kind::Number(IN_TABLE), check::number)
        .default("required")
        .doc("Milliseconds, or tokens per second.");

/// `ttft_enabled`.
pub(crate) static TTFT_ENABLED: OptionDef<bool> =
    OptionDef::new("ttft", "ttft_enabled", Kind::Bool, check::boolean)
        .default("true")
        .doc("The switch behind `/_ttft_toggle`: off, nothing is measured, and neither the gate nor the adaptive limit sees this signal.");
/// `ttft_429`.
pub(crate) static TTFT_429: OptionDef<bool> =
    OptionDef::new("ttft", "ttft_429", Kind::Bool, check::boolean)
        .default("true")
        .doc("The switch behind `/_ttft_429_toggle`: off, nobody is refused for it, while measuring and the adaptive limit go on.");
/// `ttft_limit_ms`.
pub(crate) static TTFT_LIMIT_MS: OptionDef<Option<f64>> = OptionDef::new(
    "ttft",
    "ttft_limit_ms",
    Kind::NumberOrOff(THRESHOLD),
    check::number_or_off,
)
.default("off")
.doc("Refuse while a pool's average time to first token is at or above this, milliseconds. The average is smoothed over windows and taken of each window's 80th percentile; no request is ever cut for being slow.");
/// `ttft_limit_by_model`.
pub(crate) static TTFT_LIMIT_BY_MODEL: OptionDef<BTreeMap<Arc<str>, f64>> = OptionDef::new(
    "ttft",
    "ttft_limit_by_model",
    Kind::Thresholds(THRESHOLD),
    check::thresholds,
)
.default("{}")
.doc("The same by `peers_by_model` key; beats `ttft_limit_ms`.");
/// `ttft_metrics`.
pub(crate) static TTFT_METRICS: OptionDef<Option<Arc<[Metric]>>> = OptionDef::new(
    "ttft",
    "ttft_metrics",
    Kind::Metrics,
    check::metrics,
)
.default("off")
.doc("A table of metrics that trips the gate when any of them does; beats every other threshold, runtime ones included. `q` is the literal quantile, high for the slow end; `avg` has none.");
/// `ttft_ewma_alpha`.
pub(crate) static TTFT_EWMA_ALPHA: OptionDef<f64> = OptionDef::new(
    "ttft",
    "ttft_ewma_alpha",
    Kind::Number(SHARE),
    check::number,
)
.default("0.3")
.doc("Weight of the newest window in the average.")
.advanced();
/// `ttft_window`.
pub(crate) static TTFT_WINDOW: OptionDef<Duration> =
    OptionDef::new("ttft", "ttft_window", within(10, 24), check::duration)
        .default("20s")
        .doc("Length of one histogram.")
        .advanced();
/// `ttft_ttl`.
pub(crate) static TTFT_TTL: OptionDef<Duration> =
    OptionDef::new("ttft", "ttft_ttl", within(10, 24), check::duration)
        .default("60s")
        .doc("Life of the average after its last window; without one the gate is open.")
        .advanced();
/// `ttft_probe_window`.
pub(crate) static TTFT_PROBE_WINDOW: OptionDef<Duration> =
    OptionDef::new("ttft", "ttft_probe_window", within(10, 24), check::duration)
        .default("10s")
        .doc("The period of the probe quota.")
        .advanced();
/// `ttft_probe_per_window`.
pub(crate) static TTFT_PROBE_PER_WINDOW: OptionDef<u32> =
    OptionDef::new("ttft", "ttft_probe_per_window", PROBES, check::whole)
        .default("5")
        .doc("Requests let through a pool in each probe window while its gate is tripped.")
        .advanced();

/// `tps_enabled`.
pub(crate) static TPS_ENABLED: OptionDef<bool> =
    OptionDef::new("tps", "tps_enabled", Kind::Bool, check::boolean)
        .default("true")
        .doc("The switch behind `/_tps_toggle`: off, nothing is measured, and neither the gate nor the adaptive limit sees this signal.");
/// `tps_limit_tps`.
pub(crate) static TPS_LIMIT_TPS: OptionDef<Option<f64>> = OptionDef::new(
    "tps",
    "tps_limit_tps",
    Kind::NumberOrOff(THRESHOLD),
    check::number_or_off,
)
.default("off")
.doc("Refuse while a pool's average decode rate is at or below this, tokens per second; with `adaptive_cc` the limit shrinks below it instead. The average is smoothed over windows and taken of each window's 20th percentile.");
/// `tps_limit_by_model`.
pub(crate) static TPS_LIMIT_BY_MODEL: OptionDef<BTreeMap<Arc<str>, f64>> = OptionDef::new(
    "tps",
    "tps_limit_by_model",
    Kind::Thresholds(THRESHOLD),
    check::thresholds,
)
.default("{}")
.doc("The same by `peers_by_model` key; beats `tps_limit_tps`.");
/// `tps_metrics`.
pub(crate) static TPS_METRICS: OptionDef<Option<Arc<[Metric]>>> = OptionDef::new(
    "tps",
    "tps_metrics",
    Kind::Metrics,
    check::metrics,
)
.default("off")
.doc("A table of metrics that trips when any of them does; beats every other threshold, runtime ones included. `q` is the literal quantile, low for the slow end; `avg` has none.");
/// `tps_ewma_alpha`.
pub(crate) static TPS_EWMA_ALPHA: OptionDef<f64> =
    OptionDef::new("tps", "tps_ewma_alpha", Kind::Number(SHARE), check::number)
        .default("0.3")
        .doc("Weight of the newest window in the average.")
        .advanced();
/// `tps_window`.
pub(crate) static TPS_WINDOW: OptionDef<Duration> =
    OptionDef::new("tps", "tps_window", within(10, 24), check::duration)
        .default("20s")
        .doc("Length of one histogram.")
        .advanced();
/// `tps_ttl`.
pub(crate) static TPS_TTL: OptionDef<Duration> =
    OptionDef::new("tps", "tps_ttl", within(10, 24), check::duration)
        .default("60s")
        .doc("Life of the average after its last window; without one the gate is open.")
        .advanced();
/// `tps_probe_window`.
pub(crate) static TPS_PROBE_WINDOW: OptionDef<Duration> =
    OptionDef::new("tps", "tps_probe_window", within(10, 24), check::duration)
        .default("10s")
        .doc("The period of the probe quota.")
        .advanced();
/// `tps_probe_per_window`.
pub(crate) static TPS_PROBE_PER_WINDOW: OptionDef<u32> =
    OptionDef::new("tps", "tps_probe_per_window", PROBES, check::whole)
        .default("5")
        .doc("Requests let through a pool in each probe window while its gate is tripped.")
        .advanced();
/// `tps_min_tokens`.
pub(crate) static TPS_MIN_TOKENS: OptionDef<u32> = OptionDef::new(
    "tps",
    "tps_min_tokens",
    Kind::Whole {
        min: 1,
        max: 1_000_000,
    },
    check::whole,
)
.default("16")
.doc("Completions of fewer tokens are not measured.")
.advanced();
/// `tps_min_decode_s`.
pub(crate) static TPS_MIN_DECODE_S: OptionDef<Duration> =
    OptionDef::new("tps", "tps_min_decode_s", within(0, 24), check::duration)
        .default("0.5")
        .doc("Completions that took less time to decode are not measured.")
        .advanced();
