//! `session_prio` prefers warm sessions.

use std::sync::Arc;
use std::time::Duration;

use router_core::admission::priority::{Bucket, PrioritySpec};
use router_core::admission::{Budget, Refusal, Slow};
use router_core::affinity::Affinity;
use router_core::aimd::AdaptiveSpec;
use router_core::book::status::{BucketCounters, NoHeader};
use router_core::layered::Source;
use router_core::pool::GuardSpec;
use router_core::signal::{Limit, Metric, Sample, Statistic};

use crate::bench::Bench;

const SECOND: Duration = Duration::from_secs(1);
/// A turn of the last bucket.
const WARM: Option<u32> = Some(40);
const NEW: Option<u32> = Some(1);

fn bench(slots: u32, change: impl FnOnce(&mut GuardSpec)) -> Bench {
    let mut bench = Bench::with(Affinity::None, &[("a:1", 0, slots)], |spec| {
        change(&mut spec.guard);
    });
    bench.switches.session_prio = true;
    bench.advance(Duration::ZERO);
    bench
}

fn limit(value: f64) -> Option<Limit> {
    Some(Limit {
        value,
        source: Source::Route,
    })
}

/// A roomy pool with a TTFT limit of 5000 ms, whose average is `ewma`.
fn ttft(ewma: f64) -> Bench {
    let mut bench = bench(1_000, |guard| guard.ttft.limit = limit(5_000.0));
    bench.window_of(Sample::Ttft(ewma));
    bench
}

fn slow(refusal: Refusal) -> Slow {
    match refusal {
        Refusal::TtftLimit(slow) | Refusal::TpsLimit(slow) => *slow,
        other => panic!("refused otherwise: {other:?}"),
    }
}

#[test]
fn a_bucket_fills_the_pool_up_to_its_ceiling() {
    let mut bench = bench(20, |_| {});
    assert_eq!(bench.admitted(NEW, 30), 17);
    let Err(Refusal::ConcurrencyLimit(full)) = bench.turn(NEW) else {
        panic!("turn 1 is let in");
    };
    assert_eq!(
        (full.limit, full.share, full.ceiling),
        (20.0, Some(0.85), 17)
    );
    assert_eq!(
        (full.bucket, full.turn, full.must_end),
        (Some(1), Some(1), 1)
    );
    let more = [(2, 1), (4, 1), (8, 0), (16, 1), (40, 0)];
    for (turn, admitted) in more {
        assert_eq!(bench.admitted(Some(turn), 30), admitted, "turn {turn}");
    }
}

#[test]
fn a_request_without_a_header_counts_as_warm_and_apart() {
    let mut bench = bench(20, |_| {});
    assert_eq!(bench.admitted(None, 30), 20);
    let state = bench.book.priority(&bench.resolved);
    let counters = BucketCounters {
        admitted: 20,
        refused: 10,
        ..BucketCounters::default()
    };
    assert_eq!(state.no_header, counters);
    let silent = state.buckets.iter();
    assert!(
        silent
            .map(|row| row.counters)
            .all(|counters| counters == BucketCounters::default())
    );
}

#[test]
fn buckets_count_admits_refusals_and_tokens() {
    let mut bench = bench(20, |_| {});
    bench.admitted(NEW, 18);
    let facts = bench.turn(Some(5)).unwrap();
    bench.book.tokens(&facts, 100, 80);
    let state = bench.book.priority(&bench.resolved);
    let of = |index: usize| state.buckets[index].counters;
    assert_eq!((of(0).admitted, of(0).refused), (17, 1));
    let warm = BucketCounters {
        admitted: 1,
        refused: 0,
        prompt_tokens: 100,
        cached_tokens: 80,
    };
    assert_eq!((state.buckets[2].bucket.min_turn, of(2)), (4, warm));
    bench.book.reset_priority();
    let state = bench.book.priority(&bench.resolved);
    assert!(
        state
            .buckets
            .iter()
            .all(|row| row.counters == BucketCounters::default())
    );
}

