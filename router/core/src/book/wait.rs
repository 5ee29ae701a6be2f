//! Requests that wait for a slot, from joining the queue to the end of the wait.

use std::time::Instant;

use rand::Rng;

use super::gates::AdmissionEffects;
use super::waiters::Waiter;
use super::{
    Book, Handed, Placement, PlacementRequest, PoolId, ResolvedRoute, Switches, Verdict, WaiterId,
};
use crate::admission::Refusal;
use crate::decision::Facts;
use crate::pool::Role;

impl Book {
    /// Hands free room to the waiting requests, the first of each queue first; no request overtakes
    /// another of its queue. A request whose bucket has used up its share blocks the queue until
    /// the share has room. The gates of the signals are evaluated again, so a wait may end in a
    /// refusal.
    ///
    /// Call it in the same critical section as any event that may have made room: a release, a
    /// recovery, a tick, a new limit or switch, a waiter that left. O(1) when no request waits.
    pub fn hand_over(&mut self, now: Instant, rng: &mut impl Rng) -> Vec<Handed> {
        let mut handed = Vec::new();
        loop {
            let heads = self.waiters.heads();
            let served = heads.into_iter().find_map(|waiter| {
                let outcome = self.serve(waiter, false, now, rng)?;
                Some(Handed { waiter, outcome })
            });
            match served {
                Some(served) => handed.push(served),
                None => break,
            }
        }
        handed
    }

    /// Ends a wait that took too long: the request goes past the limit. `None` when it no longer
    /// waits. O(log waiters + peers of the pool).
    pub fn overflow(
        &mut self,
        waiter: WaiterId,
        now: Instant,
        rng: &mut impl Rng,
    ) -> Option<Result<Placement, Refusal>> {
        self.serve(waiter, true, now, rng)
    }

    /// Removes a request that gave up from its queue. Returns false when it no longer waits,
    /// because its unit was handed over. O(log waiters).
    pub fn leave(&mut self, waiter: WaiterId) -> bool {
        self.waiters.leave(waiter).is_some()
    }

    /// Applies the switches in force to the waiting requests.
    pub fn obey(&mut self, switches: Switches) {
        self.waiters.obey(switches);
    }

    /// Number of requests that wait for a pool, including those of earlier resolved routes.
    pub fn waiting(&self, resolved: &ResolvedRoute, pool: PoolId) -> usize {
        self.waiters.len_of_pool(resolved.members[pool.0].pool)
    }

    /// Number of requests ahead of a waiter in its queue. O(that number).
    pub fn ahead(&self, waiter: WaiterId) -> usize {
        self.waiters.ahead(waiter)
    }

    /// When time alone may next make or take room in a pool: a ban ends, a reading becomes stale.
    /// No event reports this, so a caller with waiting requests calls for a
    /// [hand-over](Self::hand_over) at that time. Later events may bring an earlier time. `None`
    /// when only an event can change anything.
    pub fn changes_at(
        &mut self,
        resolved: &ResolvedRoute,
        pool: PoolId,
        now: Instant,
    ) -> Option<Instant> {
        self.refresh(resolved.id, pool, Role::Regular, now);
        self.due(resolved, pool, Role::Regular)
    }

    /// Decides about a waiter again. `None` when it must keep waiting, or does not wait.
    fn serve(
        &mut self,
        id: WaiterId,
        past_limit: bool,
        now: Instant,
        rng: &mut impl Rng,
    ) -> Option<Result<Placement, Refusal>> {
        let Waiter { resolved, role, .. } = self.waiters.get(id)?;
        let (resolved, role) = (resolved.id, *role);
        self.refresh(resolved, id.pool(), role, now);
        let waiter = self.waiters.get(id)?;
        let request = waiter.request(id.pool());
        let mut decision = self.decide(&waiter.resolved, request, past_limit, now, rng);
        if decision.must_wait() {
            return None;
        }
        if let Ok(pick) = &mut decision.outcome {
            let waited = now.saturating_duration_since(waiter.since);
            pick.facts.waited_ms = Some(u64::try_from(waited.as_millis()).unwrap_or(u64::MAX));
        }
        let waiter = self.waiters.leave(id)?;
        Some(self.settle(&waiter.resolved, waiter.request(id.pool()), decision, now))
    }

    /// Queues a request that every other gate admits. Refuses it when the maximum number of
    /// requests, of all models, already waits for its pool.
    pub(super) fn queue(
        &mut self,
        resolved: &ResolvedRoute,
        request: PlacementRequest<'_>,
        effects: AdmissionEffects,
        facts: Facts,
        now: Instant,
    ) -> Verdict {
        if self.waiting(resolved, request.pool) >= resolved.spec.guard.wait_max as usize {
            let refusal = self.gates(resolved, request, now).full(&facts);
            let refusal = self.view_for(resolved, &request, now).with_held(refusal);
            self.note(resolved, request.pool, effects, Err(&refusal), now);
            return Verdict::Refuse(refusal);
        }
        let state = self.pools.get_mut(resolved.members[request.pool.0].pool);
        if let Some(hold) = effects.hold {
            state.is_held = hold;
        }
        if let Some(life) = effects.demand {
            // Every waiting request is demand above the limit.
            state.adaptive.refuse(life, now);
        }
        Verdict::Wait(self.waiters.join(resolved, request, now))
    }
}
