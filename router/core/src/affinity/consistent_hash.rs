//! The tie-break of `sticky_least_loaded`: among peers with equally few sessions the one with the
//! highest `H("<session>:<peer url>")` wins.
//!
//! `H` is the hash of vllm-router's consistent policies, so that its users see the placement they
//! know: furc hash over 2^23 − 1 shards, with the result hashed once more by MurmurHash64A.
//! Sources: Facebook mcrouter, `lib/fbi/hash` (the furc hash, after Mark Rabkin); Austin Appleby,
//! MurmurHash2. Frozen: replicas of different versions must agree.

use super::sid::Sid;

/// The authors of the furc hash chose this seed for its diffusion; both stages use it.
const SEED: u64 = 4_193_360_111;
const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
const SHIFT: u32 = 47;

/// Number of shards: one below the largest number that the bit stride allows.
const SHARDS: u32 = (1 << STRIDE) - 1;
/// Distance between two bits of one draw, and the depth of the decision tree.
const STRIDE: u32 = 23;
/// After this many draws the result is 0.
const TRIES: u32 = 32;

/// Computes the weights of peers for one session. Peers with URLs of equal length share the hash
/// state before the URL.
pub(crate) struct Weights<'s> {
    sid: Sid<'s>,
    /// The hash state before a URL of this length.
    begun: Option<(usize, Murmur)>,
}

impl<'s> Weights<'s> {
    pub(crate) fn new(sid: Sid<'s>) -> Self {
        Self { sid, begun: None }
    }

    /// The weight of a peer. Only 2^23 − 1 values exist, so ties are possible; the caller prefers
    /// the earlier peer.
    pub(crate) fn of(&mut self, peer_url: &str) -> u64 {
        let length = peer_url.len();
        let begun = match self.begun {
            Some((shared, begun)) if shared == length => begun,
            _ => {
                let begun = self.sid.furc(length);
                self.begun = Some((length, begun));
                begun
            }
        };
        let shard = furc(begun.update(peer_url.as_bytes()).finish());
        Murmur::new(4).update(&shard.to_le_bytes()).finish()
    }
}

/// Streaming MurmurHash64A. The hash needs the length of its input first.
#[derive(Clone, Copy)]
pub(super) struct Murmur {
    hash: u64,
    /// The bytes of the last, incomplete word, padded with zeros.
    word: [u8; 8],
    filled: usize,
}

impl Murmur {
    #[inline]
    pub(super) fn new(length: usize) -> Self {
        Self {
            hash: SEED ^ (length as u64).wrapping_mul(MULTIPLIER),
            word: [0; 8],
            filled: 0,
        }
    }

    #[inline]
    pub(super) fn update(mut self, mut piece: &[u8]) -> Self {
        if self.filled > 0 {
            let (head, rest) = piece.split_at(piece.len().min(self.word.len() - self.filled));
            self.word[self.filled..][..head.len()].copy_from_slice(head);
            self.filled += head.len();
            if self.filled < self.word.len() {
                return self;
            }
            self = self.take(self.word);
            piece = rest;
        }
        let (words, tail) = piece.as_chunks::<8>();
        self = words.iter().fold(self, |state, word| state.take(*word));
        self.word = [0; 8];
        self.word[..tail.len()].copy_from_slice(tail);
        self.filled = tail.len();
        self
    }

    #[inline]
    fn take(self, word: [u8; 8]) -> Self {
        let word = u64::from_le_bytes(word).wrapping_mul(MULTIPLIER);
        let word = (word ^ (word >> SHIFT)).wrapping_mul(MULTIPLIER);
        Self {
            hash: (self.hash ^ word).wrapping_mul(MULTIPLIER),
            ..self
        }
    }

    #[inline]
    pub(super) fn finish(self) -> u64 {
        let mut hash = self.hash;
        if self.filled > 0 {
            hash = (hash ^ u64::from_le_bytes(self.word)).wrapping_mul(MULTIPLIER);
        }
        hash = (hash ^ (hash >> SHIFT)).wrapping_mul(MULTIPLIER);
        hash ^ (hash >> SHIFT)
    }
}

