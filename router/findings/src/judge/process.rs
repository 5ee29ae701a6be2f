//! The router as a whole: its files, keys, body log, and drain.

use std::time::{Duration, Instant};

use proto::admin::{
    FindingCode, Keys, KeysInForce, Problem, ProcessPhase, Route, RouteStatus, Routes, Severity,
};

use super::words::{clipped, span};
use super::{Cause, Window, clients};
use crate::EVENTS_MIN;
use crate::traffic::RouteTraffic;

/// Records that wait this long show that something blocks delivery.
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// Why the listener stores no records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undelivered {
    /// There is no connection; the text is the error.
    Away(String),
    /// The listener refuses the router's token or address.
    Unauthorized,
    /// The listener's disk is full.
    DiskFull,
}

/// The state of record delivery; all `None` while nothing is recorded.
#[derive(Clone, Debug, Default)]
pub struct BodylogFacts {
    /// Whether the listener is connected.
    pub is_connected: bool,
    /// Why records are not stored.
    pub trouble: Option<Undelivered>,
    /// Age of the oldest record that is not acknowledged.
    pub oldest: Duration,
    /// Bytes in the spool, and its maximum.
    pub spool: Option<(u64, u64)>,
    /// Bytes of records in memory, and their maximum.
    pub memory: (u64, u64),
    /// Why a configured spool is not used.
    pub spool_error: Option<String>,
    /// Records lost in the last five minutes, and since when.
    pub dropped: u64,
    /// When the last one was lost.
    pub dropped_last: Option<Instant>,
}

/// What the router as a whole says about itself.
#[derive(Clone, Copy, Debug)]
pub struct Process<'p> {
    /// The page of all routes.
    pub status: &'p Routes,
    /// Counts of requests that matched no route.
    pub unrouted: &'p RouteTraffic,
    /// Delivery of records; `None` while nothing is recorded.
    pub bodylog: Option<&'p BodylogFacts>,
    /// Time until requests in flight are cut, while the router drains.
    pub drain_left: Option<Duration>,
    /// Time since the shared key set changed; `None` if it has not changed since the start.
    pub keys_age: Option<Duration>,
    /// Whether a route relies on the shared keys. A router whose routes are all open on purpose
    /// needs no key file.
    pub uses_shared_keys: bool,
}

/// The causes on the router as a whole, its files included.
pub fn router(process: &Process<'_>, window: Window) -> Vec<Cause> {
    let Process {
        status, unrouted, ..
    } = *process;
    let mut found = Vec::new();
    if status.phase != ProcessPhase::Serving {
        found.push(draining(process));
    }
    if let Some(problem) = status.config.errors.first() {
        found.push(invalid(problem, "the configuration in force is older"));
    }
    for route in &status.routes {
        file(route, &mut found);
        source(route, &mut found);
    }
    if process.uses_shared_keys {
        keys(status, &mut found);
    }
    found.extend(clients::wrong_keys(unrouted, process.keys_age, window));
    for (model, events) in unrouted.models(window.span, window.now) {
        if events.count >= EVENTS_MIN {
            let text = format!(
                "{} requests in {} asked for model {}, which no route serves",
                events.count,
                window.name(),
                clipped(model)
            );
            let cause = Cause::new(FindingCode::ModelUnknown, Severity::Warning, text);
            let cause = cause.named(model).counted(events);
            found.push(cause.look("GET /v1/models lists the models; llmctl route list the routes"));
        }
    }
    if let Some(facts) = process.bodylog {
        records(facts, window, &mut found);
    }
    found
}

fn draining(process: &Process<'_>) -> Cause {
    let pools = process.status.routes.iter().flat_map(|route| &route.pools);
    let running: u64 = pools.map(|pool| pool.in_flight).sum();
    let left = process.drain_left.map_or(String::new(), |left| {
        format!(", {} left until they are cut", span(left))
    });
    let text = format!("the router is draining: {running} requests are in flight{left}");
    let cause = Cause::new(FindingCode::Draining, Severity::Warning, text);
    cause.look("drain_timeout under server in router.yaml")
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
    if route.status == RouteStatus::Partly {
        cause.code = FindingCode::FilePartly;
    }
    found.push(cause.route(&route.name));
}