#[test]
fn switched_off_nothing_differs_and_nothing_counts() {
    let mut bench = bench(20, |_| {});
    bench.switches.session_prio = false;
    assert_eq!(bench.admitted(NEW, 30), 20);
    let Err(Refusal::ConcurrencyLimit(full)) = bench.turn(NEW) else {
        panic!("the pool is full");
    };
    assert_eq!((full.bucket, full.turn, full.share), (None, None, None));
    bench.advance(SECOND * 120);
    let state = bench.book.priority(&bench.resolved);
    let counters = state.buckets.iter().map(|row| row.counters);
    assert!(
        counters
            .chain([state.no_header])
            .all(|counters| counters == BucketCounters::default())
    );
    assert_eq!(bench.book.take_no_header_warning(), None);
}

#[test]
fn a_refusal_by_share_is_demand_for_the_adaptive_limit() {
    let mut bench = bench(100, |guard| {
        guard.ttft.limit = limit(5_000.0);
        let adaptive = AdaptiveSpec {
            init: Some(50),
            ..AdaptiveSpec::default()
        };
        guard.adaptive = Some(adaptive);
    });
    assert_eq!(bench.admitted(NEW, 44), 43);
    assert_eq!(bench.protection().adaptive.unwrap().rejected, 1);
    bench.window_of(Sample::Ttft(200.0));
    assert_eq!(bench.protection().limit, 51.0, "it grows to make room");
}

#[test]
fn ttft_grades_by_tolerance() {
    // 5500 is past turn 1's 5000 and 2–3's 5500, but not past 4–7's 6000. The average is a mean, so
    // it is exact.
    let mut bench = bench(1_000, |guard| {
        guard.ttft.table = Some(Arc::from([Metric {
            name: "avg".into(),
            statistic: Statistic::Mean,
            threshold: 5_000.0,
        }]));
        guard.ttft.probes_per_window = 0;
        guard.priority.t1_probes = 0;
    });
    bench.window_of(Sample::Ttft(5_500.0));
    let admitted = [1, 2, 3, 4, 31, 32].map(|turn| bench.turn(Some(turn)).is_ok());
    assert_eq!(admitted, [false, false, false, true, true, true]);
    let refused = slow(bench.turn(Some(2)).unwrap_err());
    assert_eq!((refused.tolerance, refused.severe), (Some(1.1), Some(1.5)));
    assert_eq!((refused.bucket, refused.turn), (Some(2), Some(2)));
}

#[test]
fn past_severe_every_bucket_is_refused_but_for_probes() {
    let mut bench = ttft(8_000.0);
    assert_eq!(bench.admitted(WARM, 12), 5);
    let refused = slow(bench.turn(WARM).unwrap_err());
    assert_eq!(
        (refused.probes.budget, refused.probes.used),
        (Budget::Warm, 5)
    );
    assert_eq!(refused.admits_at, 7_500.0);
    bench.advance(SECOND * 10);
    assert_eq!(
        bench.admitted(None, 12),
        5,
        "no header draws from the same budget"
    );
}

#[test]
fn turn_one_has_its_own_probe_only_while_no_warm_request_has_probed() {
    let mut bench = ttft(8_000.0);
    assert_eq!(bench.admitted(NEW, 9), 1);
    assert_eq!(bench.admitted(WARM, 9), 5, "the warm budget is whole");
    bench.advance(SECOND * 10);
    assert_eq!((bench.admitted(WARM, 1), bench.admitted(NEW, 9)), (1, 0));
    let refused = slow(bench.turn(NEW).unwrap_err());
    assert_eq!(refused.probes.budget, Budget::FirstTurn);
    assert_eq!(
        (refused.probes.used, refused.probes.used_by_warm),
        (0, Some(1))
    );
    bench.advance(SECOND * 10);
    assert_eq!(bench.admitted(NEW, 9), 1);
}

