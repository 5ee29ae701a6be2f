//! What is known of peers, and of a pool's room, beyond our own decisions.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::candidate_set::CandidateSet;
use super::{Book, PoolId, ResolvedRoute, bounds};
use crate::decision::PeerFacts;
use crate::load::{Reading, Report, Standing};
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
    /// A failure bans it for the roster's `ban_ttl`. `None` when nothing changed, and for a peer
    /// that no roster names any more.
    pub fn observe(
        &mut self,
        roster: &ResolvedRoute,
        peer: &PeerKey,
        evidence: Evidence,
        now: Instant,
    ) -> Option<Change> {
        let slot = self.peers.find(peer)?;
        let ban = &mut self.peers.get_mut(slot).ban;
        let change = ban.observe(evidence, roster.spec.ban_ttl, now);
        self.touch(slot, now);
        change
    }

    /// Takes in what a poll of a peer's engine found; answers what the reading is worth now. `None` for
    /// a peer that no roster names any more, and where nothing is polled.
    pub fn report_load(
        &mut self,
        roster: &ResolvedRoute,
        peer: &PeerKey,
        report: Report,
        now: Instant,
    ) -> Option<Standing> {
        let spec = roster.spec.load.as_ref()?;
        let slot = self.peers.find(peer)?;
        let state = self.peers.get_mut(slot);
        state.reading.report(report, state.in_flight, now);
        let standing = state.reading.standing(spec, state.in_flight, now);
        self.touch(slot, now);
        Some(standing)
    }

    /// Remembers how many slots a peer's engine says it has; answers what it said before.
    pub fn learn_slots(&mut self, peer: &PeerKey, slots: u32) -> Option<u32> {
        let slot = self.peers.find(peer)?;
        let before = self.peers.get_mut(slot).learned.replace(slots.max(1));
        if before != Some(slots.max(1)) {
            for attached in self.rosters.values_mut() {
                let lineups = attached.lineups.iter_mut();
                lineups
                    .flat_map(ByRole::iter_mut)
                    .for_each(CandidateSet::forget);
                attached.bounds = bounds::of(&attached.roster, &self.peers);
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
    pub fn peers(&self, roster: &ResolvedRoute, pool: PoolId, now: Instant) -> Vec<PeerFacts> {
        self.view(roster, pool, Role::Regular, now).peer_facts(None)
    }

    /// The room of a pool as it is now.
    pub fn limits(&self, roster: &ResolvedRoute, pool: PoolId, now: Instant) -> Limits {
        let view = self.view(roster, pool, Role::Regular, now);
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
