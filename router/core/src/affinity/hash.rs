//! The three placement hashes.
//!
//! All three are frozen: replicas of different versions, and the router that this one replaces,
//! must place a session on the same peer. Rendezvous hashing: Thaler and Ravishankar, "A Name-Based
//! Mapping Scheme for Rendezvous" (1996). Every peer gets a weight from session and peer, and the
//! highest weight wins. So losing a peer moves only the sessions of that peer.
//!
//! A decision does not allocate here, whatever the length of the session id. What depends on the
//! session alone is computed once for all peers: products of a short id, the hasher's state of a
//! long one.

use std::borrow::Cow;

use md5::Digest;
use xxhash_rust::xxh3::xxh3_64;

use super::Hash;
use super::sid::Sid;
use super::xxh3::{Piece, Plan};

/// The home of a session among `peers` (`host:port` texts, in file order): the index of the winner
/// and its score (`crc32` value, or the winning weight). `None` when there are no peers.
pub fn home<'a>(
    hash: Hash,
    session: &[u8],
    peers: impl IntoIterator<Item = &'a str>,
) -> Option<(usize, u64)> {
    let peers: Vec<_> = peers.into_iter().map(Address::new).collect();
    match hash {
        Hash::Crc32 => modulo(Sid::new(session), peers.len()),
        Hash::Rendezvous | Hash::RendezvousMd5 => {
            highest(hash, Sid::new(session), peers.iter().enumerate())
        }
    }
}

/// The position of a session by `crc32` in a list of `peers` peers, and the `crc32` value.
pub(crate) fn modulo(session: Sid<'_>, peers: usize) -> Option<(usize, u64)> {
    let score = u64::from(session.crc32());
    let index = score.checked_rem(peers as u64)?;
    Some((index as usize, score))
}

/// The peer with the highest weight, and that weight. Each peer comes with the caller's value for
/// it. With `crc32`, which has no weights, the first peer.
pub(crate) fn highest<'a>(
    hash: Hash,
    session: Sid<'_>,
    peers: impl Iterator<Item = (usize, &'a Address<'a>)>,
) -> Option<(usize, u64)> {
    let best = match hash {
        Hash::Crc32 => heaviest(peers, |_| 0, |_, _| false),
        Hash::Rendezvous => heaviest_by_xxh3(session, peers),
        Hash::RendezvousMd5 => heaviest(peers, md5_weights(session), |_, _| false),
    };
    best.winner()
}

/// Computes the weight of each peer for one session.
pub(crate) type Weights<'s> = Box<dyn Fn(&Address<'_>) -> Option<u64> + 's>;

/// Computes each peer's weight for a session, for explanations. `None` with `crc32`, which has no
/// weights.
pub(crate) fn weights(hash: Hash, session: Sid<'_>) -> Weights<'_> {
    match hash {
        Hash::Crc32 => Box::new(|_| None),
        Hash::Rendezvous => {
            let weight = xxh3_weights(session);
            Box::new(move |peer| Some(weight(peer)))
        }
        Hash::RendezvousMd5 => {
            let weight = md5_weights(session);
            Box::new(move |peer| Some(weight(peer)))
        }
    }
}

/// The weight of one peer for a session. `None` with `crc32`, which has no weights.
pub fn weight(hash: Hash, session: &[u8], peer: &str) -> Option<u64> {
    weights(hash, Sid::new(session))(&Address::new(peer))
}

/// A `host:port`, ready to be hashed.
#[derive(Clone, Debug)]
pub(crate) struct Address<'a> {
    /// The first bytes of the address.
    piece: Piece,
    whole: Cow<'a, str>,
}

impl<'a> Address<'a> {
    pub(crate) fn new(host_port: &'a str) -> Self {
        Self {
            piece: Piece::new(host_port.as_bytes()),
            whole: host_port.into(),
        }
    }

    /// A copy that owns its text.
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

/// Most bytes of a session whose products with the addresses are prepared. Above this, xxh3 works in
/// other blocks.
const PREPARED_MAX: usize = 240;

/// Lengths of addresses for which a plan is kept. Peers of one pool seldom have more.
const PLANS: usize = 4;

/// Computes `xxh3_64(session ‖ 0x00 ‖ host:port)`, seed 0, of many peers for one session.
struct Prepared<'s> {
    session: Sid<'s>,
    /// `session ‖ 0x00`.
    prefix: [u8; PREPARED_MAX],
    length: usize,
    plans: [Option<Plan>; PLANS],
    /// The plan used last.
    last: usize,
}

impl<'s> Prepared<'s> {
    /// `None` for a session that is too long.
    fn new(session: Sid<'s>) -> Option<Self> {
        let text = session.short()?;
        let mut prefix = [0; PREPARED_MAX];
        // The zero byte behind the session is there already.
        let place = prefix[..PREPARED_MAX - 1].get_mut(..text.len())?;
        place.copy_from_slice(text);
        Some(Self {
            session,
            prefix,
            length: text.len() + 1,
            plans: [None; PLANS],
            last: 0,
        })
    }

    #[inline]
    fn weigh(&mut self, peer: &Address<'_>) -> u64 {
        let length = peer.whole.len();
        match &self.plans[self.last] {
            Some(plan) if plan.address == length => plan.hash(&peer.piece),
            _ => self.weigh_first(peer),
        }
    }

