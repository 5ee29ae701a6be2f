//! A session id in the form that the placement hashes read.
//!
//! Every placement hash reads the whole id before it reads any bytes of a peer. Clients choose
//! their ids, so an id may be megabytes long. A long id is therefore hashed before the route's lock
//! is taken, while no other request waits, and the hash state travels with the request.

use std::fmt;

use md5::{Digest, Md5};
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

use super::consistent_hash::Murmur;
use super::{Affinity, Hash};

/// Ids of at least this many bytes are hashed in advance.
const LONG: usize = 1024;

/// A long session id, hashed up to the point where the peer's bytes follow.
#[derive(Clone)]
pub struct Hashed(State);

#[derive(Clone)]
enum State {
    Crc32(u32),
    Xxh3(Box<Xxh3Default>),
    Md5(Md5),
    /// One state per URL length, because the hash needs the input length first.
    Furc(Box<[(usize, Murmur)]>),
}

impl Hashed {
    /// The hash state that a route of this affinity needs, for peers with these URLs. `None` for a
    /// short id, and where sessions do not decide the placement.
    pub(crate) fn new<'u>(
        affinity: Affinity,
        session: &[u8],
        urls: impl Iterator<Item = &'u str>,
    ) -> Option<Self> {
        if session.len() < LONG {
            return None;
        }
        let sid = Sid::new(session);
        let state = match affinity {
            Affinity::None => return None,
            Affinity::Hash { hash, .. } => match hash {
                Hash::Crc32 => State::Crc32(sid.crc32()),
                Hash::Rendezvous => State::Xxh3(Box::new(sid.xxh3())),
                Hash::RendezvousMd5 => State::Md5(sid.md5()),
            },
            Affinity::Sticky => {
                let mut lengths: Vec<usize> = urls.map(str::len).collect();
                lengths.sort_unstable();
                lengths.dedup();
                let begun = lengths.into_iter().map(|length| (length, sid.furc(length)));
                State::Furc(begun.collect())
            }
        };
        Some(Self(state))
    }
}

impl fmt::Debug for Hashed {
    /// Prints no state, because it is derived from a client's text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hashed").finish_non_exhaustive()
    }
}

/// A session id: its bytes, and the hash state computed in advance. If the state belongs to another
/// route, the bytes count.
#[derive(Clone, Copy)]
pub(crate) struct Sid<'s> {
    bytes: &'s [u8],
    hashed: Option<&'s Hashed>,
}

impl<'s> Sid<'s> {
    pub(crate) fn new(bytes: &'s [u8]) -> Self {
        let hashed = None;
        Self { bytes, hashed }
    }

    /// Adds the hash state computed in advance, if there is one.
    pub(crate) fn with(self, hashed: Option<&'s Hashed>) -> Self {
        Self { hashed, ..self }
    }

    /// The bytes, unless they were hashed in advance.
    pub(super) fn short(self) -> Option<&'s [u8]> {
        self.hashed.is_none().then_some(self.bytes)
    }

    /// A number that identifies the id under any hash. Two routes with different hashes may give
    /// one long id two numbers.
    pub(crate) fn fingerprint(self) -> u64 {
        match self.hashed.map(|hashed| &hashed.0) {
            None | Some(State::Furc(_)) => xxh3_64(self.bytes),
            Some(State::Crc32(value)) => xxh3_64(&value.to_le_bytes()),
            Some(State::Xxh3(state)) => state.digest(),
            Some(State::Md5(state)) => xxh3_64(&state.clone().finalize()),
        }
    }

    pub(super) fn crc32(self) -> u32 {
        match self.hashed {
            Some(Hashed(State::Crc32(value))) => *value,
            _ => crc32fast::hash(self.bytes),
        }
    }

    /// The state after `session ‖ 0x00`, seed 0.
    pub(super) fn xxh3(self) -> Xxh3Default {
        if let Some(Hashed(State::Xxh3(state))) = self.hashed {
            return (**state).clone();
        }
        let mut state = Xxh3Default::new();
        state.update(self.bytes);
        state.update(&[0]);
        state
    }

    /// The state after `session ‖ '|'`.
    pub(super) fn md5(self) -> Md5 {
        match self.hashed {
            Some(Hashed(State::Md5(state))) => state.clone(),
            _ => Md5::new().chain_update(self.bytes).chain_update(b"|"),
        }
    }

    /// The state after `session ‖ ':'`, for a URL of this length.
    pub(super) fn furc(self, url: usize) -> Murmur {
        let begun = match self.hashed {
            Some(Hashed(State::Furc(begun))) => begun.iter().find(|(length, _)| *length == url),
            _ => None,
        };
        match begun {
            Some((_, state)) => *state,
            None => Murmur::new(self.bytes.len() + 1 + url)
                .update(self.bytes)
                .update(b":"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::affinity::Saturated;
    use crate::affinity::consistent_hash::Weights;
    use crate::affinity::hash::{Address, highest, modulo};

    const URLS: [&str; 3] = ["http://w1:8000", "http://w2:8000", "http://w10:8000"];

    /// Index and score.
    type Place = Option<(usize, u64)>;

    fn hashed(affinity: Affinity, session: &[u8]) -> Option<Hashed> {
        Hashed::new(affinity, session, URLS.into_iter())
    }

    fn by(hash: Hash) -> Affinity {
        Affinity::Hash {
            hash,
            saturated: Saturated::Keep,
        }
    }

    /// The place by `crc32`, by the two rendezvous hashes, and the weights with
    /// `sticky_least_loaded`.
    fn places(sid: Sid<'_>) -> (Place, [Place; 2], [u64; 3]) {
        let peers = URLS.map(Address::new);
        let by_weight = [Hash::Rendezvous, Hash::RendezvousMd5]
            .map(|hash| highest(hash, sid, peers.iter().enumerate()));
        let mut weigh = Weights::new(sid);
        (modulo(sid, 7), by_weight, URLS.map(|url| weigh.of(url)))
    }

    #[test]
    fn what_was_hashed_beforehand_stands_for_the_bytes() {
        let session: Vec<u8> = (0..=255).cycle().take(3 * LONG + 5).collect();
        let raw = places(Sid::new(&session));
        let of = |affinity| places(Sid::new(&[]).with(hashed(affinity, &session).as_ref()));
        assert_eq!(of(by(Hash::Crc32)).0, raw.0);
        assert_eq!(of(by(Hash::Rendezvous)).1[0], raw.1[0]);
        assert_eq!(of(by(Hash::RendezvousMd5)).1[1], raw.1[1]);
        assert_eq!(of(Affinity::Sticky).2, raw.2);
        // The state of another hash must not influence this one.
        let other = hashed(by(Hash::Crc32), &session);
        assert_eq!(places(Sid::new(&session).with(other.as_ref())), raw);
    }

    #[test]
    fn short_ids_and_ids_that_place_nothing_are_not_hashed_beforehand() {
        assert!(hashed(Affinity::Sticky, &[b's'; LONG - 1]).is_none());
        assert!(hashed(Affinity::None, &[b's'; LONG]).is_none());
        assert!(hashed(by(Hash::Crc32), &[b's'; LONG]).is_some());
    }
}
