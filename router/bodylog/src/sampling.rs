//! Decides which exchanges are recorded. The draw is made when a request arrives; errors and
//! truncated or slow answers are recorded regardless of the draw.
//!
//! For a request that was not drawn, the capture keeps the body by reference and a small part of
//! the answer ([`Caps::GLANCE`](super::tap::Caps::GLANCE)): a few kilobytes copied, no encoding. If
//! the status alone decides that an answer is recorded, the answer is kept in full from its first
//! byte.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const PPM: u64 = 1_000_000;

/// The result of a draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Draw {
    /// Everything is recorded.
    All,
    /// The request is part of the share.
    Rate,
    /// The request is not part of the share.
    Out,
}

/// The reason an exchange is recorded, the value of `sampled_by`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SampledBy {
    /// All exchanges are recorded.
    All,
    /// The draw selected it.
    Rate,
    /// Status 500 or above.
    Error,
    /// It was slow.
    Slow,
    /// A success that ended before it was complete.
    Truncated,
}

impl SampledBy {
    /// The value in the record.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Rate => "rate",
            Self::Error => "error",
            Self::Slow => "slow",
            Self::Truncated => "truncated",
        }
    }
}

/// The outcome of an exchange, as far as sampling needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// The status sent to the client.
    pub status: u16,
    /// Time from arrival to the last byte.
    pub took: Duration,
    /// The peer's answer was a success but was aborted or ended before it was complete. A client
    /// that disconnects does not count.
    pub is_truncated: bool,
}

impl Draw {
    /// Whether an exchange is recorded, and why. `slow` is the duration from which an exchange
    /// counts as slow.
    pub(crate) fn decide(self, outcome: Outcome, slow: Option<Duration>) -> Option<SampledBy> {
        match self {
            Self::All => Some(SampledBy::All),
            Self::Rate => Some(SampledBy::Rate),
            Self::Out if outcome.status >= 500 => Some(SampledBy::Error),
            Self::Out if outcome.is_truncated => Some(SampledBy::Truncated),
            Self::Out if slow.is_some_and(|slow| outcome.took > slow) => Some(SampledBy::Slow),
            Self::Out => None,
        }
    }
}

/// Makes the draws. One instance per process; a draw is one atomic addition.
#[derive(Debug)]
pub(crate) struct Sampler {
    state: AtomicU64,
}

impl Sampler {
    /// Creates a sampler with an arbitrary starting point.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            state: AtomicU64::new(seed),
        }
    }

    /// Draws for a share in percent, with a resolution of one millionth of the whole.
    pub(crate) fn draw(&self, pct: f64) -> Draw {
        if pct >= 100.0 {
            return Draw::All;
        }
        let share = (pct / 100.0 * PPM as f64).round() as u64;
        // Multiplication instead of division: just as uniform, and cheaper.
        let drawn = (u128::from(self.random()) * u128::from(PPM)) >> 64;
        if drawn < u128::from(share) {
            Draw::Rate
        } else {
            Draw::Out
        }
    }

    /// SplitMix64 (Steele, Lea and Flood 2014). Any number of threads may draw from one counter.
    fn random(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.state.fetch_add(STEP, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(pct: f64, draws: u32) -> f64 {
        let sampler = Sampler::new(42);
        let drawn = (0..draws)
            .filter(|_| sampler.draw(pct) != Draw::Out)
            .count();
        drawn as f64 / f64::from(draws) * 100.0
    }

    #[test]
    fn the_share_is_kept_fractions_included() {
        assert!((share(30.0, 100_000) - 30.0).abs() < 1.0);
        assert!((share(0.5, 1_000_000) - 0.5).abs() < 0.05);
        assert_eq!((share(0.0, 10_000), share(100.0, 10_000)), (0.0, 100.0));
    }

    #[test]
    fn errors_truncated_and_slow_ones_are_recorded_whatever_the_draw_said() {
        let slow = Some(Duration::from_secs(60));
        let outcome = |status, seconds, is_truncated| Outcome {
            status,
            took: Duration::from_secs(seconds),
            is_truncated,
        };
        for (outcome, expected) in [
            (outcome(200, 60, false), None),
            (outcome(429, 1, false), None),
            (outcome(499, 1, false), None),
            (outcome(500, 1, false), Some(SampledBy::Error)),
            (outcome(503, 99, true), Some(SampledBy::Error)),
            (outcome(200, 1, true), Some(SampledBy::Truncated)),
            (outcome(200, 61, false), Some(SampledBy::Slow)),
        ] {
            assert_eq!(Draw::Out.decide(outcome, slow), expected, "{outcome:?}");
        }
        assert_eq!(Draw::Out.decide(outcome(200, 999, false), None), None);
        assert_eq!(
            Draw::Rate.decide(outcome(500, 1, false), slow),
            Some(SampledBy::Rate)
        );
        assert_eq!(
            Draw::All.decide(outcome(500, 1, false), slow),
            Some(SampledBy::All)
        );
    }
}
