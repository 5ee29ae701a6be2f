//! `/<route>/_…`: the status pages and switches of one route. The answers are the same on both
//! ports; [`access`](super::access) has the access rules.

mod average;
mod bodylog;
mod decisions;
mod explain;
mod health;
mod held;
mod limit;
mod options;
mod refusals;
mod room;
mod rules;
mod seats;
mod sessions;
mod signal;
mod toggle;
mod transforms;

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, StatusCode};
use proto::admin::FLAT_POOL;
use router_bodylog::BodyLog;
use router_core::book::PoolId;
use router_core::signal::Signal;

use super::answer::{self, Answer};
use super::query::Params;
use crate::state::{Entry, Route, RouteTable, Switch};
use crate::telemetry::events::Events;

pub(super) use bodylog::recording;
use decisions::recent;
pub(super) use refusals::{refused, trips};
pub(super) use seats::finish;
pub(super) use signal::{is_compared, of_pool};

const READS: &str = "GET, HEAD";
const POSTS: &str = "POST";
const BOTH: &str = "GET, HEAD, POST";

/// One endpoint below a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// `_health_status`
    HealthStatus,
    /// `_active_conns`
    ActiveConns,
    /// `_active_conns_set`
    ActiveConnsSet,
    /// `_route_state`
    RouteState,
    /// `_route_opts`
    RouteOpts,
    /// `_route_debug`
    RouteDebug,
    /// `_route_inspect`
    RouteInspect,
    /// `_decisions`
    Decisions,
    /// `_cluster_avg`
    ClusterAvg,
    /// `_rate_limit_status`
    RateLimitStatus,
    /// `_429_status`
    Refusals,
    /// `_session_status`
    SessionStatus,
    /// `_sessions`
    Sessions,
    /// `_ttft_status`, `_tps_status`
    SignalStatus(Signal),
    /// `_ttft_limit`, `_tps_limit`
    Limit(Signal),
    /// `_reject_rules_status`
    RejectRulesStatus,
    /// `_bodylog_status`
    BodylogStatus,
    /// `_cch_strip_status`
    CchStripStatus,
    /// `_cch_test`
    CchTest,
    /// `_<switch>_toggle`
    Toggle(Switch),
}

/// The endpoints that are no switch, by the last segment of their path.
const NAMED: [(&str, Endpoint); 21] = [
    ("_health_status", Endpoint::HealthStatus),
    ("_active_conns", Endpoint::ActiveConns),
    ("_active_conns_set", Endpoint::ActiveConnsSet),
    ("_route_state", Endpoint::RouteState),
    ("_route_opts", Endpoint::RouteOpts),
    ("_route_debug", Endpoint::RouteDebug),
    ("_route_inspect", Endpoint::RouteInspect),
    ("_decisions", Endpoint::Decisions),
    ("_cluster_avg", Endpoint::ClusterAvg),
    ("_rate_limit_status", Endpoint::RateLimitStatus),
    ("_429_status", Endpoint::Refusals),
    ("_session_status", Endpoint::SessionStatus),
    ("_sessions", Endpoint::Sessions),
    ("_ttft_status", Endpoint::SignalStatus(Signal::Ttft)),
    ("_tps_status", Endpoint::SignalStatus(Signal::Tps)),
    ("_ttft_limit", Endpoint::Limit(Signal::Ttft)),
    ("_tps_limit", Endpoint::Limit(Signal::Tps)),
    ("_reject_rules_status", Endpoint::RejectRulesStatus),
    ("_bodylog_status", Endpoint::BodylogStatus),
    ("_cch_strip_status", Endpoint::CchStripStatus),
    ("_cch_test", Endpoint::CchTest),
];

impl Endpoint {
    /// The endpoint for the last segment of a path.
    pub fn of(name: &str) -> Option<Self> {
        let toggle = || {
            let mut switches = Switch::ALL.into_iter();
            switches
                .find(|switch| switch.endpoint() == name)
                .map(Self::Toggle)
        };
        let known = NAMED.iter().find(|(known, _)| *known == name);
        known.map(|(_, endpoint)| *endpoint).or_else(toggle)
    }

    /// Every endpoint, by the last segment of its path.
    pub fn all() -> impl Iterator<Item = (&'static str, Self)> {
        let toggles = Switch::ALL.into_iter();
        let toggles = toggles.map(|switch| (switch.endpoint(), Self::Toggle(switch)));
        NAMED.into_iter().chain(toggles)
    }

    /// Whether requests with this method may change state: then they have to pass the write guard.
    pub fn writes(self, method: &Method) -> bool {
        let may_write = matches!(
            self,
            Self::ActiveConnsSet | Self::Toggle(_) | Self::Limit(_) | Self::Refusals
        );
        may_write && method == Method::POST
    }

    /// Whether the answer also reveals other routes, so that a key of this route is not sufficient.
    pub fn spans_routes(self, parts: &Parts) -> bool {
        let asks_for_all = |params: Params| params.has_any(&["all"]);
        self == Self::Refusals && Params::of(&parts.uri).is_ok_and(asks_for_all)
    }

    /// Whether the endpoint uses the request's body.
    pub fn reads_body(self) -> bool {
        matches!(self, Self::RouteInspect | Self::CchTest)
    }

