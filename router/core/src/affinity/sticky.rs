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

use super::tenants::{Tenant, Tenants};

/// The sessions of one pool. A key is [`table_key`](crate::session::SessionId::table_key)'s: at most 256 bytes.
///
/// The hasher is seeded at random because clients choose the keys; it never shows: entries are
/// visited in order of use only.
#[derive(Debug, Default)]
pub struct Sessions {
    by_key: LinkedHashMap<Box<[u8]>, Entry, RandomState>,
    peers: Tenants,
    evicted: u64,
    expired: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    tenant: Tenant,
    /// Requests of it that have not ended.
    running: u32,
    since: Instant,
    used: Instant,
}

impl Entry {
    /// Idle for `ttl` is expired, so that a `ttl` of zero binds nothing. While a request of it runs a
    /// session is not idle.
    fn is_expired(&self, ttl: Duration, now: Instant) -> bool {
        let is_running = self.running > 0 && !ttl.is_zero();
        !is_running && now.saturating_duration_since(self.used) >= ttl
    }
}

/// Sessions for which room is set aside at once: 19 MiB, most of it touched only when it is used.
/// Beyond them the table grows in steps.
const RESERVED_MAX: usize = 1 << 20;

/// Sessions that one new one pushes out at most. One is enough, except after a reload that lowers
/// the cap: what is beyond it then goes in many small steps, here and in the sweep.
const EVICTED_AT_ONCE: usize = 2;

/// Where a session lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Its peer.
    pub peer: u32,
    /// When it was placed there.
    pub since: Instant,
    /// When it was used last.
    pub used: Instant,
}

impl Sessions {
    /// Where a session lives, unless it has expired.
    pub fn find(&self, key: &[u8], ttl: Duration, now: Instant) -> Option<Binding> {
        let entry = self.by_key.get(key)?;
        let is_here = self.peers.is_live(entry.tenant) && !entry.is_expired(ttl, now);
        is_here.then_some(Binding {
            peer: entry.tenant.peer,
            since: entry.since,
            used: entry.used,
        })
    }

    /// A request of a session begins on a peer, which binds the session to it or renews it there; one
    /// that is found expired begins anew. Every request [ends](Self::end). At `max` entries the least
    /// recently used one goes. Allocates for a new session, and for a peer not seen before.
    pub fn begin(&mut self, key: &[u8], peer: u32, ttl: Duration, max: usize, now: Instant) {
        let tenant = self.peers.of(peer);
        if let Some(entry) = self.by_key.to_back(key) {
            let is_expired = entry.is_expired(ttl, now);
            entry.used = now;
            entry.running = entry.running.saturating_add(1);
            if entry.tenant == tenant && !is_expired {
                return;
            }
            entry.since = now;
            let before = std::mem::replace(&mut entry.tenant, tenant);
            let was_here = self.peers.leave(before);
            self.expired += u64::from(was_here && is_expired);
        } else {
            if self.by_key.is_empty() {
                self.by_key.reserve(max.min(RESERVED_MAX));
            }
            for _ in 0..EVICTED_AT_ONCE {
                if self.by_key.len() < max.max(1) {
                    break;
                }
                self.evict();
            }
            let entry = Entry {
                tenant,
                running: 1,
                since: now,
                used: now,
            };
            self.by_key.insert(key.into(), entry);
        }
        self.peers.enter(tenant);
    }

    /// A request of a session has ended on `peer`: the end of a long response counts as use where the
    /// session lives there still.
    pub fn end(&mut self, key: &[u8], peer: u32, now: Instant) {
        let Some(entry) = self.by_key.get_mut(key) else {
            return;
        };
        entry.running = entry.running.saturating_sub(1);
        if entry.tenant.peer == peer && self.peers.is_live(entry.tenant) {
            entry.used = now;
            self.by_key.to_back(key);
        }
    }

    /// Releases a session; false when it is not here.
    pub fn finish(&mut self, key: &[u8]) -> bool {
        let gone = self.by_key.remove(key);
        gone.is_some_and(|entry| self.peers.leave(entry.tenant))
    }

