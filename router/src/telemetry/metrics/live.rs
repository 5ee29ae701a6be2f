//! Gauges of the current state, read from their owners at each scrape: one short lock per pool. The
//! request path does no work for them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use router_bodylog::BodyLog;
use router_core::decision::PeerFacts;
use router_core::health::HealthState;
use router_core::load::Freshness;
use router_core::pool::Evidence;

use super::bodylog;
use super::catalogue::router;
use super::gates::{self, SeenGates};
use super::placement::{self, Families, SeenPlacements};
use crate::clock::now;
use crate::findings::Watch;
use crate::state::{Entry, Route, RouteTable, Switch};
use router_config::keys::KeyFileStatus;
use service::budget::ByteBudget;
use service::connections::{Connections, Rejected};
use service::families::Values;

const KEY_FILE_STATUSES: [KeyFileStatus; 4] = [
    KeyFileStatus::Ok,
    KeyFileStatus::Missing,
    KeyFileStatus::Unreadable,
    KeyFileStatus::Empty,
];

static FAMILIES: Families = Families {
    by_name: false,
    polls: &router::POLLS,
    selected: &router::SELECTED,
    evicted: &router::SESSIONS_EVICTED,
    expired: &router::SESSIONS_EXPIRED,
    wait_seconds: &router::WAIT_SECONDS,
    ttfb_seconds: &router::TTFB_SECONDS,
};

/// The families of the current table.
#[derive(Debug)]
pub struct Live {
    tables: Arc<ArcSwap<RouteTable>>,
    budget: ByteBudget,
    connections: Connections,
    bodylog: Arc<BodyLog>,
    findings: Arc<Watch>,
}

/// Owners with series of their own.
const OWNERS_MAX: usize = 200;

/// The state of one route at one scrape.
struct Seen<'t> {
    route: &'t Route,
    /// Distinct peers.
    peers: BTreeMap<String, PeerFacts>,
    gates: SeenGates,
}

impl Live {
    /// The families of the table that is in force at the time of the scrape.
    pub fn new(
        tables: Arc<ArcSwap<RouteTable>>,
        budget: ByteBudget,
        connections: Connections,
        bodylog: Arc<BodyLog>,
        findings: Arc<Watch>,
    ) -> Self {
        Self {
            tables,
            budget,
            connections,
            bodylog,
            findings,
        }
    }
}

impl Collector for Live {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        let table = self.tables.load();
        let seen: Vec<Seen<'_>> = table.routes().map(|route| Seen::of(route)).collect();
        peers(encoder, &seen)?;
        routes(encoder, &seen)?;
        gates::encode(encoder, seen.iter().map(|seen| &seen.gates))?;
        let placements: Vec<_> = table
            .routes()
            .map(|route| SeenPlacements::of(route))
            .collect();
        placement::encode(encoder, &FAMILIES, &placements)?;
        configuration(encoder, &table)?;
        sources(encoder, &seen)?;
        owners(encoder, &table)?;
        bodylog::families(encoder, &self.bodylog.status())?;
        let findings = self.findings.in_force().into_iter();
        router::FINDINGS.write(
            encoder,
            findings.map(|((code, severity), count)| {
                let labels = [code.as_str().into(), severity.as_str().into()];
                (labels, ConstGauge::new(count))
            }),
        )?;
        let used = self.budget.used() as f64;
        router::BUFFERED_BYTES.gauge(encoder, used)?;
        let limit = table.server.max_buffered_bytes as f64;
        router::BUFFERED_BYTES_LIMIT.gauge(encoder, limit)?;
        client_connections(encoder, &self.connections)
    }
}

impl<'t> Seen<'t> {
    fn of(route: &'t Route) -> Self {
        let facts = route.pool_ids().flat_map(|pool| route.peer_facts(pool));
        let peers = facts.map(|peer| (peer.peer.to_string(), peer)).collect();
        Self {
            route,
            peers,
            gates: SeenGates::of(route),
        }
    }

    fn label(&self) -> Values<'_, 1> {
        [(&*self.route.name).into()]
    }

    fn labels<'a>(&'a self, value: &'a str) -> Values<'a, 2> {
        [(&*self.route.name).into(), value.into()]
    }

    fn labels2<'a>(&'a self, peer: &'a str, value: &'a str) -> Values<'a, 3> {
        [(&*self.route.name).into(), peer.into(), value.into()]
    }
}

