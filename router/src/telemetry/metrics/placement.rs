//! Counters of placement: which peer got a request and why, refused requests, waiting times and
//! poll results.
//!
//! [`RouteMetrics`] holds the counters. Two pages show them, under the names of `/proxy/metrics`
//! and of `/metrics`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;
use router_core::book::MemoryState;
use router_core::decision::{Facts, Mode};
use router_core::load::Report;

use service::families::{Family, Values};

use super::route::{NONE, RouteMetrics};
use crate::state::Route;

/// Why a peer got a request: the first reason that applies, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The request's session lives there, or was placed there as a new one.
    Sticky,
    /// The peer computed the beginning of the conversation.
    Prefix,
    /// The request waited for a slot and got one.
    Waited,
    /// All peers were full, and `full_policy` sends the request anyway.
    Overflow,
    /// No peer that lists the request's model was usable.
    PinFallback,
    /// The peer lists the model.
    Pin,
    /// Only `balance` decided.
    Strategy,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 7] = [
        Self::Sticky,
        Self::Prefix,
        Self::Waited,
        Self::Overflow,
        Self::PinFallback,
        Self::Pin,
        Self::Strategy,
    ];

    /// The label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sticky => "sticky",
            Self::Prefix => "prefix",
            Self::Waited => "waited",
            Self::Overflow => "overflow",
            Self::PinFallback => "pin_fallback",
            Self::Pin => "pin",
            Self::Strategy => "strategy",
        }
    }

    /// The reason of one placement. `listed`: some peer lists the request's model, and models pin.
    pub fn of(mode: Mode, facts: &Facts, listed: bool) -> Self {
        let is_full = f64::from(facts.peer_in_flight) >= f64::from(facts.peer_slots) * facts.factor;
        match mode {
            Mode::Hash | Mode::Sticky | Mode::StickyNew => Self::Sticky,
            Mode::Prefix => Self::Prefix,
            Mode::HashFallback | Mode::Pin | Mode::Balance(_) if is_full => Self::Overflow,
            Mode::HashFallback | Mode::Pin | Mode::Balance(_) if facts.waited_ms.is_some() => {
                Self::Waited
            }
            Mode::HashFallback | Mode::Pin | Mode::Balance(_)
                if listed && facts.pinned.is_none() =>
            {
                Self::PinFallback
            }
            Mode::Pin => Self::Pin,
            Mode::HashFallback if listed => Self::Pin,
            Mode::HashFallback | Mode::Balance(_) => Self::Strategy,
        }
    }
}

/// The result of polling an engine's load, as an index of the labels.
fn result(report: Report) -> usize {
    match report {
        Report::Sampled(_) => 0,
        Report::Blind => 1,
        Report::Sleeping => 2,
        Report::Dead => 3,
        Report::Loading => 4,
        Report::Misconfigured => 5,
        Report::Hung { .. } => 6,
        Report::Unusable => 7,
    }
}

/// The labels of [`result`].
const RESULTS: [&str; 8] = [
    "sampled",
    "blind",
    "sleeping",
    "dead",
    "loading",
    "misconfigured",
    "hung",
    "unusable",
];

/// Counts of one peer.
#[derive(Clone, Debug, Default)]
pub(super) struct PeerPlacements {
    /// By `balance` and reason; bounded by the number of such pairs.
    selected: BTreeMap<(&'static str, Reason), u64>,
    /// Index as in [`RESULTS`].
    polls: [u64; RESULTS.len()],
}

/// Measures a wait for a slot, whatever its result.
#[derive(Debug)]
pub struct WaitTimer {
    metrics: Arc<RouteMetrics>,
    since: Instant,
}

impl Drop for WaitTimer {
    fn drop(&mut self) {
        let now = tokio::time::Instant::now().into_std();
        let waited = now.saturating_duration_since(self.since);
        self.metrics.wait_seconds.observe(waited.as_secs_f64());
    }
}

impl RouteMetrics {
    /// Counts a request's first placement; `strategy` is the current `balance`.
    pub fn selected(&self, peer: &str, strategy: &'static str, reason: Reason) {
        if let Some(tally) = self.tally.lock().peers.get_mut(peer) {
            let count = tally.placements.selected.entry((strategy, reason));
            *count.or_default() += 1;
        }
    }

