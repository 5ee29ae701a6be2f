use std::sync::LazyLock;

use super::*;
use crate::testing::start;

const SPEC: LoadSpec = LoadSpec {
    stale_after: Duration::from_secs(3),
    stale_policy: StalePolicy::Hold,
    hold_max: Duration::from_secs(60),
    model: LoadModel::Corrected,
};
const EXCLUDE: LoadSpec = LoadSpec {
    stale_policy: StalePolicy::Exclude,
    ..SPEC
};
const ADDITIVE: LoadSpec = LoadSpec {
    model: LoadModel::Additive,
    ..SPEC
};

fn busy(running: u32) -> Report {
    Report::Sampled(Sample {
        running,
        ..Sample::default()
    })
}

fn after(millis: u64) -> Instant {
    static BEGIN: LazyLock<Instant> = LazyLock::new(start);
    *BEGIN + Duration::from_millis(millis)
}

fn read(report: Report, own: u32) -> Reading {
    let mut reading = Reading::default();
    reading.report(report, own, after(0));
    reading
}

#[test]
fn a_sample_is_fresh_up_to_its_bound_and_a_refusal_ends_it_at_once() {
    let mut reading = read(busy(0), 0);
    assert_eq!(reading.freshness(&SPEC, 0, after(3_000)), Freshness::Fresh);
    assert_eq!(reading.freshness(&SPEC, 0, after(3_001)), Freshness::Stale);
    reading.report(Report::Dead, 0, after(1_000));
    assert_eq!(reading.freshness(&SPEC, 0, after(1_000)), Freshness::Dead);
    reading.report(busy(0), 0, after(2_000));
    assert_eq!(reading.freshness(&SPEC, 0, after(2_000)), Freshness::Fresh);
}

#[test]
fn a_silent_engine_that_answers_its_health_check_is_held_and_counts_as_full() {
    let mut reading = read(busy(1), 0);
    reading.report(
        Report::Hung {
            answers_health: true,
        },
        0,
        after(3_000),
    );
    assert_eq!(
        reading.freshness(&EXCLUDE, 0, after(4_000)),
        Freshness::Stale
    );
    let held = reading.freshness(&SPEC, 0, after(4_000));
    assert_eq!(held, Freshness::Held);
    assert_eq!(reading.load(&SPEC, held, 0, 4), 4);
    assert_eq!(reading.freshness(&SPEC, 0, after(60_000)), Freshness::Held);
    assert_eq!(reading.freshness(&SPEC, 0, after(60_500)), Freshness::Stale);
}

#[test]
fn an_engine_that_answers_nothing_is_held_only_while_it_works_for_us() {
    let mut reading = read(busy(1), 0);
    reading.report(
        Report::Hung {
            answers_health: false,
        },
        1,
        after(3_000),
    );
    assert_eq!(reading.freshness(&SPEC, 1, after(4_000)), Freshness::Held);
    assert_eq!(reading.freshness(&SPEC, 0, after(4_000)), Freshness::Stale);
}

#[test]
fn own_requests_count_once_when_corrected_and_twice_when_added() {
    let seen = read(busy(2), 2);
    let load = |spec: &LoadSpec, reading: &Reading| reading.load(spec, Freshness::Fresh, 2, 4);
    assert_eq!((seen.external(), load(&SPEC, &seen)), (0, 2));
    assert_eq!(load(&ADDITIVE, &seen), 4);
    let shared = read(busy(4), 2);
    assert_eq!(load(&SPEC, &shared), 4);
}

#[test]
fn a_peer_never_sampled_is_stale_and_an_unusable_page_ages_the_last_sample() {
    let mut reading = Reading::default();
    assert_eq!(reading.freshness(&SPEC, 0, after(0)), Freshness::Stale);
    reading.report(busy(3), 0, after(0));
    reading.report(Report::Unusable, 0, after(2_000));
    assert_eq!(
        reading.sample(after(2_000)).unwrap().1,
        Duration::from_secs(2)
    );
    assert_eq!(reading.external(), 3);
    assert_eq!(reading.freshness(&SPEC, 0, after(3_001)), Freshness::Stale);
}

#[test]
fn an_answer_without_numbers_ends_a_hold() {
    let silent = Report::Hung {
        answers_health: true,
    };
    let mut reading = read(busy(1), 0);
    reading.report(silent, 0, after(4_000));
    assert_eq!(reading.freshness(&SPEC, 0, after(4_000)), Freshness::Held);
    reading.report(Report::Unusable, 0, after(5_000));
    assert_eq!(reading.freshness(&SPEC, 0, after(5_000)), Freshness::Stale);
    // Silent again: the hold time still counts from the last sample.
    reading.report(silent, 0, after(6_000));
    assert_eq!(reading.freshness(&SPEC, 0, after(60_000)), Freshness::Held);
    assert_eq!(reading.freshness(&SPEC, 0, after(60_001)), Freshness::Stale);
    reading.report(Report::Dead, 0, after(61_000));
    reading.report(Report::Unusable, 0, after(62_000));
    assert_eq!(reading.freshness(&SPEC, 0, after(62_000)), Freshness::Dead);
}

