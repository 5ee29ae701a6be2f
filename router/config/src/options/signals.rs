//! The two load signals of a route: time to first token and decode rate.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use router_core::signal::Metric;

use super::define::options;
use super::{Bounds, Kind, Meta, OptionDef, option, switch, within};
use crate::check;

/// The largest threshold: a day in milliseconds, and far above the rate of any engine.
const THRESHOLD_MAX: f64 = 86_400_000.0;

/// Bounds of a threshold.
const THRESHOLD: Bounds = Bounds::above(0.0, THRESHOLD_MAX);

/// Bounds of a threshold in a table.
const IN_TABLE: Bounds = Bounds::within(0.0, THRESHOLD_MAX);

/// Bounds of a share above 0.
pub(super) const SHARE: Bounds = Bounds::above(0.0, 1.0);

/// Bounds of the requests that pass per window. At least one, because a gate that lets no request
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

options! {
    /// What both load signals have: `ttft_*` or `tps_*`.
    pub struct SignalOptions, declared in TTFT: SignalTable;

    "ttft" {
        /// The switch behind `/_ttft_toggle`. When it is off, TTFT is not measured, and neither the
        /// gate nor the adaptive limit sees it.
        enabled: bool = switch("ttft_enabled").default("true");

        /// Requests are refused while a pool's average time to first token, in milliseconds, is at
        /// or above this. The average is taken of each window's 80th percentile and smoothed over
        /// windows. A running request is never ended for being slow.
        limit: Option<f64> = option("ttft_limit_ms", Kind::NumberOrOff(THRESHOLD)).default("off");

        /// Thresholds by key of `peers_by_model`. They take precedence over `ttft_limit_ms`.
        limit_by_model: BTreeMap<Arc<str>, f64> = option("ttft_limit_by_model", Kind::Thresholds(THRESHOLD))
            .default("{}");

        /// A table of metrics; the gate closes when any of them is at its threshold. It takes
        /// precedence over every other threshold, runtime ones included. `q` is the quantile
        /// itself, high for the slow end; `avg` has none.
        metrics: Option<Arc<[Metric]>> = option("ttft_metrics", Kind::Metrics).default("off");

        /// Weight of the newest window in the average.
        ewma_alpha: f64 = option("ttft_ewma_alpha", Kind::Number(SHARE)).default("0.3").advanced();

        /// Length of one histogram.
        window: Duration = option("ttft_window", within(10, 24)).default("20s").advanced();

        /// How long the average holds after its last window. Without an average the gate is open.
        ttl: Duration = option("ttft_ttl", within(10, 24)).default("60s").advanced();

        /// Length of a probe window.
        probe_window: Duration = option("ttft_probe_window", within(10, 24)).default("10s").advanced();

        /// How many requests a closed gate lets through in each probe window.
        probe_per_window: u32 = option("ttft_probe_per_window", PROBES).default("5").advanced();
    }
}

options! {
    also in TPS: SignalTable;

    "tps" {
        /// The switch behind `/_tps_toggle`. When it is off, the decode rate is not measured, and
        /// neither the gate nor the adaptive limit sees it.
        enabled = switch("tps_enabled").default("true");

        /// Requests are refused while a pool's average decode rate, in tokens per second, is at or
        /// below this. With `adaptive_cc` the limit shrinks instead. The average is taken of each
        /// window's 20th percentile and smoothed over windows.
        limit = option("tps_limit_tps", Kind::NumberOrOff(THRESHOLD)).default("off");

        /// Thresholds by key of `peers_by_model`. They take precedence over `tps_limit_tps`.
        limit_by_model = option("tps_limit_by_model", Kind::Thresholds(THRESHOLD)).default("{}");

        /// A table of metrics; the gate closes when any of them is at its threshold. It takes
        /// precedence over every other threshold, runtime ones included. `q` is the quantile
        /// itself, low for the slow end; `avg` has none.
        metrics = option("tps_metrics", Kind::Metrics).default("off");

        /// Weight of the newest window in the average.
        ewma_alpha = option("tps_ewma_alpha", Kind::Number(SHARE)).default("0.3").advanced();

        /// Length of one histogram.
        window = option("tps_window", within(10, 24)).default("20s").advanced();

        /// Life of the average after its last window; without one the gate is open.
        ttl = option("tps_ttl", within(10, 24)).default("60s").advanced();

        /// The period of the probe quota.
        probe_window = option("tps_probe_window", within(10, 24)).default("10s").advanced();

        /// Requests let through a pool in each probe window while its gate is tripped.
        probe_per_window = option("tps_probe_per_window", PROBES).default("5").advanced();
    }
}
