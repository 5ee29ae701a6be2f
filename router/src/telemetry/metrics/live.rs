//! Gauges of the current state, read from their owners at each scrape: one short lock per pool. The
//! request path does no work for them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::gauge::ConstGauge;
use router_bodylog::BodyLog;
use router_core::decision::PeerFacts;
use router_core::health::HealthState;
use router_core::load::Freshness;

use super::bodylog;
use super::encode::{Labels, family, gauge};
use super::gates::{self, SeenGates};
use super::placement::{self, Names, SeenPlacements};
use crate::state::{Entry, Route, RouteTable, Switch};
use router_config::keys::KeyFileStatus;
use service::budget::ByteBudget;

const KEY_FILE_STATUSES: [KeyFileStatus; 4] = [
    KeyFileStatus::Ok,
    KeyFileStatus::Missing,
    KeyFileStatus::Unreadable,
    KeyFileStatus::Empty,
];

const NAMES: Names = Names {
    peer: "peer",
    by_name: false,
    polls: "llm_router_polls",
    selected: "llm_router_selected",
    evicted: "llm_router_sessions_evicted",
    expired: "llm_router_sessions_expired",
    wait_seconds: "llm_router_wait_seconds",
    ttfb_seconds: "llm_router_ttfb_seconds",
};

/// The families of the current table.
#[derive(Debug)]
pub struct Live {
    tables: Arc<ArcSwap<RouteTable>>,
    budget: ByteBudget,
    bodylog: Arc<BodyLog>,
}

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
        bodylog: Arc<BodyLog>,
    ) -> Self {
        Self {
            tables,
            budget,
            bodylog,
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
        placement::encode(encoder, &NAMES, &placements)?;
        configuration(encoder, &table)?;
        bodylog::families(encoder, &self.bodylog.status())?;
        let used = self.budget.used() as f64;
        gauge(
            encoder,
            "llm_router_buffered_bytes",
            "Request body bytes held in memory.",
            used,
        )?;
        let limit = table.server.max_buffered_bytes as f64;
        gauge(
            encoder,
            "llm_router_buffered_bytes_limit",
            "Most request body bytes held in memory.",
            limit,
        )
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

    fn label(&self) -> Labels<'static> {
        vec![("route", self.route.name.to_string().into())]
    }

    fn labels(&self, name: &'static str, value: &str) -> Labels<'static> {
        vec![
            ("route", self.route.name.to_string().into()),
            (name, value.to_owned().into()),
        ]
    }
}

fn peers(encoder: &mut DescriptorEncoder<'_>, seen: &[Seen<'_>]) -> fmt::Result {
    let each = |of: fn(&PeerFacts) -> u64| {
        seen.iter().flat_map(move |seen| {
            seen.peers
                .iter()
                .map(move |(key, peer)| (seen.labels("peer", key), ConstGauge::new(of(peer))))
        })
    };
    family(
        encoder,
        "llm_router_in_flight",
        "Requests reserved on a peer and not finished.",
        each(|peer| u64::from(peer.in_flight)),
    )?;
    family(
        encoder,
        "llm_router_peer_load",
        "Requests on a peer: the router's own, and others' where its engine is polled.",
        each(|peer| u64::from(peer.load.unwrap_or(peer.in_flight))),
    )?;
    family(
        encoder,
        "llm_router_peer_slots",
        "Requests a peer runs at once, as placement takes it.",
        each(|peer| u64::from(peer.slots)),
    )?;
    family(
        encoder,
        "llm_router_peer_fresh",
        "1 while a peer's last load sample is recent, or where it is not polled.",
        each(|peer| u64::from(peer.freshness.is_none_or(|now| now == Freshness::Fresh))),
    )?;
    family(
        encoder,
        "llm_router_peer_held",
        "1 while a peer is alive, too busy to be read, and taken for full.",
        each(|peer| u64::from(peer.freshness == Some(Freshness::Held))),
    )?;
    // A disabled peer has no state: it is not probed.
    let enabled = seen.iter().flat_map(|seen| {
        seen.peers
            .iter()
            .filter(|(_, peer)| peer.enabled)
            .map(move |(key, peer)| {
                (
                    seen.labels("peer", key),
                    ConstGauge::new(u64::from(is_healthy(peer))),
                )
            })
    });
    family(
        encoder,
        "llm_router_peer_healthy",
        "1 while an enabled peer may get requests: it is not banned, ejected, stale or being probed.",
        enabled,
    )
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
    family(
        encoder,
        "llm_router_sessions",
        "Sessions remembered; placement by hash remembers none.",
        seen.iter().map(|seen| {
            let pools = seen.route.pool_ids();
            let sessions: u64 = pools.map(|pool| seen.route.memory(pool).sessions).sum();
            (seen.label(), ConstGauge::new(sessions))
        }),
    )?;
    family(
        encoder,
        "llm_router_limit_factor",
        "rt_limit_factor: multiplies llm_router_limit before requests in flight are compared with it.",
        seen.iter().map(|seen| {
            let factor = seen.route.options.rt_limit_factor.value;
            (seen.label(), ConstGauge::new(factor))
        }),
    )?;
    family(
        encoder,
        "llm_router_override_active",
        "1 while a switch or a limit is set, or a peer's units are held back, on the running router.",
        seen.iter().flat_map(|seen| {
            let switches = Switch::ALL
                .into_iter()
                .map(|switch| (switch.name(), seen.route.is_overridden(switch)));
            switches
                .chain(seen.gates.limits_set())
                .chain([("active-conns", seen.route.holds_back())])
                .map(|(name, is_set)| {
                    (
                        seen.labels("switch", name),
                        ConstGauge::new(u64::from(is_set)),
                    )
                })
        }),
    )
}

fn configuration(encoder: &mut DescriptorEncoder<'_>, table: &RouteTable) -> fmt::Result {
    let valid = table.entries.iter().map(|entry| {
        let is_valid = matches!(entry, Entry::Ready { stale, .. } if stale.is_empty());
        (
            vec![("route", entry.name().to_string().into())],
            ConstGauge::new(u64::from(is_valid)),
        )
    });
    family(
        encoder,
        "llm_router_route_valid",
        "1 while a route's file on disk is the version in force.",
        valid,
    )?;
    let statuses = KEY_FILE_STATUSES.into_iter().map(|status| {
        let is_now = table.keys.status == status;
        (
            vec![("status", status.as_str().into())],
            ConstGauge::new(u64::from(is_now)),
        )
    });
    family(
        encoder,
        "llm_router_key_file_status",
        "1 for what the last read of the key file found.",
        statuses,
    )
}
