//! Counts the attempts that ended within a sliding window, and the failures among them.

use std::time::{Duration, Instant};

use crate::window::window_number;

const STEPS: usize = 10;

/// A window of ten steps; the oldest step leaves as a whole.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FailureWindow {
    /// By step number modulo [`STEPS`].
    steps: [Step; STEPS],
    /// Number of the newest step.
    newest: u64,
    /// Start of the step numbers: the first ended attempt.
    epoch: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Step {
    ended: u32,
    failed: u32,
}

impl FailureWindow {
    /// Records the end of one attempt.
    pub(super) fn add(&mut self, failed: bool, window: Duration, now: Instant) {
        self.forget_old(window, now);
        let step = &mut self.steps[(self.newest % STEPS as u64) as usize];
        step.ended = step.ended.saturating_add(1);
        step.failed = step.failed.saturating_add(u32::from(failed));
    }

    /// Failed and ended attempts within the window.
    pub(super) fn counts(&self) -> (u32, u32) {
        let sum = |(failed, ended): (u32, u32), step: &Step| {
            (
                failed.saturating_add(step.failed),
                ended.saturating_add(step.ended),
            )
        };
        self.steps.iter().fold((0, 0), sum)
    }

    fn forget_old(&mut self, window: Duration, now: Instant) {
        let epoch = *self.epoch.get_or_insert(now);
        // A reload that changes the window changes the step numbers too. Kept steps count with the
        // old length until they leave.
        let number = window_number(epoch, window / STEPS as u32, now);
        if number < self.newest {
            *self = Self::default();
            self.epoch = Some(now);
            return;
        }
        for step in (self.newest + 1..=number).rev().take(STEPS) {
            self.steps[(step % STEPS as u64) as usize] = Step::default();
        }
        self.newest = number;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::start;

    const WINDOW: Duration = Duration::from_secs(30);
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn ends_leave_with_their_step() {
        let (mut window, now) = (FailureWindow::default(), start());
        window.add(true, WINDOW, now);
        window.add(false, WINDOW, now + SECOND * 14);
        assert_eq!(window.counts(), (1, 2));
        window.add(false, WINDOW, now + SECOND * 29);
        assert_eq!(window.counts(), (1, 3));
        window.add(true, WINDOW, now + SECOND * 30);
        assert_eq!(window.counts(), (1, 3), "the first one has left");
        window.add(true, WINDOW, now + SECOND * 3_600);
        assert_eq!(window.counts(), (1, 1));
    }

    #[test]
    fn a_window_that_a_reload_makes_longer_starts_anew() {
        let (mut window, now) = (FailureWindow::default(), start());
        window.add(true, SECOND, now + SECOND);
        window.add(true, SECOND, now + SECOND * 100);
        window.add(true, SECOND * 3_600, now + SECOND * 101);
        assert!(window.counts().1 <= 1);
    }
}
