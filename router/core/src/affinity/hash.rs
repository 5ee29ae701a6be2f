//! The three placement hashes.
//!
//! All three are frozen: replicas of different versions, and the router this one replaces, must
//! place a session alike. Rendezvous hashing: Thaler and Ravishankar, "A Name-Based Mapping Scheme
//! for Rendezvous" (1996): every peer gets a weight from session and peer, the highest wins, so
//! losing a peer moves its own sessions only.
//!
//! Nothing is allocated, whatever the session's length: a long one is fed to the hasher once, and
//! each peer continues from a copy of that state on the stack.

use std::borrow::{Borrow, Cow};

use md5::{Digest, Md5};
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

use super::Hash;

/// The home of a session among `peers` (`host:port` texts, in file order): the index of the winner
/// and its score (`crc32` value, or the winning weight). `None` when there are no peers.
pub fn home<'a>(
    hash: Hash,
    session: &[u8],
    peers: impl IntoIterator<Item = &'a str>,
) -> Option<(usize, u64)> {
    let peers = peers.into_iter();
    match hash {
        Hash::Crc32 => modulo(session, peers.count()),
        Hash::Rendezvous | Hash::RendezvousMd5 => {
            highest(hash, session, peers.map(Address::new).enumerate())
        }
    }
}

/// The place of a session by `crc32` in a list of so many peers, and the `crc32` value.
pub(crate) fn modulo(session: &[u8], peers: usize) -> Option<(usize, u64)> {
    let score = u64::from(crc32fast::hash(session));
    let index = score.checked_rem(peers as u64)?;
    Some((index as usize, score))
}

/// The winner by weight among `peers`, each with what stands for it, and its weight. The first peer
/// with `crc32`, which weighs nobody.
pub(crate) fn highest<'a>(
    hash: Hash,
    session: &[u8],
    peers: impl Iterator<Item = (usize, impl Borrow<Address<'a>>)>,
) -> Option<(usize, u64)> {
    match hash {
        Hash::Crc32 => heaviest(peers, |_| 0, |_, _| false),
        Hash::Rendezvous => {
            let mut weights = Xxh3Weights::new(session);
            let weight = |peer: &Address<'_>| weights.of(peer);
            heaviest(peers, weight, |rival, winner| rival.text() < winner.text())
        }
        Hash::RendezvousMd5 => heaviest(peers, md5_weights(session), |_, _| false),
    }
}

/// One peer's weight for a session, for explanations. `None` with `crc32`, which weighs nobody.
pub fn weight(hash: Hash, session: &[u8], peer: &str) -> Option<u64> {
    let peer = &Address::new(peer);
    match hash {
        Hash::Crc32 => None,
        Hash::Rendezvous => Some(Xxh3Weights::new(session).of(peer)),
        Hash::RendezvousMd5 => Some(md5_weights(session)(peer)),
    }
}

/// Bytes of a `host:port` that are kept in one piece of a fixed size, which is copied faster than one
/// whose size has to be looked at.
const PIECE: usize = 32;

/// A `host:port`, ready to be hashed.
#[derive(Clone, Debug)]
pub(crate) struct Address<'a> {
    /// Its beginning; zeros behind its end.
    piece: [u8; PIECE],
    whole: Cow<'a, str>,
}

impl<'a> Address<'a> {
    pub(crate) fn new(host_port: &'a str) -> Self {
        let mut piece = [0; PIECE];
        let bytes = host_port.bytes();
        piece
            .iter_mut()
            .zip(bytes)
            .for_each(|(to, from)| *to = from);
        Self {
            piece,
            whole: host_port.into(),
        }
    }

    /// With a text of its own.
    pub(crate) fn into_owned(self) -> Address<'static> {
        Address {
            piece: self.piece,
            whole: Cow::Owned(self.whole.into_owned()),
        }
    }

    fn text(&self) -> &str {
        &self.whole
    }
}

/// Bytes of `session ‖ 0x00 ‖ host:port` up to which they are hashed in one go.
const ONE_GO: usize = 512;

/// `xxh3_64(session ‖ 0x00 ‖ host:port)`, seed 0. A short input is laid out on the stack: the
/// streaming state is larger than that, and its copy for each peer cost more than the hash.
struct Xxh3Weights<'s> {
    session: &'s [u8],
    /// Begins with the session and the zero, where they fit.
    text: [u8; ONE_GO],
    /// The state after a session that does not fit.
    base: Option<Xxh3Default>,
}

impl<'s> Xxh3Weights<'s> {
    fn new(session: &'s [u8]) -> Self {
        let mut text = [0; ONE_GO];
        if let Some(start) = text.get_mut(..session.len()) {
            start.copy_from_slice(session);
        }
        Self {
            session,
            text,
            base: None,
        }
    }

