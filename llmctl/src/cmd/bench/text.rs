//! Prompts of a wanted length. A token is about one of these words, for every tokenizer in use;
//! what the engine counted is in the report.

use rand::{Rng, RngExt as _};

const WORDS: [&str; 64] = [
    "the", "of", "and", "to", "in", "is", "that", "for", "it", "as", "with", "on", "by", "this",
    "are", "from", "at", "an", "or", "be", "which", "we", "can", "if", "time", "data", "code",
    "test", "file", "line", "name", "value", "type", "list", "call", "error", "user", "model",
    "server", "request", "answer", "token", "cache", "engine", "queue", "index", "batch", "first",
    "last", "next", "open", "close", "read", "write", "start", "end", "more", "less", "new", "old",
    "set", "get", "run", "stop",
];

/// About `tokens` tokens of text, with line breaks as prose has them.
pub(super) fn words(tokens: usize, random: &mut impl Rng) -> String {
    let mut text = String::with_capacity(tokens * 6);
    for at in 0..tokens {
        if at > 0 {
            text.push(if at % 14 == 0 { '\n' } else { ' ' });
        }
        text.push_str(WORDS[random.random_range(0..WORDS.len())]);
    }
    text
}
