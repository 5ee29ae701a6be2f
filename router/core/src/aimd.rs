//! Adaptive concurrency: a limit that grows while it is needed and healthy, and shrinks when the
//! pool's TTFT or decode rate says that it is overloaded.
//!
//! Additive-increase/multiplicative-decrease in spirit (Chiu and Jain, 1989), with a multiplicative
//! increase that is capped by real demand. Only overload pushes the limit below its start point; a
//! healthy pool climbs back to it even under a trickle of traffic.

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

/// Absorbs the rounding of `max × fraction` before it is rounded down.
const TOLERANCE: f64 = 1e-9;

/// Between what an adaptive limit moves, for one pool. Bans do not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// At least 1 unless the pool has no peer, at most `max`.
    pub min: u64,
    /// The largest sum of slots that the enabled peers of one tier have.
    pub max: u64,
    /// Where a fresh or expired limit starts, `min` to `max`.
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

/// What the signals say about a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// No signal that drives the limit has an average.
    Unknown,
    /// None of them is past its threshold.
    Fine,
    /// One of them is: TTFT above it, or the decode rate below it; at it is not past it.
    Overloaded,
}

/// What one tick looks at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Inputs {
    /// The limit in force, stored or start point.
    pub limit: f64,
    /// In-flight now.
    pub in_flight: u64,
    /// Requests refused for concurrency since the last tick that used the number.
    pub refused: u64,
    /// What the signals say.
    pub health: Health,
}

/// Where a limit stands against the load under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// The load fills it.
    Pressure,
    /// The load leaves much of it unused; never without any load.
    Slack,
    /// Neither.
    Between,
}

/// Where `limit` stands against `in_flight`.
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

/// One tick: the limit from now on. `None`: nothing is known about the pool, or it has no peer; then
/// the limit stays and ages, and the refusals are not used up.
pub fn tick(spec: &AdaptiveSpec, bounds: Bounds, inputs: Inputs) -> Option<f64> {
    if bounds.max == 0 {
        return None;
    }
    let limit = inputs.limit;
    let next = match inputs.health {
        Health::Unknown => return None,
        Health::Overloaded => limit * spec.dec,
        // In-flight cannot show the demand that was refused, so it does not cap this growth.
        Health::Fine if inputs.refused > 0 => limit * spec.inc,
        Health::Fine => follow(spec, bounds, limit, inputs.in_flight),
    };
    Some(next.clamp(bounds.min as f64, bounds.max as f64))
}

/// A healthy limit goes where the load is: up to a little above it, down to a little above it.
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
