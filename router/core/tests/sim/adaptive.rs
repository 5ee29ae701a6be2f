//! The adaptive limit under steady load, and after an overload.

use std::time::Duration;

use router_core::aimd::AdaptiveSpec;

use crate::report::{ALL, Report};
use crate::world::{Course, MINUTE, Plan, bump, limit};

/// Four engines that fall below the desired 27 tokens per second at about 11 requests each.
fn plan(seed: u64, length: Duration, arrivals: Course, adaptive: AdaptiveSpec) -> Plan {
    let mut plan = Plan::new(seed, length, arrivals);
    plan.guard.tps.limit = limit(27.0);
    plan.guard.adaptive = Some(adaptive);
    plan
}

fn stays_within_bounds(report: &Report) {
    let bounds = report.bounds.expect("the limit is adaptive");
    let (min, max) = (bounds.min as f64, bounds.max as f64);
    let outside = report
        .limits
        .iter()
        .find(|(_, limit)| !(min..=max).contains(limit));
    assert_eq!(outside, None, "outside {bounds:?}");
}

/// Seventy minutes with about twice the demand that the desired decode rate allows.
fn under_steady_overload(seed: u64, init: u32) -> Report {
    let adaptive = AdaptiveSpec {
        init: Some(init),
        ..AdaptiveSpec::default()
    };
    let report = plan(seed, MINUTE * 70, vec![(Duration::ZERO, 9.0)], adaptive).run();
    stays_within_bounds(&report);
    report
}

#[test]
fn the_adaptive_limit_converges_to_one_place_from_below_and_from_above() {
    for seed in [1, 2] {
        let (below, above) = (
            under_steady_overload(seed, 26),
            under_steady_overload(seed, 64),
        );
        let settled = MINUTE * 30..MINUTE * 70;
        let (low, from_below, high) = below.limit(settled.clone());
        let (lowest, from_above, highest) = above.limit(settled);
        let seen = format!(
            "seed {seed}: from below {low:.1} {from_below:.1} {high:.1}, \
             from above {lowest:.1} {from_above:.1} {highest:.1}"
        );
        eprintln!("{seen}");
        assert!((from_below / from_above - 1.0).abs() < 0.05, "{seen}");
        assert!((35.0..55.0).contains(&from_below), "{seen}");
        // The limit oscillates around this value and never moves far away.
        assert!(low.min(lowest) > from_below * 0.75, "{seen}");
        assert!(high.max(highest) < from_below * 1.25, "{seen}");
    }
}

#[test]
fn after_an_overload_the_adaptive_limit_grows_back_to_the_demand() {
    let (from, until) = (MINUTE * 20, MINUTE * 30);
    for (seed, pace) in [(3, 1.0), (4, 0.5)] {
        let arrivals = bump(4.0, 12.0, from, until);
        let mut plan = plan(seed, MINUTE * 75, arrivals, AdaptiveSpec::default());
        plan.pace = bump(1.0, pace, from, until);
        let report = plan.run();
        stays_within_bounds(&report);
        let during = report.refused(ALL, from..until);
        let after = report.refused(ALL, until + MINUTE * 20..plan.length);
        let (least, ..) = report.limit(from..until + MINUTE);
        let (_, limit, _) = report.limit(until + MINUTE * 20..plan.length);
        let seen = format!(
            "seed {seed}: refused {during:.3} during, {after:.4} after; \
             limit down to {least:.1}, then {limit:.1}"
        );
        eprintln!("{seen}");
        assert!(during > 0.3, "{seen}");
        assert!(least < 46.0, "there was nothing to grow back from: {seen}");
        assert!(after < 0.01, "{seen}");
    }
}
