//! When to poll a peer next.

use std::time::Duration;

use rand::{Rng, RngExt};
use tokio::time::Instant;

/// Polls that are due at about the same time are moved to one instant, if the interval allows. The
/// process then wakes up once for several polls.
const STEP: Duration = Duration::from_millis(10);

/// Divisor: a poll may be late by this part of the interval to share a wake-up.
const LATE_MAX: u32 = 100;

/// Polls come at a fixed pace. When many begin at once, as after a start or a reload, each gets its
/// own random place within the interval.
#[derive(Debug)]
pub(super) struct Pace {
    /// The tick of the last poll, which fixes the place in the interval.
    last: Instant,
    interval: Duration,
    /// The origin from which every peer counts its steps.
    epoch: Instant,
}

impl Pace {
    /// Called after the first poll. The second poll comes at a random time within one interval.
    pub(super) fn begin(interval: Duration, epoch: Instant, rng: &mut impl Rng) -> Self {
        Self::anywhere(interval, epoch, rng)
    }

    fn anywhere(interval: Duration, epoch: Instant, rng: &mut impl Rng) -> Self {
        let now = Instant::now();
        // A virtual tick in the past, so that the next one is less than an interval away.
        let since = interval.mul_f64(rng.random::<f64>());
        Self {
            last: now.checked_sub(since).unwrap_or(now),
            interval,
            epoch,
        }
    }

    /// When to poll next. The interval may have changed; it counts from the last poll.
    pub(super) fn due(&self, interval: Duration) -> Instant {
        let step = STEP.min(interval / LATE_MAX).as_nanos();
        let since = self.tick(interval).duration_since(self.epoch);
        let late = match since.as_nanos().checked_rem(step) {
            None | Some(0) => 0,
            Some(over) => step - over,
        };
        // Less than one step.
        self.epoch + since + Duration::from_nanos(u64::try_from(late).unwrap_or(0))
    }

    fn tick(&self, interval: Duration) -> Instant {
        self.last + interval
    }

    /// Called after a poll that was due by this interval. Ticks that passed meanwhile are skipped.
    pub(super) fn polled(&mut self, interval: Duration, rng: &mut impl Rng) {
        let now = Instant::now();
        if self.interval != interval {
            // A reload changed the interval, and all peers notice it at the same moment.
            *self = Self::anywhere(interval, self.epoch, rng);
        } else if self.due(interval) + interval > now {
            self.last = self.tick(interval);
        } else {
            self.last = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const HOUR: Duration = Duration::from_secs(3600);

    fn rng(seed: u64) -> StdRng {
        StdRng::seed_from_u64(seed)
    }

    /// Advances the clock to the nanosecond, unlike a sleep.
    async fn until(due: Instant) {
        tokio::time::advance(due.duration_since(Instant::now())).await;
    }

    #[tokio::test(start_paused = true)]
    async fn polls_that_began_at_once_are_spread_over_the_interval() {
        let epoch = Instant::now();
        // This includes peers that a reload made due at the same moment.
        for before in [SECOND, HOUR] {
            let (mut tenths, mut moments) = ([0; 10], BTreeSet::new());
            for seed in 0..1000 {
                let mut rng = rng(seed);
                let mut pace = Pace::begin(before, epoch, &mut rng);
                if before == HOUR {
                    tokio::time::advance(SECOND).await;
                    pace.polled(SECOND, &mut rng);
                }
                let wait = pace.due(SECOND).duration_since(Instant::now());
                assert!(wait < SECOND + STEP);
                moments.insert(pace.due(SECOND));
                tenths[(wait.as_millis() / 100).min(9) as usize] += 1;
            }
            assert!(tenths.iter().all(|tenth| *tenth > 50), "{tenths:?}");
            if before == SECOND {
                assert!(
                    moments.len() <= 101,
                    "many share a moment: {}",
                    moments.len()
                );
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pace_is_fixed_and_ticks_that_a_slow_poll_missed_are_skipped() {
        let mut rng = rng(1);
        let mut pace = Pace::begin(SECOND, Instant::now(), &mut rng);
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
        let mut pace = Pace::begin(HOUR, Instant::now(), &mut rng);
        until(pace.due(HOUR)).await;
        pace.polled(HOUR, &mut rng);
        let polled = Instant::now();
        tokio::time::advance(SECOND).await;
        assert_eq!(pace.due(10 * SECOND), polled + 10 * SECOND);
        assert_eq!(pace.due(2 * HOUR), polled + 2 * HOUR);
    }
}
