//! When a peer is polled next.

use std::time::Duration;

use rand::{Rng, RngExt};
use tokio::time::Instant;

/// Polls come at a fixed pace. Where many begin at once, as at a start and after a reload, each takes a
/// place of its own within the interval.
#[derive(Debug)]
pub(super) struct Pace {
    /// Where in the interval its polls stand: the tick of the last one.
    last: Instant,
    interval: Duration,
}

impl Pace {
    /// The first poll is over. The second one comes within an interval, at any time of it.
    pub(super) fn begin(interval: Duration, rng: &mut impl Rng) -> Self {
        Self::anywhere(interval, Instant::now(), rng)
    }

    fn anywhere(interval: Duration, now: Instant, rng: &mut impl Rng) -> Self {
        // A tick that nobody saw: the next one is less than an interval away.
        let since = interval.mul_f64(rng.random::<f64>());
        Self {
            last: now.checked_sub(since).unwrap_or(now),
            interval,
        }
    }

    /// The next tick. The interval may be another one than before: it counts from the last poll.
    pub(super) fn due(&self, interval: Duration) -> Instant {
        self.last + interval
    }

    /// A poll is over that was due by this interval. Ticks that passed meanwhile are skipped.
    pub(super) fn polled(&mut self, interval: Duration, rng: &mut impl Rng) {
        let (due, now) = (self.due(interval), Instant::now());
        *self = if self.interval != interval {
            // A reload: the others changed theirs in the same moment.
            Self::anywhere(interval, now, rng)
        } else if due + interval > now {
            Self {
                last: due,
                interval,
            }
        } else {
            Self {
                last: now,
                interval,
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const HOUR: Duration = Duration::from_secs(3600);

    fn rng(seed: u64) -> StdRng {
        StdRng::seed_from_u64(seed)
    }

    /// To the nanosecond, unlike a sleep.
    async fn until(due: Instant) {
        tokio::time::advance(due.duration_since(Instant::now())).await;
    }

    #[tokio::test(start_paused = true)]
    async fn polls_that_began_at_once_are_spread_over_the_interval() {
        // Also those that a reload made hurry in the same moment.
        for before in [SECOND, HOUR] {
            let mut tenths = [0; 10];
            for seed in 0..1000 {
                let mut rng = rng(seed);
                let mut pace = Pace::begin(before, &mut rng);
                if before == HOUR {
                    tokio::time::advance(SECOND).await;
                    pace.polled(SECOND, &mut rng);
                }
                let wait = pace.due(SECOND).duration_since(Instant::now());
                assert!(wait <= SECOND);
                tenths[(wait.as_millis() / 100).min(9) as usize] += 1;
            }
            assert!(tenths.iter().all(|tenth| *tenth > 50), "{tenths:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pace_is_fixed_and_ticks_that_a_slow_poll_missed_are_skipped() {
        let mut rng = rng(1);
        let mut pace = Pace::begin(SECOND, &mut rng);
        for (took, wait) in [(0, 1000), (300, 700), (999, 1), (1000, 1000), (5000, 1000)] {
            until(pace.due(SECOND)).await;
            tokio::time::advance(Duration::from_millis(took)).await;
            pace.polled(SECOND, &mut rng);
            let wait = Duration::from_millis(wait);
            assert_eq!(pace.due(SECOND).duration_since(Instant::now()), wait);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn another_interval_counts_from_the_last_poll() {
        let mut rng = rng(1);
        let mut pace = Pace::begin(HOUR, &mut rng);
        until(pace.due(HOUR)).await;
        pace.polled(HOUR, &mut rng);
        let polled = Instant::now();
        tokio::time::advance(SECOND).await;
        assert_eq!(pace.due(10 * SECOND), polled + 10 * SECOND);
        assert_eq!(pace.due(2 * HOUR), polled + 2 * HOUR);
    }
}
