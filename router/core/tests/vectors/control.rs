//! V1 to V30, V49 and V51. V16 and V50 belong to the configuration, V31 and V32 to the usage
//! reader, the others to the content rules and the status pages.

use std::sync::Arc;
use std::time::Duration;

use router_core::admission::{Refusal, concurrency};
use router_core::affinity::Affinity;
use router_core::aimd::{AdaptiveSpec, Bounds, Health, Inputs, tick};
use router_core::book::status::ThresholdSource;
use router_core::book::{PlacementRequest, Verdict};
use router_core::histogram::Histogram;
use router_core::layered::Source;
use router_core::pool::{PeerKey, RouteSpec};
use router_core::signal::{Limit, Metric, Sample, Signal, SignalSpec, Statistic};

use crate::bench::{Bench, POOL};

const SECOND: Duration = Duration::from_secs(1);

/// The specification's defaults: `hold_when_idle` is off there, and on in the contract.
const SPEC: AdaptiveSpec = AdaptiveSpec {
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
    hold_when_idle: false,
};

fn bounds(spec: AdaptiveSpec, max: u64) -> (u64, u64) {
    let bounds = Bounds::new(&spec, max);
    assert_eq!(bounds.max, max);
    (bounds.min, bounds.init)
}

/// The limits after ticks of (in-flight, refused, overloaded), starting from `limit`, or from the
/// start point for `None`.
fn ticks(spec: AdaptiveSpec, max: u64, limit: Option<f64>, steps: &[(u64, u64, bool)]) -> Vec<f64> {
    let bounds = Bounds::new(&spec, max);
    let mut limit = limit.unwrap_or(bounds.init as f64);
    let one = |&(in_flight, refused, overloaded): &(u64, u64, bool)| {
        let health = if overloaded {
            Health::Overloaded
        } else {
            Health::Fine
        };
        let inputs = Inputs {
            limit,
            in_flight,
            refused,
            health,
        };
        limit = tick(&spec, bounds, inputs).expect("there is a signal");
        limit
    };
    steps.iter().map(one).collect()
}

fn assert_near(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len(), "{found:?}");
    let near = found
        .iter()
        .zip(expected)
        .all(|(one, other)| (one - other).abs() < 1e-6);
    assert!(near, "{found:?} is not {expected:?}");
}

/// V7: the coefficients of a fast bed.
fn fast() -> AdaptiveSpec {
    AdaptiveSpec {
        min: Some(5),
        dec: 0.7,
        inc: 1.5,
        ..SPEC
    }
}

#[test]
fn floor_and_start_are_two_fifths_of_the_largest_tier() {
    assert_eq!(bounds(SPEC, 100), (40, 40));
}

#[test]
fn a_fraction_is_rounded_down_and_is_at_least_one() {
    assert_eq!((bounds(SPEC, 6).0, bounds(SPEC, 1).0), (2, 1));
}

#[test]
fn a_floor_above_the_maximum_is_the_maximum() {
    let spec = AdaptiveSpec {
        min: Some(10),
        ..SPEC
    };
    assert_eq!(bounds(spec, 6), (6, 6));
    assert_near(
        &ticks(spec, 6, None, &[(6, 1, false), (6, 0, true)]),
        &[6.0, 6.0],
    );
}

/// The configuration rejects a start point of 0.5.
#[test]
fn the_start_point_stays_within_the_bounds() {
    let spec = AdaptiveSpec {
        min: Some(2),
        ..SPEC
    };
    let start = |init, init_frac| {
        let spec = AdaptiveSpec {
            init,
            init_frac,
            ..spec
        };
        bounds(spec, 200).1
    };
    assert_eq!(start(None, Some(0.1)), 20);
    assert_eq!(start(Some(500), Some(0.1)), 200);
    assert_eq!(start(Some(1), None), 2);
    assert_eq!(start(None, None), 2);
}

