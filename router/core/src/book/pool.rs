//! The state of one pool that survives reloads.

use std::time::{Duration, Instant};

use crate::admission::RETRY_AFTER_S_MAX;
use crate::admission::probe::ProbeWindow;
use crate::affinity::prefix::Prefixes;
use crate::affinity::sticky::Sessions;
use crate::affinity::warm::WarmSessions;
use crate::layered::Override;
use crate::pool::ByRole;
use crate::signal::Signal;
use crate::window::{Meter, window_number};

/// State of one pool.
#[derive(Debug, Default)]
pub(super) struct PoolState {
    /// Turns that the balance policy has taken so far.
    pub(super) turn: u64,
    /// The peer of each session.
    pub(super) sessions: ByRole<Sessions>,
    /// Sessions seen on their home peer, where no session table exists.
    pub(super) warm: WarmSessions,
    /// The peer that computed each prefix last.
    pub(super) prefixes: Prefixes,
    pub(super) ttft: SignalLedger,
    pub(super) tps: SignalLedger,
    /// `session_prio`: turn 1 is held out.
    pub(super) is_held: bool,
    pub(super) adaptive: Adaptive,
    pub(super) average: Average,
    pub(super) drain: Drain,
}

impl PoolState {
    pub(super) fn signal(&self, signal: Signal) -> &SignalLedger {
        match signal {
            Signal::Ttft => &self.ttft,
            Signal::Tps => &self.tps,
        }
    }

    pub(super) fn signal_mut(&mut self, signal: Signal) -> &mut SignalLedger {
        match signal {
            Signal::Ttft => &mut self.ttft,
            Signal::Tps => &mut self.tps,
        }
    }
}

/// One signal of one pool.
#[derive(Debug, Default)]
pub(super) struct SignalLedger {
    pub(super) meter: Meter,
    pub(super) probes: ProbeWindow,
    /// A limit set on the running router for this pool.
    pub(super) runtime: Override<f64>,
    /// Number of 2xx replies without readable usage.
    pub(super) no_usage: u64,
    /// Number of streams that the client left before usage was seen.
    pub(super) aborted: u64,
}

/// The adaptive limit and the refused demand.
#[derive(Debug, Default)]
pub(super) struct Adaptive {
    /// The limit with the end of its lifetime; `None` as the end means for ever.
    stored: Option<(f64, Option<Instant>)>,
    /// Number of refusals for concurrency, and the time of the last one.
    refused: Option<(u64, Instant)>,
    /// When the next tick is due; `None` before the first look at the clock.
    pub(super) due: Option<Instant>,
}

impl Adaptive {
    /// The stored limit, unless it has expired.
    pub(super) fn stored(&self, now: Instant) -> Option<f64> {
        let (limit, until) = self.stored?;
        until.is_none_or(|until| now < until).then_some(limit)
    }

    /// Stores a limit for `ttl`, or for ever.
    pub(super) fn store(&mut self, limit: f64, ttl: Option<Duration>, now: Instant) {
        self.stored = Some((limit, ttl.and_then(|ttl| now.checked_add(ttl))));
    }

    /// Refusals that no tick has used; 0 once `life` has passed since the last one.
    pub(super) fn refused(&self, life: Duration, now: Instant) -> u64 {
        let fresh = |(_, last): &(u64, Instant)| now.saturating_duration_since(*last) < life;
        self.refused.filter(fresh).map_or(0, |(count, _)| count)
    }

    pub(super) fn refuse(&mut self, life: Duration, now: Instant) {
        self.refused = Some((self.refused(life, now) + 1, now));
    }

    pub(super) fn use_up_refused(&mut self) {
        self.refused = None;
    }
}

/// Slots of the moving average.
const SLOTS: usize = 10;

/// Lifetime of a slot.
const SLOT_LIFE: Duration = Duration::from_secs(360);

/// In-flight, sampled once per interval: the mean of the last ten samples.
#[derive(Debug, Default)]
pub(super) struct Average {
    /// By interval number modulo [`SLOTS`].
    slots: [Option<(u64, Instant)>; SLOTS],
    /// Number of the interval sampled last, or of the first interval seen.
    last: Option<u64>,
}

impl Average {
    /// Takes a sample, unless the interval of `now` already has one or is the first.
    pub(super) fn sample(&mut self, in_flight: u64, epoch: Instant, every: Duration, now: Instant) {
        let number = window_number(epoch, every, now);
        let last = *self.last.get_or_insert(number);
        if number > last {
            self.slots[slot(number)] = Some((in_flight, now));
        }
        // A reload may have made the intervals longer, and so their numbers smaller.
        self.last = Some(number);
    }

    /// The slots that have not expired, by number.
    pub(super) fn slots(&self, now: Instant) -> impl Iterator<Item = (u32, u64)> {
        let fresh = move |at: &Instant| now.saturating_duration_since(*at) < SLOT_LIFE;
        let slots = (0..).zip(&self.slots);
        slots.filter_map(move |(number, slot)| {
            let (in_flight, at) = slot.as_ref()?;
            fresh(at).then_some((number, *in_flight))
        })
    }

