//! A cheap, deterministic tokeniser: converts text to token IDs, with the same result on every
//! machine and in every run.
//!
//! A token is a run of letters and digits (at most [`RUN_MAX`] characters) or one other visible
//! character, each with the single space before it. Other white space is a separate token. No text
//! can produce the tokens of chat markers, such as the start of a message. Each part of a
//! conversation is tokenised separately, so a reply that returns as history splits exactly as it
//! was generated, and the next turn hits the prefix cache.

use xxhash_rust::xxh3::xxh3_64;

/// Maximum length of a run of letters and digits in one token, in characters. Longer runs are
/// split, as by real vocabularies, so that an endless word is not one token.
pub(crate) const RUN_MAX: usize = 16;

/// One token id.
pub(crate) type Token = u32;

/// Splits a text into token texts whose concatenation is the text.
pub(crate) fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (piece, tail) = rest.split_at(piece_len(rest));
        rest = tail;
        Some(piece)
    })
}

/// The ID of one token text.
pub(crate) fn id(piece: &str) -> Token {
    fold(xxh3_64(piece.as_bytes()))
}

/// The ID of a chat marker; it differs from the ID of the same letters in a text.
pub(crate) fn marker(name: &str) -> Token {
    fold(xxhash_rust::xxh3::xxh3_64_with_seed(name.as_bytes(), 1))
}

/// Appends the tokens of a text.
pub(crate) fn extend(tokens: &mut Vec<Token>, text: &str) {
    tokens.extend(pieces(text).map(id));
}

fn fold(hash: u64) -> Token {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the low half of a hash is a hash"
    )]
    let low = hash as u32;
    low
}

/// Length in bytes of the first token of a text that is not empty.
fn piece_len(text: &str) -> usize {
    let mut chars = text.char_indices().peekable();
    if text.starts_with(' ') {
        chars.next();
    }
    match chars.peek().copied() {
        Some((start, first)) if first.is_alphanumeric() => text[start..]
            .char_indices()
            .take(RUN_MAX)
            .take_while(|(_, c)| c.is_alphanumeric())
            .last()
            .map_or(text.len(), |(at, c)| start + at + c.len_utf8()),
        Some((start, first)) if !first.is_whitespace() => start + first.len_utf8(),
        _ => white_len(text),
    }
}

/// Length of leading white space, without a last single space: that belongs to the word after it.
fn white_len(text: &str) -> usize {
    let end = text
        .find(|c: char| !c.is_whitespace())
        .unwrap_or(text.len());
    if end < text.len() && end > 1 && text[..end].ends_with(' ') {
        end - 1
    } else {
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str) -> Vec<&str> {
        pieces(text).collect()
    }

    #[test]
    fn words_carry_the_space_before_them_and_punctuation_stands_alone() {
        assert_eq!(
            cut("Hello, big  world!\n ok"),
            ["Hello", ",", " big", " ", " world", "!", "\n", " ok"]
        );
        assert_eq!(cut(" ("), [" ("]);
        assert_eq!(cut("  "), ["  "]);
        assert_eq!(cut("\u{a0}x"), ["\u{a0}", "x"]);
        assert_eq!(cut(""), [] as [&str; 0]);
    }

    #[test]
    fn a_long_run_is_split_and_nothing_is_lost() {
        let text = "é".repeat(40) + " 日本語 🙂\t\t x";
        assert_eq!(
            cut(&text)[..3]
                .iter()
                .map(|p| p.chars().count())
                .collect::<Vec<_>>(),
            [16, 16, 8]
        );
        assert_eq!(cut(&text).concat(), text);
    }

    #[test]
    fn a_marker_is_never_the_token_of_its_own_letters() {
        assert_ne!(marker("user"), id("user"));
    }
}