    /// Looks at no more than `most` sessions, the longest idle ones first, and removes those that
    /// expired, lost their peer or are beyond `max`; answers at how many. Fewer than `most`: there is
    /// nothing more to remove.
    pub fn sweep(&mut self, ttl: Duration, max: usize, most: usize, now: Instant) -> usize {
        for looked_at in 0..most {
            let is_beyond = self.by_key.len() > max.max(1);
            let Some(mut oldest) = self.by_key.front_entry() else {
                return looked_at;
            };
            let entry = oldest.get_mut();
            if !self.peers.is_live(entry.tenant) || entry.is_expired(ttl, now) {
                let gone = oldest.remove();
                self.expired += u64::from(self.peers.leave(gone.tenant));
            } else if is_beyond {
                self.evict();
            } else if entry.running > 0 && now.saturating_duration_since(entry.used) >= ttl {
                // In use all the time, and in the way of those behind it.
                entry.used = now;
                oldest.to_back();
            } else {
                return looked_at;
            }
        }
        most
    }

    /// Ends every session of a peer that is no longer configured; its number may become another's.
    pub fn forget_peer(&mut self, peer: u32) {
        self.peers.forget(peer);
    }

    /// How many sessions live on a peer, expired ones that no sweep has met included.
    #[inline]
    pub fn count(&self, peer: u32) -> u32 {
        self.peers.entries(peer)
    }

    /// How many sessions there are.
    pub fn len(&self) -> usize {
        self.by_key.len() - self.peers.void()
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
        self.peers
            .check(self.by_key.values().map(|entry| entry.tenant));
    }

    /// Pushes the least recently used session out.
    fn evict(&mut self) {
        if let Some((_, oldest)) = self.by_key.pop_front() {
            self.evicted += u64::from(self.peers.leave(oldest.tenant));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::start;

    const TTL: Duration = Duration::from_secs(10);
    const SECOND: Duration = Duration::from_secs(1);

    /// A request that begins and ends.
    fn request(sessions: &mut Sessions, key: &[u8], peer: u32, max: usize, now: Instant) {
        sessions.begin(key, peer, TTL, max, now);
        sessions.end(key, peer, now);
    }

    #[test]
    fn a_session_expires_at_its_ttl_and_is_not_revived_by_the_request_that_finds_it_so() {
        let (mut sessions, now) = (Sessions::default(), start());
        request(&mut sessions, b"a", 1, 10, now);
        assert_eq!(sessions.find(b"a", TTL, now + 9 * SECOND).unwrap().peer, 1);
        assert_eq!(sessions.find(b"a", TTL, now + TTL), None);
        assert_eq!(sessions.find(b"a", Duration::ZERO, now), None);
    }

    #[test]
    fn rebinding_moves_the_count() {
        let (mut sessions, now) = (Sessions::default(), start());
        request(&mut sessions, b"a", 1, 10, now);
        request(&mut sessions, b"b", 1, 10, now);
        request(&mut sessions, b"a", 2, 10, now + SECOND);
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
            request(&mut sessions, key, 1, 3, now);
        }
        request(&mut sessions, b"a", 1, 3, now + SECOND);
        request(&mut sessions, b"d", 2, 3, now + SECOND);
        assert_eq!(sessions.find(b"b", TTL, now), None);
        assert!(sessions.find(b"a", TTL, now + SECOND).is_some());
        assert_eq!((sessions.len(), sessions.losses()), (3, (1, 0)));
        sessions.check();
    }

    #[test]
    fn finishing_twice_releases_once() {
        let (mut sessions, now) = (Sessions::default(), start());
        request(&mut sessions, b"e", 1, 10, now);
        request(&mut sessions, b"k", 1, 10, now);
        assert!(sessions.finish(b"e"));
        assert!(!sessions.finish(b"e"));
        assert_eq!(sessions.count(1), 1);
        sessions.check();
    }

    #[test]
    fn a_sweep_takes_only_what_expired_and_no_more_than_asked() {
        let (mut sessions, now) = (Sessions::default(), start());
        for key in [b"a", b"b", b"c"] {
            request(&mut sessions, key, 1, 10, now);
        }
        request(&mut sessions, b"young", 1, 10, now + 5 * SECOND);
        assert_eq!(sessions.sweep(TTL, 10, 2, now + TTL), 2);
        assert_eq!(sessions.sweep(TTL, 10, 2, now + TTL), 1);
        assert_eq!((sessions.len(), sessions.count(1)), (1, 1));
        sessions.check();
    }

    #[test]
    fn a_removed_peer_takes_its_sessions_along() {
        let (mut sessions, now) = (Sessions::default(), start());
        request(&mut sessions, b"a", 1, 10, now);
        request(&mut sessions, b"b", 2, 10, now);
        sessions.forget_peer(1);
        assert_eq!(
            (sessions.len(), sessions.count(1), sessions.count(2)),
            (1, 0, 1)
        );
        assert_eq!(sessions.find(b"a", TTL, now), None);
        sessions.check();
        request(&mut sessions, b"new", 1, 10, now);
        sessions.end(b"a", 1, now + SECOND);
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
            request(&mut sessions, key, 1, 10, now);
        }
        sessions.forget_peer(1);
        request(&mut sessions, b"c", 2, 10, now);
        sessions.check();
        assert_eq!(sessions.sweep(TTL, 10, 1, now), 1, "a, before its time");
        request(&mut sessions, b"d", 2, 2, now);
        assert_eq!((sessions.len(), sessions.losses()), (2, (0, 0)));
        sessions.check();
    }