    #[inline]
    fn of(&mut self, peer: &Address<'_>) -> u64 {
        let (prefix, length) = (self.session.len() + 1, peer.whole.len());
        let after = self.text.get_mut(prefix..);
        if let Some(place) = after.and_then(<[u8]>::first_chunk_mut::<PIECE>)
            && length <= PIECE
        {
            *place = peer.piece;
            return xxh3_64(&self.text[..prefix + length]);
        }
        self.of_long(peer)
    }

    #[cold]
    fn of_long(&mut self, peer: &Address<'_>) -> u64 {
        let base = self.base.get_or_insert_with(|| {
            let mut base = Xxh3Default::new();
            base.update(self.session);
            base.update(&[0]);
            base
        });
        let mut state = base.clone();
        state.update(peer.whole.as_bytes());
        state.digest()
    }
}

/// The first 8 hex digits of `MD5(session ‖ '|' ‖ host:port)`, as a number.
fn md5_weights(session: &[u8]) -> impl Fn(&Address<'_>) -> u64 {
    let base = Md5::new().chain_update(session).chain_update(b"|");
    move |peer| {
        let digest = base.clone().chain_update(peer.text()).finalize();
        u64::from(u32::from_be_bytes([
            digest[0], digest[1], digest[2], digest[3],
        ]))
    }
}

/// The peer of the highest weight; `wins_tie(later, earlier)` decides between equal weights.
fn heaviest<'a, A: Borrow<Address<'a>>>(
    peers: impl Iterator<Item = (usize, A)>,
    mut weight: impl FnMut(&Address<'a>) -> u64,
    wins_tie: impl Fn(&Address<'a>, &Address<'a>) -> bool,
) -> Option<(usize, u64)> {
    let mut best: Option<(usize, A, u64)> = None;
    peers.for_each(|(index, peer)| {
        let score = weight(peer.borrow());
        let wins = match &best {
            None => true,
            Some((_, winner, top)) => {
                score > *top || (score == *top && wins_tie(peer.borrow(), winner.borrow()))
            }
        };
        if wins {
            best = Some((index, peer, score));
        }
    });
    best.map(|(index, _, score)| (index, score))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_weighs_the_same_in_one_go_and_in_pieces() {
        let hosts = [1, PIECE - 1, PIECE, PIECE + 1, 90].map(|length| "h".repeat(length));
        let edge = ONE_GO - PIECE;
        for length in [0, 1, edge - 2, edge - 1, edge, ONE_GO - 1, ONE_GO, 5_000] {
            let session = vec![b's'; length];
            let mut weights = Xxh3Weights::new(&session);
            // Long after short and short after long: what one leaves behind is not hashed again.
            for host in hosts.iter().chain(hosts.iter().rev()) {
                let whole = [&session[..], b"\0", host.as_bytes()].concat();
                let weight = weights.of(&Address::new(host));
                assert_eq!(weight, xxh3_64(&whole), "{length} and {} bytes", host.len());
            }
        }
    }

    const PEERS: [&str; 3] = ["10.0.0.11:8000", "10.0.0.12:8000", "10.0.0.13:8000"];

    #[test]
    fn nobody_is_home_without_peers() {
        for hash in [Hash::Crc32, Hash::Rendezvous, Hash::RendezvousMd5] {
            assert_eq!(home(hash, b"s", []), None);
        }
    }

    #[test]
    fn the_winning_score_is_the_largest_weight() {
        for hash in [Hash::Rendezvous, Hash::RendezvousMd5] {
            let weights = PEERS.map(|peer| weight(hash, b"sess-1", peer).unwrap());
            let (index, score) = home(hash, b"sess-1", PEERS).unwrap();
            assert_eq!(score, weights[index]);
            assert_eq!(Some(&score), weights.iter().max());
        }
        assert_eq!(weight(Hash::Crc32, b"sess-1", PEERS[0]), None);
    }

    #[test]
    fn rendezvous_hashes_session_nul_and_address_in_one_piece() {
        // Past 240 bytes xxh3 changes its algorithm; both sides must agree with the one-shot form.
        for length in [0, 1, 16, 200, 256, 1 << 20] {
            let session = vec![b's'; length];
            let whole = [&session[..], b"\0", PEERS[1].as_bytes()].concat();
            assert_eq!(
                weight(Hash::Rendezvous, &session, PEERS[1]),
                Some(xxh3_64(&whole))
            );
        }
    }

    #[test]
    fn equal_weights_go_to_the_smaller_address_with_rendezvous_and_to_the_earlier_with_md5() {
        let list = ["b:1", "a:1", "c:1"].map(Address::new);
        let smaller = |rival: &Address<'_>, winner: &Address<'_>| rival.text() < winner.text();
        let winner = |wins_tie: fn(&Address<'_>, &Address<'_>) -> bool| {
            heaviest(list.iter().enumerate(), |_| 7, wins_tie)
        };
        assert_eq!(winner(smaller), Some((1, 7)));
        assert_eq!(winner(|_, _| false), Some((0, 7)));
    }
}