#[test]
fn pressure_grows_slack_shrinks_and_idleness_does_neither() {
    let steps = [
        (40, 0, false),
        (40, 0, false),
        (41, 3, false),
        (30, 0, false),
        (20, 0, false),
        (0, 0, false),
    ];
    let limits = [
        40.8,
        41.616,
        42.448_32,
        42.448_32,
        41.174_870_4,
        41.174_870_4,
    ];
    assert_near(&ticks(SPEC, 100, None, &steps), &limits);
}

#[test]
fn overload_beats_hidden_demand() {
    let steps = [(60, 7, true), (60, 0, true), (60, 0, true)];
    assert_near(
        &ticks(SPEC, 100, Some(100.0), &steps),
        &[97.0, 94.09, 91.2673],
    );
}

#[test]
fn overload_shrinks_down_to_the_floor() {
    let limits = ticks(fast(), 400, Some(60.0), &[(60, 20, true); 8]);
    assert_near(
        &limits,
        &[42.0, 29.4, 20.58, 14.406, 10.0842, 7.05894, 5.0, 5.0],
    );
}

#[test]
fn hidden_demand_grows_up_to_the_maximum() {
    let limits = ticks(fast(), 400, Some(60.0), &[(60, 20, false); 6]);
    assert_near(&limits, &[90.0, 135.0, 202.5, 303.75, 400.0, 400.0]);
}

/// One peer with `slots`. The first tick comes when the book first reads the clock.
fn bed(slots: u32, change: impl FnOnce(&mut RouteSpec)) -> Bench {
    let mut bench = Bench::with(Affinity::None, &[("a:1", 0, slots)], change);
    bench.advance(Duration::ZERO);
    bench
}

fn limit(value: f64) -> Option<Limit> {
    Some(Limit {
        value,
        source: Source::Route,
    })
}

/// V7's bed with both thresholds; TTFT is above its threshold, the rate is fine.
fn only_ttft_is_over(use_ttft: bool) -> f64 {
    let mut bench = bed(400, |spec| {
        spec.guard.ttft.limit = limit(1_000.0);
        spec.guard.tps.limit = limit(20.0);
        let adaptive = AdaptiveSpec {
            init: Some(60),
            use_ttft,
            ..fast()
        };
        spec.guard.adaptive = Some(adaptive);
    });
    // In flight before any measurement, so that no gate refuses.
    assert_eq!(bench.admitted(None, 60), 60);
    assert!(bench.turn(None).is_err(), "hidden demand");
    bench.sample(Sample::Ttft(6_000.0));
    bench.sample(Sample::Tps(100.0));
    bench.advance(SECOND * 20);
    bench.protection().limit
}

#[test]
fn ttft_overload_counts_unless_the_route_says_otherwise() {
    assert_near(
        &[only_ttft_is_over(false), only_ttft_is_over(true)],
        &[90.0, 42.0],
    );
}

#[test]
fn only_overload_goes_below_the_start_point() {
    let spec = AdaptiveSpec {
        min: Some(2),
        init: Some(20),
        dec: 0.5,
        inc: 2.0,
        headroom: 0.0,
        ..SPEC
    };
    let steps = [
        (1, 0, true),
        (1, 0, true),
        (1, 0, false),
        (1, 0, false),
        (1, 0, false),
        (30, 0, false),
        (30, 0, false),
        (2, 0, false),
        (2, 0, false),
    ];
    let limits = [10.0, 5.0, 10.0, 20.0, 20.0, 37.5, 37.5, 20.0, 20.0];
    assert_near(&ticks(spec, 200, None, &steps), &limits);
}

#[test]
fn growth_stops_a_little_above_the_load() {
    let spec = AdaptiveSpec {
        min: Some(5),
        dec: 0.5,
        inc: 2.0,
        ..SPEC
    };
    assert_near(
        &ticks(spec, 400, None, &[(3, 0, false); 3]),
        &[8.0, 8.0, 8.0],
    );
    let spec = AdaptiveSpec {
        min: Some(2),
        headroom: 0.0,
        ..spec
    };
    assert_near(
        &ticks(spec, 400, None, &[(3, 0, false); 3]),
        &[3.75, 3.75, 3.75],
    );
}

