//! With `load_rate_limit` off, every gate is evaluated, none refuses, and each trip counts.

use std::sync::Arc;

use router_core::admission::{Gate, Gates};
use router_core::affinity::Affinity;
use router_core::book::status::Trips;
use router_core::book::{PlacementRequest, Verdict};
use router_core::layered::Source;
use router_core::signal::{Limit, Metric, Sample, Statistic};

use crate::bench::{Bench, POOL};

/// Two slots, and both thresholds exceeded.
fn bench() -> Bench {
    let mut bench = Bench::with(Affinity::None, &[("a:1", 0, 2)], |spec| {
        let limit = |value| {
            Some(Limit {
                value,
                source: Source::Route,
            })
        };
        spec.guard.ttft.limit = limit(1_000.0);
        spec.guard.tps.limit = limit(20.0);
    });
    bench.sample(Sample::Ttft(5_000.0));
    bench.window_of(Sample::Tps(5.0));
    bench.switches.rate_limit = false;
    bench
}

fn trips(concurrency: u64, ttft: u64, tps: u64) -> Trips {
    Trips {
        concurrency,
        ttft,
        tps,
    }
}

#[test]
fn every_gate_is_asked_and_each_trip_counts() {
    let mut bench = bench();
    let tripped = (0..4).map(|_| bench.turn(None).unwrap().tripped);
    let tripped: Vec<Gates> = tripped.collect();
    let slow: Gates = [Gate::Ttft, Gate::Tps].into_iter().collect();
    let all: Gates = Gate::ALL.into_iter().collect();
    assert_eq!(tripped, [slow, slow, all, all]);
    assert_eq!(bench.book.trips(), trips(2, 4, 4));
    assert_eq!(bench.book.reset_trips(), trips(2, 4, 4));
    assert_eq!(bench.book.trips(), trips(0, 0, 0));
}

#[test]
fn no_probe_slot_is_spent() {
    let mut bench = bench();
    bench.admitted(None, 9);
    let probes = |bench: &Bench| bench.protection().ttft.probes_used;
    assert_eq!(probes(&bench), 0);
    bench.end_all();
    bench.switches.rate_limit = true;
    assert_eq!((bench.admitted(None, 9), probes(&bench)), (2, 2));
}

/// A pool judged only by the mean of its last window, threshold 1000 ms, release point 900 ms.
fn held_bench() -> Bench {
    let mut bench = Bench::with(Affinity::None, &[("a:1", 0, 100)], |spec| {
        spec.guard.ttft.table = Some(Arc::from([Metric {
            name: "avg".into(),
            statistic: Statistic::Mean,
            threshold: 1_000.0,
        }]));
        spec.guard.ttft.alpha = 1.0;
    });
    bench.switches.session_prio = true;
    bench
}

#[test]
fn the_hold_flag_is_not_set() {
    let mut bench = held_bench();
    for rate_limit in [false, true] {
        bench.switches.rate_limit = rate_limit;
        bench.window_of(Sample::Ttft(1_000.0));
        assert!(bench.turn(Some(40)).is_ok());
        bench.switches.rate_limit = true;
        bench.window_of(Sample::Ttft(950.0));
        assert_eq!(
            bench.turn(Some(1)).is_err(),
            rate_limit,
            "the control sets it"
        );
    }
}

#[test]
fn the_hold_flag_is_not_released() {
    let mut bench = held_bench();
    for rate_limit in [false, true] {
        bench.switches.rate_limit = true;
        bench.window_of(Sample::Ttft(1_000.0));
        assert!(bench.turn(Some(40)).is_ok());
        bench.switches.rate_limit = rate_limit;
        bench.window_of(Sample::Ttft(100.0));
        assert!(bench.turn(Some(40)).is_ok());
        bench.switches.rate_limit = true;
        bench.window_of(Sample::Ttft(950.0));
        assert_eq!(
            bench.turn(Some(1)).is_ok(),
            rate_limit,
            "the control releases it"
        );
    }
}

#[test]
fn a_pool_without_a_peer_is_refused_all_the_same() {
    let mut bench = bench();
    bench.ban("a:1");
    assert_eq!(bench.refused().code(), "no_healthy_peer");
    assert_eq!(bench.book.trips(), trips(0, 0, 0));
}

#[test]
fn an_exempt_request_passes_every_gate_and_counts_nowhere() {
    let mut bench = bench();
    bench.switches.rate_limit = true;
    bench.switches.session_prio = true;
    for _ in 0..5 {
        let request = PlacementRequest {
            exempt: true,
            switches: bench.switches,
            ..PlacementRequest::new(POOL, None)
        };
        match bench
            .book
            .reserve(&bench.resolved, request, bench.now, &mut bench.rng)
        {
            Verdict::Send(placement) => bench.held.push(placement.ticket),
            other => panic!("not placed: {other:?}"),
        }
    }
    assert_eq!(bench.protection().in_flight, 5, "it runs all the same");
    assert_eq!(bench.protection().ttft.probes_used, 0);
    assert_eq!(bench.book.priority(&bench.resolved).no_header.admitted, 0);
    bench.switches.rate_limit = false;
    assert_eq!(bench.book.trips(), trips(0, 0, 0));
}
