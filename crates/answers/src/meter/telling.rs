//! Whether an event seems to hold something that the meter reads.
//!
//! Each event of a stream is asked, so the keys are found together, by the letter before their
//! closing quote, in one walk over blocks.

use crate::block::{BLOCK, Block};

/// The ends of the keys, and the first byte of a value that counts.
const KEYS: [(&[u8], u8); 3] = [
    (b"usage\"", b'{'),
    (b"_reason\"", b'"'),
    (b"timings\"", b'{'),
];

/// Whether an event seems to hold a usage or timings object or a finish reason. A text that quotes
/// one can match too; parsing the event then finds nothing.
pub(super) fn is_telling(data: &[u8]) -> bool {
    // Whether the block before ends with such a letter.
    let mut carry = 0;
    let mut at = 0;
    while let Some(block) = Block::at(data, at) {
        let letters = block.any([b'e', b'n', b's']);
        let mut quotes = block.equal(b'"') & (letters << 1 | carry);
        while quotes != 0 {
            if tells(data, at + quotes.trailing_zeros() as usize) {
                return true;
            }
            quotes &= quotes - 1;
        }
        carry = letters >> (BLOCK - 1);
        at += BLOCK;
    }
    false
}

/// Whether the quote at `quote` ends a key whose value counts.
fn tells(data: &[u8], quote: usize) -> bool {
    let (before, after) = data.split_at(quote + 1);
    let mut keys = KEYS.iter();
    let Some((_, opens)) = keys.find(|(key, _)| before.ends_with(key)) else {
        return false;
    };
    let value = after.trim_ascii_start().strip_prefix(b":");
    value.is_some_and(|value| value.trim_ascii_start().first() == Some(opens))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches each place for itself.
    fn naive(data: &[u8]) -> bool {
        let quotes = (0..data.len()).filter(|at| data[*at] == b'"');
        quotes.into_iter().any(|quote| tells(data, quote))
    }

    #[test]
    fn a_key_is_found_wherever_the_blocks_cut_it() {
        for key in [
            "\"usage\"",
            "\"actual_usage\"",
            "\"finish_reason\"",
            "\"timings\"",
            "\"choices\"",
            "\"reason\"",
            "usage",
        ] {
            for value in [":{", " : \"", ":null", ":\"x\"", ":1", ""] {
                for length in 0..140 {
                    let text = format!("{}{key}{value}", "x".repeat(length));
                    for text in [text.clone(), format!("{text}{}", "y".repeat(70))] {
                        let data = text.as_bytes();
                        assert_eq!(is_telling(data), naive(data), "{text}");
                    }
                }
            }
        }
        assert!(is_telling(b"{\"usage\":{\"prompt_tokens\":1}}"));
        assert!(!is_telling(b"{\"finish_reason\":null,\"usage\":null}"));
    }
}
