//! The session table of `affinity: sticky_least_loaded`: which peer each session lives on.
//!
//! After vllm-router's policy of that name: a new session goes to the peer with the fewest live
//! sessions and stays there until it is finished, expires, or loses its peer. The table knows peers
//! by the number its owner gives them. Entries are ordered by their last use, so that expiry and the
//! cap both take from one end: nothing ever walks the whole table.

use std::collections::BTreeMap;
use std::hash::RandomState;
use std::time::{Duration, Instant};

use hashlink::LinkedHashMap;

/// The sessions of one pool. A key is [`table_key`](crate::session::SessionId::table_key)'s: at most 256 bytes.
///
/// The hasher is seeded at random because clients choose the keys; it never shows: entries are
/// visited in order of use only.
#[derive(Debug, Default)]
pub struct Sessions {
    by_key: LinkedHashMap<Box<[u8]>, Entry, RandomState>,
    /// Live entries by peer; peers without one are absent.
    counts: BTreeMap<u32, u32>,
    evicted: u64,
    expired: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    peer: u32,
    since: Instant,
    used: Instant,
}

/// Where a session lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Its peer.
    pub peer: u32,
    /// When it was placed there.
    pub since: Instant,
    /// When it was used last.
    pub used: Instant,
}

impl Sessions {
    /// Where a session lives, unless it has expired: idle for `ttl` is expired, so that a `ttl` of
    /// zero binds nothing.
    pub fn find(&self, key: &[u8], ttl: Duration, now: Instant) -> Option<Seat> {
        let entry = self.by_key.get(key)?;
        let idle = now.saturating_duration_since(entry.used);
        (idle < ttl).then_some(Seat {
            peer: entry.peer,
            since: entry.since,
            used: entry.used,
        })
    }

    /// Binds a session to a peer, or renews it there. At `max` entries the least recently used one
    /// goes. Allocates for a new session only.
    pub fn bind(&mut self, key: &[u8], peer: u32, max: usize, now: Instant) {
        if let Some(entry) = self.by_key.to_back(key) {
            entry.used = now;
            if entry.peer == peer {
                return;
            }
            let before = std::mem::replace(&mut entry.peer, peer);
            entry.since = now;
            self.lower(before);
        } else {
            while self.by_key.len() >= max.max(1) {
                let Some((_, oldest)) = self.by_key.pop_front() else {
                    break;
                };
                self.lower(oldest.peer);
                self.evicted += 1;
            }
            let entry = Entry {
                peer,
                since: now,
                used: now,
            };
            self.by_key.insert(key.into(), entry);
        }
        *self.counts.entry(peer).or_default() += 1;
    }

    /// Renews a session that still lives on `peer`: the end of a long response counts as use.
    pub fn touch(&mut self, key: &[u8], peer: u32, now: Instant) {
        if self.by_key.get(key).is_some_and(|entry| entry.peer == peer)
            && let Some(entry) = self.by_key.to_back(key)
        {
            entry.used = now;
        }
    }

    /// Releases a session; false when it is not here.
    pub fn finish(&mut self, key: &[u8]) -> bool {
        let Some(entry) = self.by_key.remove(key) else {
            return false;
        };
        self.lower(entry.peer);
        true
    }

    /// Removes at most `most` expired sessions; true when more may be left.
    pub fn sweep(&mut self, ttl: Duration, most: usize, now: Instant) -> bool {
        for _ in 0..most {
            match self.by_key.front() {
                Some((_, oldest)) if now.saturating_duration_since(oldest.used) >= ttl => {}
                _ => return false,
            }
            if let Some((_, gone)) = self.by_key.pop_front() {
                self.lower(gone.peer);
                self.expired += 1;
            }
        }
        true
    }

    /// Removes every session of a peer that is no longer configured. O(sessions).
    pub fn forget_peer(&mut self, peer: u32) {
        if self.counts.remove(&peer).is_some() {
            self.by_key.retain(|_, entry| entry.peer != peer);
        }
    }

    /// How many sessions live on a peer, expired ones that no sweep has met included.
    pub fn count(&self, peer: u32) -> u32 {
        self.counts.get(&peer).copied().unwrap_or(0)
    }