fn client_connections(
    encoder: &mut DescriptorEncoder<'_>,
    connections: &Connections,
) -> fmt::Result {
    router::CONNECTIONS.gauge(encoder, connections.open() as f64)?;
    router::CONNECTIONS_LIMIT.gauge(encoder, connections.limits().total as f64)?;
    let rejected = Rejected::ALL.map(|reason| {
        let count = ConstCounter::new(connections.rejected(reason));
        ([reason.as_str().into()], count)
    });
    router::CONNECTIONS_REJECTED.write(encoder, rejected)
}

fn peers(encoder: &mut DescriptorEncoder<'_>, seen: &[Seen<'_>]) -> fmt::Result {
    let each = |of: fn(&PeerFacts) -> u64| {
        seen.iter().flat_map(move |seen| {
            seen.peers
                .iter()
                .map(move |(key, peer)| (seen.labels(key), ConstGauge::new(of(peer))))
        })
    };
    router::IN_FLIGHT.write(encoder, each(|peer| u64::from(peer.in_flight)))?;
    router::PEER_LOAD.write(
        encoder,
        each(|peer| u64::from(peer.load.unwrap_or(peer.in_flight))),
    )?;
    router::PEER_SLOTS.write(encoder, each(|peer| u64::from(peer.slots)))?;
    router::PEER_FRESH.write(
        encoder,
        each(|peer| u64::from(peer.freshness.is_none_or(|now| now == Freshness::Fresh))),
    )?;
    router::PEER_HELD.write(
        encoder,
        each(|peer| u64::from(peer.freshness == Some(Freshness::Held))),
    )?;
    router::PEER_SUSPECT.write(
        encoder,
        each(|peer| u64::from(peer.health.state == HealthState::Suspect)),
    )?;
    router::PEER_FIRST_BYTE_WAIT_SECONDS.write(
        encoder,
        each(|peer| peer.health.silent_s.unwrap_or_default()),
    )?;
    router::PEER_PROBE_SILENT_SECONDS.write(
        encoder,
        each(|peer| {
            peer.probe
                .and_then(|probe| probe.silent_s)
                .unwrap_or_default()
        }),
    )?;
    let every = || {
        seen.iter().flat_map(|seen| {
            let peers = seen.peers.iter();
            peers.map(move |(key, peer)| (seen, &**key, peer))
        })
    };
    router::PEER_STATE.write(
        encoder,
        every().flat_map(|(seen, key, peer)| {
            HealthState::ALL.iter().map(move |state| {
                let is_now = u64::from(peer.health.state == *state);
                (seen.labels2(key, state.as_str()), ConstGauge::new(is_now))
            })
        }),
    )?;
    // A peer that was never probed has no series.
    let probed = || every().filter_map(|(seen, key, peer)| Some((seen, key, peer.probe?)));
    router::PEER_PROBE.write(
        encoder,
        probed().flat_map(|(seen, key, probe)| {
            Evidence::ALL.iter().map(move |result| {
                let is_now = u64::from(probe.outcome == *result);
                (seen.labels2(key, result.as_str()), ConstGauge::new(is_now))
            })
        }),
    )?;
    router::PEER_PROBE_AGE_SECONDS.write(
        encoder,
        probed().map(|(seen, key, probe)| (seen.labels(key), ConstGauge::new(probe.age_s))),
    )?;
    router::PEER_ATTEMPTS.write(
        encoder,
        every().flat_map(|(seen, key, peer)| {
            let counts = seen.route.attempts(&peer.peer).by_outcome();
            counts
                .map(move |(outcome, count)| (seen.labels2(key, outcome), ConstCounter::new(count)))
        }),
    )?;
    // A disabled peer has no state: it is not probed.
    let enabled = seen.iter().flat_map(|seen| {
        seen.peers
            .iter()
            .filter(|(_, peer)| peer.enabled)
            .map(move |(key, peer)| {
                let healthy = u64::from(is_healthy(peer));
                (seen.labels(key), ConstGauge::new(healthy))
            })
    });
    router::PEER_HEALTHY.write(encoder, enabled)
}

