//! Measures how long a peer has given no first byte while requests waited for one.
//!
//! The peer is judged, not a single request. The waiting time of a client that gives up still
//! counts, and the first byte of any successful answer clears it. Streams and whole answers are
//! compared with their own kind, because the first byte of a whole answer comes after its last
//! token.

use std::time::{Duration, Instant};

use crate::window::window_number;

/// The kind of answer that a request waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnswerKind {
    /// A generated stream: the first byte comes with the first token.
    #[default]
    Stream,
    /// A generated answer in one piece.
    Whole,
    /// A model list, a health check, or a held-back unit: no evidence about generation.
    Other,
}

/// One kind of answer of one peer.
#[derive(Clone, Copy, Debug, Default)]
struct Waits {
    /// Requests that wait for their first byte.
    waiting: u32,
    /// Start of the current period in which requests have waited without interruption and without a
    /// first byte.
    since: Option<Instant>,
    /// Waiting time since the last first byte, from requests that ended without one.
    gathered: Duration,
    longest: LongestWait,
}

/// The silence of one peer, by kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Silence {
    stream: Waits,
    whole: Waits,
    /// Requests that waited for at least [`VAIN_WAIT`] and ended without a first byte, since the
    /// last first byte.
    in_vain: u32,
    /// Time of the last first byte.
    last_answer: Option<Instant>,
}

/// A request that ends earlier without a first byte says more about its client than about the peer.
pub(super) const VAIN_WAIT: Duration = Duration::from_secs(5);

impl Silence {
    pub(super) const KINDS: [AnswerKind; 2] = [AnswerKind::Stream, AnswerKind::Whole];

    fn of(&self, kind: AnswerKind) -> Option<&Waits> {
        match kind {
            AnswerKind::Stream => Some(&self.stream),
            AnswerKind::Whole => Some(&self.whole),
            AnswerKind::Other => None,
        }
    }

    fn of_mut(&mut self, kind: AnswerKind) -> Option<&mut Waits> {
        match kind {
            AnswerKind::Stream => Some(&mut self.stream),
            AnswerKind::Whole => Some(&mut self.whole),
            AnswerKind::Other => None,
        }
    }

    /// Records that a request begins to wait.
    pub(super) fn begin(&mut self, kind: AnswerKind, now: Instant) {
        if let Some(waits) = self.of_mut(kind) {
            waits.waiting += 1;
            waits.since.get_or_insert(now);
        }
    }

    /// Records that a request stops waiting without a first byte, after `waited`.
    pub(super) fn leave(&mut self, kind: AnswerKind, waited: Duration, now: Instant) {
        let Some(waits) = self.of_mut(kind) else {
            return;
        };
        waits.waiting = waits.waiting.saturating_sub(1);
        if waits.waiting == 0
            && let Some(since) = waits.since.take()
        {
            waits.gathered += now.saturating_duration_since(since);
        }
        if waited >= VAIN_WAIT {
            self.in_vain = self.in_vain.saturating_add(1);
        }
    }

    /// Records that a request got its first byte after `waited`.
    pub(super) fn answer(
        &mut self,
        kind: AnswerKind,
        waited: Duration,
        epoch: Instant,
        now: Instant,
    ) {
        if let Some(waits) = self.of_mut(kind) {
            waits.waiting = waits.waiting.saturating_sub(1);
            waits.longest.record(waited, epoch, now);
            self.last_answer = Some(now);
            self.forget(now);
        }
    }

    /// Restarts the measurement.
    pub(super) fn forget(&mut self, now: Instant) {
        for waits in [&mut self.stream, &mut self.whole] {
            waits.gathered = Duration::ZERO;
            waits.since = (waits.waiting > 0).then_some(now);
        }
        self.in_vain = 0;
    }

    /// Number of requests that wait, or waited in vain since the last first byte.
    pub(super) fn affected(&self) -> u32 {
        self.waiting().saturating_add(self.in_vain)
    }

    /// Time of the last first byte.
    pub(super) fn last_answer(&self) -> Option<Instant> {
        self.last_answer
    }

    /// Number of requests that wait for their first byte.
    pub(super) fn waiting(&self) -> u32 {
        self.stream.waiting + self.whole.waiting
    }

    /// How long requests of a kind have waited without a first byte.
    pub(super) fn lasts(&self, kind: AnswerKind, now: Instant) -> Duration {
        let waits = self.of(kind).copied().unwrap_or_default();
        let current = waits
            .since
            .map(|since| now.saturating_duration_since(since));
        waits.gathered + current.unwrap_or_default()
    }