#[test]
fn slack_follows_the_load_down_and_settles() {
    let spec = AdaptiveSpec {
        min: Some(10),
        init: Some(10),
        ..SPEC
    };
    let limits = ticks(spec, 100, Some(60.0), &[(30, 0, false); 20]);
    assert_near(&limits[..3], &[58.2, 56.454, 54.760_38]);
    assert_near(&limits[11..], &[41.630_542; 9]);
    assert!(limits[10] > limits[11]);
}

#[test]
fn held_limits_move_for_overload_alone() {
    let spec = AdaptiveSpec {
        min: Some(2),
        dec: 0.5,
        inc: 2.0,
        headroom: 0.0,
        hold_when_idle: true,
        ..SPEC
    };
    let steps = [(1, 0, false), (0, 0, false), (1, 0, true), (1, 0, false)];
    assert_near(
        &ticks(spec, 200, Some(37.5), &steps),
        &[37.5, 37.5, 18.75, 18.75],
    );
}

/// V13's hour and V14's five minutes: the limit after a time without ticks that renew it.
fn after_silence(hold_when_idle: bool, silence: Duration) -> (Option<f64>, f64) {
    let mut bench = bed(100, |spec| {
        spec.guard.tps.limit = limit(20.0);
        let adaptive = AdaptiveSpec {
            hold_when_idle,
            ..SPEC
        };
        spec.guard.adaptive = Some(adaptive);
    });
    bench.admitted(None, 40);
    bench.window_of(Sample::Tps(100.0));
    assert_near(&[bench.protection().limit], &[40.8]);
    bench.advance(silence);
    let protection = bench.protection();
    let adaptive = protection.adaptive.expect("the route is adaptive");
    (adaptive.stored, protection.limit)
}

#[test]
fn a_held_limit_outlives_an_idle_hour() {
    // The average lives for another 60 s, which is three more ticks under the same pressure.
    let (stored, limit) = after_silence(true, SECOND * 3_600);
    assert_near(&[stored.unwrap(), limit], &[42.448_32, 42.448_32]);
}

#[test]
fn without_a_signal_a_limit_stays_and_ages() {
    let inputs = Inputs {
        limit: 44.0,
        in_flight: 50,
        refused: 9,
        health: Health::Unknown,
    };
    assert_eq!(tick(&SPEC, Bounds::new(&SPEC, 100), inputs), None);
    let (stored, limit) = after_silence(false, SECOND * 200);
    assert_near(&[stored.unwrap(), limit], &[42.448_32, 42.448_32]);
    assert_eq!(
        after_silence(false, SECOND * 400),
        (None, 40.0),
        "the start point"
    );
}

#[test]
fn without_a_signal_refusals_are_not_used_up() {
    let mut bench = bed(100, |spec| {
        spec.guard.tps.limit = limit(20.0);
        spec.guard.adaptive = Some(SPEC);
    });
    assert_eq!(bench.admitted(None, 49), 40);
    let refused = |bench: &Bench| {
        let adaptive = bench.protection().adaptive.expect("the route is adaptive");
        (adaptive.rejected, adaptive.has_signal)
    };
    bench.advance(SECOND * 20);
    assert_eq!(refused(&bench), (9, false));
    bench.window_of(Sample::Tps(100.0));
    assert_eq!(refused(&bench), (0, true));
}

#[test]
fn sustained_pressure_reaches_the_maximum_at_tick_47() {
    let limits = ticks(SPEC, 100, None, &[(100, 0, false); 48]);
    assert_eq!(limits.iter().position(|limit| *limit == 100.0), Some(46));
}

#[test]
fn a_fraction_of_a_slot_admits_one_more() {
    assert!(concurrency::admits(5, 5.3, 1.0) && !concurrency::admits(6, 5.3, 1.0));
}

