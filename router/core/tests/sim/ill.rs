//! One of six engines hangs, then answers 500, then recovers. Its probes succeed all the time.
//! The table is part of `docs/policies.md`. `UPDATE_DOCS=1` writes it anew.

use std::fmt::Write;
use std::time::Duration;

use router_core::affinity::{Affinity, Hash, Saturated};
use router_core::health::{HealthSpec, HealthState};

use crate::policies::{read_doc, update_docs, write_doc};
use crate::report::Report;
use crate::world::{Fault, MINUTE, Plan};

const BEGIN: &str = "<!-- simulated: ill -->\n";
const END: &str = "<!-- end: ill -->\n";

const WARM_UP: Duration = Duration::from_secs(180);
const HANGS: Duration = Duration::from_secs(600);
const FAILS: Duration = Duration::from_secs(900);
const RECOVERS: Duration = Duration::from_secs(1_200);
const LENGTH: Duration = Duration::from_secs(1_800);

fn played(affinity: Affinity, health: HealthSpec) -> Report {
    let plan = Plan {
        engines: 6,
        affinity,
        health,
        fault: Some(Fault::Ill {
            hangs: HANGS,
            fails: FAILS,
            recovers: RECOVERS,
        }),
        goes_on: 0.85,
        ..Plan::new(7, LENGTH, vec![(Duration::ZERO, 0.7)])
    };
    plan.run()
}

/// Seconds from an event until the ill engine is first in one of these states.
fn seconds_to(report: &Report, from: Duration, states: &[HealthState]) -> Option<u64> {
    let reached = |(at, state): &&(Duration, HealthState)| *at >= from && states.contains(state);
    let (at, _) = report.states.iter().find(reached)?;
    Some((*at - from).as_secs())
}

fn row(table: &mut String, options: &str, report: &Report) {
    let lost = |during: std::ops::Range<Duration>| {
        let lost = report.lost.iter().filter(|at| during.contains(at));
        lost.count()
    };
    let shown = |seconds: Option<u64>| seconds.map_or("never".to_owned(), |s| format!("{s} s"));
    let _ = writeln!(
        table,
        "| {options} | {} | {} | {} | {} | {} | {:.0} % | {:.0} % |",
        lost(HANGS..FAILS),
        shown(seconds_to(report, HANGS, &[HealthState::Suspect])),
        shown(seconds_to(report, HANGS, &[HealthState::Ejected])),
        lost(FAILS..LENGTH),
        shown(seconds_to(report, RECOVERS, &[HealthState::Healthy])),
        report.hit_rate(WARM_UP..HANGS) * 100.0,
        report.hit_rate(HANGS..LENGTH) * 100.0,
    );
}

#[test]
fn the_table_of_the_ill_engine_is_what_the_simulator_shows() {
    let rendezvous = Affinity::Hash {
        hash: Hash::Rendezvous,
        saturated: Saturated::Fallback,
    };
    let on = HealthSpec {
        hang_after: Some(MINUTE / 2),
        ..HealthSpec::default()
    };
    let off = HealthSpec {
        eject: None,
        hang_after: Some(MINUTE * 1_000),
        ..on
    };
    let mut table = String::from(
        "| Route | lost while it hangs | suspect after | ejected after | lost while it answers 500, and after | healthy again after | hits before | hits from then on |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    let rows = [
        ("`hash: rendezvous`", rendezvous, on),
        ("`affinity: sticky_least_loaded`", Affinity::Sticky, on),
        (
            "`affinity: none`, `balance: least_conn`",
            Affinity::None,
            on,
        ),
        ("`hash: rendezvous`, none of it", rendezvous, off),
        ("`affinity: none`, none of it", Affinity::None, off),
    ];
    let mut lost = Vec::new();
    for (options, affinity, health) in rows {
        let report = played(affinity, health);
        row(&mut table, options, &report);
        lost.push(report.lost.len());
    }
    let doc = read_doc();
    let (head, rest) = doc.split_once(BEGIN).expect("the table's begin");
    let (known, tail) = rest.split_once(END).expect("the table's end");
    if update_docs() {
        write_doc(&format!("{head}{BEGIN}{table}{END}{tail}"));
    } else {
        assert_eq!(
            known, table,
            "docs/policies.md is behind; run this test with UPDATE_DOCS=1"
        );
    }
    assert!(lost[0] * 8 < lost[3] && lost[2] * 3 < lost[4], "{lost:?}");
}