    /// Counts a poll.
    pub(in crate::telemetry) fn polled(&self, peer: &str, report: Report) {
        if let Some(tally) = self.tally.lock().peers.get_mut(peer) {
            tally.placements.polls[result(report)] += 1;
        }
    }

    /// Starts measuring a wait for a slot; dropping the value ends it.
    pub fn wait(self: &Arc<Self>) -> WaitTimer {
        WaitTimer {
            metrics: Arc::clone(self),
            since: tokio::time::Instant::now().into_std(),
        }
    }
}

/// The state of one route at one scrape.
#[derive(Debug)]
pub(super) struct SeenPlacements {
    route: String,
    metrics: Arc<RouteMetrics>,
    /// The current `balance`.
    strategy: &'static str,
    polls: bool,
    /// Distinct peers, file order: `host:port` and name.
    peers: Vec<(String, String)>,
    /// By model label; empty when no session is remembered.
    memories: Vec<(String, MemoryState)>,
}

impl SeenPlacements {
    pub(super) fn of(route: &Route) -> Self {
        let peers = route.distinct_peers().into_iter();
        let peers = peers.map(|peer| (peer.spec.key.to_string(), peer.spec.name.to_string()));
        let memory = |pool: router_core::book::PoolId| {
            let model = route.spec().pools[pool.0].model.as_deref();
            (model.unwrap_or(NONE).to_owned(), route.memory(pool))
        };
        let remembers = route.spec().remembers_sessions();
        Self {
            route: route.name.to_string(),
            metrics: Arc::clone(&route.state.metrics),
            strategy: route.spec().balance.as_str(),
            polls: route.polls(),
            peers: peers.collect(),
            memories: route.pool_ids().filter(|_| remembers).map(memory).collect(),
        }
    }

    /// The counts of one peer by strategy and reason; includes every reason of the current
    /// strategy.
    fn selected(&self, peer: &str) -> BTreeMap<(&'static str, Reason), u64> {
        let zero = Reason::ALL.map(|reason| ((self.strategy, reason), 0));
        let mut selected = BTreeMap::from(zero);
        if let Some(tally) = self.metrics.tally.lock().peers.get(peer) {
            selected.extend(&tally.placements.selected);
        }
        selected
    }

    /// The counts of one peer by reason.
    pub(super) fn by_reason(&self, peer: &str) -> BTreeMap<String, u64> {
        let mut by_reason = BTreeMap::new();
        for ((_, reason), count) in self.selected(peer) {
            *by_reason.entry(reason.as_str().to_owned()).or_default() += count;
        }
        by_reason
    }

    /// The counts of one peer by result; `None` when it is not polled.
    pub(super) fn by_result(&self, peer: &str) -> Option<BTreeMap<String, u64>> {
        let tally = self.metrics.tally.lock();
        let polls = tally.peers.get(peer).map(|tally| tally.placements.polls);
        let results = RESULTS.map(str::to_owned);
        let zipped = results.into_iter().zip(polls.unwrap_or_default());
        self.polls.then(|| zipped.collect())
    }

