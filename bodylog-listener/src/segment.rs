//! Maps times to files: which hour a batch goes to, and which hours are closed. Pure.

use chrono::{DateTime, TimeDelta, Utc};
use proto::layout::Hour;

/// Delay between the end of an hour and its packing. It gives readers time to finish the hour.
pub(crate) const QUIET: TimeDelta = TimeDelta::minutes(10);

/// How far a remembered hour may be ahead of the clock. If it is further ahead, the clock was wrong
/// at that time rather than now; following it would send records to that hour for ever.
const AHEAD_MAX: TimeDelta = TimeDelta::days(1);

/// Chooses hours that never go back, whatever the clock does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Roller {
    latest: Option<Hour>,
}

impl Roller {
    /// Continues from the hour last written, if that hour is plausible at `now`.
    pub(crate) fn resume(last: Option<Hour>, now: DateTime<Utc>) -> Self {
        Self {
            latest: last.filter(|hour| hour.start() <= now + AHEAD_MAX),
        }
    }

    /// The hour for everything written at `now`.
    pub(crate) fn hour(&mut self, now: DateTime<Utc>) -> Hour {
        let hour = Hour::of(now);
        let hour = self.latest.map_or(hour, |latest| latest.max(hour));
        self.latest = Some(hour);
        hour
    }
}

/// Whether an hour that is no longer written is due for packing.
pub(crate) fn is_quiet(hour: Hour, now: DateTime<Utc>) -> bool {
    hour.next().start() + QUIET <= now
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    #[test]
    fn the_hour_follows_the_clock_forward_and_never_back() {
        let mut roller = Roller::default();
        let hours: Vec<String> = [
            "2026-01-02T23:59:59.9Z",
            "2026-01-03T00:00:00.1Z",
            "2026-01-02T23:59:59.9Z",
            "2026-01-02T22:00:00Z",
            "2026-01-03T02:30:00Z",
            "2026-01-03T00:30:00Z",
        ]
        .into_iter()
        .map(|now| roller.hour(at(now)).plain().display().to_string())
        .collect();
        assert_eq!(
            hours,
            [
                "2026-01-02/23.jsonl",
                "2026-01-03/00.jsonl",
                "2026-01-03/00.jsonl",
                "2026-01-03/00.jsonl",
                "2026-01-03/02.jsonl",
                "2026-01-03/02.jsonl",
            ]
        );
    }

    #[test]
    fn a_restart_goes_on_from_the_last_hour_unless_that_is_absurd() {
        let now = at("2026-01-02T10:00:00Z");
        let later = Hour::of(at("2026-01-02T12:00:00Z"));
        assert_eq!(Roller::resume(Some(later), now).hour(now), later);
        let absurd = Hour::of(at("2099-01-01T00:00:00Z"));
        assert_eq!(Roller::resume(Some(absurd), now).hour(now), Hour::of(now));
    }

    #[test]
    fn packing_waits_ten_minutes() {
        let hour = Hour::of(at("2026-01-02T23:10:00Z"));
        assert!(!is_quiet(hour, at("2026-01-03T00:09:59Z")));
        assert!(is_quiet(hour, at("2026-01-03T00:10:00Z")));
    }
}
