//! Turns causes into findings, which have an age and stay for a while after their cause is gone.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use proto::admin::{Finding, FindingCode, Findings, Severity};

use crate::judge::Cause;

/// Maximum number of findings shown; the least severe are left out.
const FINDINGS_MAX: usize = 200;

/// Formats a moment as wall time, RFC 3339 in UTC.
pub type Wall<'w> = &'w dyn Fn(Instant) -> String;

/// All findings, in force or recently over.
#[derive(Debug)]
pub struct Board {
    /// How long a finding outlives its cause.
    linger: Duration,
    open: Vec<Open>,
}

#[derive(Debug)]
struct Open {
    cause: Cause,
    since: Instant,
    /// When the cause was last present.
    seen: Instant,
    is_over: bool,
}

impl Board {
    /// An empty board; `linger` is how long a finding outlives its cause.
    pub fn new(linger: Duration) -> Self {
        Self {
            linger,
            open: Vec::new(),
        }
    }

    /// Changes `linger` from now on.
    pub fn set_linger(&mut self, linger: Duration) {
        self.linger = linger;
    }

    /// Takes the causes present at `now`. A finding without a cause is over. It is removed after
    /// `linger`, or continues with its old age if the cause returns before.
    pub fn update(&mut self, causes: Vec<Cause>, now: Instant) {
        for open in &mut self.open {
            open.is_over = true;
        }
        for cause in causes {
            let began = cause.events.since.unwrap_or(now);
            match self.open.iter_mut().find(|open| open.is_same(&cause)) {
                Some(open) => {
                    open.cause = cause;
                    open.seen = now;
                    open.is_over = false;
                }
                None => self.open.push(Open {
                    cause,
                    since: began,
                    seen: now,
                    is_over: false,
                }),
            }
        }
        let linger = self.linger;
        self.open
            .retain(|open| !open.is_over || now.saturating_duration_since(open.seen) < linger);
        self.open
            .sort_by_key(|open| (open.is_over, open.cause.severity, open.since));
    }

    /// Number of findings that are not over, by code and severity.
    pub fn in_force(&self) -> BTreeMap<(FindingCode, Severity), u64> {
        let mut counts = BTreeMap::new();
        for open in self.open.iter().filter(|open| !open.is_over) {
            *counts
                .entry((open.cause.code, open.cause.severity))
                .or_default() += 1;
        }
        counts
    }

    /// The findings, worst first, those that are over last.
    pub fn page(&self, now: Instant, wall: Wall<'_>) -> Findings {
        let shown = self.open.iter().take(FINDINGS_MAX);
        Findings {
            findings: shown.map(|open| open.finding(now, wall)).collect(),
        }
    }
}

impl Open {
    fn is_same(&self, cause: &Cause) -> bool {
        self.cause.code == cause.code && self.cause.subject == cause.subject
    }

    fn finding(&self, now: Instant, wall: Wall<'_>) -> Finding {
        let cause = &self.cause;
        let seconds = |since: Instant| now.saturating_duration_since(since).as_secs();
        let text = if self.is_over {
            format!("over: {}", cause.text)
        } else {
            cause.text.clone()
        };
        Finding {
            code: cause.code,
            severity: cause.severity,
            route: cause.subject.route.clone(),
            peer: cause.subject.peer.clone(),
            owner: None,
            file: cause.subject.file.clone(),
            text,
            since: wall(self.since),
            age_s: seconds(self.since),
            last_s: match (self.is_over, cause.events.last) {
                (_, Some(last)) => seconds(last),
                (true, None) => seconds(self.seen),
                (false, None) => 0,
            },
            count: cause.events.count,
            of: cause.events.of,
            look: cause.look.clone(),
        }
    }
}
