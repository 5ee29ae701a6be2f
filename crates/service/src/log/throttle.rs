//! Limits log lines that a stranger can cause. Each kind of line has its own limit, at its call
//! site.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Lines of one kind per interval.
const LINES: u32 = 10;
/// Length of the interval.
const INTERVAL: Duration = Duration::from_secs(10);

/// Lets a few lines of one kind through in each interval and counts the rest.
#[derive(Debug)]
pub struct Throttle(Mutex<State>);

#[derive(Debug)]
struct State {
    since: Option<Instant>,
    lines: u32,
    unsaid: u64,
}

impl Throttle {
    /// For a `static`.
    pub const fn new() -> Self {
        Self(Mutex::new(State {
            since: None,
            lines: 0,
            unsaid: 0,
        }))
    }

    /// `Some` when a line may be written at `now`, with the number of lines left out since the last
    /// one.
    pub fn pass(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock();
        let is_over = |since: Instant| now.saturating_duration_since(since) >= INTERVAL;
        if state.since.is_none_or(is_over) {
            state.since = Some(now);
            state.lines = 0;
        }
        if state.lines == LINES {
            state.unsaid += 1;
            return None;
        }
        state.lines += 1;
        Some(std::mem::take(&mut state.unsaid))
    }
}

impl Default for Throttle {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_to_a_few_lines_and_the_next_says_how_many_are_missing() {
        let throttle = Throttle::new();
        let start = Instant::now();
        let passed = (0..1000).filter(|_| throttle.pass(start).is_some()).count();
        assert_eq!(passed, LINES as usize);
        assert_eq!(throttle.pass(start + INTERVAL), Some(1000 - 10));
        assert_eq!(throttle.pass(start + INTERVAL), Some(0));
    }
}
