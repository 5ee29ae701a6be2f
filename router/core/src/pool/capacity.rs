//! How much room there is: the active tier, its limit and its in-flight.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::Slots;
use crate::admission::concurrency::admits;

/// How busy a peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Requests on it: ours in flight, and others' where its engine is polled.
    pub in_flight: u32,
    /// What it runs at once.
    pub slots: Slots,
}

impl Load {
    /// Orders by in-flight ÷ slots. Cross products, so that equal shares are equal.
    #[inline]
    pub fn cmp_ratio(self, other: Self) -> Ordering {
        let ours = u64::from(self.in_flight) * u64::from(other.slots.0);
        let theirs = u64::from(other.in_flight) * u64::from(self.slots.0);
        ours.cmp(&theirs)
    }

    /// Whether the peer is under its own maximum, `slots × factor`.
    #[inline]
    pub fn has_room(self, factor: f64) -> bool {
        // The common case without a conversion: it is asked of every peer in every decision.
        if factor == 1.0 {
            return self.in_flight < self.slots.0;
        }
        admits(u64::from(self.in_flight), f64::from(self.slots.0), factor)
    }
}

/// One peer at the moment of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerNow {
    /// Its tier.
    pub priority: i64,
    /// How busy it is.
    pub load: Load,
    /// False: never chosen.
    pub enabled: bool,
    /// Whether it is out now, for this request.
    pub banned: bool,
    /// Gets no new sessions, and no requests without one.
    pub draining: bool,
}

impl PeerNow {
    /// Whether it may be chosen at all, its tier aside.
    #[inline]
    pub fn is_usable(self) -> bool {
        self.enabled && !self.banned && !self.draining
    }
}

/// The active tier of a pool and its room, both over its usable peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Priority of the active tier.
    pub tier: i64,
    /// Sum of slots.
    pub limit: u64,
    /// Sum of requests in flight.
    pub in_flight: u64,
    /// How many usable peers there are; at least 1.
    pub healthy_peers: u32,
}

impl Capacity {
    /// `None` when no peer is usable. One pass: a higher tier starts the sums anew.
    pub fn of_active_tier(peers: impl IntoIterator<Item = PeerNow>) -> Option<Self> {
        let mut active: Option<Self> = None;
        for peer in peers.into_iter().filter(|peer| peer.is_usable()) {
            match &mut active {
                Some(capacity) if capacity.tier == peer.priority => capacity.add(peer.load),
                Some(capacity) if capacity.tier > peer.priority => {}
                _ => active = Some(Self::of_one(peer)),
            }
        }
        active
    }

    fn of_one(peer: PeerNow) -> Self {
        let mut capacity = Self {
            tier: peer.priority,
            limit: 0,
            in_flight: 0,
            healthy_peers: 0,
        };
        capacity.add(peer.load);
        capacity
    }

    fn add(&mut self, load: Load) {
        self.limit += u64::from(load.slots.0);
        self.in_flight += u64::from(load.in_flight);
        self.healthy_peers += 1;
    }
}

/// The largest sum of slots that the usable peers of any one tier have. For display only: the
/// limit in force is the active tier's own sum. Allocates.
pub fn largest_tier_sum(peers: impl IntoIterator<Item = PeerNow>) -> u64 {
    let mut sums: BTreeMap<i64, u64> = BTreeMap::new();
    for peer in peers.into_iter().filter(|peer| peer.is_usable()) {
        *sums.entry(peer.priority).or_default() += u64::from(peer.load.slots.0);
    }
    sums.into_values().max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(in_flight: u32, slots: u32) -> Load {
        Load {
            in_flight,
            slots: Slots(slots),
        }
    }

    fn peer(priority: i64, in_flight: u32, slots: u32) -> PeerNow {
        PeerNow {
            priority,
            load: load(in_flight, slots),
            enabled: true,
            banned: false,
            draining: false,
        }
    }

    #[test]
    fn shares_compare_exactly() {
        assert_eq!(load(1, 3).cmp_ratio(load(2, 6)), Ordering::Equal);
        assert_eq!(load(1, 3).cmp_ratio(load(1, 2)), Ordering::Less);
        let huge = load(u32::MAX, u32::MAX);
        assert_eq!(
            huge.cmp_ratio(load(u32::MAX - 1, u32::MAX)),
            Ordering::Greater
        );
    }

    #[test]
    fn a_peers_own_maximum_scales_with_the_factor() {
        assert!(load(2, 2).has_room(1.5));
        assert!(!load(3, 2).has_room(1.5));
        assert!(!load(2, 2).has_room(1.0));
        assert!(!load(2, 4).has_room(0.5));
    }

    #[test]
    fn the_active_tier_is_the_highest_with_a_usable_peer() {
        let mut pool = [
            peer(0, 5, 90),
            peer(2, 1, 10),
            peer(0, 0, 30),
            peer(2, 2, 20),
        ];
        let top = Capacity {
            tier: 2,
            limit: 30,
            in_flight: 3,
            healthy_peers: 2,
        };
        assert_eq!(Capacity::of_active_tier(pool), Some(top));
        assert_eq!(largest_tier_sum(pool), 120);
        pool[1].enabled = false;
        pool[3].banned = true;
        let low = Capacity {
            tier: 0,
            limit: 120,
            in_flight: 5,
            healthy_peers: 2,
        };
        assert_eq!(Capacity::of_active_tier(pool), Some(low));
        assert_eq!(Capacity::of_active_tier([]), None);
        assert_eq!(largest_tier_sum([]), 0);
    }
}