#[test]
fn turn_one_is_held_out_until_the_release_point() {
    let mut bench = bench(1_000, |guard| {
        guard.ttft.table = Some(Arc::from([Metric {
            name: "avg".into(),
            statistic: Statistic::Mean,
            threshold: 1_000.0,
        }]));
        guard.ttft.alpha = 1.0;
    });
    let mut at = |ewma: f64| {
        bench.window_of(Sample::Ttft(ewma));
        let refused = bench.turn(NEW).err().map(|refusal| {
            let slow = slow(refusal);
            (slow.held, slow.probes.budget, slow.admits_at)
        });
        (refused, bench.turn(WARM).is_ok())
    };
    let held = Some((true, Budget::None, 900.0));
    assert_eq!(at(950.0), (None, true), "nothing has set the flag");
    assert_eq!(at(1_000.0), (None, true), "turn 1 probes; the flag is set");
    assert_eq!(at(999.0), (held, true));
    assert_eq!(at(900.0), (held, true));
    assert_eq!(at(899.0), (None, true), "released");
    assert_eq!(at(950.0), (None, true));
}

#[test]
fn the_hold_ends_when_the_average_expires() {
    let mut bench = ttft(5_000.0);
    bench.admitted(WARM, 1);
    assert!(bench.protection().ttft.held);
    bench.advance(SECOND * 60);
    assert!(bench.turn(NEW).is_ok() && !bench.protection().ttft.held);
}

#[test]
fn a_pool_of_new_sessions_cannot_shut_itself() {
    let mut bench = bench(1_000, |guard| {
        guard.ttft.limit = limit(5_000.0);
        guard.priority.t1_probes = 0;
    });
    bench.window_of(Sample::Ttft(80_000.0));
    assert_eq!(bench.admitted(NEW, 9), 0);
    bench.advance(SECOND * 60);
    assert_eq!(
        bench.admitted(NEW, 9),
        9,
        "without samples the average expires"
    );
}

#[test]
fn the_rate_grades_the_same_way_round() {
    let mut bench = bench(1_000, |guard| guard.tps.limit = limit(30.0));
    bench.window_of(Sample::Tps(20.0));
    // Turn 1 below 30, 2–3 below 27.3, …, the last below 20, strictly.
    assert_eq!(bench.admitted(WARM, 9), 9, "20 is not below 20");
    assert_eq!(bench.admitted(Some(2), 9), 5);
    assert_eq!(bench.admitted(NEW, 9), 0);
    let refused = slow(bench.turn(NEW).unwrap_err());
    assert_eq!((refused.held, refused.admits_at), (false, 30.0));
    bench.switches.session_prio = false;
    bench.advance(SECOND * 10);
    assert_eq!(
        bench.admitted(WARM, 9),
        5,
        "the plain gate trips for everybody"
    );
}

#[test]
fn a_table_of_the_route_replaces_the_buckets() {
    let row = |min_turn, share, tol| Bucket {
        min_turn,
        share,
        tol,
    };
    let mut bench = bench(10, |guard| {
        guard.priority = PrioritySpec {
            table: Arc::from([row(1, 0.3, 1.0), row(5, 1.0, 1.5)]),
            ..PrioritySpec::default()
        };
    });
    assert_eq!(bench.admitted(Some(4), 20), 3);
    assert_eq!(bench.admitted(Some(5), 20), 7);
}

#[test]
fn too_many_requests_without_a_header_are_worth_one_warning_a_minute() {
    let mut bench = bench(1_000, |_| {});
    bench.admitted(NEW, 7);
    bench.admitted(None, 3);
    assert_eq!(
        bench.book.take_no_header_warning(),
        None,
        "the minute is not over"
    );
    bench.advance(SECOND * 60);
    let warning = NoHeader {
        no_header: 3,
        requests: 10,
        warn_frac: 0.2,
    };
    assert_eq!(bench.book.take_no_header_warning(), Some(warning));
    assert_eq!(bench.book.take_no_header_warning(), None);
    bench.admitted(NEW, 8);
    bench.admitted(None, 2);
    bench.advance(SECOND * 60);
    assert_eq!(
        bench.book.take_no_header_warning(),
        None,
        "a fifth is not more than a fifth"
    );
}
