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

use service::families::{Family, Values};

use super::catalogue::proxy;
use super::placement::{self, Families, SeenPlacements};
use crate::state::Route;

/// The state of some routes at one scrape.
#[derive(Debug)]
pub struct Backends {
    backends: Vec<Backend>,
    routes: Vec<RouteLoad>,
    placements: Vec<SeenPlacements>,
    request_seconds: Vec<Histogram>,
}

static FAMILIES: Families = Families {
    by_name: true,
    polls: &proxy::BACKEND_POLLS,
    selected: &proxy::SELECTED,
    evicted: &proxy::SESSIONS_EVICTED,
    expired: &proxy::SESSIONS_EXPIRED,
    wait_seconds: &proxy::WAIT_SECONDS,
    ttfb_seconds: &proxy::TTFB_SECONDS,
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
        for (family, of) in GAUGES {
            let series = self.backends.iter().filter_map(|backend| {
                let value = of(backend)?;
                Some((labels(backend), ConstGauge::new(value)))
            });
            family.write(encoder, series)?;
        }
        placement::encode(encoder, &FAMILIES, &self.placements)?;
        self.routes(encoder)
    }
}

impl Backends {
    fn routes(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        proxy::WAITING.write(
            encoder,
            self.routes.iter().map(|load| {
                (
                    [(&*load.route).into()],
                    ConstGauge::new(u64::from(load.waiting)),
                )
            }),
        )?;
        proxy::REJECTED.write(
            encoder,
            self.routes.iter().flat_map(|load| {
                load.rejected.iter().map(move |(reason, count)| {
                    let labels = [(&*load.route).into(), reason.into()];
                    (labels, ConstCounter::new(*count))
                })
            }),
        )?;
        let histograms = self.routes.iter().zip(&self.request_seconds);
        proxy::REQUEST_SECONDS.write(
            encoder,
            histograms.map(|(load, seconds)| ([(&*load.route).into()], seconds.clone())),
        )?;
        let requests = self.routes.iter().flat_map(|load| {
            load.requests.iter().map(move |(code, count)| {
                let labels = [(&*load.route).into(), code.to_string().into()];
                (labels, ConstCounter::new(*count))
            })
        });
        proxy::REQUESTS.write(encoder, requests)
    }
}

/// The value, if there is one.
type Value = fn(&Backend) -> Option<f64>;

static GAUGES: [(&Family<2>, Value); 11] = [
    (&proxy::BACKEND_BUSY, |b| b.busy.map(f64::from)),
    (&proxy::BACKEND_EXTERNAL, |b| b.external.map(f64::from)),
    (&proxy::BACKEND_IN_FLIGHT, |b| Some(b.in_flight.into())),
    (&proxy::BACKEND_LOAD, |b| Some(b.load.into())),
    (&proxy::BACKEND_SLOTS, |b| Some(b.slots.into())),
    (&proxy::BACKEND_SLOTS_REPORTED, |b| {
        b.slots_reported.map(f64::from)
    }),
    (&proxy::BACKEND_FRESH, |b| Some(u8::from(b.fresh).into())),
    (&proxy::BACKEND_HELD, |b| Some(u8::from(b.held).into())),
    (&proxy::BACKEND_SAMPLE_AGE_SECONDS, |b| b.sample_age_seconds),
    (&proxy::BACKEND_IDLE_SECONDS, |b| b.idle_seconds),
    (&proxy::SESSIONS, |b| b.sessions.map(f64::from)),
];

fn labels(backend: &Backend) -> Values<'_, 2> {
    [
        backend.route.as_str().into(),
        backend.backend.as_str().into(),
    ]
}