    #[test]
    fn the_end_of_a_response_renews_only_a_session_that_still_lives_there() {
        let (mut sessions, now) = (Sessions::default(), start());
        sessions.begin(b"a", 1, TTL, 10, now);
        sessions.begin(b"a", 1, TTL, 10, now);
        sessions.end(b"a", 2, now + 5 * SECOND);
        assert_eq!(sessions.find(b"a", TTL, now + SECOND).unwrap().used, now);
        sessions.end(b"a", 1, now + 5 * SECOND);
        assert!(sessions.find(b"a", TTL, now + 14 * SECOND).is_some());
        assert_eq!(sessions.find(b"a", TTL, now + 15 * SECOND), None);
    }

    #[test]
    fn a_session_is_not_idle_while_a_request_of_it_runs() {
        let (mut sessions, now) = (Sessions::default(), start());
        sessions.begin(b"long", 1, TTL, 10, now);
        request(&mut sessions, b"short", 1, 10, now);
        let later = now + 100 * SECOND;
        assert!(sessions.find(b"long", TTL, later).is_some());
        assert_eq!(
            sessions.find(b"long", Duration::ZERO, later),
            None,
            "a ttl of zero binds nothing"
        );
        assert_eq!(sessions.sweep(TTL, 10, 10, later), 2);
        assert_eq!(
            sessions.sweep(TTL, 10, 10, later),
            0,
            "it is looked at once"
        );
        assert_eq!((sessions.len(), sessions.losses()), (1, (0, 1)));
        let ended = later + SECOND;
        sessions.end(b"long", 1, ended);
        assert!(sessions.find(b"long", TTL, ended + 9 * SECOND).is_some());
        assert_eq!(sessions.find(b"long", TTL, ended + TTL), None);
    }

    #[test]
    fn a_lower_cap_takes_effect_in_small_steps() {
        let (mut sessions, now) = (Sessions::default(), start());
        for key in [b"a", b"b", b"c", b"d", b"e"] {
            request(&mut sessions, key, 1, 10, now);
        }
        request(&mut sessions, b"f", 1, 2, now);
        assert_eq!((sessions.len(), sessions.losses()), (4, (2, 0)));
        assert_eq!(sessions.sweep(TTL, 2, 10, now), 2);
        assert_eq!((sessions.len(), sessions.losses()), (2, (4, 0)));
        assert!(sessions.find(b"f", TTL, now).is_some());
        sessions.check();
    }
}