/// Four peers of 16 with an adaptive limit of 57 that no tick has moved yet.
fn v18() -> Bench {
    let peers = [
        ("a:1", 0, 16),
        ("b:1", 0, 16),
        ("c:1", 0, 16),
        ("d:1", 0, 16),
    ];
    let mut bench = Bench::with(Affinity::None, &peers, |spec| {
        spec.guard.tps.limit = limit(20.0);
        let adaptive = AdaptiveSpec {
            init: Some(57),
            ..SPEC
        };
        spec.guard.adaptive = Some(adaptive);
    });
    bench.load(&[5, 5, 11, 11]);
    bench.ban("a:1");
    bench.ban("b:1");
    bench
}

/// In-flight covers only the peers whose slots form the limit: the ten requests that finish on
/// banned peers take no room from the others. The specification refused here.
#[test]
fn requests_on_banned_peers_take_no_room() {
    let mut bench = v18();
    let facts = bench.sent(None).2;
    assert_eq!(
        (facts.in_flight, facts.pool_limit, facts.limit),
        (22, 32, 32.0)
    );
    assert_eq!(facts.adaptive, Some(57.0));
    assert_eq!(bench.admitted(None, 20), 10);
    let full = bench.full();
    assert_eq!((full.in_flight, full.limit, full.ceiling), (32, 32.0, 32));
}

#[test]
fn slots_that_engines_say_are_in_the_bounds() {
    let peers = [("a:1", 0, 1), ("b:1", 0, 1)];
    let mut bench = Bench::with(Affinity::None, &peers, |spec| {
        spec.guard.ttft.limit = limit(1_000.0);
        spec.guard.adaptive = Some(SPEC);
        for peer in &mut spec.pools[0].peers {
            peer.learns_slots = true;
        }
    });
    let bounds = |bench: &Bench| {
        let adaptive = bench.protection().adaptive.expect("it adapts");
        (adaptive.min, adaptive.init, adaptive.max)
    };
    assert_eq!(bounds(&bench), (1, 1, 2));
    bench.book.learn_slots(&PeerKey::new("a:1"), 16);
    bench.book.learn_slots(&PeerKey::new("b:1"), 4);
    assert_eq!(bounds(&bench), (8, 8, 20));
    assert_eq!(bench.admitted(None, 20), 8);
    // A reload keeps the existing measurements.
    let resolved = bench.book.attach(bench.resolved.spec().clone());
    bench.book.detach(&bench.resolved);
    bench.resolved = resolved;
    assert_eq!(bounds(&bench), (8, 8, 20));
}

/// Two engines with one model each are one pool, and the limit protects the pool.
#[test]
fn requests_of_all_models_count_against_one_adaptive_limit() {
    let peers = [("a:1", 0, 8), ("b:1", 0, 8)];
    let mut bench = Bench::with(Affinity::None, &peers, |spec| {
        spec.guard.tps.limit = limit(20.0);
        let adaptive = AdaptiveSpec {
            init: Some(10),
            ..SPEC
        };
        spec.guard.adaptive = Some(adaptive);
    });
    let mut of_model = |peer: usize| {
        let pin = [peer];
        let request = PlacementRequest {
            pin: Some(&pin),
            ..PlacementRequest::new(POOL, None)
        };
        let (resolved, rng) = (&bench.resolved, &mut bench.rng);
        match bench.book.reserve(resolved, request, bench.now, rng) {
            Verdict::Send(placement) => {
                bench.held.push(placement.ticket);
                Ok(placement.facts)
            }
            Verdict::Refuse(Refusal::ConcurrencyLimit(full)) => Err(full),
            other => panic!("{other:?}"),
        }
    };
    for _ in 0..8 {
        of_model(0).expect("its own engine has room");
    }
    let full = of_model(0).expect_err("its own engine has none");
    assert_eq!((full.in_flight, full.limit, full.pool_limit), (8, 8.0, 8));
    let facts = of_model(1).expect("the other one has");
    assert_eq!((facts.in_flight, facts.limit), (8, 10.0));
    of_model(1).expect("the pool has room for one more");
    let full = of_model(1).expect_err("the pool has none");
    assert_eq!((full.in_flight, full.limit, full.must_end), (10, 10.0, 1));
    bench.end_all();
}

