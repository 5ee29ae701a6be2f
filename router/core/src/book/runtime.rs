//! Limits set on the running router, and the gates and counters for status pages.

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

/// A limit set on the running router: the value, and its lifetime (`None` = until reset).
pub type RuntimeLimit = (f64, Option<Duration>);

impl Book {
    /// Sets a runtime limit of the route or of one pool, or removes it with `None`. Returns the
    /// previous limit. A limit of a pool overrides the route's and lives as long as the pool.
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

    /// The runtime limit of the route or of one pool, with its remaining lifetime.
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

    /// The current state of every gate of a pool.
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
    /// [`reset_trips`](Self::reset_trips). Refusals do not include them.
    pub fn trips(&self) -> Trips {
        self.trips
    }

    /// Sets [`trips`](Self::trips) to zero. Returns the previous numbers.
    pub fn reset_trips(&mut self) -> Trips {
        std::mem::take(&mut self.trips)
    }

    /// The `session_prio` table in force with its counters.
    pub fn priority(&self, resolved: &ResolvedRoute) -> PriorityState {
        let table = &resolved.spec.guard.priority.table;
        self.priority.state(table, &resolved.buckets)
    }

    /// Sets the counters of [`priority`](Self::priority) to zero.
    pub fn reset_priority(&mut self) {
        self.priority.reset();
    }

    /// Returns the numbers of a minute in which more than `session_prio_warn_frac` of the requests
    /// had no usable header, once per such minute. The edge calls it after each
    /// [`tick`](Self::tick) and logs the result.
    pub fn take_no_header_warning(&mut self) -> Option<NoHeader> {
        self.priority.take_warning()
    }
}
