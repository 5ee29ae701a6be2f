//! The bounds of the adaptive limits of a resolved route's pools.

use std::collections::BTreeMap;

use super::PeerState;
use super::candidate_set::slots;
use super::resolved_route::Resolved;
use super::table::Table;
use crate::aimd::Bounds;
use crate::pool::{PeerKey, Role};

/// The bounds of each pool, in pool order; `None` without `adaptive_cc`. Bans do not affect them.
/// Slots that an engine reports do, if the peer learns its slots.
pub(super) fn of(resolved: &Resolved, states: &Table<PeerKey, PeerState>) -> Vec<Option<Bounds>> {
    let adaptive = resolved.spec.guard.adaptive.as_ref();
    let bounds =
        |pool| adaptive.map(|spec| Bounds::new(spec, largest_tier(resolved, pool, states)));
    (0..resolved.members.len()).map(bounds).collect()
}

/// The largest sum of slots that the enabled peers of one tier have.
fn largest_tier(resolved: &Resolved, pool: usize, states: &Table<PeerKey, PeerState>) -> u64 {
    let specs = &resolved.spec.pools[pool].peers;
    let mut sums: BTreeMap<i64, u64> = BTreeMap::new();
    for (peer, slot) in specs.iter().zip(&resolved.members[pool].peers) {
        if peer.enabled && peer.role == Role::Regular {
            let slots = slots(peer, states.get(*slot));
            *sums.entry(peer.priority).or_default() += u64::from(slots.0);
        }
    }
    sums.into_values().max().unwrap_or(0)
}