#[test]
fn the_factor_scales_the_adaptive_limit() {
    let mut bench = bed(6, |spec| {
        spec.rt_limit_factor = 2.0;
        spec.guard.ttft.limit = limit(1_000.0);
        spec.guard.adaptive = Some(SPEC);
    });
    assert_eq!(bench.admitted(None, 9), 4);
    let full = bench.full();
    assert_eq!((full.in_flight, full.limit, full.pool_limit), (4, 2.0, 6));
}

fn value(samples: &[(usize, f64)], statistic: Statistic) -> Option<f64> {
    let mut histogram = Histogram::default();
    for &(times, sample) in samples {
        (0..times).for_each(|_| histogram.add(sample));
    }
    histogram.value(statistic)
}

/// Whether a value is within the promised accuracy.
fn is_near(value: Option<f64>, truth: f64) -> bool {
    value.is_some_and(|value| (value - truth).abs() <= 0.03 * truth)
}

#[test]
fn a_quantile_is_a_sample_and_the_mean_is_exact() {
    let samples = [(7, 200.0), (3, 6_000.0)];
    assert!(is_near(value(&samples, Statistic::Quantile(0.8)), 6_000.0));
    assert_eq!(value(&samples, Statistic::Mean), Some(1_940.0));
}

#[test]
fn exactly_the_quantile_suffices() {
    let samples = [(8, 200.0), (2, 6_000.0)];
    assert!(is_near(value(&samples, Statistic::Quantile(0.8)), 200.0));
}

#[test]
fn the_p80_of_a_rate_is_its_twentieth_percentile() {
    let p80 = |slow| {
        let samples = [(10 - slow, 100.0), (slow, 18.0)];
        value(&samples, Statistic::Quantile(0.2))
    };
    assert!(is_near(p80(3), 18.0) && is_near(p80(1), 100.0) && is_near(p80(2), 18.0));
}

#[test]
fn one_sample_makes_a_window() {
    let p80 = |rate| value(&[(1, rate)], Statistic::Quantile(0.2));
    assert_eq!((p80(16.0), p80(500.0)), (Some(16.0), Some(500.0)));
    assert_eq!(p80(90_000.0), Some(90_000.0), "nothing caps a slow one");
}

#[test]
fn a_limit_far_above_the_measured_ttft_refuses_nobody() {
    for (threshold, ttft) in [(200.0, 20.0), (500.0, 300.0)] {
        let mut bench = limited(Signal::Ttft, threshold);
        bench.window_of(Sample::Ttft(ttft));
        assert_eq!(bench.protection().ttft.metrics[0].ewma, Some(ttft));
        assert_eq!(bench.admitted(None, 20), 20);
    }
}

#[test]
fn a_rate_limit_refuses_just_below_it_and_not_just_above() {
    for (rate, is_slow) in [(41.0, true), (44.0, true), (46.5, false)] {
        let mut bench = limited(Signal::Tps, 45.0);
        bench.window_of(Sample::Tps(rate));
        assert_eq!(bench.protection().tps.tripped, is_slow, "{rate} tokens/s");
    }
}

#[test]
fn a_fast_pool_leaves_the_floor_of_its_adaptive_limit() {
    let mut bench = bed(100, |spec| {
        spec.guard.ttft.limit = limit(200.0);
        spec.guard.adaptive = Some(SPEC);
    });
    let floor = bench.protection().limit;
    bench.admitted(None, 100);
    bench.window_of(Sample::Ttft(20.0));
    bench.window_of(Sample::Ttft(20.0));
    assert!(bench.protection().limit > floor);
}

/// One peer with one limit, and nothing adaptive.
fn limited(signal: Signal, threshold: f64) -> Bench {
    bed(100, |spec| match signal {
        Signal::Ttft => spec.guard.ttft.limit = limit(threshold),
        Signal::Tps => spec.guard.tps.limit = limit(threshold),
    })
}

