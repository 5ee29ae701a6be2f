//! Knowledge about peers, and about a pool's room, that does not come from our own decisions.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::candidate_set::CandidateSet;
use super::{Book, PoolId, ResolvedRoute, bounds};
use crate::decision::PeerFacts;
use crate::load::{Freshness, Reading, Report};
use crate::pool::{ByRole, Change, Evidence, PeerKey, Role};

/// The known load of a peer.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// The last reading of the peer's engine.
    pub reading: Reading,
    /// The number of slots that the engine reports.
    pub learned: Option<u32>,
    /// Our requests on the peer.
    pub in_flight: u32,
}

/// The result of a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Polled {
    /// Freshness of the reading now.
    pub freshness: Freshness,
    /// The change that the answer caused.
    pub change: Option<Change>,
}

/// A pool's room for metrics and status. The sums cover the active tier's usable peers; they are
/// zero without usable peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Priority of the active tier; `None` when no peer is usable.
    pub tier: Option<i64>,
    /// Sum of `max_concurrency`, before `rt_limit_factor`.
    pub limit: u64,
    /// Sum of requests in flight.
    pub in_flight: u64,
    /// Number of usable peers in the tier.
    pub healthy_peers: u32,
    /// The largest such sum of any tier. Not enforced.
    pub largest_tier_sum: u64,
}

impl Book {
    /// Records an observation of a probe or of the request path about a peer, in every pool that
    /// names the peer. A failure bans the peer for the resolved route's `ban_ttl`. `None` when
    /// nothing changed, and for a peer that no resolved route names any more.
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

    /// Records the result of a probe that was sent at `asked`. Returns the resulting change, as
    /// [`observe`](Self::observe).
    pub fn probed(
        &mut self,
        resolved: &ResolvedRoute,
        peer: &PeerKey,
        evidence: Evidence,
        asked: Instant,
        now: Instant,
    ) -> Option<Change> {
        let slot = self.peers.find(peer)?;
        let probes = &mut self.peers.get_mut(slot).probes;
        probes.record(evidence, asked, now);
        self.observe(resolved, peer, evidence, now)
    }

    /// Records the result of a poll of a peer's engine. A good result ends a ban that came from a
    /// failed connection. `None` for a peer that no route names any more, and where the route does
    /// not poll.
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

    /// Remembers how many slots a peer's engine reports. Returns the previous number.
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

    /// The known load of a peer.
    pub fn reading(&self, peer: &PeerKey) -> Option<Known> {
        let state = self.peers.get(self.peers.find(peer)?);
        Some(Known {
            reading: state.reading,
            learned: state.learned,
            in_flight: state.in_flight,
        })
    }

    /// The current state of every peer of a pool, file order.
    pub fn peers(&self, resolved: &ResolvedRoute, pool: PoolId, now: Instant) -> Vec<PeerFacts> {
        self.view(resolved, pool, Role::Regular, now)
            .peer_facts(None)
    }

    /// The current room of a pool.
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
