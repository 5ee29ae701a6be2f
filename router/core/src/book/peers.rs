//! What is known of peers, and of a pool's room, beyond our own decisions.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::candidate_set::CandidateSet;
use super::{Book, PoolId, ResolvedRoute, bounds};
use crate::decision::PeerFacts;
use crate::load::{Freshness, Reading, Report};
use crate::pool::{ByRole, Change, Evidence, PeerKey, Role};

/// What is known of a peer's load.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// What its engine said last.
    pub reading: Reading,
    /// How many slots its engine says it has.
    pub learned: Option<u32>,
    /// Our requests on it.
    pub in_flight: u32,
}

/// What a poll came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Polled {
    /// What the reading is worth now.
    pub freshness: Freshness,
    /// What the answer changed.
    pub change: Option<Change>,
}

/// A pool's room as metrics and status show it. The sums are over the active tier's usable peers
/// and zero when there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Priority of the active tier; `None` when no peer is usable.
    pub tier: Option<i64>,
    /// Sum of `max_concurrency`, before `rt_limit_factor`.
    pub limit: u64,
    /// Sum of requests in flight.
    pub in_flight: u64,
    /// How many usable peers the tier has.
    pub healthy_peers: u32,
    /// The largest such sum of any tier. Not enforced.
    pub largest_tier_sum: u64,
}

impl Book {
    /// Records what a probe or the request path learned about a peer, in every pool that names it.
    /// A failure bans it for the resolved route's `ban_ttl`. `None` when nothing changed, and for a peer
    /// that no resolved route names any more.
    pub fn observe(
        &mut self,
        resolved: &ResolvedRoute,
        peer: &PeerKey,
        evidence: Evidence,
        now: Instant,
    ) -> Option<Change> {
        let slot = self.peers.find(peer)?;
        let ban = &mut self.peers.get_mut(slot).ban;
        let change = ban.observe(evidence, resolved.spec.ban_ttl, now);
        self.touch(slot, now);
        change
    }

    /// Takes in what a poll of a peer's engine found. A good one ends a ban that came from a failed
    /// connection. `None` for a peer that no route names any more, and where nothing is polled.
    pub fn report_load(
        &mut self,
        resolved: &ResolvedRoute,
        peer: &PeerKey,
        report: Report,
        now: Instant,
    ) -> Option<Polled> {
        let spec = resolved.spec.load.as_ref()?;
        let slot = self.peers.find(peer)?;
        let state = self.peers.get_mut(slot);
        state.reading.report(report, state.in_flight, now);
        let change = match report.is_good() {
            true => state.ban.reached(now),
            false => None,
        };
        let freshness = state.reading.freshness(spec, state.in_flight, now);
        self.touch(slot, now);
        Some(Polled { freshness, change })
    }

    /// Remembers how many slots a peer's engine says it has; answers what it said before.
    pub fn learn_slots(&mut self, peer: &PeerKey, slots: u32) -> Option<u32> {
        let slot = self.peers.find(peer)?;
        let before = self.peers.get_mut(slot).learned.replace(slots.max(1));
        if before != Some(slots.max(1)) {
            for attached in self.routes.values_mut() {
                let candidate_sets = attached.candidate_sets.iter_mut();
                candidate_sets
                    .flat_map(ByRole::iter_mut)
                    .for_each(CandidateSet::forget);
                attached.bounds = bounds::of(&attached.resolved, &self.peers);
            }
        }
        before
    }

    /// What is known of a peer's load.
    pub fn reading(&self, peer: &PeerKey) -> Option<Known> {
        let state = self.peers.get(self.peers.find(peer)?);
        Some(Known {
            reading: state.reading,
            learned: state.learned,
            in_flight: state.in_flight,
        })
    }

    /// Every peer of a pool as it is now, file order.
    pub fn peers(&self, resolved: &ResolvedRoute, pool: PoolId, now: Instant) -> Vec<PeerFacts> {
        self.view(resolved, pool, Role::Regular, now)
            .peer_facts(None)
    }

    /// The room of a pool as it is now.
    pub fn limits(&self, resolved: &ResolvedRoute, pool: PoolId, now: Instant) -> Limits {
        let view = self.view(resolved, pool, Role::Regular, now);
        let active = view.capacity();
        Limits {
            tier: active.map(|active| active.tier),
            limit: active.map_or(0, |active| active.limit),
            in_flight: active.map_or(0, |active| active.in_flight),
            healthy_peers: active.map_or(0, |active| active.healthy_peers),
            largest_tier_sum: view.largest_tier_sum(),
        }
    }
}