/// The averages after windows with one sample each, and whether the gate is tripped.
fn averages(mut bench: Bench, samples: &[Sample]) -> Vec<(f64, bool)> {
    let one = |sample: &Sample| {
        bench.window_of(*sample);
        let protection = bench.protection();
        let state = match sample {
            Sample::Ttft(_) => protection.ttft,
            _ => protection.tps,
        };
        let ewma = state.metrics[0].ewma.expect("the window had a sample");
        ((ewma * 1e6).round() / 1e6, state.tripped)
    };
    samples.iter().map(one).collect()
}

#[test]
fn ttft_trips_when_the_average_reaches_the_limit() {
    let samples = [5_000.0, 50_000.0, 50_000.0, 50_000.0, 50_000.0].map(Sample::Ttft);
    let found = averages(limited(Signal::Ttft, 30_000.0), &samples);
    let expected = [
        (5_000.0, false),
        (18_500.0, false),
        (27_950.0, false),
        (34_565.0, true),
        (39_195.5, true),
    ];
    assert_eq!(found, expected);
}

#[test]
fn ttft_is_released_when_the_average_falls_below_the_limit() {
    let samples = [50_000.0, 2_000.0, 2_000.0, 2_000.0].map(Sample::Ttft);
    let found = averages(limited(Signal::Ttft, 30_000.0), &samples);
    let expected = [
        (50_000.0, true),
        (35_600.0, true),
        (25_520.0, false),
        (18_464.0, false),
    ];
    assert_eq!(found, expected);
}

#[test]
fn the_rate_averages_alike() {
    let samples = [40.0, 15.0, 15.0, 15.0, 15.0].map(Sample::Tps);
    let found = averages(limited(Signal::Tps, 24.0), &samples);
    let expected = [
        (40.0, false),
        (32.5, false),
        (27.25, false),
        (23.575, true),
        (21.0025, true),
    ];
    assert_eq!(found, expected);
}

#[test]
fn at_the_threshold_the_gate_refuses() {
    for (signal, at, sample) in [
        (Signal::Ttft, 5_000.0, Sample::Ttft(5_000.0)),
        (Signal::Tps, 20.0, Sample::Tps(20.0)),
    ] {
        let mut bench = limited(signal, at);
        bench.window_of(sample);
        assert_eq!(bench.admitted(None, 9), 5, "{signal}: probes alone");
        let code = bench.refused().code();
        assert_eq!(code, format!("{signal}_limit"));
    }
}

#[test]
fn at_the_threshold_the_loop_does_not_shrink() {
    for (sample, past) in [
        (Sample::Ttft(5_000.0), Sample::Ttft(8_000.0)),
        (Sample::Tps(20.0), Sample::Tps(15.0)),
    ] {
        let mut bench = bed(100, |spec| {
            spec.guard.ttft.limit = limit(5_000.0);
            spec.guard.tps.limit = limit(20.0);
            spec.guard.adaptive = Some(SPEC);
        });
        // Too many for slack, too few for pressure.
        bench.admitted(None, 30);
        bench.window_of(sample);
        assert_eq!(bench.protection().limit, 40.0);
        bench.window_of(past);
        assert_eq!(bench.protection().limit, 40.0, "the floor");
        let adaptive = bench.protection().adaptive.unwrap();
        assert_eq!(adaptive.stored, Some(40.0));
    }
}

/// A monotonic clock does not jump. The effect of a jump would be that old windows are dropped; a
/// gap without ticks shows the same.
#[test]
fn a_window_long_over_is_not_judged() {
    let mut bench = limited(Signal::Ttft, 1_000.0);
    bench.sample(Sample::Ttft(5_000.0));
    bench.now += SECOND * 70;
    bench.sample(Sample::Ttft(200.0));
    assert_eq!(bench.protection().ttft.metrics[0].ewma, None);
    bench.now += SECOND * 20;
    bench.sample(Sample::Ttft(200.0));
    assert_eq!(bench.protection().ttft.metrics[0].ewma, Some(200.0));
}