    /// Whether requests wait, or have waited in vain since the last first byte.
    pub(super) fn lasts_at_all(&self) -> bool {
        let waits = [self.stream, self.whole];
        waits
            .iter()
            .any(|waits| waits.since.is_some() || !waits.gathered.is_zero())
    }

    /// The longest recent wait for a first byte, by kind.
    pub(super) fn longest(&self, kind: AnswerKind, epoch: Instant, now: Instant) -> Duration {
        self.of(kind)
            .map_or(Duration::ZERO, |waits| waits.longest.get(epoch, now))
    }
}

const MINUTES: usize = 10;
const MINUTE: Duration = Duration::from_secs(60);

/// The longest wait of each of the last ten minutes.
#[derive(Clone, Copy, Debug, Default)]
struct LongestWait {
    /// By minute modulo [`MINUTES`].
    by_minute: [Duration; MINUTES],
    newest: u64,
}

impl LongestWait {
    fn record(&mut self, waited: Duration, epoch: Instant, now: Instant) {
        let minute = window_number(epoch, MINUTE, now).max(self.newest);
        for passed in (self.newest + 1..=minute).rev().take(MINUTES) {
            self.by_minute[(passed % MINUTES as u64) as usize] = Duration::ZERO;
        }
        self.newest = minute;
        let longest = &mut self.by_minute[(minute % MINUTES as u64) as usize];
        *longest = waited.max(*longest);
    }

    fn get(&self, epoch: Instant, now: Instant) -> Duration {
        let passed = window_number(epoch, MINUTE, now).saturating_sub(self.newest);
        let kept = (MINUTES as u64).saturating_sub(passed);
        let minutes = (0..kept).filter_map(|back| self.newest.checked_sub(back));
        let waits = minutes.map(|minute| self.by_minute[(minute % MINUTES as u64) as usize]);
        waits.max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::start;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn waiting_adds_up_over_clients_that_give_up() {
        let (mut silence, now) = (Silence::default(), start());
        for request in 0..14 {
            let begins = now + SECOND * 10 * request;
            silence.begin(AnswerKind::Stream, begins);
            silence.leave(AnswerKind::Stream, SECOND * 6, begins + SECOND * 6);
        }
        let end = now + SECOND * 200;
        assert_eq!(silence.lasts(AnswerKind::Stream, end), SECOND * 84);
        assert_eq!(silence.lasts(AnswerKind::Whole, end), Duration::ZERO);
        assert_eq!((silence.waiting(), silence.affected()), (0, 14));
    }

    #[test]
    fn a_first_byte_of_any_kind_clears_the_silence_of_all() {
        let (mut silence, now) = (Silence::default(), start());
        silence.begin(AnswerKind::Stream, now);
        silence.begin(AnswerKind::Stream, now);
        silence.begin(AnswerKind::Whole, now);
        silence.answer(AnswerKind::Whole, SECOND * 9, now, now + SECOND * 9);
        let later = now + SECOND * 12;
        assert_eq!(silence.lasts(AnswerKind::Stream, later), SECOND * 3);
        assert_eq!(silence.longest(AnswerKind::Whole, now, later), SECOND * 9);
        assert_eq!(silence.waiting(), 2);
    }

    #[test]
    fn requests_that_do_not_generate_neither_wait_nor_answer() {
        let (mut silence, now) = (Silence::default(), start());
        silence.begin(AnswerKind::Stream, now);
        silence.begin(AnswerKind::Other, now);
        silence.answer(AnswerKind::Other, SECOND, now, now + SECOND);
        assert_eq!(silence.lasts(AnswerKind::Stream, now + SECOND), SECOND);
    }

    #[test]
    fn long_waits_are_forgotten_after_ten_minutes() {
        let (mut silence, now) = (Silence::default(), start());
        silence.begin(AnswerKind::Stream, now);
        silence.answer(AnswerKind::Stream, SECOND * 40, now, now + SECOND * 40);
        let longest = |minute| silence.longest(AnswerKind::Stream, now, now + MINUTE * minute);
        assert_eq!((longest(1), longest(9)), (SECOND * 40, SECOND * 40));
        assert_eq!(
            (longest(10), longest(500)),
            (Duration::ZERO, Duration::ZERO)
        );
    }
}
