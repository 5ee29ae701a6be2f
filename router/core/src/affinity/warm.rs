//! Remembers which sessions were on which peer recently, where no session table does.
//!
//! A bounded filter, not a table. If two sessions map to one place, the later one stays, and an
//! overwritten session counts as new. Either error costs at most one cold cache.

use std::time::{Duration, Instant};

use crate::window::window_number;

/// Number of places: 256 KiB per pool that hashes sessions.
const PLACES: usize = 1 << 16;

/// Age steps within the lifetime of a session.
const STEPS: u32 = 64;

/// Sessions that were seen on their home peer.
#[derive(Clone, Debug, Default)]
pub(crate) struct WarmSessions {
    /// A tag of 24 bits and the step of the last use; empty before the first session.
    places: Box<[u32]>,
    epoch: Option<Instant>,
}

impl WarmSessions {
    /// Records that a session with this fingerprint was placed on the peer. Allocates only for the
    /// first one.
    pub(crate) fn record(&mut self, fingerprint: u64, peer: u32, ttl: Duration, now: Instant) {
        let epoch = *self.epoch.get_or_insert(now);
        if self.places.is_empty() {
            self.places = vec![0; PLACES].into();
        }
        let (place, tag) = place_of(fingerprint, peer);
        self.places[place] = tag << 8 | step(epoch, ttl, now);
    }

    /// Whether the session was placed on the peer within `ttl`.
    pub(crate) fn holds(&self, fingerprint: u64, peer: u32, ttl: Duration, now: Instant) -> bool {
        let (place, tag) = place_of(fingerprint, peer);
        let (Some(epoch), Some(found)) = (self.epoch, self.places.get(place)) else {
            return false;
        };
        let age = step(epoch, ttl, now).wrapping_sub(found & 0xff) & 0xff;
        found >> 8 == tag && age <= STEPS
    }
}

/// The place and tag of a session, with the peer mixed in. A tag is never 0, because 0 marks an
/// empty place.
fn place_of(fingerprint: u64, peer: u32) -> (usize, u32) {
    let mixed = (fingerprint ^ u64::from(peer).wrapping_mul(0x9e37_79b9_7f4a_7c15))
        .wrapping_mul(0xff51_afd7_ed55_8ccd);
    let tag = (mixed >> 40) as u32 & 0x00ff_ffff;
    ((mixed as usize >> 8) % PLACES, tag.max(1))
}

/// The step of `now`, modulo 256.
fn step(epoch: Instant, ttl: Duration, now: Instant) -> u32 {
    (window_number(epoch, ttl / STEPS, now) & 0xff) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::start;

    const TTL: Duration = Duration::from_secs(6_400);

    #[test]
    fn a_session_is_warm_on_its_own_peer_for_its_life() {
        let (mut warm, now) = (WarmSessions::default(), start());
        assert!(!warm.holds(7, 1, TTL, now));
        warm.record(7, 1, TTL, now);
        assert!(warm.holds(7, 1, TTL, now + TTL));
        assert!(!warm.holds(7, 1, TTL, now + TTL * 2));
        assert!(!warm.holds(7, 2, TTL, now), "elsewhere it is new");
        assert!(!warm.holds(8, 1, TTL, now));
    }

    #[test]
    fn thousands_of_sessions_are_told_apart() {
        let (mut warm, now) = (WarmSessions::default(), start());
        let fingerprint = |session: u64| xxhash_rust::xxh3::xxh3_64(&session.to_le_bytes());
        (0..5_000).for_each(|session| warm.record(fingerprint(session), 3, TTL, now));
        let kept = (0..5_000).filter(|session| warm.holds(fingerprint(*session), 3, TTL, now));
        assert!(kept.count() > 4_500);
        let strangers =
            (5_000..100_000).filter(|other| warm.holds(fingerprint(*other), 3, TTL, now));
        assert!(strangers.count() <= 3);
    }
}
