//! The TTFT and decode rate gates compare averages with thresholds. One metric past its threshold
//! is enough to trip.
//!
//! Without `session_prio` a gate trips *at* its threshold (`≥` for TTFT, `≤` for the rate), so that
//! the pool never runs at the limit itself. With it, a bucket's tolerance moves the threshold away
//! from the healthy side, and the rate trips strictly below. TTFT also has a hold flag: after the
//! threshold was reached, turn 1 stays out until the average is below the release point.

use crate::signal::Signal;

/// The average of one metric and its threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compared {
    /// Index in the pool's table of metrics.
    pub metric: usize,
    /// The average.
    pub ewma: f64,
    /// The threshold.
    pub threshold: f64,
}

/// The additional inputs that `session_prio` brings to a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Tolerance of the request's bucket.
    pub tol: f64,
    /// `session_prio_release`.
    pub release: f64,
    /// Whether the request belongs to the first bucket.
    pub is_first: bool,
    /// The pool's hold flag before this comparison.
    pub was_held: bool,
}

/// The result of one gate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Finding {
    /// The metric nearest to tripping; `None` while all metrics are cold.
    pub nearest: Option<Compared>,
    /// The reason to refuse, if there is one.
    pub trip: Option<Trip>,
    /// The new hold flag; false for the rate and without `session_prio`.
    pub is_held: bool,
}

/// The reason to refuse a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trip {
    /// The first metric in table order that tripped.
    pub by: Compared,
    /// True when the average is below the threshold again, but the hold flag is set.
    pub is_hold: bool,
    /// The average from which on the gate no longer refuses this request.
    pub admits_at: f64,
}

/// Compares every metric that has an average, in table order.
pub fn judge(
    signal: Signal,
    metrics: impl Iterator<Item = Compared> + Clone,
    tolerance: Option<Tolerance>,
) -> Finding {
    let by = metrics
        .clone()
        .find(|metric| is_tripped(signal, *metric, tolerance));
    let is_held = match (signal, tolerance) {
        (Signal::Ttft, Some(tolerance)) => hold(metrics.clone(), tolerance),
        _ => false,
    };
    let held_out = tolerance.filter(|tolerance| is_held && tolerance.is_first);
    let in_band =
        |tolerance: Tolerance| move |metric: &Compared| is_in_band(*metric, tolerance.release);
    let trip = match (by, held_out) {
        (Some(by), None) => Some(Trip {
            by,
            is_hold: false,
            admits_at: admits_at(signal, by.threshold, tolerance),
        }),
        (Some(by), Some(tolerance)) => Some(Trip {
            by,
            is_hold: false,
            admits_at: by.threshold * tolerance.release,
        }),
        (None, Some(tolerance)) => metrics.clone().find(in_band(tolerance)).map(|by| Trip {
            by,
            is_hold: true,
            admits_at: by.threshold * tolerance.release,
        }),
        (None, None) => None,
    };
    Finding {
        nearest: metrics.max_by(|one, other| strain(signal, one).total_cmp(&strain(signal, other))),
        trip,
        is_held,
    }
}

/// The average that admits: TTFT must be below it, the rate above it.
pub fn admits_at(signal: Signal, threshold: f64, tolerance: Option<Tolerance>) -> f64 {
    let tol = tolerance.map_or(1.0, |tolerance| tolerance.tol);
    match signal {
        Signal::Ttft => threshold * tol,
        Signal::Tps => threshold / tol,
    }
}

fn is_tripped(signal: Signal, metric: Compared, tolerance: Option<Tolerance>) -> bool {
    let limit = admits_at(signal, metric.threshold, tolerance);
    match (signal, tolerance) {
        (Signal::Ttft, _) => metric.ewma >= limit,
        (Signal::Tps, None) => metric.ewma <= limit,
        (Signal::Tps, Some(_)) => metric.ewma < limit,
    }
}

/// The new hold flag. Expired averages are not among `metrics`, so they clear the flag.
fn hold(mut metrics: impl Iterator<Item = Compared> + Clone, tolerance: Tolerance) -> bool {
    metrics
        .clone()
        .any(|metric| metric.ewma >= metric.threshold)
        || (tolerance.was_held && metrics.any(|metric| is_in_band(metric, tolerance.release)))
}

fn is_in_band(metric: Compared, release: f64) -> bool {
    metric.ewma < metric.threshold && metric.ewma >= metric.threshold * release
}

/// How close a metric is to its threshold: 1 is at the threshold.
fn strain(signal: Signal, metric: &Compared) -> f64 {
    match signal {
        Signal::Ttft => metric.ewma / metric.threshold,
        Signal::Tps => metric.threshold / metric.ewma,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ewma: f64) -> [Compared; 1] {
        [Compared {
            metric: 0,
            ewma,
            threshold: 100.0,
        }]
    }

    fn tolerance(tol: f64, is_first: bool, was_held: bool) -> Option<Tolerance> {
        Some(Tolerance {
            tol,
            release: 0.9,
            is_first,
            was_held,
        })
    }

    fn trips(signal: Signal, ewma: f64, tolerance: Option<Tolerance>) -> bool {
        judge(signal, at(ewma).into_iter(), tolerance)
            .trip
            .is_some()
    }

    #[test]
    fn a_plain_gate_trips_at_its_threshold() {
        assert!(trips(Signal::Ttft, 100.0, None) && !trips(Signal::Ttft, 99.9, None));
        assert!(trips(Signal::Tps, 100.0, None) && !trips(Signal::Tps, 100.1, None));
    }

    #[test]
    fn tolerance_moves_the_threshold_to_the_bad_side() {
        let warm = tolerance(1.5, false, false);
        assert!(!trips(Signal::Ttft, 149.9, warm) && trips(Signal::Ttft, 150.0, warm));
        let warm = tolerance(2.0, false, false);
        assert!(!trips(Signal::Tps, 50.0, warm) && trips(Signal::Tps, 49.9, warm));
    }

    #[test]
    fn the_hold_flag_is_set_at_the_threshold_and_falls_below_the_release_point() {
        let held = |ewma, was_held| {
            judge(
                Signal::Ttft,
                at(ewma).into_iter(),
                tolerance(1.0, true, was_held),
            )
            .is_held
        };
        assert!(held(100.0, false) && held(95.0, true) && held(90.0, true));
        assert!(!held(99.9, false) && !held(89.9, true));
        let none = judge(Signal::Ttft, [].into_iter(), tolerance(1.0, true, true));
        assert_eq!(none, Finding::default(), "it falls with the average");
    }

    #[test]
    fn a_held_pool_refuses_turn_one_alone() {
        let finding = judge(
            Signal::Ttft,
            at(95.0).into_iter(),
            tolerance(1.0, true, true),
        );
        let trip = finding.trip.unwrap();
        assert_eq!((trip.is_hold, trip.admits_at), (true, 90.0));
        assert!(!trips(Signal::Ttft, 95.0, tolerance(1.1, false, true)));
        assert!(
            !trips(Signal::Tps, 105.0, tolerance(1.0, true, true)),
            "the rate has no hold"
        );
    }

    #[test]
    fn one_metric_suffices_and_the_first_one_is_named() {
        let metrics = [(50.0, 100.0), (120.0, 100.0), (900.0, 100.0)];
        let compared = metrics
            .iter()
            .enumerate()
            .map(|(metric, &(ewma, threshold))| Compared {
                metric,
                ewma,
                threshold,
            });
        let finding = judge(Signal::Ttft, compared, None);
        assert_eq!(finding.trip.unwrap().by.metric, 1);
        assert_eq!(finding.nearest.unwrap().metric, 2);
    }
}