    /// How many sessions there are.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Sessions pushed out by the cap, and sessions that expired, since the start.
    pub fn losses(&self) -> (u64, u64) {
        (self.evicted, self.expired)
    }

    /// Debug-asserts that the counts are those of the entries.
    pub fn check(&self) {
        let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
        for entry in self.by_key.values() {
            *counts.entry(entry.peer).or_default() += 1;
        }
        debug_assert_eq!(counts, self.counts);
    }

    fn lower(&mut self, peer: u32) {
        if let Some(count) = self.counts.get_mut(&peer) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::start;

    const TTL: Duration = Duration::from_secs(10);
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_session_expires_at_its_ttl_and_is_not_revived_by_the_request_that_finds_it_so() {
        let (mut sessions, now) = (Sessions::default(), start());
        sessions.bind(b"a", 1, 10, now);
        assert_eq!(sessions.find(b"a", TTL, now + 9 * SECOND).unwrap().peer, 1);
        assert_eq!(sessions.find(b"a", TTL, now + TTL), None);
        assert_eq!(sessions.find(b"a", Duration::ZERO, now), None);
    }

    #[test]
    fn rebinding_moves_the_count() {
        let (mut sessions, now) = (Sessions::default(), start());
        sessions.bind(b"a", 1, 10, now);
        sessions.bind(b"b", 1, 10, now);
        sessions.bind(b"a", 2, 10, now + SECOND);
        assert_eq!((sessions.count(1), sessions.count(2)), (1, 1));
        assert_eq!(
            sessions.find(b"a", TTL, now + SECOND).unwrap().since,
            now + SECOND
        );
        sessions.check();
    }

    #[test]
    fn the_least_recently_used_makes_room_at_the_cap() {
        let (mut sessions, now) = (Sessions::default(), start());
        for key in [b"a", b"b", b"c"] {
            sessions.bind(key, 1, 3, now);
        }
        sessions.bind(b"a", 1, 3, now + SECOND);
        sessions.bind(b"d", 2, 3, now + SECOND);
        assert_eq!(sessions.find(b"b", TTL, now), None);
        assert!(sessions.find(b"a", TTL, now + SECOND).is_some());
        assert_eq!((sessions.len(), sessions.losses()), (3, (1, 0)));
        sessions.check();
    }

    #[test]
    fn finishing_twice_releases_once() {
        let (mut sessions, now) = (Sessions::default(), start());
        sessions.bind(b"e", 1, 10, now);
        sessions.bind(b"k", 1, 10, now);
        assert!(sessions.finish(b"e"));
        assert!(!sessions.finish(b"e"));
        assert_eq!(sessions.count(1), 1);
        sessions.check();
    }

    #[test]
    fn a_sweep_takes_only_what_expired_and_no_more_than_asked() {
        let (mut sessions, now) = (Sessions::default(), start());
        for key in [b"a", b"b", b"c"] {
            sessions.bind(key, 1, 10, now);
        }
        sessions.bind(b"young", 1, 10, now + 5 * SECOND);
        assert!(sessions.sweep(TTL, 2, now + TTL));
        assert!(!sessions.sweep(TTL, 2, now + TTL));
        assert_eq!((sessions.len(), sessions.count(1)), (1, 1));
        sessions.check();
    }

    #[test]
    fn a_removed_peer_takes_its_sessions_along() {
        let (mut sessions, now) = (Sessions::default(), start());
        sessions.bind(b"a", 1, 10, now);
        sessions.bind(b"b", 2, 10, now);
        sessions.forget_peer(1);
        assert_eq!(
            (sessions.len(), sessions.count(1), sessions.count(2)),
            (1, 0, 1)
        );
        sessions.check();
    }

    #[test]
    fn the_end_of_a_response_renews_only_a_session_that_still_lives_there() {
        let (mut sessions, now) = (Sessions::default(), start());
        sessions.bind(b"a", 1, 10, now);
        sessions.touch(b"a", 2, now + 5 * SECOND);
        assert_eq!(sessions.find(b"a", TTL, now + SECOND).unwrap().used, now);
        sessions.touch(b"a", 1, now + 5 * SECOND);
        assert!(sessions.find(b"a", TTL, now + 14 * SECOND).is_some());
    }
}
