//! The two signals a route is judged by: time to first token and decode rate. What a route says
//! about them; the measuring is in [`window`](crate::window), the gates in
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
    /// Arrival of a streamed request to its first content byte, milliseconds. High is bad.
    Ttft,
    /// Tokens per second. Low is bad.
    Tps,
}

impl Signal {
    /// Both, in the order their gates are asked.
    pub const ALL: [Self; 2] = [Self::Ttft, Self::Tps];

    /// As options, metrics and endpoints spell it.
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

/// Which number of a window's distribution a metric is.
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
    /// Its name; the EWMA is kept under it, so that a table may be re-ordered.
    pub name: Arc<str>,
    /// What it is.
    pub statistic: Statistic,
    /// Milliseconds or tokens per second, at least 0.
    pub threshold: f64,
}

/// A threshold of a route or a model with the layer that set it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// Milliseconds or tokens per second.
    pub value: f64,
    /// `Route` or `Global`.
    pub source: Source,
}

/// What a route says about one signal. Precedence of thresholds: table, runtime override, model,
/// route, global default.
#[derive(Clone, Debug, PartialEq)]
pub struct SignalSpec {
    /// `*_metrics`: beats everything, overrides included.
    pub table: Option<Arc<[Metric]>>,
    /// `ttft_limit_ms` or `tps_limit_tps`.
    pub limit: Option<Limit>,
    /// `*_limit_by_model`, by `peers_by_model` key.
    pub by_model: BTreeMap<Arc<str>, f64>,
    /// Weight of the newest window, 0 to 1.
    pub alpha: f64,
    /// Length of one histogram.
    pub window: Duration,
    /// Life of the averages after the last fold.
    pub ttl: Duration,
    /// The period of the probe quota.
    pub probe_window: Duration,
    /// Requests let through in each period while the gate is tripped.
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
    /// A stream of a 2xx showed its first content byte, milliseconds after its arrival.
    Ttft(f64),
    /// A 2xx ended with usable usage: completion tokens per second.
    Tps(f64),
    /// A 2xx ended without usage that could be read.
    NoUsage,
    /// The client left before usage could be seen. Kept apart from [`NoUsage`](Self::NoUsage).
    Aborted,
}
