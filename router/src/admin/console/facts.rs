//! The values behind the views.

use std::sync::Arc;
use std::time::Duration;

use proto::admin::{self, Finding, FindingCode};
use router_core::decision::PeerFacts;

use crate::admin::{AdminState, routes as listing};
use crate::clock::now;
use crate::state::{Entry, Route, Sample};

/// Time over which rates are taken.
pub(super) const RECENT: Duration = Duration::from_secs(60);

/// The fleet at one moment.
pub(super) struct Fleet {
    pub(super) status: admin::Routes,
    /// The problems, without the overrides.
    pub(super) problems: Vec<Finding>,
    /// In the order of the status.
    pub(super) live: Vec<Option<Live>>,
}

/// What a route in force does.
pub(super) struct Live {
    pub(super) samples: Vec<Sample>,
    pub(super) requests_per_s: f64,
    /// By pool, in the order of the status.
    pub(super) peers: Vec<Vec<PeerFacts>>,
}

/// Takes the values that the JSON pages show.
pub(super) fn gather(state: &AdminState) -> Fleet {
    let table = state.tables.load_full();
    let status = listing::routes(&table, state.metrics.reload(), state.lifecycle.phase());
    let live = table.entries.iter().map(|entry| match entry {
        Entry::Ready { route, .. } => Some(of_route(route)),
        Entry::Invalid { .. } => None,
    });
    let live = live.collect();
    let mut problems = state.findings.page(now()).findings;
    problems.retain(|finding| finding.code != FindingCode::OverrideInForce);
    Fleet {
        status,
        problems,
        live,
    }
}

fn of_route(route: &Arc<Route>) -> Live {
    let now = now();
    let requests = route.state.traffic.lock().requests(RECENT, now);
    Live {
        samples: route.state.history.lock().samples(),
        requests_per_s: requests as f64 / RECENT.as_secs_f64(),
        peers: route
            .pool_ids()
            .map(|pool| route.peer_facts(pool))
            .collect(),
    }
}

/// Adds one sample to the history of every route.
pub(in crate::admin) fn sample(state: &AdminState) {
    for route in state.tables.load_full().routes() {
        let mut sample = Sample::default();
        for pool in route.protections() {
            sample.in_flight += pool.in_flight;
            sample.waiting += pool.waiting;
            let ttft = pool.ttft.metrics.first().and_then(|metric| metric.ewma);
            let tps = pool.tps.metrics.first().and_then(|metric| metric.ewma);
            sample.ttft_ms = either(sample.ttft_ms, ttft, f64::max);
            sample.tps = either(sample.tps, tps, f64::min);
        }
        let refused = route.state.metrics.refusals();
        route.state.history.lock().push(sample, refused);
    }
}

fn either(a: Option<f64>, b: Option<f64>, choose: fn(f64, f64) -> f64) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(choose(a, b)),
        (one, None) | (None, one) => one,
    }
}
