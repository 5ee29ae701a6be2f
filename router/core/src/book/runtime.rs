//! Limits set on the running router, and what status pages see of the gates and their counters.

use std::time::{Duration, Instant};

use super::status::{NoHeader, PriorityState, Protection, Trips};
use super::{Book, PlacementRequest, PoolId, ResolvedRoute, Switches, show};
use crate::layered::Override;
use crate::pool::Role;
use crate::signal::Signal;

/// A limit per signal, set on the running router.
#[derive(Debug, Default)]
pub(super) struct RuntimeLimits {
    ttft: Override<f64>,
    tps: Override<f64>,
}

impl RuntimeLimits {
    pub(super) fn of(&self, signal: Signal) -> &Override<f64> {
        match signal {
            Signal::Ttft => &self.ttft,
            Signal::Tps => &self.tps,
        }
    }

    fn of_mut(&mut self, signal: Signal) -> &mut Override<f64> {
        match signal {
            Signal::Ttft => &mut self.ttft,
            Signal::Tps => &mut self.tps,
        }
    }
}

/// A limit set on the running router: the value, and its life (`None` = until reset).
pub type RuntimeLimit = (f64, Option<Duration>);

impl Book {
    /// Sets or, with `None`, removes a runtime limit of the route or of one pool; answers what was
    /// in force before. A limit of a pool beats the route's and lives as long as the pool does.
    pub fn set_limit(
        &mut self,
        resolved: &ResolvedRoute,
        signal: Signal,
        pool: Option<PoolId>,
        limit: Option<RuntimeLimit>,
        now: Instant,
    ) -> Option<RuntimeLimit> {
        let before = self.limit(resolved, signal, pool, now);
        let held = match pool {
            Some(pool) => {
                let state = self.pools.get_mut(resolved.members[pool.0].pool);
                &mut state.signal_mut(signal).runtime
            }
            None => self.runtime.of_mut(signal),
        };
        match limit {
            Some((value, ttl)) => held.set(value, ttl, now),
            None => held.reset(),
        }
        before
    }

    /// The runtime limit of the route or of one pool, with what is left of its life.
    pub fn limit(
        &self,
        resolved: &ResolvedRoute,
        signal: Signal,
        pool: Option<PoolId>,
        now: Instant,
    ) -> Option<RuntimeLimit> {
        let held = match pool {
            Some(pool) => {
                let state = self.pools.get(resolved.members[pool.0].pool);
                &state.signal(signal).runtime
            }
            None => self.runtime.of(signal),
        };
        Some((held.get(now)?, held.left(now)))
    }

    /// Every gate of a pool as it is now.
    pub fn protection(
        &self,
        resolved: &ResolvedRoute,
        pool: PoolId,
        switches: Switches,
        now: Instant,
    ) -> Protection {
        let capacity = self.view(resolved, pool, Role::Regular, now).capacity();
        let gates = self.gates(resolved, PlacementRequest::under(pool, switches), now);
        show::protection(&gates, capacity, self.waiting(resolved, pool) as u32)
    }

    /// Requests that tripped a gate while the master switch was off, since the start or the last
    /// [`reset_trips`](Self::reset_trips). Never part of the refusals.
    pub fn trips(&self) -> Trips {
        self.trips
    }

    /// Zeroes [`trips`](Self::trips); answers what they were.
    pub fn reset_trips(&mut self) -> Trips {
        std::mem::take(&mut self.trips)
    }

    /// The `session_prio` table in force with its counters.
    pub fn priority(&self, resolved: &ResolvedRoute) -> PriorityState {
        let table = &resolved.spec.guard.priority.table;
        self.priority.state(table, &resolved.buckets)
    }

    /// Zeroes the counters of [`priority`](Self::priority).
    pub fn reset_priority(&mut self) {
        self.priority.reset();
    }

    /// Once for each minute in which more than `session_prio_warn_frac` of the requests had no
    /// usable header: its numbers. The edge asks after each [`tick`](Self::tick) and logs.
    pub fn take_no_header_warning(&mut self) -> Option<NoHeader> {
        self.priority.take_warning()
    }
}
