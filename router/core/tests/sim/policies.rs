//! Every way to place a session, on one trace of conversations: with healthy peers, with a slow
//! peer, and with a lost one. The table is part of `docs/policies.md`; `UPDATE_DOCS=1` rewrites it.

use std::fmt::Write;
use std::time::Duration;

use router_core::affinity::{Affinity, Hash, Saturated};
use router_core::balance::Balance;
use router_core::pool::MemorySpec;

use crate::report::ALL;
use crate::world::{Fault, MINUTE, Plan};

const BEGIN: &str = "<!-- simulated -->\n";
const END: &str = "<!-- end -->\n";

/// The first minutes fill the caches.
const WARM_UP: Duration = Duration::from_secs(180);
const LENGTH: Duration = Duration::from_secs(1_500);

struct Policy {
    /// The options as in a route file.
    options: &'static str,
    change: fn(&mut Plan),
}

fn hash(plan: &mut Plan, hash: Hash) {
    plan.affinity = Affinity::Hash {
        hash,
        saturated: Saturated::Fallback,
    };
}

const POLICIES: [Policy; 7] = [
    Policy {
        options: "`hash: crc32`",
        change: |plan| hash(plan, Hash::Crc32),
    },
    Policy {
        options: "`hash: rendezvous`",
        change: |plan| hash(plan, Hash::Rendezvous),
    },
    Policy {
        options: "`hash: rendezvous`, `affinity_max_load_factor: 1.25`",
        change: |plan| {
            hash(plan, Hash::Rendezvous);
            plan.memory.load_factor_max = Some(1.25);
        },
    },
    Policy {
        options: "`affinity: sticky_least_loaded`",
        change: |plan| plan.affinity = Affinity::Sticky,
    },
    Policy {
        options: "`affinity_fallback: prefix`, no ids",
        change: |plan| {
            plan.names_sessions = false;
            plan.memory = MemorySpec {
                prefixes: true,
                ..MemorySpec::default()
            };
        },
    },
    Policy {
        options: "`affinity: none`, `balance: least_conn`",
        change: |_| {},
    },
    Policy {
        options: "`affinity: none`, `balance: round_robin`",
        change: |plan| plan.balance = Balance::RoundRobin,
    },
];

/// Hit rate and p95 of the time to first token for a policy.
fn played(policy: &Policy, fault: Option<Fault>) -> (f64, f64) {
    let mut plan = Plan {
        fault,
        goes_on: 0.85,
        ..Plan::new(7, LENGTH, vec![(Duration::ZERO, 0.45)])
    };
    (policy.change)(&mut plan);
    let report = plan.run();
    let during = WARM_UP..LENGTH;
    let refused = report.refused(ALL, during.clone());
    assert!(refused < 0.02, "{}: {refused} refused", policy.options);
    (report.hit_rate(during.clone()), report.ttft_p95(during))
}

fn table(rows: &[(&str, [(f64, f64); 3])]) -> String {
    let mut table = String::from(
        "| Route | healthy: hits | p95 TTFT | one slow: hits | p95 TTFT | one lost: hits | p95 TTFT |\n\
         |---|---:|---:|---:|---:|---:|---:|\n",
    );
    for (options, results) in rows {
        let _ = write!(table, "| {options} |");
        for (hits, ttft) in results {
            let _ = write!(table, " {:.0} % | {ttft:.2} s |", hits * 100.0);
        }
        table.push('\n');
    }
    table
}

#[test]
fn the_table_of_the_policies_is_what_the_simulator_shows() {
    let faults = [
        None,
        Some(Fault::Slow(0.4)),
        Some(Fault::Lost {
            from: MINUTE * 10,
            until: MINUTE * 15,
        }),
    ];
    let rows: Vec<_> = POLICIES
        .iter()
        .map(|policy| (policy.options, faults.map(|fault| played(policy, fault))))
        .collect();
    let doc = read_doc();
    let (head, rest) = doc.split_once(BEGIN).expect("the table's begin");
    let (known, tail) = rest.split_once(END).expect("the table's end");
    let table = table(&rows);
    if update_docs() {
        write_doc(&format!("{head}{BEGIN}{table}{END}{tail}"));
    } else {
        assert_eq!(
            known, table,
            "docs/policies.md is behind; run this test with UPDATE_DOCS=1"
        );
    }
    let (with_affinity, without) = rows.split_at(5);
    for (options, results) in with_affinity {
        for ((hits, _), (hits_without, _)) in results.iter().zip(&without[0].1) {
            assert!(
                hits > &(hits_without + 0.15),
                "{options}: {hits} and {hits_without}"
            );
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test is told so by its environment"
)]
pub(crate) fn update_docs() -> bool {
    std::env::var_os("UPDATE_DOCS").is_some()
}

const DOC: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/policies.md");

#[expect(clippy::disallowed_methods, reason = "the test keeps the document")]
pub(crate) fn read_doc() -> String {
    std::fs::read_to_string(DOC).expect("the document can be read")
}

#[expect(clippy::disallowed_methods, reason = "the test keeps the document")]
pub(crate) fn write_doc(text: &str) {
    std::fs::write(DOC, text).expect("the document can be written");
}
