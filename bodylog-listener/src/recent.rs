//! Remembers recent frames of version 1. Its senders repeat whole buffers after a failed send and
//! do not number frames. Best effort: hashes, for a limited time.

use std::hash::{BuildHasher, Hash, RandomState};

use hashlink::LinkedHashMap;

/// How long a frame is remembered.
const SECONDS: i64 = 600;
/// Most frames remembered; the oldest is forgotten first.
const MAX: usize = 1_000_000;

/// The frames, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    hasher: RandomState,
    seen: LinkedHashMap<u64, i64>,
}

impl Recent {
    /// Remembers a key. Returns whether it is new.
    pub(crate) fn insert(&mut self, key: impl Hash, now: i64) -> bool {
        while let Some((_, at)) = self.seen.front()
            && (now - at >= SECONDS || self.seen.len() >= MAX)
        {
            self.seen.pop_front();
        }
        let key = self.hasher.hash_one(key);
        if self.seen.contains_key(&key) {
            return false;
        }
        self.seen.insert(key, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_new_once_in_ten_minutes() {
        let mut recent = Recent::default();
        assert!(recent.insert("a", 0));
        assert!(!recent.insert("a", 599));
        assert!(recent.insert("b", 599));
        assert!(recent.insert("a", 600));
        assert_eq!(recent.seen.len(), 2);
    }

    #[test]
    fn their_number_is_bounded() {
        let mut recent = Recent::default();
        for n in 0..MAX + 10 {
            recent.insert(n, 0);
        }
        assert_eq!(recent.seen.len(), MAX);
    }
}