/// Walks down a binary tree to a shard below [`SHARDS`]. Each level consumes one bit of the key
/// with this hash.
fn furc(key: u64) -> u32 {
    let mut bits = Bits::new(key);
    let mut depth = STRIDE;
    let mut at = depth;
    for _ in 0..TRIES {
        while !bits.get(at) {
            if depth == 0 {
                return 0;
            }
            depth -= 1;
            at = depth;
        }
        at += STRIDE;
        let mut shard = 1;
        for _ in 1..depth {
            shard = (shard << 1) | u32::from(bits.get(at));
            at += STRIDE;
        }
        if shard < SHARDS {
            return shard;
        }
    }
    0
}

/// The endless bit string of a key: its hash, the hash of that hash, and so on, 64 bits each.
struct Bits {
    first: u64,
    /// The last word that was read, and its number.
    word: u64,
    number: u32,
}

impl Bits {
    fn new(first: u64) -> Self {
        Self {
            first,
            word: first,
            number: 0,
        }
    }

    fn get(&mut self, index: u32) -> bool {
        let number = index / 64;
        if number < self.number {
            (self.word, self.number) = (self.first, 0);
        }
        while self.number < number {
            self.word = Murmur::new(8).take(self.word.to_le_bytes()).finish();
            self.number += 1;
        }
        self.word >> (index % 64) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const URLS: [&str; 3] = ["http://w1:8000", "http://w2:8000", "http://w3:8000"];

    #[test]
    fn weights_are_the_reference_weights() {
        let table: [(&str, [u64; 3]); 7] = [
            (
                "sess-0",
                [0x9346f35f174a4330, 0x9c832213a3a97d5f, 0xf74bb0374e3aba0a],
            ),
            (
                "sess-1",
                [0xd1ea4f89195c1525, 0x5482c5c05c53f494, 0x5f296fe2433ac1a5],
            ),
            (
                "sess-2",
                [0xfcfb907e50cbda21, 0x1fc5091a55db0920, 0x558290e8b68589b8],
            ),
            (
                "sess-3",
                [0x43d76800751ced75, 0xd9e2d564ef05b1bd, 0xd8467ca4ccc39269],
            ),
            (
                "sess-4",
                [0x25c2c91354ecf770, 0x88ba06a6162750c5, 0x471703ab354d0cae],
            ),
            (
                "sess-5",
                [0xe9ff673967800277, 0xb853fc807f8b5107, 0x96a7295609bfca14],
            ),
            (
                "conversation-12345",
                [0x5537ec8c2d851822, 0x800fbb9503552497, 0x9b376cdd41fcd141],
            ),
        ];
        for (session, weights) in table {
            let mut weigh = Weights::new(Sid::new(session.as_bytes()));
            let found = URLS.map(|url| weigh.of(url));
            assert_eq!(found, weights, "{session}");
        }
    }

    #[test]
    fn pieces_hash_as_one_wherever_they_are_cut() {
        let whole: &[u8] = b"a session of twenty-seven b";
        let hashed = Murmur::new(whole.len()).update(whole).finish();
        for cut in 0..=whole.len() {
            for other in cut..=whole.len() {
                let pieces = [&whole[..cut], &whole[cut..other], &whole[other..]];
                let state = Murmur::new(whole.len());
                let state = pieces
                    .iter()
                    .fold(state, |state, piece| state.update(piece));
                assert_eq!(state.finish(), hashed, "cut at {cut} and {other}");
            }
        }
    }

    #[test]
    fn urls_of_other_lengths_share_nothing() {
        let urls = ["http://w1:8000", "http://w10:8000", "http://w2:8000", ""];
        let mut weigh = Weights::new(Sid::new(b"s"));
        let together = urls.map(|url| weigh.of(url));
        let alone = urls.map(|url| Weights::new(Sid::new(b"s")).of(url));
        assert_eq!(together, alone);
    }
}
