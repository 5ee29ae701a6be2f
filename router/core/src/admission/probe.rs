//! Half-open probing: while a gate is tripped, a few requests pass in each probe window. Without
//! them the gate would have no measurements that show that the pool has recovered.

use std::time::Instant;

use super::refusal::Budget;

/// The probe slots taken in the current window of one gate of one pool.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProbeWindow {
    /// End of the window; `None` before the first probe.
    ends: Option<Instant>,
    /// Slots taken by all requests, or by warm requests only while `session_prio` is on.
    used: u32,
    /// Slots taken by turn 1 from its own budget.
    first: u32,
}

/// How many slots each budget has per window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// `*_probe_per_window`.
    pub shared: u32,
    /// `session_prio_t1_probes`.
    pub first: u32,
}

impl ProbeWindow {
    /// Slots that a budget has left at `now`. Turn 1 has none once a warm request has probed: the
    /// pool is being measured already, and warm requests lose most from a refusal.
    pub fn left(&self, budget: Budget, quota: Quota, now: Instant) -> u32 {
        match budget {
            Budget::All | Budget::Warm => quota.shared.saturating_sub(self.used(now)),
            Budget::FirstTurn if self.used(now) > 0 => 0,
            Budget::FirstTurn => quota.first.saturating_sub(self.used_by_first(now)),
            Budget::None => 0,
        }
    }

    /// Slots taken from the shared budget in the window of `now`.
    pub fn used(&self, now: Instant) -> u32 {
        if self.is_current(now) { self.used } else { 0 }
    }

    /// Slots taken from turn 1's budget in the window of `now`.
    pub fn used_by_first(&self, now: Instant) -> u32 {
        if self.is_current(now) { self.first } else { 0 }
    }

    /// When the probe slots are reset: the end of the current window, or of the aligned window that
    /// a probe now would begin.
    pub fn ends(&self, aligned: Instant, now: Instant) -> Instant {
        self.ends.filter(|ends| now < *ends).unwrap_or(aligned)
    }

    /// Takes one slot; `aligned` is the end of the aligned window of `now`.
    pub fn take(&mut self, budget: Budget, aligned: Instant, now: Instant) {
        if !self.is_current(now) {
            *self = Self {
                ends: Some(aligned),
                ..Self::default()
            };
        }
        match budget {
            Budget::All | Budget::Warm => self.used += 1,
            Budget::FirstTurn => self.first += 1,
            Budget::None => {}
        }
    }

    fn is_current(&self, now: Instant) -> bool {
        self.ends.is_some_and(|ends| now < ends)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::start;

    const QUOTA: Quota = Quota {
        shared: 2,
        first: 1,
    };

    #[test]
    fn a_warm_probe_ends_turn_ones_budget_and_not_the_other_way_round() {
        let now = start();
        let end = now + Duration::from_secs(10);
        let mut window = ProbeWindow::default();
        assert_eq!(window.left(Budget::FirstTurn, QUOTA, now), 1);
        window.take(Budget::FirstTurn, end, now);
        assert_eq!(window.left(Budget::FirstTurn, QUOTA, now), 0);
        assert_eq!(
            window.left(Budget::Warm, QUOTA, now),
            2,
            "the warm budget is its own"
        );
        let mut window = ProbeWindow::default();
        window.take(Budget::Warm, end, now);
        assert_eq!(window.left(Budget::FirstTurn, QUOTA, now), 0);
        assert_eq!(
            window.left(Budget::FirstTurn, QUOTA, end),
            1,
            "the next window"
        );
        assert_eq!(window.left(Budget::None, QUOTA, end), 0);
    }
}