    /// Weighs a peer whose address has another length than the one before.
    fn weigh_first(&mut self, peer: &Address<'_>) -> u64 {
        let length = peer.whole.len();
        let known = self.plans.iter().position(|plan| {
            let plan = plan.as_ref();
            plan.is_some_and(|plan| plan.address == length)
        });
        self.last = known.unwrap_or_else(|| {
            let free = self.plans.iter().position(Option::is_none);
            let place = free.unwrap_or((self.last + 1) % PLANS);
            self.plans[place] = Plan::new(&self.prefix[..self.length], length);
            place
        });
        match &self.plans[self.last] {
            Some(plan) => plan.hash(&peer.piece),
            None => self.weigh_whole(peer),
        }
    }

    /// Weighs a peer whose address and session together are very short or long.
    fn weigh_whole(&self, peer: &Address<'_>) -> u64 {
        let (prefix, address) = (&self.prefix[..self.length], peer.whole.as_bytes());
        let mut short = [0; 16];
        let whole = prefix.len() + address.len();
        let Some(text) = short.get_mut(..whole) else {
            return xxh3_weights(self.session)(peer);
        };
        text[..prefix.len()].copy_from_slice(prefix);
        text[prefix.len()..].copy_from_slice(address);
        xxh3_64(text)
    }
}

/// The peer with the highest `xxh3_64(session ‖ 0x00 ‖ host:port)`.
fn heaviest_by_xxh3<'p>(
    session: Sid<'_>,
    peers: impl Iterator<Item = (usize, &'p Address<'p>)>,
) -> Heaviest<'p> {
    let Some(mut prepared) = Prepared::new(session) else {
        return heaviest(peers, xxh3_weights(session), is_smaller);
    };
    heaviest(peers, |peer| prepared.weigh(peer), is_smaller)
}

/// Between equal weights the smaller `host:port` wins.
fn is_smaller(rival: &Address<'_>, winner: &Address<'_>) -> bool {
    rival.text() < winner.text()
}

fn xxh3_weights(session: Sid<'_>) -> impl Fn(&Address<'_>) -> u64 {
    let base = session.xxh3();
    move |peer| {
        let mut state = base.clone();
        state.update(peer.whole.as_bytes());
        state.digest()
    }
}

/// The first 8 hex digits of `MD5(session ‖ '|' ‖ host:port)`, as a number.
fn md5_weights(session: Sid<'_>) -> impl Fn(&Address<'_>) -> u64 {
    let base = session.md5();
    move |peer| {
        let digest = base.clone().chain_update(peer.text()).finalize();
        u64::from(u32::from_be_bytes([
            digest[0], digest[1], digest[2], digest[3],
        ]))
    }
}

/// The peer with the highest weight so far.
#[derive(Default)]
struct Heaviest<'p> {
    best: Option<(usize, &'p Address<'p>, u64)>,
}

impl<'p> Heaviest<'p> {
    /// `wins_tie(later, earlier)` decides between equal weights.
    #[inline]
    fn offer(
        &mut self,
        index: usize,
        peer: &'p Address<'p>,
        weight: u64,
        wins_tie: impl Fn(&Address<'_>, &Address<'_>) -> bool,
    ) {
        let wins = match &self.best {
            None => true,
            Some((_, winner, top)) => weight > *top || (weight == *top && wins_tie(peer, winner)),
        };
        if wins {
            self.best = Some((index, peer, weight));
        }
    }

    fn winner(self) -> Option<(usize, u64)> {
        self.best.map(|(index, _, weight)| (index, weight))
    }
}

fn heaviest<'p>(
    peers: impl Iterator<Item = (usize, &'p Address<'p>)>,
    mut weight: impl FnMut(&Address<'_>) -> u64,
    wins_tie: impl Fn(&Address<'_>, &Address<'_>) -> bool,
) -> Heaviest<'p> {
    let mut best = Heaviest::default();
    peers.for_each(|(index, peer)| best.offer(index, peer, weight(peer), &wins_tie));
    best
}

#[cfg(test)]
mod tests {
    use super::super::xxh3::ADDRESS_MAX;
    use super::*;

    #[test]
    fn the_heaviest_wins_whatever_length_it_and_the_session_have() {
        // More lengths than plans are kept; the longest addresses have no plan.
        let lengths = [1, 14, 15, 13, ADDRESS_MAX - 2, ADDRESS_MAX - 1, 90, 256];
        let lengths = lengths.into_iter().cycle();
        let hosts = (10..).zip(lengths).take(25);
        let hosts: Vec<String> = hosts
            .map(|(number, length)| format!("{number}{}", "h".repeat(length)))
            .collect();
        let peers: Vec<_> = hosts.iter().map(|host| Address::new(host)).collect();
        for length in [0, 1, 36, 100, 120, 127, 150, 238, 239, 240, 256, 5_000] {
            for letter in b'a'..=b'z' {
                let session = vec![letter; length];
                let weight = |host: &String| {
                    let whole = [&session[..], b"\0", host.as_bytes()].concat();
                    xxh3_64(&whole)
                };
                let heaviest = hosts.iter().map(weight).enumerate().max_by_key(|one| one.1);
                let found = highest(
                    Hash::Rendezvous,
                    Sid::new(&session),
                    peers.iter().enumerate(),
                );
                assert_eq!(found, heaviest, "{length} bytes of {letter}");
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
        // Above 240 bytes xxh3 switches its algorithm. Both sides must agree with the one-shot
        // form.
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
        let winner = |wins_tie: fn(&Address<'_>, &Address<'_>) -> bool| {
            heaviest(list.iter().enumerate(), |_| 7, wins_tie).winner()
        };
        assert_eq!(winner(is_smaller), Some((1, 7)));
        assert_eq!(winner(|_, _| false), Some((0, 7)));
    }
}
