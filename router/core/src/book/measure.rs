//! Records measurements, and does the work that becomes due with time.

use std::time::{Duration, Instant};

use super::pool::Adaptive;
use super::{Book, PlacementRequest, PoolId, ResolvedRoute, Switches};
use crate::aimd::{self, Inputs};
use crate::decision::Facts;
use crate::pool::Role;
use crate::signal::{Sample, Signal};
use crate::window::window_end;

/// Sessions that the sweep of one tick visits, over all pools: a small part of a millisecond,
/// during which no request is decided.
const SWEEP_MAX: usize = 256;

/// Time to the next tick when a sweep has left sessions to visit.
const SWEEP_PAUSE: Duration = Duration::from_millis(5);

/// Shortest time between two ticks of an adaptive limit.
const TICK_MIN: Duration = Duration::from_millis(10);

impl Book {
    /// Records one measurement of a request of `pool`. A window that ended before `now` is folded
    /// first. O(metrics), no allocation after the first measurement of the pool.
    pub fn sample(&mut self, resolved: &ResolvedRoute, pool: PoolId, sample: Sample, now: Instant) {
        let epoch = *self.epoch.get_or_insert(now);
        let members = &resolved.members[pool.0];
        let state = self.pools.get_mut(members.pool);
        let (signal, value) = match sample {
            Sample::Ttft(ms) => (Signal::Ttft, ms),
            Sample::Tps(rate) => (Signal::Tps, rate),
            Sample::NoUsage => return state.tps.no_usage += 1,
            Sample::Aborted => return state.tps.aborted += 1,
        };
        let (spec, metrics) = (
            resolved.spec.guard.signal(signal),
            &members.criteria(signal).metrics,
        );
        let meter = &mut state.signal_mut(signal).meter;
        meter.record(value, spec, metrics, epoch, now);
    }

    /// Adds a finished request's prompt and cached tokens to its bucket, or to the requests without
    /// a usable header. Does nothing if `session_prio` was off when the request was placed.
    pub fn tokens(&mut self, facts: &Facts, prompt: u64, cached: u64) {
        if let Some(grade) = facts.grade {
            self.priority.tokens(grade, prompt, cached);
        }
    }

    /// Does the work that becomes due with time: folds windows, moves adaptive limits, samples the
    /// averages. Returns when it wants to be called next, always after `now`. A call that is too
    /// early does nothing, one that is too late does the due work once.
    pub fn tick(&mut self, resolved: &ResolvedRoute, switches: Switches, now: Instant) -> Instant {
        let epoch = *self.epoch.get_or_insert(now);
        self.obey(switches);
        let guard = &resolved.spec.guard;
        let mut next = window_end(epoch, guard.cluster_avg_interval, now);
        for signal in Signal::ALL {
            next = next.min(window_end(epoch, guard.signal(signal).window, now));
        }
        if switches.session_prio {
            next = next.min(self.priority.minute_end(epoch, now));
        }
        self.priority.roll(guard.priority.warn_frac, epoch, now);
        let mut to_sweep = SWEEP_MAX;
        for (index, members) in resolved.members.iter().enumerate() {
            let pool = PoolId(index);
            self.refresh(resolved.id, pool, Role::Regular, now);
            let in_flight = self.view(resolved, pool, Role::Regular, now).in_flight();
            let state = self.pools.get_mut(members.pool);
            let memory = &resolved.spec.memory;
            let (ttl, max) = (memory.session_ttl, memory.sessions_max as usize);
            for sessions in state.sessions.iter_mut() {
                to_sweep -= sessions.sweep(ttl, max, to_sweep, now);
            }
            for signal in Signal::ALL {
                let metrics = &members.criteria(signal).metrics;
                let meter = &mut state.signal_mut(signal).meter;
                meter.fold(guard.signal(signal), metrics, now);
            }
            state
                .average
                .sample(in_flight, epoch, guard.cluster_avg_interval, now);
            if let Some(due) = self.adapt(resolved, PoolId(index), switches, in_flight, now) {
                next = next.min(due);
            }
        }
        if to_sweep == 0 {
            next = next.min(now + SWEEP_PAUSE);
        }
        next
    }

    /// Moves a pool's adaptive limit when that is due. Returns when it is due next.
    fn adapt(
        &mut self,
        resolved: &ResolvedRoute,
        pool: PoolId,
        switches: Switches,
        in_flight: u64,
        now: Instant,
    ) -> Option<Instant> {
        let slot = resolved.members[pool.0].pool;
        let Some(spec) = &resolved.spec.guard.adaptive else {
            // A limit learned under another configuration is not a valid start point for the new
            // one.
            self.pools.get_mut(slot).adaptive = Adaptive::default();
            return None;
        };
        let next = now + spec.interval.max(TICK_MIN);
        let due = self.pools.get(slot).adaptive.due.unwrap_or(next);
        if now < due {
            // A reload may have made the interval shorter.
            let due = due.min(next);
            self.pools.get_mut(slot).adaptive.due = Some(due);
            return Some(due);
        }
        let gates = self.gates(resolved, PlacementRequest::under(pool, switches), now);
        let moved = gates.adaptive_limit().and_then(|limit| {
            let inputs = Inputs {
                limit,
                in_flight,
                refused: gates.pool.adaptive.refused(gates.demand_life(spec), now),
                health: gates.health(spec),
            };
            aimd::tick(spec, gates.bounds?, inputs)
        });
        let adaptive = &mut self.pools.get_mut(slot).adaptive;
        if let Some(limit) = moved {
            adaptive.use_up_refused();
            adaptive.store(limit, (!spec.hold_when_idle).then_some(spec.ttl), now);
        }
        adaptive.due = Some(next);
        Some(next)
    }
}
