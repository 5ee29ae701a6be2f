//! The two signals that a route is judged by: time to first token and decode rate. This module has
//! a route's options for them; the measuring is in [`window`](crate::window), the gates in
//! [`admission`](crate::admission).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::layered::Source;

/// A measured quantity of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// Time from the arrival of a streamed request to its first content byte, milliseconds. High is
    /// bad.
    Ttft,
    /// Tokens per second. Low is bad.
    Tps,
}

impl Signal {
    /// Both signals, in the evaluation order of their gates.
    pub const ALL: [Self; 2] = [Self::Ttft, Self::Tps];

    /// The spelling in options, metrics and endpoints.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ttft => "ttft",
            Self::Tps => "tps",
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The statistic of a window's distribution that a metric uses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Statistic {
    /// The mean of the raw samples.
    Mean,
    /// The literal quantile, strictly between 0 and 1. "p80" of a decode rate is the quantile 0.2.
    Quantile(f64),
}

/// One row of `ttft_metrics` or `tps_metrics`.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Name of the metric. The EWMA is stored under it, so that a table may be re-ordered.
    pub name: Arc<str>,
    /// The statistic.
    pub statistic: Statistic,
    /// Milliseconds or tokens per second, at least 0.
    pub threshold: f64,
}

/// A threshold of a route or a model, with the layer that set it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// Milliseconds or tokens per second.
    pub value: f64,
    /// `Route` or `Global`.
    pub source: Source,
}

/// A route's options for one signal. Precedence of thresholds: table, runtime override, model,
/// route, global default.
#[derive(Clone, Debug, PartialEq)]
pub struct SignalSpec {
    /// `*_metrics`: overrides all other thresholds, including runtime overrides.
    pub table: Option<Arc<[Metric]>>,
    /// `ttft_limit_ms` or `tps_limit_tps`.
    pub limit: Option<Limit>,
    /// `*_limit_by_model`, by `peers_by_model` key.
    pub by_model: BTreeMap<Arc<str>, f64>,
    /// Weight of the newest window, 0 to 1.
    pub alpha: f64,
    /// Length of one measurement window.
    pub window: Duration,
    /// Lifetime of the averages after the last fold.
    pub ttl: Duration,
    /// The period of the probe quota.
    pub probe_window: Duration,
    /// Requests admitted in each period while the gate is tripped.
    pub probes_per_window: u32,
}

impl Default for SignalSpec {
    fn default() -> Self {
        Self {
            table: None,
            limit: None,
            by_model: BTreeMap::new(),
            alpha: 0.3,
            window: Duration::from_secs(20),
            ttl: Duration::from_secs(60),
            probe_window: Duration::from_secs(10),
            probes_per_window: 5,
        }
    }
}

/// One measurement of a finished or streaming request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sample {
    /// A stream with a 2xx status showed its first content byte, milliseconds after the request's
    /// arrival.
    Ttft(f64),
    /// A 2xx ended with usable usage: completion tokens per second.
    Tps(f64),
    /// A 2xx reply ended without readable usage.
    NoUsage,
    /// The client left before usage was seen. Counted apart from [`NoUsage`](Self::NoUsage).
    Aborted,
}
