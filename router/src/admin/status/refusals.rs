//! `_429_status` and `_rate_limit_status`: counts of refusals, and of requests that a disabled gate
//! would have refused.

use std::collections::BTreeMap;

use http::{Method, StatusCode};
use proto::admin::{RateLimitStatus, Reasons, RefusalReset, RefusalStatus, Trips};

use super::POSTS;
use crate::admin::answer::{self, Answer};
use crate::admin::query::{Params, Refused};
use crate::state::{Route, RouteTable, Switch};
use crate::telemetry::metrics::Gate;

/// The scope of `all=1`.
const ALL: &str = "all";

/// `_rate_limit_status`.
pub(super) fn rate_limit(route: &Route) -> Answer {
    answer::json(StatusCode::OK, &master_switch(route))
}

/// `_429_status`: of this route, or with `all=1` of every route. `POST ?reset=1` resets the counts.
pub(super) fn status(
    table: &RouteTable,
    route: &Route,
    method: &Method,
    params: &Params,
) -> Result<Answer, Refused> {
    params.only(&["all", "reset"])?;
    let everywhere = params.flag("all")?;
    let reset = params.flag("reset")?;
    let scope = if everywhere { ALL } else { &*route.name };
    match (method == Method::POST, reset) {
        (false, true) => Ok(answer::method_not_allowed(POSTS)),
        (false, false) => Ok(answer::json(
            StatusCode::OK,
            &show(table, route, everywhere, scope),
        )),
        (true, false) => Err("say reset=1".to_owned()),
        (true, true) => {
            let mut before = Reasons::default();
            for route in in_scope(table, route, everywhere) {
                before.add(&reasons(route.state.metrics.reset_refusals()));
            }
            tracing::info!(scope, total = before.total(), "refusal counters zeroed");
            let reset = RefusalReset {
                reset: true,
                scope: scope.to_owned(),
                before,
            };
            Ok(answer::json(StatusCode::OK, &reset))
        }
    }
}

fn show(table: &RouteTable, route: &Route, everywhere: bool, scope: &str) -> RefusalStatus {
    let by_route: BTreeMap<String, Reasons> = in_scope(table, route, everywhere)
        .map(|route| (route.name.to_string(), refused(route)))
        .collect();
    let mut by_reason = Reasons::default();
    by_route.values().for_each(|of_one| by_reason.add(of_one));
    RefusalStatus {
        scope: scope.to_owned(),
        total: by_reason.total(),
        by_reason,
        by_route,
        rate_limit: master_switch(route),
    }
}

fn in_scope<'t>(
    table: &'t RouteTable,
    route: &'t Route,
    everywhere: bool,
) -> impl Iterator<Item = &'t Route> {
    table
        .routes()
        .map(|route| &**route)
        .filter(move |one| everywhere || one.name == route.name)
}

fn master_switch(route: &Route) -> RateLimitStatus {
    let now = route.switch(Switch::RateLimit);
    RateLimitStatus {
        route: route.name.to_string(),
        enabled: now.value,
        source: now.source.as_str().to_owned(),
        trips: trips(route),
    }
}

/// Trips of a route since the start or the last reset.
pub(in crate::admin) fn trips(route: &Route) -> Trips {
    let trips = route.trips();
    Trips {
        concurrency: trips.concurrency,
        ttft: trips.ttft,
        tps: trips.tps,
    }
}

/// Refusals of a route since the start or the last reset.
pub(in crate::admin) fn refused(route: &Route) -> Reasons {
    reasons(route.state.metrics.refusals())
}

/// The counts in the order of [`Gate::ALL`], by name.
fn reasons(counts: [u64; Gate::ALL.len()]) -> Reasons {
    let of = |gate: Gate| counts[gate as usize];
    Reasons {
        concurrency: of(Gate::Concurrency),
        ttft: of(Gate::Ttft),
        tps: of(Gate::Tps),
        rule: of(Gate::Rule),
    }
}