    /// The mean of the slots that have not expired; 0 without any.
    pub(super) fn mean(&self, now: Instant) -> f64 {
        let (count, sum) = self
            .slots(now)
            .fold((0_u32, 0_u64), |(count, sum), (_, in_flight)| {
                (count + 1, sum + in_flight)
            });
        if count == 0 {
            0.0
        } else {
            sum as f64 / f64::from(count)
        }
    }
}

/// The slot of an interval.
pub(super) fn slot(number: u64) -> usize {
    (number % SLOTS as u64) as usize
}

/// Steps of the drain rate.
const STEPS: usize = 16;

/// Length of one step. Sixteen steps cover about half a minute, which is short compared with an
/// overload and long compared with most replies.
const STEP: Duration = Duration::from_secs(2);

/// How fast requests of a pool end. This tells when room can be expected.
#[derive(Debug, Default)]
pub(super) struct Drain {
    running: u32,
    /// Start of the observation: the pool's first request after a time without any ended request.
    since: Option<Instant>,
    /// Ended requests by step number modulo [`STEPS`].
    ended: [u32; STEPS],
    /// The newest step in `ended`.
    newest: u64,
}

impl Drain {
    pub(super) fn start(&mut self, epoch: Instant, now: Instant) {
        if self.running == 0 && self.recently(epoch, now) == 0 {
            self.since = Some(now);
        }
        self.running += 1;
    }

    pub(super) fn end(&mut self, epoch: Instant, now: Instant) {
        self.running -= 1;
        let number = window_number(epoch, STEP, now);
        let skipped = number.saturating_sub(self.newest).min(STEPS as u64);
        for step in 0..skipped {
            self.ended[((number - step) % STEPS as u64) as usize] = 0;
        }
        self.newest = self.newest.max(number);
        let step = &mut self.ended[(number % STEPS as u64) as usize];
        *step = step.saturating_add(1);
    }

    pub(super) fn running(&self) -> u32 {
        self.running
    }

    /// Seconds until `wanted` requests will have ended, 1 to [`RETRY_AFTER_S_MAX`]. By the rule of
    /// succession it counts one more end than was seen. So a pool that was just filled returns 1,
    /// and one that frees nothing returns the time it was observed.
    pub(super) fn wait_s(&self, wanted: u64, epoch: Instant, now: Instant) -> u64 {
        let watched = self.since.map_or(Duration::ZERO, |since| {
            now.saturating_duration_since(since)
                .min(STEP * STEPS as u32)
        });
        let ends = self.recently(epoch, now) as f64 + 1.0;
        let wait = wanted as f64 * watched.as_secs_f64() / ends;
        (wait.ceil() as u64).clamp(1, RETRY_AFTER_S_MAX)
    }

    /// Ended requests in the last [`STEPS`] steps.
    fn recently(&self, epoch: Instant, now: Instant) -> u64 {
        let number = window_number(epoch, STEP, now);
        // Steps since the newest end are empty, whatever their places still hold.
        let passed = number.saturating_sub(self.newest);
        let kept = (STEPS as u64).saturating_sub(passed);
        (0..kept)
            .filter_map(|back| self.newest.checked_sub(back))
            .map(|step| u64::from(self.ended[(step % STEPS as u64) as usize]))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::start;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_pool_just_filled_asks_for_a_second() {
        let (epoch, mut drain) = (start(), Drain::default());
        let now = epoch + SECOND * 3_600;
        drain.start(epoch, now);
        assert_eq!(drain.wait_s(1, epoch, now), 1);
        assert_eq!(
            drain.wait_s(1, epoch, now + SECOND * 9),
            9,
            "nothing has ended for 9 s"
        );
        assert_eq!(
            drain.wait_s(100, epoch, now + SECOND * 9),
            RETRY_AFTER_S_MAX
        );
    }

    #[test]
    fn the_wait_follows_the_rate_at_which_requests_end() {
        let (epoch, mut drain) = (start(), Drain::default());
        (0..200).for_each(|_| drain.start(epoch, epoch));
        for second in 1..=30 {
            (0..3).for_each(|_| drain.end(epoch, epoch + SECOND * second));
        }
        let now = epoch + SECOND * 30;
        assert_eq!(drain.wait_s(1, epoch, now), 1);
        assert_eq!(drain.wait_s(30, epoch, now), 10, "about three a second");
        let later = now + SECOND * 60;
        assert_eq!(drain.wait_s(1, epoch, later), 32, "old ends are forgotten");
        assert_eq!(drain.running(), 110);
    }

    #[test]
    fn the_average_is_of_ten_slots_and_forgets() {
        let (epoch, every, mut average) = (start(), SECOND * 30, Average::default());
        average.sample(99, epoch, every, epoch);
        assert_eq!(
            average.mean(epoch),
            0.0,
            "the first sample comes after one interval"
        );
        for (number, in_flight) in [(1, 9), (2, 11), (3, 7)] {
            let now = epoch + every * number;
            average.sample(in_flight, epoch, every, now);
            average.sample(1_000, epoch, every, now + SECOND);
        }
        let now = epoch + SECOND * 91;
        assert_eq!(
            average.slots(now).collect::<Vec<_>>(),
            [(1, 9), (2, 11), (3, 7)]
        );
        assert_eq!(average.mean(now), 9.0);
        assert_eq!(
            average.mean(epoch + SECOND * 421),
            7.0,
            "a slot lives six minutes"
        );
    }
}
