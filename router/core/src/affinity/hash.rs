//! The three placement hashes.
//!
//! All three are frozen: replicas of different versions, and the router that this one replaces,
//! must place a session on the same peer. Rendezvous hashing: Thaler and Ravishankar, "A Name-Based
//! Mapping Scheme for Rendezvous" (1996). Every peer gets a weight from session and peer, and the
//! highest weight wins. So losing a peer moves only the sessions of that peer.
//!
//! A decision does not allocate here, whatever the length of the session id. A long id is fed to
//! the hasher once, and each peer continues from a copy of that state on the stack.

use std::borrow::Cow;

use md5::Digest;
use xxhash_rust::xxh3::xxh3_64;

use super::Hash;
use super::sid::Sid;

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

/// Bytes of a `host:port` that are copied as one piece. A copy of fixed size is faster than one
/// whose length is read first.
const PIECE: usize = 32;

/// A `host:port`, ready to be hashed.
#[derive(Clone, Debug)]
pub(crate) struct Address<'a> {
    /// The first bytes of the address, padded with zeros.
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

/// Bytes of `session ‖ 0x00 ‖ host:port` that are hashed in one call. Longer ids are rare, and for
/// them xxh3 works in blocks anyway.
const LANE: usize = 256;

/// Inputs that are written before the first of them is hashed. Reading bytes that were just written
/// stalls until they reach the cache; seven inputs later they are there.
const LANES: usize = 8;

/// `session ‖ 0x00 ‖ host:port` of several peers. A short input is hashed in one call: the
/// streaming state is larger than the input, and copying it for each peer costs more than the hash.
struct Lanes<'p> {
    /// Every text begins with the session and the zero byte.
    texts: [[u8; LANE]; LANES],
    /// Length of the common prefix.
    prefix: usize,
    /// The peers whose addresses follow the prefix.
    laid: [Option<(usize, &'p Address<'p>)>; LANES],
    count: usize,
}

impl<'p> Lanes<'p> {
    /// `None` when the session leaves too little room for addresses.
    fn new(session: Sid<'_>) -> Option<Self> {
        let session = session.short()?;
        let mut text = [0; LANE];
        // The zero byte behind the session is there already.
        let place = text[..LANE - PIECE].get_mut(..session.len())?;
        place.copy_from_slice(session);
        Some(Self {
            texts: [text; LANES],
            prefix: session.len() + 1,
            laid: [None; LANES],
            count: 0,
        })
    }

    /// Adds a peer, which may fill the lanes. Returns false when the address does not fit.
    #[inline]
    fn lay(&mut self, index: usize, peer: &'p Address<'p>) -> bool {
        let after = &mut self.texts[self.count][self.prefix..];
        let address = peer.whole.as_bytes();
        if address.len() <= PIECE
            && let Some(place) = after.first_chunk_mut::<PIECE>()
        {
            *place = peer.piece;
        } else if let Some(place) = after.get_mut(..address.len()) {
            place.copy_from_slice(address);
        } else {
            return false;
        }
        self.laid[self.count] = Some((index, peer));
        self.count += 1;
        true
    }

    /// Computes the weights of the collected peers, in the order they were added.
    #[inline]
    fn weigh(&mut self, best: &mut Heaviest<'p>) {
        for (text, laid) in self.texts.iter().zip(&mut self.laid).take(self.count) {
            if let Some((index, peer)) = laid.take() {
                let weight = xxh3_64(&text[..self.prefix + peer.whole.len()]);
                best.offer(index, peer, weight, is_smaller);
            }
        }
        self.count = 0;
    }
}

/// The peer with the highest `xxh3_64(session ‖ 0x00 ‖ host:port)`, seed 0.
fn heaviest_by_xxh3<'p>(
    session: Sid<'_>,
    peers: impl Iterator<Item = (usize, &'p Address<'p>)>,
) -> Heaviest<'p> {
    let Some(mut lanes) = Lanes::new(session) else {
        return heaviest(peers, xxh3_weights(session), is_smaller);
    };
    let mut best = Heaviest::default();
    peers.for_each(|(index, peer)| {
        if !lanes.lay(index, peer) {
            best.offer(index, peer, xxh3_weights(session)(peer), is_smaller);
        }
        if lanes.count == LANES {
            lanes.weigh(&mut best);
        }
    });
    lanes.weigh(&mut best);
    best
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
    weight: impl Fn(&Address<'_>) -> u64,
    wins_tie: impl Fn(&Address<'_>, &Address<'_>) -> bool,
) -> Heaviest<'p> {
    let mut best = Heaviest::default();
    peers.for_each(|(index, peer)| best.offer(index, peer, weight(peer), &wins_tie));
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heaviest_wins_whatever_length_it_and_the_session_have() {
        // More peers than one batch holds; the longest address does not fit at all.
        let lengths = [1, 14, PIECE - 2, PIECE - 1, 90, LANE].into_iter().cycle();
        let hosts = (10..).zip(lengths).take(3 * LANES + 1);
        let hosts: Vec<String> = hosts
            .map(|(number, length)| format!("{number}{}", "h".repeat(length)))
            .collect();
        let peers: Vec<_> = hosts.iter().map(|host| Address::new(host)).collect();
        let edge = LANE - PIECE;
        for length in [0, 1, 36, 100, edge - 1, edge, edge + 1, LANE, 5_000] {
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
