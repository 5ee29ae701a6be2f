//! How often session ids come back.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use crate::window::SPAN;

/// Maximum number of remembered sessions; the oldest is dropped first.
const SESSIONS_MAX: usize = 256;

/// Whether a session was known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sighting {
    /// Its first request in five minutes.
    First,
    /// A later one.
    Again,
}

/// The sessions that began in the last five minutes, with the number of requests of each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sightings {
    seen: HashMap<u64, u32>,
    /// Oldest first.
    began: VecDeque<(Instant, u64)>,
}

impl Sightings {
    /// Counts a request of the session with this hash.
    pub(crate) fn see(&mut self, session: u64, now: Instant) -> Sighting {
        self.expire(now);
        if let Some(count) = self.seen.get_mut(&session) {
            *count = count.saturating_add(1);
            return Sighting::Again;
        }
        if self.began.len() == SESSIONS_MAX {
            self.forget_oldest();
        }
        self.seen.insert(session, 1);
        self.began.push_back((now, session));
        Sighting::First
    }

    /// The number of sessions seen once, and of all sessions.
    pub(crate) fn once(&self) -> (usize, usize) {
        let once = self.seen.values().filter(|count| **count == 1).count();
        (once, self.seen.len())
    }

    /// Forgets sessions that began before the window.
    pub(crate) fn expire(&mut self, now: Instant) {
        let is_old = |began: &Instant| now.saturating_duration_since(*began) >= SPAN;
        while self.began.front().is_some_and(|(began, _)| is_old(began)) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((_, session)) = self.began.pop_front() {
            self.seen.remove(&session);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_comes_back_is_not_seen_once() {
        let now = Instant::now();
        let mut sightings = Sightings::default();
        for session in [1, 2, 3, 2] {
            sightings.see(session, now);
        }
        assert_eq!(sightings.once(), (2, 3));
    }

    #[test]
    fn the_oldest_sessions_go_at_the_bound_and_after_the_span() {
        let now = Instant::now();
        let mut sightings = Sightings::default();
        for session in 0..SESSIONS_MAX as u64 + 10 {
            sightings.see(session, now);
        }
        assert_eq!(sightings.once().1, SESSIONS_MAX);
        sightings.expire(now + SPAN);
        assert_eq!(sightings.once(), (0, 0));
    }
}
