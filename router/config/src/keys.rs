//! API keys: the key file, the set in force, and the key that a request presents.
//!
//! [`file`](mod@file) reads the file, [`state`] decides which keys are in force after a read, and
//! `header` finds the key in a request. No key is kept or shown: a [`KeySet`] holds digests.

mod cuts;
pub mod file;
mod header;
pub mod state;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

pub use cuts::Cuts;
pub use file::{KeyFileStatus, KeyProblem, KeyRead, read};
pub use header::{key_in_protocol, presented};
pub use state::{Access, InForce, KeyState, Note};

/// Prefix of an entry that holds a key's SHA-256 instead of the key.
const HASHED: &str = "sha256:";

/// Keys and their owners.
///
/// A lookup uses the digest of the presented key, so its cost does not grow with the set. Timing
/// reveals nothing about a key: a hash with a secret seed chooses the bucket, and two digests are
/// compared in constant time.
#[derive(Clone, Default)]
pub struct KeySet {
    owners: HashMap<Digest, Arc<str>>,
}

/// SHA-256 of a key, or of a set of keys.
#[derive(Clone, Copy)]
pub struct Digest([u8; 32]);

impl KeySet {
    /// The keys of one route: key, or `sha256:<hex>`, → owner.
    pub fn from_route(keys: &BTreeMap<String, String>) -> Self {
        let mut set = Self::default();
        for (key, owner) in keys {
            let digest = match key.strip_prefix(HASHED) {
                Some(hex) => Digest::parse(hex),
                None => Some(Digest::of(key.as_bytes())),
            };
            if let Some(digest) = digest {
                set.owners.insert(digest, owner.as_str().into());
            }
        }
        set
    }

    /// The owner of a presented key; `None` for a key outside the set.
    pub fn owner(&self, presented: &[u8]) -> Option<Arc<str>> {
        self.owners.get(&Digest::of(presented)).cloned()
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.owners.len()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// A fingerprint of this set: equal for sets of the same keys with the same owners, in any
    /// order. The fingerprint reveals no single key.
    pub fn fingerprint(&self) -> Digest {
        let mut lines: Vec<_> = self
            .owners
            .iter()
            .map(|(digest, owner)| format!("{}:{owner}\n", digest.hex()))
            .collect();
        lines.sort_unstable();
        let mut all = Sha256::new();
        lines.iter().for_each(|line| all.update(line));
        Digest(all.finalize().into())
    }

    /// The first eight hexadecimal digits of [`fingerprint`](Self::fingerprint): enough to tell the
    /// sets of two routers apart, and too few to confirm a guessed key.
    pub fn short_fingerprint(&self) -> String {
        let mut hex = self.fingerprint().hex();
        hex.truncate(8);
        hex
    }

    /// The union of all sets. For a key in two sets, the later owner wins.
    pub fn union<'a>(sets: impl IntoIterator<Item = &'a KeySet>) -> Self {
        let mut union = Self::default();
        for set in sets {
            union.owners.extend(
                set.owners
                    .iter()
                    .map(|(digest, owner)| (*digest, Arc::clone(owner))),
            );
        }
        union
    }

    /// Adds a key. Returns whether it was there already.
    fn insert(&mut self, digest: Digest, owner: &str) -> bool {
        self.owners.insert(digest, owner.into()).is_some()
    }
}

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeySet")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

impl Digest {
    /// The digest of a key.
    pub fn of(key: &[u8]) -> Self {
        Self(Sha256::digest(key).into())
    }

    /// 64 hexadecimal digits in lower case.
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Reads 64 hexadecimal digits.
    pub fn parse(hex: &str) -> Option<Self> {
        let hex = hex.as_bytes();
        if hex.len() != 64 {
            return None;
        }
        let mut digest = [0; 32];
        for (byte, pair) in digest.iter_mut().zip(hex.chunks_exact(2)) {
            let digit = |b: u8| {
                char::from(b)
                    .to_digit(16)
                    .and_then(|d| u8::try_from(d).ok())
            };
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self(digest))
    }
}

impl PartialEq for Digest {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Digest {}

impl Hash for Digest {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

/// Whether a key starts like a hashed one but is not valid.
pub(super) fn is_bad_hash(key: &str) -> bool {
    key.strip_prefix(HASHED)
        .is_some_and(|hex| Digest::parse(hex).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(pairs: &[(&str, &str)]) -> KeySet {
        KeySet::from_route(
            &pairs
                .iter()
                .map(|(k, o)| ((*k).to_owned(), (*o).to_owned()))
                .collect(),
        )
    }

    #[test]
    fn a_hashed_key_opens_by_its_key_and_not_by_its_text() {
        // SHA-256 of `sk-a`.
        let hex = Sha256::digest(b"sk-a")
            .iter()
            .map(|b| format!("{b:02X}"))
            .collect::<String>();
        let entry = format!("sha256:{hex}");
        let set = route(&[(&entry, "admin")]);
        assert_eq!(set.owner(b"sk-a").as_deref(), Some("admin"));
        assert_eq!(set.owner(entry.as_bytes()), None);
        assert_eq!(set.owner(hex.as_bytes()), None);
    }

    #[test]
    fn keys_match_exactly() {
        let set = route(&[("sk-a", "x")]);
        for wrong in ["", "sk-", "sk-a ", "SK-A", "sk-ab"] {
            assert_eq!(set.owner(wrong.as_bytes()), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_union_opens_for_the_keys_of_every_set() {
        let union = KeySet::union([&route(&[("a", "1")]), &route(&[("b", "2")])]);
        assert_eq!(union.owner(b"a").as_deref(), Some("1"));
        assert_eq!(union.owner(b"b").as_deref(), Some("2"));
        assert_eq!(union.len(), 2);
    }

    #[test]
    fn a_fingerprint_is_of_keys_and_owners_and_not_of_their_order() {
        let set = |text: &str| file::parse(text.as_bytes()).keys.fingerprint();
        let hashed = format!("sha256:{}:x", Digest::of(b"sk-a").hex());
        assert!(set("sk-a:x\nsk-b:y") == set("# c\nsk-b:y,sk-a:x"));
        assert!(set("sk-a:x") == set(&hashed));
        for other in ["sk-a:y", "sk-b:x", "sk-a:x\nsk-b:y", ""] {
            assert!(set("sk-a:x") != set(other), "{other}");
        }
    }

    #[test]
    fn debug_shows_no_key_and_no_owner() {
        assert_eq!(
            format!("{:?}", route(&[("sk-a", "bob")])),
            "KeySet { len: 1, .. }"
        );
    }

    #[test]
    fn bad_hashes_are_told_from_keys() {
        assert!(is_bad_hash("sha256:12") && is_bad_hash(&format!("sha256:{}", "g".repeat(64))));
        assert!(
            !is_bad_hash("sk-a") && !is_bad_hash(&format!("sha256:{}", "0aF".repeat(21) + "0"))
        );
    }
}
