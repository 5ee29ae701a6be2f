//! What the last probes of a peer said, for status pages. Bans follow from the evidence itself.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::Evidence;

/// The last probes of a peer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Probes {
    /// The last result, and when it came.
    last: Option<(Evidence, Instant)>,
    /// When the first of the current series of unanswered probes was asked.
    silent_since: Option<Instant>,
}

/// The last probe of a peer in status pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeFacts {
    /// Result of the last probe.
    pub outcome: Evidence,
    /// Seconds since that result.
    pub age_s: u64,
    /// Seconds without an answer, counted from the first unanswered probe; absent when the last
    /// probe was answered.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub silent_s: Option<u64>,
}

impl Probes {
    /// Records the result of a probe that was asked at `asked`.
    pub(crate) fn record(&mut self, outcome: Evidence, asked: Instant, now: Instant) {
        self.last = Some((outcome, now));
        self.silent_since = match outcome {
            Evidence::Silent => Some(self.silent_since.unwrap_or(asked)),
            Evidence::Healthy | Evidence::Busy | Evidence::Failed | Evidence::Unreachable => None,
        };
    }

    /// `None` before the first result.
    pub(crate) fn facts(&self, now: Instant) -> Option<ProbeFacts> {
        let (outcome, at) = self.last?;
        let since = |then: Instant| now.saturating_duration_since(then);
        Some(ProbeFacts {
            outcome,
            age_s: since(at).as_secs(),
            silent_s: self.silent_since.map(since).as_ref().map(Duration::as_secs),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::start;

    #[test]
    fn silence_is_counted_from_the_first_unanswered_probe() {
        let (mut probes, now) = (Probes::default(), start());
        let at = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(probes.facts(now), None);
        probes.record(Evidence::Silent, at(0), at(10));
        probes.record(Evidence::Silent, at(20), at(30));
        let silent = |probes: &Probes, seconds| probes.facts(at(seconds)).unwrap().silent_s;
        assert_eq!(silent(&probes, 31), Some(31));
        assert_eq!(probes.facts(at(33)).unwrap().age_s, 3);
        probes.record(Evidence::Busy, at(40), at(41));
        assert_eq!(silent(&probes, 42), None);
        probes.record(Evidence::Silent, at(50), at(60));
        assert_eq!(silent(&probes, 60), Some(10));
    }
}
