//! The families of `/proxy/metrics`: each peer's load as placement sees it, and the results of its
//! requests.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use proto::admin::{self, Backend, RouteLoad};
use router_core::decision::PeerFacts;
use router_core::load::{Freshness, Idle};

use super::encode::{Labels, family};
use super::placement::{self, Names, SeenPlacements};
use crate::state::Route;

/// The state of some routes at one scrape.
#[derive(Debug)]
pub struct Backends {
    backends: Vec<Backend>,
    routes: Vec<RouteLoad>,
    placements: Vec<SeenPlacements>,
    request_seconds: Vec<Histogram>,
}

const NAMES: Names = Names {
    peer: "backend",
    by_name: true,
    polls: "proxy_backend_polls",
    selected: "proxy_selected",
    evicted: "proxy_sessions_evicted",
    expired: "proxy_sessions_expired",
    wait_seconds: "proxy_wait_seconds",
    ttfb_seconds: "proxy_ttfb_seconds",
};

impl Backends {
    /// Reads the peers of `routes`: one short lock per pool and per peer.
    pub fn of<'r>(routes: impl IntoIterator<Item = &'r Route>) -> Self {
        let mut seen = Self {
            backends: Vec::new(),
            routes: Vec::new(),
            placements: Vec::new(),
            request_seconds: Vec::new(),
        };
        for route in routes {
            let placements = SeenPlacements::of(route);
            seen.backends.extend(of_route(route, &placements));
            seen.routes.push(route_load(route, &placements));
            seen.placements.push(placements);
            let metrics = &route.state.metrics;
            seen.request_seconds.push(metrics.request_seconds.clone());
        }
        seen
    }

    /// The same data for JSON.
    pub fn into_json(self) -> admin::Backends {
        admin::Backends {
            backends: self.backends,
            routes: self.routes,
        }
    }
}

fn route_load(route: &Route, placements: &SeenPlacements) -> RouteLoad {
    let metrics = &route.state.metrics;
    let mut requests = BTreeMap::new();
    let tally = metrics.tally.lock();
    let by_peer = tally.requests.values().flatten();
    for (code, count) in by_peer.flat_map(|(_, codes)| codes) {
        *requests.entry(*code).or_default() += count;
    }
    drop(tally);
    let rejected = metrics.refusals.by_code().into_iter();
    let (sessions_evicted, sessions_expired) = placements.losses();
    RouteLoad {
        route: route.name.to_string(),
        waiting: route.protections().iter().map(|pool| pool.waiting).sum(),
        requests,
        rejected: rejected.map(|(code, n)| (code.to_owned(), n)).collect(),
        sessions_evicted,
        sessions_expired,
    }
}

/// A peer in several pools is one engine: only its sessions are separate.
fn of_route(route: &Route, placements: &SeenPlacements) -> Vec<Backend> {
    let mut seen: Vec<(PeerFacts, Backend)> = Vec::new();
    for facts in route.pool_ids().flat_map(|pool| route.peer_facts(pool)) {
        match seen.iter_mut().find(|(other, _)| other.peer == facts.peer) {
            Some((_, known)) => {
                known.sessions = known.sessions.zip(facts.sessions).map(|(a, b)| a + b);
            }
            None => {
                let backend = backend(route, &facts, placements);
                seen.push((facts, backend));
            }
        }
    }
    seen.into_iter().map(|(_, backend)| backend).collect()
}

fn backend(route: &Route, facts: &PeerFacts, placements: &SeenPlacements) -> Backend {
    let now = tokio::time::Instant::now().into_std();
    let load = facts.load.unwrap_or(facts.in_flight);
    let known = route.known_load(&facts.peer).filter(|_| route.polls());
    let sample = known.and_then(|known| known.reading.sample(now));
    let idle = known.and_then(|known| match known.reading.idle(load, now) {
        Idle::Busy => Some(0.0),
        Idle::For(time) => Some(time.as_secs_f64()),
        Idle::Asleep | Idle::Always => None,
    });
    Backend {
        route: route.name.to_string(),
        backend: facts.name.clone(),
        busy: sample.map(|(sample, _)| sample.busy()),
        external: known
            .filter(|_| sample.is_some())
            .map(|known| known.reading.external()),
        in_flight: facts.in_flight,
        load,
        slots: facts.slots,
        slots_reported: known.and_then(|known| known.learned),
        fresh: facts.freshness.is_none_or(|now| now == Freshness::Fresh),
        held: facts.freshness == Some(Freshness::Held),
        sample_age_seconds: sample.map(|(_, age)| age.as_secs_f64()),
        idle_seconds: idle,
        sessions: facts.sessions,
        selected: placements.by_reason(facts.peer.as_str()),
        polls: placements.by_result(facts.peer.as_str()),
    }
}

