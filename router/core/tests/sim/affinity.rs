//! The benefit of hash placement.

use std::time::Duration;

use router_core::affinity::{Affinity, Hash, Saturated};

use crate::world::{MINUTE, Plan};

#[test]
fn hashed_sessions_find_more_in_the_caches_than_balanced_ones() {
    let affinity = |hash| Affinity::Hash {
        hash,
        saturated: Saturated::Fallback,
    };
    let hit_rate = |affinity| {
        let plan = Plan {
            affinity,
            goes_on: 0.85,
            ..Plan::new(7, MINUTE * 60, vec![(Duration::ZERO, 0.6)])
        };
        plan.run().hit_rate(MINUTE * 5..plan.length)
    };
    let balanced = hit_rate(Affinity::None);
    for hash in [Hash::Crc32, Hash::Rendezvous] {
        let hashed = hit_rate(affinity(hash));
        let seen = format!("{hash:?}: hit rate {hashed:.3}, least_conn {balanced:.3}");
        eprintln!("{seen}");
        assert!(hashed > balanced + 0.15, "{seen}");
    }
}
