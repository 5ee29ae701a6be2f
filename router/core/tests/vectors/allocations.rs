//! The admit path allocates nothing. A counting allocator for this test binary checks that.

use allocation_counter::measure;
use router_core::affinity::{Affinity, Hash, Saturated};
use router_core::aimd::AdaptiveSpec;
use router_core::balance::Balance;
use router_core::book::{PlacementRequest, Verdict};
use router_core::layered::Source;
use router_core::signal::{Limit, Sample};

use crate::bench::{Bench, POOL};

/// 64 peers, with both signals measured; the limit is adaptive if `adaptive`.
fn bench(hash: Hash, balance: Balance, adaptive: bool) -> Bench {
    let keys: Vec<String> = (0..64).map(|i| format!("10.0.0.{i}:8000")).collect();
    let peers: Vec<_> = keys.iter().map(|key| (key.as_str(), 0, 16)).collect();
    let affinity = Affinity::Hash {
        hash,
        saturated: Saturated::Fallback,
    };
    let limit = |value| {
        Some(Limit {
            value,
            source: Source::Route,
        })
    };
    let mut bench = Bench::with(affinity, &peers, |spec| {
        spec.balance = balance;
        spec.guard.ttft.limit = limit(1_000.0);
        spec.guard.tps.limit = limit(20.0);
        spec.guard.adaptive = adaptive.then(AdaptiveSpec::default);
    });
    bench.sample(Sample::Ttft(5_000.0));
    bench.window_of(Sample::Tps(60.0));
    bench.switches.session_prio = true;
    bench
}

/// Allocations of one request that is placed on a probe slot and ends.
fn allocations(bench: &mut Bench, session: Option<&[u8]>) -> u64 {
    let request = PlacementRequest {
        turn: Some(3),
        switches: bench.switches,
        ..PlacementRequest::new(POOL, session)
    };
    let counted = measure(|| {
        match bench
            .book
            .reserve(&bench.resolved, request, bench.now, &mut bench.rng)
        {
            Verdict::Send(placement) => {
                bench.book.tokens(&placement.facts, 100, 50);
                bench.book.release(placement.ticket, bench.now);
            }
            other => panic!("not placed: {other:?}"),
        }
    });
    counted.count_total
}

#[test]
fn a_placed_request_allocates_nothing() {
    let long = [b's'; 2_000];
    for hash in [Hash::Crc32, Hash::Rendezvous, Hash::RendezvousMd5] {
        for balance in [Balance::LeastConn, Balance::RoundRobin, Balance::PowerOfTwo] {
            for adaptive in [false, true] {
                let mut bench = bench(hash, balance, adaptive);
                // The first session of a pool allocates the filter of warm sessions.
                allocations(&mut bench, Some(b"first"));
                for session in [None, Some(&b"s"[..]), Some(&long[..])] {
                    assert_eq!(allocations(&mut bench, session), 0, "{hash:?} {balance:?}");
                }
            }
        }
    }
}

#[test]
fn the_counter_counts() {
    let mut bench = bench(Hash::Crc32, Balance::LeastConn, false);
    let refused = measure(|| {
        let turns = (0..9).map(|_| bench.turn(Some(1)).is_err());
        assert!(
            turns.collect::<Vec<_>>()[8],
            "a refusal carries its numbers in a box"
        );
    });
    assert!(refused.count_total > 0);
}

#[test]
fn a_sample_and_a_tick_allocate_nothing_once_measured() {
    let mut bench = bench(Hash::Crc32, Balance::LeastConn, true);
    let counted = measure(|| bench.window_of(Sample::Ttft(700.0)));
    assert_eq!(counted.count_total, 0);
}
