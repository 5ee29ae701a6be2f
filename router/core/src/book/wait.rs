//! Those who wait for a slot, from joining the queue to the end of the wait.

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
    /// Hands free room to those who wait, the first of each queue first; nobody overtakes. A request
    /// whose bucket's share is used up holds the queue until its share has room. The gates of the
    /// signals are asked again, so a wait may end in a refusal.
    ///
    /// Part of the same critical section as anything that may have made room: a release, a
    /// recovery, a tick, a limit or a switch that was set, a waiter that left. O(1) when nobody
    /// waits.
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

    /// Ends a wait that took too long: the request goes past the limit. `None` when it does not wait
    /// any more. O(log waiters + peers of the pool).
    pub fn overflow(
        &mut self,
        waiter: WaiterId,
        now: Instant,
        rng: &mut impl Rng,
    ) -> Option<Result<Placement, Refusal>> {
        self.serve(waiter, true, now, rng)
    }

    /// Takes a request that gave up out of its queue. False when it does not wait any more: its unit
    /// was handed over. O(log waiters).
    pub fn leave(&mut self, waiter: WaiterId) -> bool {
        self.waiters.leave(waiter).is_some()
    }

    /// Puts those who wait under the switches in force.
    pub fn obey(&mut self, switches: Switches) {
        self.waiters.obey(switches);
    }

    /// How many wait for a pool, those of earlier resolved routes included.
    pub fn waiting(&self, resolved: &ResolvedRoute, pool: PoolId) -> usize {
        self.waiters.len_of_pool(resolved.members[pool.0].pool)
    }

    /// How many came before a waiter and wait in its queue. O(those).
    pub fn ahead(&self, waiter: WaiterId) -> usize {
        self.waiters.ahead(waiter)
    }

    /// When time alone may next make room in a pool or take it: a ban ends, a reading grows old. Nobody
    /// reports either, so whoever has requests waiting asks for a [hand-over](Self::hand_over) then.
    /// Later events may bring an earlier time. `None` when only an event can change anything.
    pub fn changes_at(
        &mut self,
        resolved: &ResolvedRoute,
        pool: PoolId,
        now: Instant,
    ) -> Option<Instant> {
        self.refresh(resolved.id, pool, Role::Regular, now);
        self.due(resolved, pool, Role::Regular)
    }

    /// Decides about a waiter again; `None` when it has to go on waiting, or does not wait.
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

    /// Queues a request that every other gate lets in, or refuses it when as many as may wait for its
    /// pool, whatever their models.
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
            // Whoever waits wants more than the limit gives.
            state.adaptive.refuse(life, now);
        }
        Verdict::Wait(self.waiters.join(resolved, request, now))
    }
}
