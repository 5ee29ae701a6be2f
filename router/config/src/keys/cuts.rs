//! Distinguishes a truncated copy of the key file from another key file.
//!
//! A file that is still being written, or was copied in part, is a prefix of the complete file and
//! ends inside one of its entries. Its last entry would be a key that nobody issued, and the keys
//! after it would be missing. No text is kept for this check: each prefix that ends inside an entry
//! is stored as a digest, keyed with a secret of the process.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock};

use sha2::{Digest, Sha256};

use super::file::Entry;

/// Maximum size of a file whose prefixes are stored, bytes. Each prefix takes eight bytes; the
/// limit covers some thousand keys.
const FILE_MAX: usize = 256 << 10;

/// The prefixes of one file's text.
#[derive(Clone, Default)]
pub struct Cuts {
    /// Digest of the whole text.
    whole: Option<u64>,
    /// Digests of the prefixes that end inside an entry. Empty for a larger file.
    within: Arc<[u64]>,
}

impl Cuts {
    /// Computes the digests of a text and its entries.
    pub(super) fn of<'t>(text: &str, entries: impl Iterator<Item = Entry<'t>>) -> Self {
        static SECRET: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one("cuts"));
        if text.len() > FILE_MAX {
            return Self::default();
        }
        let mut sum = Sha256::new_with_prefix(SECRET.to_ne_bytes());
        let mut within = Vec::new();
        let mut done = 0;
        for entry in entries {
            for end in entry.span.start + 1..entry.span.end {
                sum.update(&text.as_bytes()[done..end]);
                done = end;
                within.push(short(&sum));
            }
        }
        sum.update(&text.as_bytes()[done..]);
        Self {
            whole: Some(short(&sum)),
            within: within.into(),
        }
    }

    /// Whether this text is a prefix of `other` and ends inside one of its entries.
    pub(super) fn is_cut_from(&self, other: &Self) -> bool {
        self.whole
            .is_some_and(|whole| other.within.contains(&whole))
    }
}

impl fmt::Debug for Cuts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cuts").finish_non_exhaustive()
    }
}

fn short(sum: &Sha256) -> u64 {
    let digest = sum.clone().finalize();
    let first = digest.iter().take(8);
    first.fold(0, |short, byte| short << 8 | u64::from(*byte))
}
