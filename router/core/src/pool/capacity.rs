//! The room of a pool: the active tier, its limit and its in-flight.

use std::cmp::Ordering;

use super::Slots;
use crate::admission::concurrency::admits;

/// The load of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Requests on the peer: ours in flight, and those of others where its engine is polled.
    pub in_flight: u32,
    /// The number of requests that the peer runs at once.
    pub slots: Slots,
}

impl Load {
    /// Orders by in-flight ÷ slots. Uses cross products, so that equal shares compare as equal.
    #[inline]
    pub fn cmp_ratio(self, other: Self) -> Ordering {
        let ours = u64::from(self.in_flight) * u64::from(other.slots.0);
        let theirs = u64::from(other.in_flight) * u64::from(self.slots.0);
        ours.cmp(&theirs)
    }

    /// Whether the peer is below its own maximum, `slots × factor`.
    #[inline]
    pub fn has_room(self, factor: f64) -> bool {
        // The common case avoids a conversion, because every decision calls this for every peer.
        if factor == 1.0 {
            return self.in_flight < self.slots.0;
        }
        admits(u64::from(self.in_flight), f64::from(self.slots.0), factor)
    }
}

/// The active tier of a pool and its room, both over its usable peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Priority of the active tier.
    pub tier: i64,
    /// Sum of slots.
    pub limit: u64,
    /// Sum of requests in flight. On polled engines, others' requests count up to each peer's own
    /// maximum.
    pub in_flight: u64,
    /// Number of usable peers; at least 1.
    pub healthy_peers: u32,
    /// In-flight of the whole tier, for a request that only some of its peers may serve; else the
    /// same as `in_flight`.
    pub tier_in_flight: u64,
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
}