    fn allows(self) -> &'static str {
        match self {
            Self::ActiveConnsSet => POSTS,
            Self::Toggle(_) | Self::Limit(_) | Self::Refusals => BOTH,
            // These endpoints write nothing, and they also accept requests without a body.
            Self::RouteInspect | Self::CchTest => BOTH,
            _ => READS,
        }
    }
}

/// The endpoints that also exist at the root, for many routes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Together {
    /// `/_decisions`
    Decisions,
    /// `/_sessions`
    Sessions,
}

impl Together {
    /// The endpoint for the only segment of a path.
    pub fn of(name: &str) -> Option<Self> {
        match name {
            "_decisions" => Some(Self::Decisions),
            "_sessions" => Some(Self::Sessions),
            _ => None,
        }
    }
}

/// Answers a request at the root that passed its guard, for the routes that the caller may see.
pub fn together<'r>(
    what: Together,
    routes: impl IntoIterator<Item = &'r Arc<Route>>,
    parts: &Parts,
) -> Answer {
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        return answer::method_not_allowed(READS);
    }
    let answered = Params::of(&parts.uri).and_then(|params| match what {
        Together::Decisions => recent(routes, &params),
        Together::Sessions => seats::every(routes, &params),
    });
    answered.unwrap_or_else(answer::bad_request)
}

/// The route with this name, when it is in force.
///
/// # Errors
/// The answer when it is not.
pub(super) fn in_force<'t>(
    table: &'t RouteTable,
    name: &str,
) -> Result<&'t Arc<Route>, Box<Answer>> {
    let refusal = match table.get(name) {
        Some(Entry::Ready { route, .. }) => return Ok(route),
        Some(Entry::Invalid { .. }) => {
            let message = "this route's file is invalid; GET /_routes says why";
            answer::error(StatusCode::SERVICE_UNAVAILABLE, "route_invalid", message)
        }
        None => answer::error(
            StatusCode::NOT_FOUND,
            "route_not_found",
            "there is no such route",
        ),
    };
    Err(Box::new(refusal))
}

/// Answers a request that passed its guard. `body` is empty unless
/// [`Endpoint::reads_body`].
pub fn answer(
    endpoint: Endpoint,
    table: &RouteTable,
    route: &str,
    parts: &Parts,
    body: &Bytes,
    events: &Events,
    log: &BodyLog,
) -> Answer {
    let route = match in_force(table, route) {
        Ok(route) => route,
        Err(refusal) => return *refusal,
    };
    let allow = endpoint.allows();
    if !allow
        .split(", ")
        .any(|method| method == parts.method.as_str())
    {
        return answer::method_not_allowed(allow);
    }
    let answered = Params::of(&parts.uri).and_then(|params| match endpoint {
        Endpoint::HealthStatus => Ok(health::status(table, route)),
        Endpoint::ActiveConns => Ok(health::active(route)),
        Endpoint::ActiveConnsSet => held::set(route, &params),
        Endpoint::RouteState => room::state(route, &params),
        Endpoint::RouteOpts => Ok(options::all(route)),
        Endpoint::RouteDebug => explain::debug(table, route, &params),
        Endpoint::RouteInspect => explain::inspect(table, route, parts, &params, body),
        Endpoint::Decisions => recent([route], &params),
        Endpoint::ClusterAvg => Ok(average::status(route)),
        Endpoint::RateLimitStatus => Ok(refusals::rate_limit(route)),
        Endpoint::Refusals => refusals::status(table, route, &parts.method, &params),
        Endpoint::SessionStatus => Ok(sessions::status(route)),
        Endpoint::Sessions => seats::status(route, &params),
        Endpoint::SignalStatus(signal) => Ok(signal::status(route, signal)),
        Endpoint::Limit(signal) => limit::limit(route, signal, &parts.method, &params, events),
        Endpoint::RejectRulesStatus => Ok(rules::status(route)),
        Endpoint::BodylogStatus => Ok(bodylog::status(route, log)),
        Endpoint::CchStripStatus => Ok(transforms::cch_strip(route)),
        Endpoint::CchTest => transforms::test(table, route, parts, &params, body),
        Endpoint::Toggle(Switch::Bodylog) if parts.method == Method::POST => {
            bodylog::set(route, &params, events)
        }
        Endpoint::Toggle(Switch::Bodylog) => Ok(bodylog::show(route, &params)),
        Endpoint::Toggle(switch) if parts.method == Method::POST => {
            toggle::set(route, switch, &params, events)
        }
        Endpoint::Toggle(switch) => Ok(toggle::show(route, switch, &params)),
    });
    answered.unwrap_or_else(answer::bad_request)
}

/// The 503 of a route without peers.
fn no_peers() -> proto::admin::ErrorDetail {
    answer::detail(
        StatusCode::SERVICE_UNAVAILABLE,
        "no_healthy_peer",
        "no peers are configured on this route",
    )
}

/// The key of a pool in every map of pools.
fn pool_name(route: &Route, pool: PoolId) -> String {
    let model = route.spec().pools[pool.0].model.as_deref();
    model.unwrap_or(FLAT_POOL).to_owned()
}

fn has_no_peers(route: &Route) -> bool {
    route.peers.iter().all(Vec::is_empty)
}
