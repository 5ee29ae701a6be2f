//! The length of a reply.
//!
//! A natural length is drawn around a median from the seed and the prompt, so the same request has
//! the same length in every run. Lengths of real chats are skewed: many short replies, few long
//! ones. The distribution is log-normal in shape, and the reply ends with a whole sentence.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::text::SENTENCES;
use crate::tokens::Token;

/// Spread of the logarithm: about two thirds of the lengths lie between half and twice the median.
const SIGMA: f64 = 0.7;

/// The length of replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// As many tokens as the request allows, or this many when it sets no limit.
    Filled(usize),
    /// Each reply ends naturally; the value is the median in tokens. A request's limit may cut the
    /// reply short.
    Natural(usize),
}

/// The length of one reply, before the request's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drawn {
    /// Until the request's limit; without one, this number of tokens.
    Filled(usize),
    /// Ends after this number of tokens.
    Natural(usize),
}

impl Length {
    /// The same length setting, but replies continue until the limit.
    pub(crate) fn filled(self) -> Self {
        let (Self::Filled(tokens) | Self::Natural(tokens)) = self;
        Self::Filled(tokens)
    }

    /// The length of the reply to a prompt.
    pub(crate) fn of(self, seed: u64, prompt: &[Token]) -> Drawn {
        match self {
            Self::Filled(tokens) => Drawn::Filled(tokens),
            Self::Natural(median) => Drawn::Natural(natural(median, seed, prompt)),
        }
    }
}

fn natural(median: usize, seed: u64, prompt: &[Token]) -> usize {
    let bytes: Vec<u8> = prompt
        .iter()
        .flat_map(|token| token.to_le_bytes())
        .collect();
    let hash = xxh3_64_with_seed(&bytes, seed);
    // The sum of four uniform draws is close enough to normal; its variance is a third.
    let sum: f64 = hash.to_le_bytes().chunks(2).map(uniform).sum();
    let z = (sum - 2.0) * 3.0_f64.sqrt();
    #[expect(clippy::cast_precision_loss, reason = "a count of sentences")]
    let sentences = median as f64 / SENTENCES.len() as f64 * (z * SIGMA).exp();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive, and `as` saturates"
    )]
    let whole = sentences.round().max(1.0) as usize;
    whole.saturating_mul(SENTENCES.len())
}

/// Two bytes as a number between 0 and 1.
fn uniform(two: &[u8]) -> f64 {
    two.iter()
        .rev()
        .fold(0.0, |value, byte| (value + f64::from(*byte)) / 256.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(seed: u64) -> Vec<usize> {
        let draw = |n: Token| natural(145, seed, &[n, 1, 2]);
        (0..1000).map(draw).collect()
    }

    #[test]
    fn lengths_spread_around_the_median_and_end_with_a_sentence() {
        let mut drawn = lengths(7);
        assert!(drawn.iter().all(|n| *n > 0 && n % SENTENCES.len() == 0));
        drawn.sort_unstable();
        assert!((116..=174).contains(&drawn[500]), "median {}", drawn[500]);
        assert!(
            drawn[50] <= 58 && drawn[950] >= 348,
            "{} {}",
            drawn[50],
            drawn[950]
        );
    }

    #[test]
    fn the_same_seed_and_prompt_have_the_same_length() {
        assert_eq!(lengths(7), lengths(7));
        assert_ne!(lengths(7), lengths(8));
    }
}