impl Collector for Backends {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        for (name, help, of) in GAUGES {
            let series = self.backends.iter().filter_map(|backend| {
                let value = of(backend)?;
                Some((labels(backend), ConstGauge::new(value)))
            });
            family(encoder, name, help, series)?;
        }
        placement::encode(encoder, &NAMES, &self.placements)?;
        self.routes(encoder)
    }
}

impl Backends {
    fn routes(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let route = |load: &RouteLoad| ("route", load.route.clone().into());
        family(
            encoder,
            "proxy_waiting",
            "Requests that wait for a slot of a full pool.",
            self.routes
                .iter()
                .map(|load| (vec![route(load)], ConstGauge::new(u64::from(load.waiting)))),
        )?;
        family(
            encoder,
            "proxy_rejected",
            "Requests that no peer was chosen for, by the error's code.",
            self.routes.iter().flat_map(|load| {
                load.rejected.iter().map(move |(reason, count)| {
                    let labels: Labels<'_> = vec![route(load), ("reason", reason.into())];
                    (labels, ConstCounter::new(*count))
                })
            }),
        )?;
        let histograms = self.routes.iter().zip(&self.request_seconds);
        family(
            encoder,
            "proxy_request_seconds",
            "Arrival of a request to the last byte of its answer.",
            histograms.map(|(load, seconds)| (vec![route(load)], seconds.clone())),
        )?;
        let requests = self.routes.iter().flat_map(|load| {
            load.requests.iter().map(move |(code, count)| {
                let labels: Labels<'_> = vec![route(load), ("code", code.to_string().into())];
                (labels, ConstCounter::new(*count))
            })
        });
        family(
            encoder,
            "proxy_requests",
            "Requests finished, by the status sent to the client.",
            requests,
        )
    }
}

/// Name, help, and the value if there is one.
type Gauge = (&'static str, &'static str, fn(&Backend) -> Option<f64>);

const GAUGES: [Gauge; 11] = [
    (
        "proxy_backend_busy",
        "Requests that the engine said it had, whoever sent them.",
        |b| b.busy.map(f64::from),
    ),
    (
        "proxy_backend_external",
        "Those of the engine's requests that others sent.",
        |b| b.external.map(f64::from),
    ),
    (
        "proxy_backend_in_flight",
        "The router's own requests on it.",
        |b| Some(b.in_flight.into()),
    ),
    ("proxy_backend_load", "What placement compares.", |b| {
        Some(b.load.into())
    }),
    (
        "proxy_backend_slots",
        "Requests it runs at once, as placement takes it.",
        |b| Some(b.slots.into()),
    ),
    (
        "proxy_backend_slots_reported",
        "Requests it runs at once, as the engine says.",
        |b| b.slots_reported.map(f64::from),
    ),
    (
        "proxy_backend_fresh",
        "1 while its last sample is recent, or where it is not polled.",
        |b| Some(u8::from(b.fresh).into()),
    ),
    (
        "proxy_backend_held",
        "1 while it is alive, too busy to be read, and taken for full.",
        |b| Some(u8::from(b.held).into()),
    ),
    (
        "proxy_backend_sample_age_seconds",
        "Age of its last sample.",
        |b| b.sample_age_seconds,
    ),
    (
        "proxy_backend_idle_seconds",
        "How long it has had nothing to do; absent when it never had.",
        |b| b.idle_seconds,
    ),
    (
        "proxy_sessions",
        "Sessions that live on it, where they are remembered.",
        |b| b.sessions.map(f64::from),
    ),
];

fn labels(backend: &Backend) -> Labels<'_> {
    vec![
        ("route", backend.route.as_str().into()),
        ("backend", backend.backend.as_str().into()),
    ]
}