/// With a timer the last window of a burst is evaluated although no sample follows.
#[test]
fn the_last_window_of_a_burst_is_judged_by_the_timer() {
    let mut bench = limited(Signal::Ttft, 1_000.0);
    bench.window_of(Sample::Ttft(5_000.0));
    assert_eq!(bench.protection().ttft.metrics[0].ewma, Some(5_000.0));
    bench.advance(SECOND * 59);
    assert!(bench.protection().ttft.tripped);
    bench.advance(SECOND);
    assert!(!bench.protection().ttft.tripped, "the average has expired");
}

#[test]
fn a_tripped_gate_lets_five_through_in_each_window() {
    let mut bench = limited(Signal::Ttft, 1_000.0);
    bench.window_of(Sample::Ttft(5_000.0));
    let refusals: Vec<Refusal> = (0..12).filter_map(|_| bench.turn(None).err()).collect();
    assert_eq!(refusals.len(), 7);
    let Refusal::TtftLimit(slow) = &refusals[0] else {
        panic!("refused otherwise: {refusals:?}");
    };
    assert_eq!(
        (&*slow.metric, slow.ewma, slow.threshold),
        ("p80", 5_000.0, 1_000.0)
    );
    assert_eq!((slow.probes.used, slow.probes.per_window), (5, 5));
    assert_eq!((slow.probes.window_left_s, slow.retry_after_s), (10, 10));
    bench.advance(SECOND * 7);
    assert_eq!(
        (bench.admitted(None, 1), bench.refused().retry_after_s()),
        (0, 3)
    );
    bench.advance(SECOND * 3);
    assert_eq!(bench.admitted(None, 12), 5, "the next window");
}

/// The average of a pool: of 9, 11 and 7 only.
#[test]
fn the_average_is_of_the_slots_that_hold_one() {
    let mut bench = bed(100, |_| {});
    for in_flight in [9, 11, 7] {
        bench.end_all();
        bench.admitted(None, in_flight);
        bench.advance(SECOND * 30);
    }
    let average = bench.protection().average;
    assert_eq!((average.slots.len(), average.mean), (3, 9.0));
}

#[test]
fn a_declared_table_beats_a_runtime_limit() {
    let table: Arc<[Metric]> = Arc::from([Metric {
        name: "p95".into(),
        statistic: Statistic::Quantile(0.95),
        threshold: 35_000.0,
    }]);
    let mut bench = bed(1, |spec| spec.guard.ttft.table = Some(table));
    let hour = Some(SECOND * 3_600);
    let set = Some((9_999.0, hour));
    let before = bench
        .book
        .set_limit(&bench.resolved, Signal::Ttft, None, set, bench.now);
    assert_eq!(before, None);
    let state = bench.protection().ttft;
    assert_eq!(
        (state.source, state.shadowed),
        (ThresholdSource::Declared, None)
    );
    assert_eq!(state.metrics[0].threshold, Some(35_000.0));
    assert_eq!(state.runtime, set);
}

#[test]
fn the_nearest_threshold_wins() {
    let mut bench = bed(1, |spec| {
        spec.pools[0].model = Some("m1".into());
        spec.guard.ttft = SignalSpec {
            limit: limit(30_000.0),
            by_model: [("m1".into(), 20_000.0)].into(),
            ..SignalSpec::default()
        };
    });
    let in_force = |bench: &Bench| {
        let state = bench.protection().ttft;
        (
            state.source,
            state.metrics[0].threshold.unwrap(),
            state.shadowed,
        )
    };
    let set = |bench: &mut Bench, pool, value| {
        let limit = Some((value, None));
        bench
            .book
            .set_limit(&bench.resolved, Signal::Ttft, pool, limit, bench.now)
    };
    assert_eq!(in_force(&bench), (ThresholdSource::Model, 20_000.0, None));
    assert_eq!(set(&mut bench, None, 10_000.0), None);
    let route = (ThresholdSource::Override, 10_000.0, Some(20_000.0));
    assert_eq!(in_force(&bench), route);
    assert_eq!(set(&mut bench, Some(POOL), 5_000.0), None);
    let model = (ThresholdSource::ModelOverride, 5_000.0, Some(10_000.0));
    assert_eq!(in_force(&bench), model);
    let reset = bench
        .book
        .set_limit(&bench.resolved, Signal::Ttft, Some(POOL), None, bench.now);
    assert_eq!(reset, Some((5_000.0, None)));
    assert_eq!(in_force(&bench), route);
}

