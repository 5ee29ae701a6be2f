//! Client requests that cannot work, or work badly.

use std::time::Duration;

use proto::admin::{FindingCode, Route, Severity};

use super::words::{clipped, share, span};
use super::{Cause, Window};
use crate::traffic::{Refused, RouteTraffic};
use crate::window::{SLOT, SPAN};
use crate::{EVENTS_MIN, SAMPLES_MIN};

/// A rule becomes a finding when it refuses this share of a route's requests, in percent.
const RULE_PERCENT: u64 = 10;

/// Session ids do not repeat if this share of them is seen only once, in percent.
const ONCE_PERCENT: usize = 90;

pub(super) fn judge(
    route: &Route,
    traffic: &mut RouteTraffic,
    keys_age: Option<Duration>,
    window: Window,
    found: &mut Vec<Cause>,
) {
    let unauthorized = wrong_keys(traffic, keys_age, window);
    found.extend(unauthorized.map(|cause| cause.route(&route.name)));
    for (rule, events) in traffic.rules(window.span, window.now) {
        let is_much = events.count * 100 >= events.of * RULE_PERCENT;
        if events.count >= EVENTS_MIN && is_much {
            let text = format!(
                "content rule {} refused {} requests in {}",
                clipped(rule),
                share(events),
                window.name()
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
    for (model, events) in traffic.models(window.span, window.now) {
        if events.count >= EVENTS_MIN {
            let text = format!(
                "{} requests in {} asked for model {}, which no peer serves",
                share(events),
                window.name(),
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
    let (once, sessions) = traffic.sessions_once(window.now);
    if sessions >= SAMPLES_MIN && once * 100 >= sessions * ONCE_PERCENT {
        let text = format!(
            "{once} of the last {sessions} sessions were seen once: clients send a new id with each request"
        );
        let cause = Cause::new(FindingCode::SessionsSeenOnce, Severity::Warning, text);
        let look = format!(
            "llmctl route explain {} --last: where the session id comes from; then session_sources or affinity_fallback: prefix in {}",
            route.name, route.path
        );
        found.push(cause.route(&route.name).look(look));
    }
}

/// Requests with a missing or wrong key. If the key set changed a short time ago, the count begins
/// there. `keys_age` is the time since that change.
pub(super) fn wrong_keys(
    traffic: &RouteTraffic,
    keys_age: Option<Duration>,
    window: Window,
) -> Option<Cause> {
    let changed = keys_age.filter(|age| *age < SPAN);
    // Counts are kept in slots; the slot of the change counts whole.
    let counted = changed.map_or(window.span, |age| age + SLOT);
    let events = traffic.refused(Refused::Unauthorized, counted, window.now);
    if events.count < EVENTS_MIN {
        return None;
    }
    let when = changed.map_or_else(
        || format!("in {}", window.name()),
        |age| format!("since the key set changed {} ago", span(age)),
    );
    let text = format!(
        "{} requests {when} had a missing or wrong key and got 401",
        share(events)
    );
    let look = match changed {
        Some(_) => "llmctl keys check --live, then the last change of the key file",
        None => "llmctl keys check --live, and the clients' keys",
    };
    let cause = Cause::new(FindingCode::Unauthorized, Severity::Critical, text);
    Some(cause.counted(events).look(look))
}
