//! Places requests that name no session, by the longest known prefix of their conversation.
//!
//! A conversation is a chain of blocks. Each block is hashed together with all blocks before it, so
//! that one number identifies everything up to there (the block chain of vLLM's prefix cache, over
//! text instead of tokens). The table remembers where each prefix was computed last. It evicts the
//! least recently used prefixes, as the engines' caches do.

use std::hash::RandomState;

use hashlink::LinkedHashMap;

use super::tenants::{Tenant, Tenants};

/// A prefix of a conversation: the hash of its last block chained to all blocks before, and its
/// length in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The chained hash.
    pub hash: u64,
    /// Length in bytes, from the beginning of the conversation.
    pub bytes: u64,
}

/// Known prefixes and the peers that computed them last.
#[derive(Debug, Default)]
pub struct Prefixes {
    by_hash: LinkedHashMap<u64, Tenant, RandomState>,
    peers: Tenants,
}

/// The longest known prefix of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// The peer that computed it.
    pub peer: u32,
    /// Length of the match in bytes.
    pub bytes: u64,
}

impl Prefixes {
    /// The longest prefix in `chain` (shortest first) that is known on a peer for which `accepts`
    /// returns true.
    pub fn longest(&self, chain: &[Prefix], accepts: impl Fn(u32) -> bool) -> Option<Match> {
        chain.iter().rev().find_map(|prefix| {
            let tenant = *self.by_hash.get(&prefix.hash)?;
            (self.peers.is_live(tenant) && accepts(tenant.peer)).then_some(Match {
                peer: tenant.peer,
                bytes: prefix.bytes,
            })
        })
    }

    /// Remembers that `peer` computes every prefix in `chain`. At `max` entries the least recently
    /// used ones are evicted. Shorter prefixes are touched last, because other conversations share
    /// them.
    pub fn record(&mut self, chain: &[Prefix], peer: u32, max: usize) {
        let tenant = self.peers.of(peer);
        for prefix in chain.iter().rev() {
            match self.by_hash.to_back(&prefix.hash) {
                Some(known) => {
                    let before = std::mem::replace(known, tenant);
                    self.peers.leave(before);
                }
                None => {
                    self.by_hash.insert(prefix.hash, tenant);
                }
            }
            self.peers.enter(tenant);
        }
        while self.by_hash.len() > max
            && let Some((_, gone)) = self.by_hash.pop_front()
        {
            self.peers.leave(gone);
        }
    }

    /// Forgets the prefixes of a peer that is no longer configured. Another peer may get its
    /// number.
    pub fn forget_peer(&mut self, peer: u32) {
        self.peers.forget(peer);
    }

    /// Number of known prefixes.
    pub fn len(&self) -> usize {
        self.by_hash.len() - self.peers.void()
    }

    /// Whether no prefix is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Debug-asserts that the counts match the entries.
    pub fn check(&self) {
        self.peers.check(self.by_hash.values().copied());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(hashes: &[u64]) -> Vec<Prefix> {
        let prefix = |(i, hash): (usize, &u64)| Prefix {
            hash: *hash,
            bytes: (i as u64 + 1) * 100,
        };
        hashes.iter().enumerate().map(prefix).collect()
    }

    #[test]
    fn the_longest_known_prefix_wins() {
        let mut known = Prefixes::default();
        known.record(&chain(&[1, 2, 3]), 7, 100);
        known.record(&chain(&[1, 9]), 8, 100);
        let found = known.longest(&chain(&[1, 2, 3, 4]), |_| true);
        assert_eq!(
            found,
            Some(Match {
                peer: 7,
                bytes: 300
            })
        );
        // Another peer computed the shared beginning last.
        let other = known.longest(&chain(&[1, 5]), |_| true);
        assert_eq!(
            other,
            Some(Match {
                peer: 8,
                bytes: 100
            })
        );
        assert_eq!(known.longest(&chain(&[6]), |_| true), None);
    }

    #[test]
    fn a_peer_that_cannot_take_it_leaves_the_next_shorter_prefix() {
        let mut known = Prefixes::default();
        known.record(&chain(&[1, 2]), 7, 100);
        known.record(&chain(&[1]), 8, 100);
        let found = known.longest(&chain(&[1, 2]), |peer| peer != 7);
        assert_eq!(
            found,
            Some(Match {
                peer: 8,
                bytes: 100
            })
        );
    }

    #[test]
    fn the_table_is_bounded_and_keeps_what_is_shared() {
        let mut known = Prefixes::default();
        for conversation in 0..50 {
            known.record(&chain(&[1, 1_000 + conversation]), 7, 10);
        }
        assert_eq!(known.len(), 10);
        assert!(known.longest(&chain(&[1]), |_| true).is_some());
        assert!(known.longest(&chain(&[2, 1_049]), |_| true).is_some());
        assert!(known.longest(&chain(&[2, 1_000]), |_| true).is_none());
    }

    #[test]
    fn a_removed_peer_is_forgotten() {
        let mut known = Prefixes::default();
        known.record(&chain(&[1]), 7, 10);
        known.record(&chain(&[2]), 8, 10);
        known.forget_peer(7);
        assert_eq!(known.longest(&chain(&[1]), |_| true), None);
        assert_eq!(known.len(), 1);
        known.check();
        // Another peer has the number now. Its prefixes are known, those of the first peer are not.
        known.record(&chain(&[3]), 7, 10);
        assert_eq!(known.longest(&chain(&[1]), |_| true), None);
        assert_eq!(known.longest(&chain(&[3]), |_| true).unwrap().peer, 7);
        known.record(&chain(&[1]), 8, 10);
        assert_eq!(known.longest(&chain(&[1]), |_| true).unwrap().peer, 8);
        known.record(&chain(&[4, 5, 6]), 7, 3);
        assert_eq!(known.len(), 3);
        known.check();
    }
}