/// Whether a peer may get requests. A suspect peer keeps its sessions, and a held one takes a
/// request.
fn is_healthy(peer: &PeerFacts) -> bool {
    let is_readable = peer.freshness.is_none_or(Freshness::is_candidate);
    let is_out = matches!(
        peer.health.state,
        HealthState::Ejected | HealthState::Probing
    );
    !peer.banned && is_readable && !is_out
}

fn routes(encoder: &mut DescriptorEncoder<'_>, seen: &[Seen<'_>]) -> fmt::Result {
    router::SESSIONS.write(
        encoder,
        seen.iter().map(|seen| {
            let pools = seen.route.pool_ids();
            let sessions: u64 = pools.map(|pool| seen.route.memory(pool).sessions).sum();
            (seen.label(), ConstGauge::new(sessions))
        }),
    )?;
    router::LIMIT_FACTOR.write(
        encoder,
        seen.iter().map(|seen| {
            let factor = seen.route.options.rt_limit_factor.value;
            (seen.label(), ConstGauge::new(factor))
        }),
    )?;
    router::OVERRIDE_ACTIVE.write(
        encoder,
        seen.iter().flat_map(|seen| {
            let switches = Switch::ALL
                .into_iter()
                .map(|switch| (switch.name(), seen.route.is_overridden(switch)));
            switches
                .chain(seen.gates.limits_set())
                .chain([("active-conns", seen.route.holds_back())])
                .map(|(name, is_set)| (seen.labels(name), ConstGauge::new(u64::from(is_set))))
        }),
    )
}

/// What owners use, of the first owners by name.
fn owners(encoder: &mut DescriptorEncoder<'_>, table: &RouteTable) -> fmt::Result {
    let mut uses = table
        .owners
        .as_ref()
        .map(|book| book.uses())
        .unwrap_or_default();
    uses.truncate(OWNERS_MAX);
    router::OWNER_IN_FLIGHT.write(
        encoder,
        uses.iter().map(|one| {
            (
                [(&*one.owner).into()],
                ConstGauge::new(u64::from(one.in_flight)),
            )
        }),
    )?;
    router::OWNER_REFUSALS.write(
        encoder,
        uses.iter().flat_map(|one| {
            let counts = [
                ("concurrency", one.refused_concurrency),
                ("rate", one.refused_rate),
            ];
            counts.map(|(reason, count)| {
                (
                    [(&*one.owner).into(), reason.into()],
                    ConstCounter::new(count),
                )
            })
        }),
    )
}

/// The sources of peers.
fn sources(encoder: &mut DescriptorEncoder<'_>, seen: &[Seen<'_>]) -> fmt::Result {
    let with_source = seen.iter().filter(|seen| seen.route.peers_from.is_some());
    let states: Vec<_> = with_source
        .filter_map(|seen| Some((seen, seen.route.state.found.state()?)))
        .collect();
    let now = now();
    router::PEER_SOURCE_AGE_SECONDS.write(
        encoder,
        states.iter().filter_map(|(seen, state)| {
            let age = now.saturating_duration_since(state.at?);
            Some((seen.label(), ConstGauge::new(age.as_secs_f64())))
        }),
    )?;
    router::PEER_SOURCE_ERRORS.write(
        encoder,
        states
            .iter()
            .map(|(seen, state)| (seen.label(), ConstCounter::new(state.errors))),
    )?;
    router::PEER_SOURCE_PEERS.write(
        encoder,
        states
            .iter()
            .map(|(seen, state)| (seen.label(), ConstGauge::new(state.peers as f64))),
    )
}

fn configuration(encoder: &mut DescriptorEncoder<'_>, table: &RouteTable) -> fmt::Result {
    let valid = table.entries.iter().map(|entry| {
        let is_valid = matches!(entry, Entry::Ready { stale, .. } if stale.is_empty());
        (
            [entry.name().to_string().into()],
            ConstGauge::new(u64::from(is_valid)),
        )
    });
    router::ROUTE_VALID.write(encoder, valid)?;
    let statuses = KEY_FILE_STATUSES.into_iter().map(|status| {
        let is_now = table.keys.status == status;
        ([status.as_str().into()], ConstGauge::new(u64::from(is_now)))
    });
    router::KEY_FILE_STATUS.write(encoder, statuses)
}
