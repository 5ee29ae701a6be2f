//! The session table of `affinity: sticky_least_loaded`: which peer each session lives on.
//!
//! After vllm-router's policy of that name: a new session goes to the peer with the fewest live
//! sessions and stays there until it is finished, expires, or loses its peer. The table knows peers
//! by the number its owner gives them. Entries are ordered by their last use, so that expiry and the
//! cap both take from one end, and a peer that goes leaves its entries to them: nothing ever walks the
//! whole table. Room for it is set aside with the first session, so that it does not grow in steps
//! that each hash every key again.

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
    /// Index = peer.
    peers: Vec<Tenancy>,
    /// Entries whose peer is gone.
    void: usize,
    evicted: u64,
    expired: u64,
}

/// The sessions of one peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tenancy {
    /// Which of those that had this number it is; entries of earlier ones are void.
    generation: u32,
    sessions: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    peer: u32,
    generation: u32,
    since: Instant,
    used: Instant,
}

/// Sessions for which room is set aside at once: 19 MiB, most of it touched only when it is used.
/// Beyond them the table grows in steps.
const RESERVED_MAX: usize = 1 << 20;

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
        let entry = self.by_key.get(key).filter(|entry| self.is_live(entry))?;
        let idle = now.saturating_duration_since(entry.used);
        (idle < ttl).then_some(Seat {
            peer: entry.peer,
            since: entry.since,
            used: entry.used,
        })
    }

    /// Binds a session to a peer, or renews it there. At `max` entries the least recently used one
    /// goes. Allocates for a new session, and for a peer not seen before.
    pub fn bind(&mut self, key: &[u8], peer: u32, max: usize, now: Instant) {
        let place = peer as usize;
        if self.peers.len() <= place {
            self.peers.resize(place + 1, Tenancy::default());
        }
        let generation = self.peers[place].generation;
        let is_there = |entry: &Entry| entry.peer == peer && entry.generation == generation;
        if let Some(entry) = self.by_key.to_back(key) {
            entry.used = now;
            if is_there(entry) {
                return;
            }
            let moved = Entry {
                peer,
                generation,
                since: now,
                used: now,
            };
            let before = std::mem::replace(entry, moved);
            self.lower(&before);
        } else {
            if self.by_key.is_empty() {
                self.by_key.reserve(max.min(RESERVED_MAX));
            }
            while self.by_key.len() >= max.max(1) {
                let Some((_, oldest)) = self.by_key.pop_front() else {
                    break;
                };
                self.evicted += u64::from(self.lower(&oldest));
            }
            let entry = Entry {
                peer,
                generation,
                since: now,
                used: now,
            };
            self.by_key.insert(key.into(), entry);
        }
        self.peers[place].sessions += 1;
    }

    /// Renews a session that still lives on `peer`: the end of a long response counts as use.
    pub fn touch(&mut self, key: &[u8], peer: u32, now: Instant) {
        let entry = self.by_key.get(key).filter(|entry| self.is_live(entry));
        if entry.is_some_and(|entry| entry.peer == peer)
            && let Some(entry) = self.by_key.to_back(key)
        {
            entry.used = now;
        }
    }

    /// Releases a session; false when it is not here.
    pub fn finish(&mut self, key: &[u8]) -> bool {
        let gone = self.by_key.remove(key);
        gone.is_some_and(|entry| self.lower(&entry))
    }

    /// Removes a session that was found expired; nothing when it is not here.
    pub fn expire(&mut self, key: &[u8]) {
        self.expired += u64::from(self.finish(key));
    }

    /// Removes at most `most` sessions that expired or lost their peer, the longest idle ones first;
    /// answers how many. Fewer than `most`: there are no more at that end.
    pub fn sweep(&mut self, ttl: Duration, most: usize, now: Instant) -> usize {
        for swept in 0..most {
            match self.by_key.front() {
                Some((_, oldest))
                    if now.saturating_duration_since(oldest.used) >= ttl
                        || !self.is_live(oldest) => {}
                _ => return swept,
            }
            if let Some((_, gone)) = self.by_key.pop_front() {
                self.expired += u64::from(self.lower(&gone));
            }
        }
        most
    }

    /// Ends every session of a peer that is no longer configured; its number may become another's.
    pub fn forget_peer(&mut self, peer: u32) {
        if let Some(tenancy) = self.peers.get_mut(peer as usize) {
            self.void += tenancy.sessions as usize;
            *tenancy = Tenancy {
                generation: tenancy.generation.wrapping_add(1),
                sessions: 0,
            };
        }
    }

    /// How many sessions live on a peer, expired ones that no sweep has met included.
    #[inline]
    pub fn count(&self, peer: u32) -> u32 {
        let tenancy = self.peers.get(peer as usize);
        tenancy.map_or(0, |tenancy| tenancy.sessions)
    }

    /// How many sessions there are.
    pub fn len(&self) -> usize {
        self.by_key.len() - self.void
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sessions pushed out by the cap, and sessions that expired, since the start.
    pub fn losses(&self) -> (u64, u64) {
        (self.evicted, self.expired)
    }

    /// Debug-asserts that the counts are those of the entries.
    pub fn check(&self) {
        let mut counts = vec![0; self.peers.len()];
        let live = self.by_key.values().filter(|entry| self.is_live(entry));
        live.for_each(|entry| counts[entry.peer as usize] += 1);
        let kept = self.peers.iter().map(|tenancy| tenancy.sessions);
        debug_assert!(kept.eq(counts.iter().copied()));
        debug_assert_eq!(counts.iter().sum::<u32>() as usize, self.len());
    }

    fn is_live(&self, entry: &Entry) -> bool {
        let tenancy = self.peers.get(entry.peer as usize);
        tenancy.is_some_and(|tenancy| tenancy.generation == entry.generation)
    }

    /// Counts an entry that is gone; false when its peer went before.
    fn lower(&mut self, gone: &Entry) -> bool {
        let is_live = self.is_live(gone);
        if is_live {
            self.peers[gone.peer as usize].sessions -= 1;
        } else {
            self.void -= 1;
        }
        is_live
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
        assert_eq!(sessions.sweep(TTL, 2, now + TTL), 2);
        assert_eq!(sessions.sweep(TTL, 2, now + TTL), 1);
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
        assert_eq!(sessions.find(b"a", TTL, now), None);
        sessions.check();
        sessions.bind(b"new", 1, 10, now);
        sessions.touch(b"a", 1, now + SECOND);
        assert_eq!(
            (sessions.find(b"a", TTL, now), sessions.count(1)),
            (None, 1),
            "another peer has the number now"
        );
        assert!(!sessions.finish(b"a"), "it ended with its peer");
        sessions.check();
    }

    #[test]
    fn what_a_removed_peer_left_behind_makes_room_and_is_no_loss() {
        let (mut sessions, now) = (Sessions::default(), start());
        for key in [b"a", b"b", b"c"] {
            sessions.bind(key, 1, 10, now);
        }
        sessions.forget_peer(1);
        sessions.bind(b"c", 2, 10, now);
        sessions.check();
        assert_eq!(sessions.sweep(TTL, 1, now), 1, "a, before its time");
        sessions.bind(b"d", 2, 2, now);
        assert_eq!((sessions.len(), sessions.losses()), (2, (0, 0)));
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
