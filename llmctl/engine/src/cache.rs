//! The prefix cache: the blocks of tokens that this engine has already computed.
//!
//! The algorithm is vLLM's automatic prefix caching (`vllm/v1/core/kv_cache_utils.py`). A prompt is
//! cut into blocks of [`BLOCK`] tokens. The key of a block is `hash(hash of the block before, its
//! tokens)`, so a block stands for the whole prompt up to its end. Only full blocks count; a
//! request always computes at least one token itself. The least recently used block is evicted
//! first; within one chain, the end goes before the beginning. Unlike vLLM, a running request pins
//! no blocks. Pure: no clock, no IO.

use std::collections::{BTreeMap, HashMap};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::tokens::Token;

/// Tokens in one block.
pub const BLOCK: usize = 16;

/// Hash of the block before the first.
const ROOT: u64 = 0;

/// The known blocks, at most `capacity` of them.
#[derive(Debug)]
pub(crate) struct PrefixCache {
    capacity: usize,
    /// Block hash → counter value of the last use.
    used: HashMap<u64, u64>,
    /// The reverse map, oldest first.
    order: BTreeMap<u64, u64>,
    /// A counter instead of a clock: every use of a block takes the next value.
    tick: u64,
}

impl PrefixCache {
    /// An empty cache of at most `capacity` blocks; 0 turns it off.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            used: HashMap::new(),
            order: BTreeMap::new(),
            tick: 0,
        }
    }

    /// Number of leading prompt tokens that are cached: a multiple of [`BLOCK`] and less than the
    /// prompt's length. Marks these blocks as used.
    pub(crate) fn lookup(&mut self, prompt: &[Token]) -> usize {
        let computed = prompt.len().saturating_sub(1);
        let found: Vec<u64> = chain(&prompt[..computed])
            .take_while(|hash| self.used.contains_key(hash))
            .collect();
        found.iter().rev().for_each(|hash| self.touch(*hash));
        found.len() * BLOCK
    }

    /// Adds every full block of the tokens. Evicts the least recently used blocks.
    pub(crate) fn insert(&mut self, tokens: &[Token]) {
        // Skip blocks beyond the capacity: the beginning of the chain would evict them at once.
        let hashes: Vec<u64> = chain(tokens).take(self.capacity).collect();
        hashes.iter().rev().for_each(|hash| self.touch(*hash));
        while self.used.len() > self.capacity {
            if let Some((_, oldest)) = self.order.pop_first() {
                self.used.remove(&oldest);
            }
        }
        debug_assert_eq!(
            self.used.len(),
            self.order.len(),
            "both tables hold the same blocks"
        );
    }

    /// Number of blocks in the cache.
    pub(crate) fn blocks(&self) -> usize {
        self.used.len()
    }

    /// Maximum number of blocks.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Called from the end of a chain to its beginning, so that the end becomes the older one.
    fn touch(&mut self, hash: u64) {
        self.tick += 1;
        if let Some(before) = self.used.insert(hash, self.tick) {
            self.order.remove(&before);
        }
        self.order.insert(self.tick, hash);
    }
}

/// The hashes of the full blocks of the tokens, in order.
fn chain(tokens: &[Token]) -> impl Iterator<Item = u64> {
    tokens.chunks_exact(BLOCK).scan(ROOT, |parent, block| {
        let mut bytes = [0; BLOCK * size_of::<Token>()];
        for (to, token) in bytes.chunks_exact_mut(size_of::<Token>()).zip(block) {
            to.copy_from_slice(&token.to_le_bytes());
        }
        *parent = xxh3_64_with_seed(&bytes, *parent);
        Some(*parent)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(from: Token, len: usize) -> Vec<Token> {
        (from..).take(len).collect()
    }

    #[test]
    fn a_known_prompt_hits_all_full_blocks_but_the_last_token() {
        let mut cache = PrefixCache::new(100);
        cache.insert(&run(0, 40));
        assert_eq!(cache.lookup(&run(0, 40)), 32);
        assert_eq!(cache.lookup(&run(0, 200)), 32);
        assert_eq!(cache.lookup(&run(0, 33)), 32);
        assert_eq!(
            cache.lookup(&run(0, 32)),
            16,
            "one token is always computed"
        );
        assert_eq!(cache.lookup(&[]), 0);
    }

    #[test]
    fn a_block_after_a_different_beginning_does_not_hit() {
        let mut cache = PrefixCache::new(100);
        cache.insert(&run(0, 48));
        let mut other = run(0, 48);
        other[0] = 999;
        assert_eq!(cache.lookup(&other), 0);
        let mut middle = run(0, 48);
        middle[20] = 999;
        assert_eq!(cache.lookup(&middle), 16);
    }

    #[test]
    fn the_least_recently_used_chain_goes_first_and_its_end_before_its_beginning() {
        let mut cache = PrefixCache::new(4);
        cache.insert(&run(0, 32));
        cache.insert(&run(1000, 32));
        assert_eq!(cache.lookup(&run(0, 33)), 32);
        cache.insert(&run(2000, 16));
        assert_eq!(cache.blocks(), 4);
        assert_eq!(cache.lookup(&run(0, 33)), 32, "recently used: kept");
        assert_eq!(
            cache.lookup(&run(1000, 33)),
            16,
            "its end was evicted, its beginning kept"
        );
    }

    #[test]
    fn a_prompt_longer_than_the_cache_keeps_its_beginning() {
        let mut cache = PrefixCache::new(2);
        cache.insert(&run(0, 160));
        assert_eq!((cache.blocks(), cache.lookup(&run(0, 160))), (2, 32));
    }

    #[test]
    fn capacity_zero_remembers_nothing() {
        let mut cache = PrefixCache::new(0);
        cache.insert(&run(0, 64));
        assert_eq!((cache.blocks(), cache.lookup(&run(0, 64))), (0, 0));
    }
}
