//! The router as a whole: its files, keys, body log, and drain.

use std::time::{Duration, Instant};

use proto::admin::{
    Auth, FindingCode, Keys, KeysInForce, Problem, Route, RouteStatus, Routes, Severity,
};

use super::words::{share, span};
use super::{Cause, WINDOW};
use crate::EVENTS_MIN;
use crate::traffic::{Refused, RouteTraffic};

/// Records that wait this long show that something blocks delivery.
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// The state of record delivery; all `None` while nothing is recorded.
#[derive(Clone, Debug, Default)]
pub struct BodylogFacts {
    /// Whether the listener is connected.
    pub is_connected: bool,
    /// The listener's last reason for not accepting records, or the reason why there is no
    /// connection.
    pub reason: Option<String>,
    /// Age of the oldest record that is not acknowledged.
    pub oldest: Duration,
    /// Bytes in the spool, and its maximum.
    pub spool: Option<(u64, u64)>,
    /// Why a configured spool is not used.
    pub spool_error: Option<String>,
    /// Records lost in the last five minutes, and since when.
    pub dropped: u64,
    /// When the last one was lost.
    pub dropped_last: Option<Instant>,
}

/// The causes on the router as a whole, its files included. `unrouted` counts requests that matched
/// no route.
pub fn router(
    status: &Routes,
    unrouted: &RouteTraffic,
    bodylog: Option<&BodylogFacts>,
    now: Instant,
) -> Vec<Cause> {
    let mut found = Vec::new();
    if status.phase != "serving" {
        let running: u64 = status
            .routes
            .iter()
            .flat_map(|route| &route.pools)
            .map(|pool| pool.in_flight)
            .sum();
        let text = format!("the router is draining: {running} requests are in flight");
        let cause = Cause::new(FindingCode::Draining, Severity::Warning, text);
        found.push(cause.look("drain_timeout in router.yaml says how long it waits"));
    }
    if let Some(problem) = status.config.errors.first() {
        found.push(invalid(problem, "the configuration in force is older"));
    }
    for route in &status.routes {
        file(route, &mut found);
    }
    keys(status, &mut found);
    let unauthorized = unrouted.refused(Refused::Unauthorized, WINDOW, now);
    if unauthorized.count >= EVENTS_MIN {
        let text = format!(
            "{} requests without a route had a missing or wrong key in the last minute",
            share(unauthorized)
        );
        let cause = Cause::new(FindingCode::Unauthorized, Severity::Critical, text);
        let look = "llmctl keys check --live: were the keys replaced?";
        found.push(cause.counted(unauthorized).look(look));
    }
    for (model, events) in unrouted.models(WINDOW, now) {
        if events.count >= EVENTS_MIN {
            let text = format!(
                "{} requests in the last minute asked for model {}, which no route serves",
                events.count,
                super::words::clipped(model)
            );
            let cause = Cause::new(FindingCode::ModelUnknown, Severity::Warning, text);
            let cause = cause.named(model).counted(events);
            found.push(cause.look("llmctl route list; server.default_route"));
        }
    }
    if let Some(facts) = bodylog {
        records(facts, now, &mut found);
    }
    found
}

/// Whether the file of a route is in force.
fn file(route: &Route, found: &mut Vec<Cause>) {
    let Some(problem) = route.errors.first() else {
        return;
    };
    let consequence = match route.status {
        RouteStatus::Ok => return,
        RouteStatus::Partly => "the rest of the file is in force",
        RouteStatus::Stale => "an older version of the file is in force",
        RouteStatus::Invalid => "the route answers 503",
    };
    let mut cause = invalid(problem, consequence);
    if route.status != RouteStatus::Invalid {
        cause.severity = Severity::Warning;
    }
    found.push(cause.route(&route.name));
}

fn invalid(problem: &Problem, consequence: &str) -> Cause {
    let text = format!("{}; {consequence}", problem.message);
    Cause::new(FindingCode::FileInvalid, Severity::Critical, text)
        .file(format!("{}:{}", problem.file, problem.line))
        .look("llmctl route check")
}

/// A bad key file matters only to routes that use it: a router whose routes are all open on purpose
/// has no finding.
fn keys(status: &Routes, found: &mut Vec<Cause>) {
    let Keys {
        file,
        status: read,
        in_force,
        ..
    } = &status.keys;
    let is_used = status.routes.iter().any(|route| route.auth == Auth::Shared);
    if read == "ok" || !is_used {
        return;
    }
    let (severity, consequence) = match in_force {
        KeysInForce::Keys => (Severity::Warning, "the keys loaded before stay in force"),
        KeysInForce::Open => (
            Severity::Warning,
            "every route without keys of its own is open to everybody",
        ),
        KeysInForce::Closed => (Severity::Critical, "nobody gets in"),
    };
    let text = format!("key file {file} is {read}: {consequence}");
    let cause = Cause::new(FindingCode::KeyFileBad, severity, text);
    found.push(cause.file(file.clone()).look("llmctl keys check"));
}

fn records(facts: &BodylogFacts, now: Instant, found: &mut Vec<Cause>) {
    let room = facts.spool.map_or(String::new(), |(used, most)| {
        format!("; spool {} MB of {} MB", used / 1_000_000, most / 1_000_000)
    });
    let reason = facts
        .reason
        .as_deref()
        .map_or(String::new(), |reason| format!(" ({reason})"));
    let oldest = span(facts.oldest);
    if !facts.is_connected {
        let text = format!(
            "the body log's listener is away{reason}: the oldest record waits {oldest}{room}"
        );
        let cause = Cause::new(FindingCode::BodylogListenerAway, Severity::Warning, text);
        found.push(cause.look("bodylog-listener healthcheck --ready on its machine"));
    } else if facts.oldest >= UNACKNOWLEDGED {
        let text = format!(
            "the listener acknowledges nothing{reason}: the oldest record waits {oldest}{room}"
        );
        let cause = Cause::new(FindingCode::BodylogSpoolGrowing, Severity::Warning, text);
        found.push(cause.look("the listener's disk and its /readyz"));
    }
    if let Some(error) = &facts.spool_error {
        let text = format!("the spool is not used: {error}; a crash loses records in memory");
        let cause = Cause::new(FindingCode::BodylogSpoolOff, Severity::Warning, text);
        found.push(cause.look("bodylog.spool.dir in router.yaml"));
    }
    let is_recent = facts
        .dropped_last
        .is_some_and(|last| now.saturating_duration_since(last) < WINDOW);
    if facts.dropped > 0 && is_recent {
        let text = format!(
            "{} records were lost in the last five minutes",
            facts.dropped
        );
        let cause = Cause::new(FindingCode::BodylogDrops, Severity::Warning, text);
        let events = crate::traffic::Events {
            count: facts.dropped,
            last: facts.dropped_last,
            ..Default::default()
        };
        found.push(
            cause
                .counted(events)
                .look("llm_router_bodylog_capture_dropped_total by reason"),
        );
    }
}
