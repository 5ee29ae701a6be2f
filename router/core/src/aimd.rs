//! Adaptive concurrency: the limit grows while the demand needs it and the pool is healthy. It
//! shrinks when the pool's TTFT or decode rate shows overload.
//!
//! Follows additive-increase/multiplicative-decrease (Chiu and Jain, 1989), but with a
//! multiplicative increase that real demand caps. Only overload pushes the limit below its start
//! point. A healthy pool climbs back to the start point even with little traffic.

use std::time::Duration;

/// `adaptive_cc_*`: the coefficients of a route. The bounds follow for each pool from its peers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdaptiveSpec {
    /// Time between two ticks.
    pub interval: Duration,
    /// Factor that shrinks the limit, above 0 and below 1.
    pub dec: f64,
    /// Factor that grows the limit, above 1.
    pub inc: f64,
    /// Absolute floor, at least 1; overrides the fraction.
    pub min: Option<u32>,
    /// Floor as a share of the static maximum, above 0 and at most 1.
    pub min_frac: f64,
    /// Absolute start point, at least 1; overrides the fraction.
    pub init: Option<u32>,
    /// Start point as a share of the static maximum.
    pub init_frac: Option<f64>,
    /// The limit grows only if in-flight is at least this share of it, above 0 and at most 1.
    pub pressure_frac: f64,
    /// Below this share the limit follows the load down; smaller than `pressure_frac`.
    pub slack_frac: f64,
    /// Slots kept above the current in-flight (`adaptive_cc_abs`), at least 0.
    pub headroom: f64,
    /// Lifetime of a limit that no tick renews.
    pub ttl: Duration,
    /// Whether TTFT overload shrinks the limit too.
    pub use_ttft: bool,
    /// Whether the limit stays during low traffic: it then neither shrinks nor expires.
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

/// Absorbs the rounding error of `max × fraction` before it is rounded down.
const TOLERANCE: f64 = 1e-9;

/// The bounds of the adaptive limit of one pool. Bans do not affect them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// At least 1 unless the pool has no peer; at most `max`.
    pub min: u64,
    /// The largest sum of slots that the enabled peers of one tier have.
    pub max: u64,
    /// Start point of a fresh or expired limit, `min` to `max`.
    pub init: u64,
}

impl Bounds {
    /// The bounds of a pool whose largest tier has `max` slots.
    pub fn new(spec: &AdaptiveSpec, max: u64) -> Self {
        let part = |fraction: f64| ((max as f64 * fraction + TOLERANCE) as u64).max(1);
        let min = spec.min.map_or_else(|| part(spec.min_frac), u64::from);
        let min = min.min(max);
        let init = spec.init.map(u64::from);
        let init = init.or_else(|| spec.init_frac.map(part)).unwrap_or(min);
        Self {
            min,
            max,
            init: init.clamp(min, max),
        }
    }
}

/// The state of a pool according to its signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// None of the signals that drive the limit has an average.
    Unknown,
    /// No signal is past its threshold.
    Fine,
    /// A signal is past its threshold: TTFT above it, or the decode rate below it. A value at the
    /// threshold is not past it.
    Overloaded,
}

/// The inputs of one tick.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Inputs {
    /// The limit in force, stored or start point.
    pub limit: f64,
    /// In-flight now.
    pub in_flight: u64,
    /// Requests refused for concurrency since the last tick that used this number.
    pub refused: u64,
    /// State of the pool according to its signals.
    pub health: Health,
}

/// How well the load uses the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// The load fills it.
    Pressure,
    /// The load leaves much of the limit unused; never without any load.
    Slack,
    /// Neither of both.
    Between,
}

/// Compares `limit` with `in_flight`.
pub fn fit(spec: &AdaptiveSpec, limit: f64, in_flight: u64) -> Fit {
    let load = in_flight as f64;
    if load >= spec.pressure_frac * limit || limit - load < spec.headroom {
        Fit::Pressure
    } else if in_flight > 0 && load < spec.slack_frac * limit && limit - load > spec.headroom {
        Fit::Slack
    } else {
        Fit::Between
    }
}

/// Computes the new limit for one tick. `None` when the signals are unknown or the pool has no
/// peer: the limit then stays and ages, and the refusals are kept for a later tick.
pub fn tick(spec: &AdaptiveSpec, bounds: Bounds, inputs: Inputs) -> Option<f64> {
    if bounds.max == 0 {
        return None;
    }
    let limit = inputs.limit;
    let next = match inputs.health {
        Health::Unknown => return None,
        Health::Overloaded => limit * spec.dec,
        // In-flight does not include refused demand, so it does not cap this growth.
        Health::Fine if inputs.refused > 0 => limit * spec.inc,
        Health::Fine => follow(spec, bounds, limit, inputs.in_flight),
    };
    Some(next.clamp(bounds.min as f64, bounds.max as f64))
}

/// Moves a healthy limit towards the load: up or down to a little above it.
fn follow(spec: &AdaptiveSpec, bounds: Bounds, limit: f64, in_flight: u64) -> f64 {
    let (load, init) = (in_flight as f64, bounds.init as f64);
    let middle = f64::midpoint(spec.pressure_frac, spec.slack_frac);
    let target = (load / middle).max(load + spec.headroom);
    let next = match fit(spec, limit, in_flight) {
        Fit::Pressure => (limit * spec.inc).min(target),
        Fit::Slack if limit > init && !spec.hold_when_idle => {
            (limit * spec.dec).max(target).max(init)
        }
        Fit::Slack | Fit::Between => limit,
    };
    if limit < init {
        next.max((limit * spec.inc).min(init))
    } else {
        next
    }
}
