//! Adaptive concurrency: a limit that grows while it is needed and healthy, and shrinks when the
//! pool's TTFT or decode rate says that it is overloaded.

use std::time::Duration;

/// `adaptive_cc_*`: coefficients of a route; the bounds follow per pool from its peers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdaptiveSpec {
    /// Between two ticks.
    pub interval: Duration,
    /// Shrinks the limit, above 0 and below 1.
    pub dec: f64,
    /// Grows the limit, above 1.
    pub inc: f64,
    /// Absolute floor, at least 1; beats the fraction.
    pub min: Option<u32>,
    /// Floor as a share of the static maximum, above 0 and at most 1.
    pub min_frac: f64,
    /// Absolute start point, at least 1; beats the fraction.
    pub init: Option<u32>,
    /// Start point as a share of the static maximum.
    pub init_frac: Option<f64>,
    /// Grow only from this share of the limit upward, above 0 and at most 1.
    pub pressure_frac: f64,
    /// Below this share the limit follows load down; below `pressure_frac`.
    pub slack_frac: f64,
    /// Slots kept above live concurrency (`adaptive_cc_abs`), at least 0.
    pub headroom: f64,
    /// Life of a limit that no tick renews.
    pub ttl: Duration,
    /// Whether TTFT overload shrinks too.
    pub use_ttft: bool,
    /// Low traffic neither shrinks nor expires the limit.
    pub hold_when_idle: bool,
}

impl Default for AdaptiveSpec {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(20),
            dec: 0.97,
            inc: 1.02,
            min: None,
            min_frac: 0.4,
            init: None,
            init_frac: None,
            pressure_frac: 0.9,
            slack_frac: 0.7,
            headroom: 5.0,
            ttl: Duration::from_secs(300),
            use_ttft: true,
            hold_when_idle: true,
        }
    }
}
