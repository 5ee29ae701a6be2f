//! Client requests that cannot work, or work badly.

use std::time::Instant;

use proto::admin::{FindingCode, Route, Severity};

use super::words::{clipped, share};
use super::{Cause, WINDOW};
use crate::traffic::{Refused, RouteTraffic};
use crate::{EVENTS_MIN, SAMPLES_MIN};

/// A rule becomes a finding when it refuses this share of a route's requests, in percent.
const RULE_PERCENT: u64 = 10;

/// Session ids do not repeat if this share of them is seen only once, in percent.
const ONCE_PERCENT: usize = 90;

pub(super) fn judge(
    route: &Route,
    traffic: &mut RouteTraffic,
    now: Instant,
    found: &mut Vec<Cause>,
) {
    let unauthorized = traffic.refused(Refused::Unauthorized, WINDOW, now);
    if unauthorized.count >= EVENTS_MIN {
        let text = format!(
            "{} requests in the last minute had a missing or wrong key",
            share(unauthorized)
        );
        let cause = Cause::new(FindingCode::Unauthorized, Severity::Critical, text);
        let look = "llmctl keys check --live: were the keys replaced?";
        found.push(cause.route(&route.name).counted(unauthorized).look(look));
    }
    for (rule, events) in traffic.rules(WINDOW, now) {
        let is_much = events.count * 100 >= events.of * RULE_PERCENT;
        if events.count >= EVENTS_MIN && is_much {
            let text = format!(
                "content rule {} refused {} requests in the last minute",
                clipped(rule),
                share(events)
            );
            let cause = Cause::new(FindingCode::RuleRefuses, Severity::Warning, text);
            let look = format!("reject_rules in {}", route.path);
            found.push(
                cause
                    .route(&route.name)
                    .named(rule)
                    .counted(events)
                    .look(look),
            );
        }
    }
    for (model, events) in traffic.models(WINDOW, now) {
        if events.count >= EVENTS_MIN {
            let text = format!(
                "{} requests in the last minute asked for model {}, which no peer serves",
                share(events),
                clipped(model)
            );
            let cause = Cause::new(FindingCode::ModelUnknown, Severity::Warning, text);
            found.push(
                cause
                    .route(&route.name)
                    .named(model)
                    .counted(events)
                    .look("the models in GET /v1/models"),
            );
        }
    }
    let (once, sessions) = traffic.sessions_once(now);
    if sessions >= SAMPLES_MIN && once * 100 >= sessions * ONCE_PERCENT {
        let text = format!(
            "{once} of the last {sessions} sessions were seen once: clients send a new id with each request"
        );
        let cause = Cause::new(FindingCode::SessionsSeenOnce, Severity::Warning, text);
        let look = format!("affinity_fallback: prefix in {}", route.path);
        found.push(cause.route(&route.name).look(look));
    }
}