/// The limits of a pool under steady pressure, with samples of the given signals.
fn driven_by(ttft: Option<f64>, tps: Option<f64>, samples: &[Sample]) -> Vec<f64> {
    let mut bench = bed(100, |spec| {
        spec.guard.ttft.limit = ttft.and_then(limit);
        spec.guard.tps.limit = tps.and_then(limit);
        let adaptive = AdaptiveSpec {
            init: Some(50),
            ..SPEC
        };
        spec.guard.adaptive = Some(adaptive);
        // Probes of a tripped gate must not fill the pool.
        spec.guard.ttft.probes_per_window = 1_000;
    });
    let one = |sample: &Sample| {
        bench.admitted(None, 100);
        bench.window_of(*sample);
        bench.protection().limit
    };
    samples.iter().map(one).collect()
}

/// In the specification only the rate moves the limit; in the contract either signal alone does.
#[test]
fn either_signal_alone_drives_the_limit() {
    let ttft = [Sample::Ttft(200.0), Sample::Ttft(80_000.0)];
    let ttft = driven_by(Some(1_000.0), None, &ttft);
    assert_near(&ttft, &[51.0, 51.0 * 0.97]);
    let tps = [Sample::Tps(100.0), Sample::Tps(5.0), Sample::Tps(5.0)];
    let tps = driven_by(None, Some(80.0), &tps);
    assert_near(&tps, &[51.0, 51.0 * 0.97, 51.0 * 0.97 * 0.97]);
    // A rate limit without usage gives no signal, but TTFT does.
    let both = driven_by(
        Some(1_000.0),
        Some(80.0),
        &[Sample::Ttft(200.0), Sample::NoUsage],
    );
    assert_near(&both, &[51.0, 52.02]);
    assert_near(&driven_by(None, Some(80.0), &[Sample::NoUsage]), &[50.0]);
}

#[test]
fn a_switch_takes_its_signal_from_the_limit() {
    let mut bench = bed(100, |spec| {
        spec.guard.ttft.limit = limit(1_000.0);
        spec.guard.tps.limit = limit(20.0);
        spec.guard.adaptive = Some(SPEC);
    });
    assert_eq!(bench.protection().limit, 40.0);
    bench.switches.tps = false;
    assert_eq!(bench.protection().limit, 40.0, "TTFT drives it alone");
    bench.switches.ttft = false;
    let protection = bench.protection();
    assert_eq!(protection.limit, 100.0, "neither: the pool limit");
    assert!(!protection.adaptive.unwrap().acting);
    bench.switches.tps = true;
    assert_eq!(bench.protection().limit, 40.0);
}

#[test]
fn the_rate_refuses_nobody_where_the_limit_adapts() {
    let mut bench = bed(100, |spec| {
        spec.guard.tps.limit = limit(20.0);
        spec.guard.adaptive = Some(SPEC);
    });
    bench.window_of(Sample::Tps(5.0));
    assert_eq!(bench.admitted(None, 50), 40, "the limit refuses");
    assert_eq!(bench.refused().code(), "concurrency_limit");
}

#[test]
fn the_429_switch_leaves_measurement_and_shrinking_on() {
    let mut bench = bed(100, |spec| {
        spec.guard.ttft.limit = limit(1_000.0);
        let adaptive = AdaptiveSpec {
            init: Some(50),
            ..SPEC
        };
        spec.guard.adaptive = Some(adaptive);
    });
    bench.switches.ttft_429 = false;
    bench.window_of(Sample::Ttft(5_000.0));
    assert_eq!(bench.admitted(None, 20), 20);
    let protection = bench.protection();
    assert_eq!(protection.ttft.metrics[0].ewma, Some(5_000.0));
    assert_near(&[protection.limit], &[48.5]);
    bench.switches.ttft_429 = true;
    assert_eq!(
        bench.admitted(None, 20),
        5,
        "the control: it refuses when it may"
    );
}