fn invalid(problem: &Problem, consequence: &str) -> Cause {
    let text = format!("{}; {consequence}", problem.message);
    Cause::new(FindingCode::FileInvalid, Severity::Critical, text)
        .file(format!("{}:{}", problem.file, problem.line))
        .look("llmctl route check")
}

/// A source of peers that fails.
fn source(route: &Route, found: &mut Vec<Cause>) {
    let Some(source) = &route.peers_from else {
        return;
    };
    let Some(error) = &source.error else { return };
    let (severity, consequence) = match (source.peers, source.age_s) {
        (0, _) => (Severity::Critical, "it never gave a peer".to_owned()),
        (count, age) => {
            let age = age.map_or(String::new(), |age| {
                format!(", {} old", span(Duration::from_secs(age)))
            });
            (
                Severity::Warning,
                format!("its last {count} peers stay{age}"),
            )
        }
    };
    let text = format!("peers from {} fail: {error}; {consequence}", source.source);
    let cause = Cause::new(FindingCode::PeerSourceFails, severity, text);
    found.push(
        cause
            .route(&route.name)
            .look("peers_from in the route's file"),
    );
}

/// The state of the shared key file.
fn keys(status: &Routes, found: &mut Vec<Cause>) {
    let Keys {
        file,
        status: read,
        in_force,
        ..
    } = &status.keys;
    if read == "ok" {
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

fn records(facts: &BodylogFacts, window: Window, found: &mut Vec<Cause>) {
    found.extend(undelivered(facts));
    if let Some(error) = &facts.spool_error {
        let text = format!("the spool is not used: {error}; a crash loses records in memory");
        let cause = Cause::new(FindingCode::BodylogSpoolOff, Severity::Warning, text);
        found.push(cause.look("bodylog.spool.dir in router.yaml"));
    }
    let is_recent = facts
        .dropped_last
        .is_some_and(|last| window.now.saturating_duration_since(last) < window.span);
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

/// Why records are not stored, if they wait.
fn undelivered(facts: &BodylogFacts) -> Option<Cause> {
    let (code, state, look) = match &facts.trouble {
        Some(Undelivered::DiskFull) => (
            FindingCode::BodylogDiskFull,
            "the disk of the body log's listener is full".to_owned(),
            "free room on the listener's disk: df, and its retention options",
        ),
        Some(Undelivered::Unauthorized) => (
            FindingCode::BodylogUnauthorized,
            "the body log's listener refuses this router's token or address".to_owned(),
            "bodylog.token_file in router.yaml and --token-file of the listener: the same token?",
        ),
        Some(Undelivered::Away(why)) if !facts.is_connected => (
            FindingCode::BodylogListenerAway,
            format!(
                "the body log's listener is away (failed to {})",
                clipped(why)
            ),
            "bodylog-listener healthcheck --ready on its machine",
        ),
        _ if !facts.is_connected => (
            FindingCode::BodylogListenerAway,
            "the body log's listener is away".to_owned(),
            "bodylog-listener healthcheck --ready on its machine",
        ),
        _ if facts.oldest >= UNACKNOWLEDGED => (
            FindingCode::BodylogSpoolGrowing,
            "the body log's listener acknowledges nothing".to_owned(),
            "the load and the disk of the listener, and its /readyz",
        ),
        _ => return None,
    };
    let waits = if facts.oldest.is_zero() {
        "no record waits".to_owned()
    } else {
        format!("the oldest record waits {}", span(facts.oldest))
    };
    let room = |(used, most): (u64, u64)| {
        let free = most.saturating_sub(used) / 1_000_000;
        format!("{free} MB of {} MB free", most / 1_000_000)
    };
    let spool = match facts.spool {
        Some(spool) => format!("spool: {}", room(spool)),
        None => format!("no spool, memory: {}", room(facts.memory)),
    };
    let text = format!("{state}: {waits}; {spool}");
    Some(Cause::new(code, Severity::Warning, text).look(look))
}
