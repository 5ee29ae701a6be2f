//! Requests that the router refused itself, as rows report them and as routers count them.

use std::collections::BTreeMap;

use proto::row::DetailRow;
use serde::{Deserialize, Serialize};

use super::key_of;
use super::labels::{NO_BACKEND, UNKNOWN};

/// Why the router refused a row's request, if it did. Rows of version 1 do not say it; there, an
/// error without a peer is a refusal for an unknown reason. A client that left (499) before a peer
/// was chosen was not refused.
pub fn reason<'r>(row: &'r DetailRow<'_>) -> Option<&'r str> {
    if !row.reject_reason.is_empty() {
        return Some(&row.reject_reason);
    }
    let is_unrouted = row.backend.is_empty() || row.backend == NO_BACKEND;
    (is_unrouted && row.status >= 400 && row.status != 499).then_some(UNKNOWN)
}

/// Labels of a refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectKey {
    /// The route.
    pub route: Box<str>,
    /// The status sent.
    pub status: u16,
    /// Why.
    pub reason: Box<str>,
}

impl RejectKey {
    pub(super) fn text(&self) -> Box<str> {
        key_of(&[&self.route, &self.status.to_string(), &self.reason])
    }
}

/// Refusals with the same labels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rejected {
    /// The labels.
    pub key: RejectKey,
    /// How many.
    pub count: u64,
    /// First row, milliseconds since the Unix epoch.
    pub created_ms: i64,
    /// Last row, likewise.
    pub used_ms: i64,
}

impl Rejected {
    pub(super) fn new(key: RejectKey, now_ms: i64) -> Self {
        Self {
            key,
            count: 0,
            created_ms: now_ms,
            used_ms: now_ms,
        }
    }
}

/// Most pairs of route and reason remembered for one router. Routes are configured, so only a page
/// that is not a router's can reach this.
const PAIRS_MAX: usize = 4096;

/// Refusals counted by the routers, summed over their restarts. A router's counter starts at zero
/// with its process; this sum does not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Refusals {
    /// By router.
    routers: BTreeMap<Box<str>, Router>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Router {
    /// By route, then by reason.
    routes: BTreeMap<Box<str>, BTreeMap<Box<str>, Counted>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Counted {
    /// The router's counter when it was last read.
    last: u64,
    total: u64,
}

/// One reading: route, then reason, then the counter.
pub type RefusalReading = BTreeMap<Box<str>, BTreeMap<Box<str>, u64>>;

impl Refusals {
    /// Takes a reading of a router. A counter that fell belongs to a new process, and all of it is
    /// new.
    pub fn read(&mut self, router: &str, reading: &RefusalReading) {
        let known = self.routers.entry(router.into()).or_default();
        let mut pairs: usize = known.routes.values().map(BTreeMap::len).sum();
        for (route, reasons) in reading {
            for (reason, &value) in reasons {
                let counted = known.routes.get(route).and_then(|r| r.get(reason));
                let Counted { last, total } = match counted {
                    Some(counted) => *counted,
                    None if pairs >= PAIRS_MAX => continue,
                    None => {
                        pairs += 1;
                        Counted::default()
                    }
                };
                let new = value.checked_sub(last).unwrap_or(value);
                let counted = Counted {
                    last: value,
                    total: total.saturating_add(new),
                };
                let reasons = known.routes.entry(route.clone()).or_default();
                reasons.insert(reason.clone(), counted);
            }
        }
    }

    /// Router, route, reason and the sum so far, in order.
    pub fn totals(&self) -> impl Iterator<Item = (&str, &str, &str, u64)> {
        self.routers.iter().flat_map(|(router, known)| {
            known.routes.iter().flat_map(move |(route, reasons)| {
                reasons
                    .iter()
                    .map(move |(reason, counted)| (&**router, &**route, &**reason, counted.total))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(value: u64) -> RefusalReading {
        let reasons = BTreeMap::from([("ttft".into(), value)]);
        BTreeMap::from([("chat".into(), reasons)])
    }

    #[test]
    fn a_counter_that_fell_is_a_restart() {
        let mut refusals = Refusals::default();
        for value in [0, 5, 7, 2, 2, 4] {
            refusals.read("r1", &reading(value));
        }
        refusals.read("r2", &reading(3));
        let totals: Vec<_> = refusals.totals().collect();
        assert_eq!(
            totals,
            [("r1", "chat", "ttft", 11), ("r2", "chat", "ttft", 3)]
        );
    }

    #[test]
    fn a_page_without_end_is_cut() {
        let mut refusals = Refusals::default();
        let reasons = (0..10_000).map(|i| (i.to_string().into(), 1)).collect();
        refusals.read("r", &BTreeMap::from([("chat".into(), reasons)]));
        assert_eq!(refusals.totals().count(), PAIRS_MAX);
    }

    #[test]
    fn a_refusal_is_what_the_router_says_or_an_error_without_a_peer() {
        let row = |status, backend: &'static str, reject: &'static str| DetailRow {
            status,
            backend: backend.into(),
            reject_reason: reject.into(),
            ..DetailRow::default()
        };
        assert_eq!(reason(&row(429, "(none)", "ttft")), Some("ttft"));
        assert_eq!(reason(&row(503, "(none)", "")), Some(UNKNOWN));
        assert_eq!(reason(&row(503, "a:1", "")), None);
        assert_eq!(reason(&row(499, "(none)", "")), None);
        assert_eq!(reason(&row(200, "(none)", "")), None);
    }
}
