//! A conversation as a chain of prefixes, by which `affinity_fallback: prefix` places a request.
//!
//! Clients resend the whole conversation with each turn, with its earlier part unchanged. So the
//! raw text of tools, system prompt and messages is hashed in order. Each message is a block of its
//! own, and long messages are cut into several. The chain of hashes of turn n is then the beginning
//! of the chain of turn n + 1.

use serde::Deserializer as _;
use serde::de::{SeqAccess, Visitor};
use serde_json::value::RawValue;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use router_core::affinity::prefix::Prefix;

/// Top-level fields in the order in which engines put their text before the first token.
pub const FIELDS: [&str; 5] = ["tools", "system", "messages", "prompt", "input"];

/// Longest block, in bytes. With a bound, a long document in one message still shares its
/// beginning.
const BLOCK_MAX: usize = 4096;

/// Most prefixes of one request: enough to tell conversations apart, and a bound on the work.
const PREFIXES_MAX: usize = 256;

/// The chain of the fields' raw JSON texts, in the order of [`FIELDS`], shortest prefix first.
pub fn chain<'b>(fields: impl IntoIterator<Item = &'b str>) -> Vec<Prefix> {
    let mut chain = Chain {
        prefixes: Vec::new(),
        hash: 0,
        bytes: 0,
    };
    for text in fields {
        if text.starts_with('[') {
            let mut json = serde_json::Deserializer::from_str(text);
            // Bad JSON was skipped earlier.
            let _ = json.deserialize_seq(Elements(&mut chain));
        } else {
            chain.block(text.as_bytes());
        }
    }
    chain.prefixes
}

struct Chain {
    prefixes: Vec<Prefix>,
    hash: u64,
    bytes: u64,
}

impl Chain {
    fn block(&mut self, text: &[u8]) {
        for block in text.chunks(BLOCK_MAX) {
            if self.prefixes.len() == PREFIXES_MAX {
                return;
            }
            self.hash = xxh3_64_with_seed(block, self.hash);
            self.bytes += block.len() as u64;
            self.prefixes.push(Prefix {
                hash: self.hash,
                bytes: self.bytes,
            });
        }
    }
}

struct Elements<'c>(&'c mut Chain);

impl<'de> Visitor<'de> for Elements<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        while let Some(element) = elements.next_element::<&'de RawValue>()? {
            self.0.block(element.get().as_bytes());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(fields: &[&str]) -> Vec<Prefix> {
        chain(fields.iter().copied())
    }

    #[test]
    fn the_next_turn_begins_with_the_chain_of_this_one() {
        let one = of(&["\"be brief\"", r#"[{"role":"user","content":"hi"}]"#]);
        let two = of(&[
            "\"be brief\"",
            r#"[{"role":"user","content":"hi"}, {"role":"assistant","content":"ho"},{"role":"user","content":"?"}]"#,
        ]);
        assert_eq!((one.len(), two.len()), (2, 4));
        assert_eq!(two[..2], one[..]);
    }

    #[test]
    fn another_beginning_changes_every_prefix_after_it() {
        let one = of(&[r#"[{"a":1},{"b":2}]"#]);
        let other = of(&[r#"[{"a":2},{"b":2}]"#]);
        assert!(one.iter().zip(&other).all(|(a, b)| a.hash != b.hash));
    }

    #[test]
    fn long_texts_are_cut_and_the_chain_is_bounded() {
        let long = format!("\"{}\"", "x".repeat(BLOCK_MAX * 2));
        assert_eq!(of(&[&long]).len(), 3);
        let endless = format!("\"{}\"", "x".repeat(BLOCK_MAX * (PREFIXES_MAX + 9)));
        assert_eq!(of(&[&endless]).len(), PREFIXES_MAX);
    }

    #[test]
    fn what_holds_no_text_has_no_prefix() {
        assert_eq!(of(&[]), []);
        assert_eq!(of(&["[]"]), []);
    }
}