    /// Sessions lost to the cap and to expiry, for all pools together.
    pub(super) fn losses(&self) -> (u64, u64) {
        let memories = self.memories.iter();
        memories.fold((0, 0), |(evicted, expired), (_, memory)| {
            (evicted + memory.evicted, expired + memory.expired)
        })
    }
}

/// The families of one page.
pub(super) struct Families {
    /// Whether the label of a peer is its name instead of its `host:port`.
    pub(super) by_name: bool,
    pub(super) polls: &'static Family<3>,
    pub(super) selected: &'static Family<4>,
    pub(super) evicted: &'static Family<2>,
    pub(super) expired: &'static Family<2>,
    pub(super) wait_seconds: &'static Family<1>,
    pub(super) ttfb_seconds: &'static Family<1>,
}

/// Writes every family.
pub(super) fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    families: &Families,
    seen: &[SeenPlacements],
) -> fmt::Result {
    peers(encoder, families, seen)?;
    let losses = |of: fn(&MemoryState) -> u64| {
        seen.iter().flat_map(move |seen| {
            seen.memories.iter().map(move |(model, memory)| {
                let labels = [seen.route.as_str().into(), model.as_str().into()];
                (labels, ConstCounter::new(of(memory)))
            })
        })
    };
    families
        .evicted
        .write(encoder, losses(|memory| memory.evicted))?;
    families
        .expired
        .write(encoder, losses(|memory| memory.expired))?;
    let label = |seen: &SeenPlacements| -> Values<'static, 1> { [seen.route.clone().into()] };
    let waits = seen.iter();
    families.wait_seconds.write(
        encoder,
        waits.map(|seen| (label(seen), seen.metrics.wait_seconds.clone())),
    )?;
    let answers = seen.iter();
    families.ttfb_seconds.write(
        encoder,
        answers.map(|seen| (label(seen), seen.metrics.ttfb_seconds.clone())),
    )
}

fn peers(
    encoder: &mut DescriptorEncoder<'_>,
    families: &Families,
    seen: &[SeenPlacements],
) -> fmt::Result {
    let (mut polls, mut selected) = (Vec::new(), Vec::new());
    for route in seen {
        for (key, name) in &route.peers {
            let peer = if families.by_name { name } else { key };
            let (route_label, peer) = (route.route.as_str(), peer.as_str());
            for ((strategy, reason), count) in route.selected(key) {
                let labels = [
                    route_label.into(),
                    peer.into(),
                    strategy.into(),
                    reason.as_str().into(),
                ];
                selected.push((labels, ConstCounter::new(count)));
            }
            for (result, count) in route.by_result(key).into_iter().flatten() {
                let labels = [route_label.into(), peer.into(), result.into()];
                polls.push((labels, ConstCounter::new(count)));
            }
        }
    }
    families.polls.write(encoder, polls)?;
    families.selected.write(encoder, selected)
}

#[cfg(test)]
mod tests {
    use router_core::balance::Balance;

    use super::*;

    fn facts(peer_in_flight: u32) -> Facts {
        Facts {
            factor: 1.0,
            peer_in_flight,
            peer_slots: 1,
            ..Facts::default()
        }
    }

    #[test]
    fn the_reason_of_a_placement_is_what_decided_it() {
        let pinned = Facts {
            pinned: Some(1),
            ..facts(0)
        };
        let waited = Facts {
            waited_ms: Some(3),
            ..facts(0)
        };
        let late = Facts {
            waited_ms: Some(3),
            ..facts(1)
        };
        for (mode, facts, listed, reason) in [
            (
                Mode::Balance(Balance::IdleAware),
                facts(0),
                false,
                Reason::Strategy,
            ),
            (Mode::HashFallback, facts(0), false, Reason::Strategy),
            (
                Mode::Balance(Balance::LeastBusy),
                facts(1),
                false,
                Reason::Overflow,
            ),
            (
                Mode::Balance(Balance::LeastBusy),
                waited,
                false,
                Reason::Waited,
            ),
            (
                Mode::Balance(Balance::LeastBusy),
                late,
                false,
                Reason::Overflow,
            ),
            (Mode::Pin, pinned, true, Reason::Pin),
            (
                Mode::Balance(Balance::IdleAware),
                pinned,
                true,
                Reason::Strategy,
            ),
            (
                Mode::Balance(Balance::IdleAware),
                facts(0),
                true,
                Reason::PinFallback,
            ),
            (Mode::Sticky, facts(1), false, Reason::Sticky),
            (Mode::Prefix, facts(0), false, Reason::Prefix),
        ] {
            assert_eq!(Reason::of(mode, &facts, listed), reason, "{mode:?}");
        }
    }
}
