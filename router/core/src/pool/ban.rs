//! A ban. Evidence imposes it and more evidence refreshes it. A healthy probe, a good poll after a
//! failed connection, or time lifts it.

use std::time::{Duration, Instant};

words! {
    /// An observation of a probe or of the request path about a peer.
    pub enum Evidence {
        /// The probe got a 2xx.
        Healthy = "healthy",
        /// The probe got 429: the peer is alive but busy, and its ban stays as it is.
        Busy = "busy",
        /// The probe got no answer in time. A loaded engine is not taken for a dead one, so the ban
        /// stays as it is.
        Silent = "silent",
        /// The probe got anything else.
        Failed = "failed",
        /// The address refuses, is unreachable, does not resolve, or fails TLS: no request can
        /// succeed there now.
        Unreachable = "unreachable",
    }
}

/// A change of a peer's state, for the edge to log and count once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The peer was usable and is now banned.
    Banned,
    /// The peer was banned and is usable again.
    Recovered,
}

/// Replaces a time to live that the clock cannot express: thirty years.
const FAR: Duration = Duration::from_secs(30 * 365 * 86_400);

/// Whether a peer is banned, and until when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ban {
    until: Option<Instant>,
    /// A failed connection caused the ban, not an answer.
    is_for_connection: bool,
}

impl Ban {
    /// Whether the peer is banned at `now`.
    #[inline]
    pub fn is_active(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// Time until the ban ends by itself; `None` when the peer is not banned.
    pub fn left(&self, now: Instant) -> Option<Duration> {
        let left = self.until?.checked_duration_since(now)?;
        (!left.is_zero()).then_some(left)
    }

    /// When the ban ends by itself; `None` when the peer is not banned.
    #[inline]
    pub fn until(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|until| now < *until)
    }

    /// Records evidence. Only a transition is reported as a change: another failure refreshes the
    /// ban silently, and so does health after a ban that had already expired.
    pub fn observe(&mut self, evidence: Evidence, ttl: Duration, now: Instant) -> Option<Change> {
        let before = self.is_active(now);
        match evidence {
            Evidence::Healthy => self.until = None,
            Evidence::Busy | Evidence::Silent => {}
            Evidence::Failed | Evidence::Unreachable => {
                self.until = now.checked_add(ttl).or(now.checked_add(FAR));
                self.is_for_connection = evidence == Evidence::Unreachable;
            }
        }
        self.changed(before, now)
    }

    /// Records that the peer has answered something other than a probe. This ends a ban that came
    /// from a failed connection. After a bad answer to a probe only a good probe ends the ban.
    pub fn reached(&mut self, now: Instant) -> Option<Change> {
        let before = self.is_active(now);
        if self.is_for_connection {
            self.until = None;
        }
        self.changed(before, now)
    }

    fn changed(&self, before: bool, now: Instant) -> Option<Change> {
        match (before, self.is_active(now)) {
            (false, true) => Some(Change::Banned),
            (true, false) => Some(Change::Recovered),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::start;

    const TTL: Duration = Duration::from_secs(300);
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn only_transitions_are_reported() {
        let (mut ban, now) = (Ban::default(), start());
        assert_eq!(ban.observe(Evidence::Healthy, TTL, now), None);
        assert_eq!(
            ban.observe(Evidence::Failed, TTL, now),
            Some(Change::Banned)
        );
        assert_eq!(ban.observe(Evidence::Failed, TTL, now), None);
        assert_eq!(ban.observe(Evidence::Busy, TTL, now), None);
        assert!(ban.is_active(now));
        assert_eq!(
            ban.observe(Evidence::Healthy, TTL, now),
            Some(Change::Recovered)
        );
        assert_eq!(ban.observe(Evidence::Healthy, TTL, now), None);
    }

    #[test]
    fn a_failure_refreshes_and_silence_ends_the_ban() {
        let (mut ban, now) = (Ban::default(), start());
        ban.observe(Evidence::Failed, TTL, now);
        ban.observe(Evidence::Failed, TTL, now + SECOND * 200);
        assert_eq!(ban.left(now + SECOND * 300), Some(SECOND * 200));
        assert!(!ban.is_active(now + SECOND * 500));
        assert_eq!(ban.left(now + SECOND * 500), None);
        let again = ban.observe(Evidence::Failed, TTL, now + SECOND * 500);
        assert_eq!(again, Some(Change::Banned), "the old ban had run out");
    }

    #[test]
    fn any_answer_ends_a_ban_for_a_connection_and_no_other() {
        let (mut ban, now) = (Ban::default(), start());
        ban.observe(Evidence::Unreachable, TTL, now);
        assert_eq!(ban.reached(now + SECOND), Some(Change::Recovered));
        assert_eq!(ban.reached(now + SECOND), None);
        ban.observe(Evidence::Unreachable, TTL, now);
        ban.observe(Evidence::Failed, TTL, now);
        assert_eq!(ban.reached(now + SECOND), None);
        assert!(ban.is_active(now + SECOND));
    }

    #[test]
    fn extreme_times_to_live_are_honoured() {
        let (mut ban, now) = (Ban::default(), start());
        assert_eq!(ban.observe(Evidence::Failed, Duration::ZERO, now), None);
        assert_eq!(
            ban.observe(Evidence::Failed, Duration::MAX, now),
            Some(Change::Banned)
        );
        assert!(ban.is_active(now + SECOND * 86_400));
    }
}
