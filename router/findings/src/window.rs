//! Counts over the last five minutes, in slots of five seconds.

use std::time::{Duration, Instant};

/// How far back a window reaches.
pub const SPAN: Duration = Duration::from_secs(300);

pub(crate) const SLOT: Duration = Duration::from_secs(5);
const SLOTS: usize = 60;

/// A moment and its slot. Created once per event, so that all counts of the event agree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub(crate) now: Instant,
    slot: u64,
}

impl At {
    /// `epoch` is when counting began. A clock that stands still or steps back counts in slot 0.
    pub(crate) fn new(epoch: Instant, now: Instant) -> Self {
        let slot = now.saturating_duration_since(epoch).as_secs() / SLOT.as_secs();
        Self { now, slot }
    }
}

/// Events of one kind.
#[derive(Clone, Debug)]
pub(crate) struct Count {
    slots: [u32; SLOTS],
    newest: u64,
    /// First event since the window was last empty.
    since: Option<Instant>,
    last: Option<Instant>,
}

impl Default for Count {
    fn default() -> Self {
        Self {
            slots: [0; SLOTS],
            newest: 0,
            since: None,
            last: None,
        }
    }
}

impl Count {
    /// Counts `n` events.
    pub(crate) fn add(&mut self, at: At, n: u32) {
        self.advance(at.slot);
        let newest = index(self.newest);
        // While events come in, their own slot answers.
        if self.slots[newest] == 0 && self.slots.iter().all(|slot| *slot == 0) {
            self.since = Some(at.now);
        }
        self.last = Some(at.now);
        self.slots[newest] = self.slots[newest].saturating_add(n);
    }

    /// Events in the last `span`, at most [`SPAN`]. A slot that began before the span counts
    /// completely.
    pub(crate) fn sum(&self, at: At, span: Duration) -> u64 {
        let slots = (span.min(SPAN).as_secs() / SLOT.as_secs()).max(1);
        let oldest = (at.slot + 1).saturating_sub(slots);
        let from = oldest.max((self.newest + 1).saturating_sub(SLOTS as u64));
        (from..=self.newest.min(at.slot))
            .map(|slot| u64::from(self.slots[index(slot)]))
            .sum()
    }

    /// When the events of this window began.
    pub(crate) fn since(&self, at: At) -> Option<Instant> {
        self.since.filter(|_| self.sum(at, SPAN) > 0)
    }

    /// When the last event happened.
    pub(crate) fn last(&self) -> Option<Instant> {
        self.last
    }

    fn advance(&mut self, slot: u64) {
        if slot <= self.newest {
            return;
        }
        if slot - self.newest >= SLOTS as u64 {
            self.slots = [0; SLOTS];
        } else {
            for passed in self.newest + 1..=slot {
                self.slots[index(passed)] = 0;
            }
        }
        self.newest = slot;
    }
}

fn index(slot: u64) -> usize {
    (slot % SLOTS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(epoch: Instant, seconds: u64) -> At {
        At::new(epoch, epoch + Duration::from_secs(seconds))
    }

    #[test]
    fn events_leave_the_window_after_its_span() {
        let epoch = Instant::now();
        let mut count = Count::default();
        count.add(after(epoch, 0), 3);
        count.add(after(epoch, 100), 4);
        let sum = |second, span| count.sum(after(epoch, second), Duration::from_secs(span));
        assert_eq!(sum(100, 300), 7);
        assert_eq!(sum(100, 60), 4);
        assert_eq!(sum(299, 300), 7);
        assert_eq!(sum(300, 300), 4);
        assert_eq!(sum(400, 300), 0);
        assert_eq!(sum(10_000, 300), 0);
    }

    #[test]
    fn a_long_pause_empties_every_slot() {
        let epoch = Instant::now();
        let mut count = Count::default();
        count.add(after(epoch, 0), 9);
        count.add(after(epoch, 5_000), 1);
        assert_eq!(count.sum(after(epoch, 5_000), SPAN), 1);
    }

    #[test]
    fn since_is_the_first_event_after_the_window_was_empty() {
        let epoch = Instant::now();
        let mut count = Count::default();
        count.add(after(epoch, 0), 1);
        count.add(after(epoch, 200), 1);
        assert_eq!(count.since(after(epoch, 250)), Some(epoch));
        count.add(after(epoch, 900), 1);
        let began = epoch + Duration::from_secs(900);
        assert_eq!(count.since(after(epoch, 901)), Some(began));
        assert_eq!(count.since(after(epoch, 2_000)), None);
    }

    #[test]
    fn a_clock_that_steps_back_counts_in_the_newest_slot() {
        let epoch = Instant::now();
        let mut count = Count::default();
        count.add(after(epoch, 100), 1);
        count.add(after(epoch, 50), 1);
        assert_eq!(count.sum(after(epoch, 100), SPAN), 2);
    }
}
