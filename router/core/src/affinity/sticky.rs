//! The session table of `affinity: sticky_least_loaded`: it maps each session to its peer.
//!
//! The policy follows vllm-router's policy of that name. A new session goes to the peer with the
//! fewest live sessions and stays there until it is finished, expires, or loses its peer. The table
//! knows peers by the number that its owner assigns. Entries are ordered by last use, so expiry and
//! the cap both evict from one end. When a peer goes, its entries stay until eviction reaches them;
//! no operation walks the whole table. Room is reserved with the first session, so that the table
//! does not grow in steps that rehash every key.

use std::hash::RandomState;
use std::time::{Duration, Instant};

use hashlink::LinkedHashMap;

use super::tenants::{Tenant, Tenants};

/// The sessions of one pool. A key comes from [`table_key`](crate::session::SessionId::table_key)
/// and has at most 256 bytes.
///
/// The hasher has a random seed because clients choose the keys. The seed has no visible effect:
/// entries are visited only in order of use.
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
    /// Requests of the session that have not ended.
    running: u32,
    since: Instant,
    used: Instant,
}

impl Entry {
    /// Whether the session has been idle for `ttl`. With a `ttl` of zero every session is expired.
    /// A session with a running request is not idle.
    fn is_expired(&self, ttl: Duration, now: Instant) -> bool {
        let is_running = self.running > 0 && !ttl.is_zero();
        !is_running && now.saturating_duration_since(self.used) >= ttl
    }
}

/// Sessions for which room is reserved at once: 19 MiB, most of it touched only when used. Above
/// this number the table grows in steps.
const RESERVED_MAX: usize = 1 << 20;

/// Most sessions that one new session evicts. One is enough, except after a reload that lowers the
/// cap. The surplus is then removed in many small steps, here and in the sweep.
const EVICTED_AT_ONCE: usize = 2;

/// The peer that a session is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The session's peer.
    pub peer: u32,
    /// When the session was bound to the peer.
    pub since: Instant,
    /// When the session was last used.
    pub used: Instant,
}

impl Sessions {
    /// The binding of a session, unless it has expired.
    pub fn find(&self, key: &[u8], ttl: Duration, now: Instant) -> Option<Binding> {
        let entry = self.by_key.get(key)?;
        let is_here = self.peers.is_live(entry.tenant) && !entry.is_expired(ttl, now);
        is_here.then_some(Binding {
            peer: entry.tenant.peer,
            since: entry.since,
            used: entry.used,
        })
    }

    /// Records that a request of a session begins on a peer. This binds the session to the peer or
    /// renews the binding; an expired session starts anew. Every request must [end](Self::end). At
    /// `max` entries the least recently used session is evicted. Allocates for a new session, and
    /// for a peer not seen before.
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

    /// Records that a request of a session has ended on `peer`. The end of a long response counts
    /// as use if the session still lives on that peer.
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

    /// Releases a session. Returns false when the table does not have it.
    pub fn finish(&mut self, key: &[u8]) -> bool {
        let gone = self.by_key.remove(key);
        gone.is_some_and(|entry| self.peers.leave(entry.tenant))
    }

    /// Visits at most `most` sessions, the longest idle ones first, and removes those that expired,
    /// lost their peer or exceed `max`. Returns the number visited. Fewer than `most` means that
    /// nothing is left to remove.
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
                // A session in constant use, which blocks the sessions behind it.
                entry.used = now;
                oldest.to_back();
            } else {
                return looked_at;
            }
        }
        most
    }

    /// Ends every session of a peer that is no longer configured. Another peer may get its number.
    pub fn forget_peer(&mut self, peer: u32) {
        self.peers.forget(peer);
    }

    /// Number of sessions on a peer, including expired ones that no sweep has visited.
    #[inline]
    pub fn count(&self, peer: u32) -> u32 {
        self.peers.entries(peer)
    }

    /// Number of sessions.
    pub fn len(&self) -> usize {
        self.by_key.len() - self.peers.void()
    }

    /// Whether there are no sessions.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sessions evicted by the cap, and sessions that expired, since the start.
    pub fn losses(&self) -> (u64, u64) {
        (self.evicted, self.expired)
    }

    /// Debug-asserts that the counts match the entries.
    pub fn check(&self) {
        self.peers
            .check(self.by_key.values().map(|entry| entry.tenant));
    }

    /// Evicts the least recently used session.
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
