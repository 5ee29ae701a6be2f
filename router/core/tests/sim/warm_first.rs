//! `session_prio`: which requests suffer in an overload.

use std::time::Duration;

use router_core::affinity::{Affinity, Hash, Saturated};

use crate::report::{ALL, NEW, Report, WARM};
use crate::world::{MINUTE, Plan};

/// Forty minutes with more sessions than the pool can serve.
fn overload(seed: u64, session_prio: bool) -> Report {
    let mut plan = Plan::new(seed, MINUTE * 40, vec![(Duration::ZERO, 3.0)]);
    plan.goes_on = 0.85;
    plan.affinity = Affinity::Hash {
        hash: Hash::Crc32,
        saturated: Saturated::Fallback,
    };
    plan.switches.session_prio = session_prio;
    plan.run()
}

#[test]
fn new_sessions_are_turned_away_first_and_warm_ones_keep_their_engine() {
    let during = || MINUTE * 5..MINUTE * 40;
    for seed in [8, 9] {
        let [on, off] = [true, false].map(|on| overload(seed, on));
        let seen = format!(
            "seed {seed}: refused of turn 1 {:.3} and {:.3} without, of the others {:.3} and {:.3}; \
             on their engine {:.3} and {:.3}; hit rate {:.3} and {:.3}",
            on.refused(NEW, during()),
            off.refused(NEW, during()),
            on.refused(WARM, during()),
            off.refused(WARM, during()),
            on.kept(during()),
            off.kept(during()),
            on.hit_rate(during()),
            off.hit_rate(during()),
        );
        eprintln!("{seen}");
        assert!(off.refused(ALL, during()) > 0.1, "no overload: {seen}");
        assert!(
            on.refused(NEW, during()) > 5.0 * on.refused(WARM, during()),
            "{seen}"
        );
        assert!(
            on.refused(WARM, during()) < off.refused(WARM, during()) / 2.0,
            "{seen}"
        );
        assert!(on.kept(during()) >= off.kept(during()), "{seen}");
        assert!(on.hit_rate(during()) >= off.hit_rate(during()), "{seen}");
    }
}

#[test]
fn the_books_account_of_the_buckets_is_what_happened() {
    let report = overload(10, true);
    let first = &report.priority.buckets[0].counters;
    let all = Duration::ZERO..MINUTE * 40;
    let refused = report.asked.iter().filter(|asked| asked.refused.is_some());
    assert_eq!(
        (first.admitted + first.refused) as usize,
        report.count(NEW, all.clone())
    );
    let counters = report.priority.buckets.iter().map(|bucket| bucket.counters);
    let sum = |of: fn(&router_core::book::status::BucketCounters) -> u64| -> u64 {
        counters.clone().map(|counters| of(&counters)).sum()
    };
    assert_eq!(sum(|counters| counters.refused) as usize, refused.count());
    let (prompt, cached) = report
        .served
        .iter()
        .fold((0_u64, 0_u64), |(prompt, cached), served| {
            (
                prompt + u64::from(served.prompt),
                cached + u64::from(served.cached),
            )
        });
    assert_eq!(sum(|counters| counters.prompt_tokens), prompt);
    assert_eq!(sum(|counters| counters.cached_tokens), cached);
}