#[test]
fn an_engine_silent_from_the_start_is_held_for_as_long_as_one_that_fell_silent() {
    let silent = Report::Hung {
        answers_health: true,
    };
    let mut reading = read(silent, 0);
    reading.report(silent, 0, after(30_000));
    let freshness = |spec: &LoadSpec, at| reading.freshness(spec, 0, after(at));
    assert_eq!(freshness(&EXCLUDE, 0), Freshness::Stale);
    assert_eq!(freshness(&SPEC, 60_000), Freshness::Held);
    assert_eq!(reading.load(&SPEC, Freshness::Held, 0, 4), 4);
    assert_eq!(freshness(&SPEC, 60_001), Freshness::Stale);
    // Any answer in between restarts the time.
    reading.report(Report::Loading, 0, after(61_000));
    reading.report(silent, 0, after(62_000));
    assert_eq!(reading.freshness(&SPEC, 0, after(62_000)), Freshness::Held);
}

#[test]
fn until_its_first_poll_ends_a_peer_in_use_counts_by_our_own_requests() {
    let mut reading = read(busy(3), 1);
    reading.begin();
    let freshness = reading.freshness(&SPEC, 2, after(90_000));
    assert_eq!(freshness, Freshness::Fresh);
    assert_eq!(reading.load(&SPEC, freshness, 2, 4), 2);
    assert_eq!(reading.sample(after(90_000)), None);
    reading.report(Report::Unusable, 2, after(90_000));
    assert_eq!(reading.freshness(&SPEC, 2, after(90_000)), Freshness::Stale);
}

#[test]
fn an_engine_without_metrics_is_fresh_by_its_health_and_loaded_by_us() {
    let reading = read(Report::Blind, 5);
    assert_eq!(reading.freshness(&SPEC, 2, after(0)), Freshness::Fresh);
    assert_eq!(reading.load(&SPEC, Freshness::Fresh, 2, 4), 2);
    assert_eq!(reading.sample(after(0)), None);
}

#[test]
fn a_reading_says_when_time_alone_will_change_it() {
    let mut reading = read(busy(1), 0);
    let changes = |reading: &Reading, spec, at: u64| {
        let until = reading.stands_until(spec, 0, after(at))?;
        let before = reading.freshness(spec, 0, until - TICK);
        assert_eq!(before, reading.freshness(spec, 0, after(at)));
        assert_ne!(before, reading.freshness(spec, 0, until));
        Some(until.duration_since(after(0)).as_millis())
    };
    assert_eq!(changes(&reading, &SPEC, 0), Some(3_000));
    assert_eq!(changes(&reading, &SPEC, 4_000), None, "stale for good");
    reading.report(
        Report::Hung {
            answers_health: true,
        },
        0,
        after(2_000),
    );
    assert_eq!(changes(&reading, &SPEC, 2_000), Some(3_000));
    assert_eq!(changes(&reading, &SPEC, 4_000), Some(60_000));
    assert_eq!(changes(&reading, &EXCLUDE, 4_000), None);
    reading.report(Report::Dead, 0, after(5_000));
    assert_eq!(changes(&reading, &SPEC, 5_000), None);
    let silent = Report::Hung {
        answers_health: true,
    };
    assert_eq!(changes(&read(silent, 0), &SPEC, 1_000), Some(60_000));
    reading.begin();
    assert_eq!(changes(&reading, &SPEC, 6_000), None);
}

#[test]
fn a_batching_engine_is_saturated_when_it_queues_or_its_cache_is_full() {
    let batching = |waiting, kv| {
        read(
            Report::Sampled(Sample {
                running: 1,
                waiting,
                kv_usage: Some(kv),
                batches: true,
            }),
            0,
        )
        .is_saturated(Freshness::Fresh)
    };
    assert!(!batching(0, 0.94));
    assert!(batching(1, 0.1));
    assert!(batching(0, 0.95));
}

#[test]
fn idleness_starts_at_the_last_release_or_at_the_sample_that_shows_it() {
    let mut reading = Reading::default();
    assert_eq!(reading.idle(0, after(0)), Idle::Always);
    reading.placed();
    assert_eq!(reading.idle(1, after(0)), Idle::Busy);
    reading.released(0, after(1_000));
    assert_eq!(
        reading.idle(0, after(3_000)),
        Idle::For(Duration::from_secs(2))
    );
    reading.report(busy(2), 0, after(4_000));
    assert_eq!(reading.idle(2, after(4_000)), Idle::Busy);
    reading.report(busy(0), 0, after(5_000));
    assert_eq!(
        reading.idle(0, after(6_000)),
        Idle::For(Duration::from_secs(1))
    );
    reading.report(Report::Sleeping, 0, after(7_000));
    assert!(reading.idle(0, after(7_000)) < Idle::For(Duration::ZERO));
}
