//! The TTFT and TPS gates without an adaptive limit: neither can stay shut for ever.

use std::time::Duration;

use router_core::admission::Gate;
use router_core::affinity::{Affinity, Hash, Saturated};

use crate::report::{ALL, Report};
use crate::world::{Course, MINUTE, Plan, limit};

/// Start and end of an overload.
const BEGINS: Duration = Duration::from_secs(5 * 60);
const ENDS: Duration = Duration::from_secs(12 * 60);

/// Within this time the rest of the overload is computed and the averages have followed.
const BOUND: Duration = Duration::from_secs(4 * 60);

const LENGTH: Duration = Duration::from_secs(26 * 60);

/// Thresholds of TTFT in milliseconds and of the decode rate.
const THRESHOLDS: [(Option<f64>, Option<f64>); 3] = [
    (Some(4_000.0), None),
    (None, Some(22.0)),
    (Some(4_000.0), Some(22.0)),
];

/// Engines that queue requests beyond their batch.
fn plan(seed: u64, arrivals: Course, (ttft, tps): (Option<f64>, Option<f64>)) -> Plan {
    let mut plan = Plan::new(seed, LENGTH, arrivals);
    plan.slots = 40;
    plan.affinity = Affinity::Hash {
        hash: Hash::Rendezvous,
        saturated: Saturated::Fallback,
    };
    plan.guard.ttft.limit = ttft.and_then(limit);
    plan.guard.tps.limit = tps.and_then(limit);
    plan
}

/// Every combination of gates, with and without `session_prio`.
fn overloaded(arrivals: &Course, change: impl Fn(&mut Plan)) -> Vec<(String, Report)> {
    let mut reports = Vec::new();
    for (seed, thresholds) in (20..).zip(THRESHOLDS) {
        for session_prio in [false, true] {
            let mut plan = plan(seed, arrivals.clone(), thresholds);
            plan.switches.session_prio = session_prio;
            change(&mut plan);
            let report = plan.run();
            let by = |gate| report.refused_by(gate, BEGINS..ENDS);
            let (ttft, tps) = (by(Gate::Ttft), by(Gate::Tps));
            let seen = format!(
                "{thresholds:?}, session_prio {session_prio}: {ttft} by TTFT, {tps} by TPS"
            );
            eprintln!("{seen}");
            // With both thresholds TTFT, which is evaluated first, decides for both.
            let shut = if thresholds.0.is_some() { ttft } else { tps };
            assert!(shut > 100, "the gates never shut: {seen}");
            reports.push((seen, report));
        }
    }
    reports
}

fn serves_everybody_again(reports: &[(String, Report)], from: Duration) {
    for (seen, report) in reports {
        let mut minute = from;
        while minute < LENGTH {
            let refused = report.refused(ALL, minute..minute + MINUTE);
            assert!(
                refused < 0.1,
                "{seen}: {refused:.3} refused in the minute from {minute:?}"
            );
            minute += MINUTE;
        }
        assert!(report.count(ALL, from..LENGTH) > 200, "{seen}");
        let refused = report.refused(ALL, from..LENGTH);
        assert!(refused < 0.005, "{seen}: {refused:.4} refused afterwards");
    }
}

#[test]
fn after_an_overload_the_gates_open_again() {
    let arrivals = vec![(Duration::ZERO, 0.4), (BEGINS, 5.0), (ENDS, 0.4)];
    let reports = overloaded(&arrivals, |plan| plan.goes_on = 0.85);
    serves_everybody_again(&reports, ENDS + BOUND);
}

#[test]
fn after_an_overload_the_gates_open_again_when_only_new_sessions_come() {
    let arrivals = vec![(Duration::ZERO, 2.5), (BEGINS, 9.0), (ENDS, 2.5)];
    let reports = overloaded(&arrivals, |_| {});
    serves_everybody_again(&reports, ENDS + BOUND);
}

#[test]
fn after_engines_were_slow_the_gates_open_again_when_only_new_sessions_come() {
    let arrivals = vec![(Duration::ZERO, 2.5)];
    let reports = overloaded(&arrivals, |plan| {
        plan.pace = vec![(Duration::ZERO, 1.0), (BEGINS, 0.1), (ENDS, 1.0)];
    });
    serves_everybody_again(&reports, ENDS + BOUND);
}

/// No request arrives that could be measured, so the measurements expire by themselves.
#[test]
fn after_an_overload_and_a_silence_the_gates_are_open() {
    let returns = ENDS + MINUTE * 3;
    let arrivals = vec![
        (Duration::ZERO, 2.5),
        (BEGINS, 9.0),
        (ENDS, 0.0),
        (returns, 2.5),
    ];
    let reports = overloaded(&arrivals, |_| {});
    serves_everybody_again(&reports, returns);
}

/// Without probes the gates get no measurements while they are shut, and they open when the
/// averages expire.
#[test]
fn gates_without_probe_slots_open_again_too() {
    let arrivals = vec![(Duration::ZERO, 2.5), (BEGINS, 9.0), (ENDS, 2.5)];
    let reports = overloaded(&arrivals, |plan| {
        plan.guard.ttft.probes_per_window = 0;
        plan.guard.tps.probes_per_window = 0;
        plan.guard.priority.t1_probes = 0;
    });
    serves_everybody_again(&reports, ENDS + BOUND);
}
