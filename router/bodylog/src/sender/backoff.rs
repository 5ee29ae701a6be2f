//! Pauses between attempts to connect.

use std::time::Duration;

use rand::{Rng, RngExt};

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);

/// Doubling bounds with full jitter, so that routers that lost the same listener do not reconnect
/// all at once.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The pause before the next attempt.
    pub(super) fn next(&mut self, rng: &mut impl Rng) -> Duration {
        let bound = FIRST
            .saturating_mul(1 << self.failures.min(16))
            .min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        bound.mul_f64(rng.random::<f64>())
    }

    /// The longest pause, for an attempt that is unlikely to succeed sooner.
    pub(super) fn last(&mut self) {
        self.failures = 16;
    }

    /// Resets the pauses after a success.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    #[test]
    fn pauses_grow_to_their_bound_and_are_spread() {
        let mut rng = StdRng::seed_from_u64(7);
        let mut backoff = Backoff::default();
        let pauses: Vec<Duration> = (0..200).map(|_| backoff.next(&mut rng)).collect();
        assert!(pauses[0] <= FIRST && pauses[1] <= 2 * FIRST);
        assert!(pauses.iter().all(|pause| *pause <= LONGEST));
        let late = &pauses[20..];
        assert!(late.iter().any(|p| *p < LONGEST / 4) && late.iter().any(|p| *p > LONGEST / 4 * 3));
        backoff.reset();
        assert!(backoff.next(&mut rng) <= FIRST);
    }
}
