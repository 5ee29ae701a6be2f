//! A route's load gates: what time moves, what an operator sets, and what they show. Every function
//! takes the route's lock once, for O(its pools) work.

use std::time::{Duration, Instant};

use router_core::book::status::{NoHeader, PriorityState, Protection, Trips};
use router_core::book::{PeerChange, PoolId, RuntimeLimit, Switches, Watched};
use router_core::decision::Facts;
use router_core::layered::Setting;
use router_core::signal::{Sample, Signal};

use super::{Route, Switch};
use crate::clock::now;

/// Longest time between two looks for peers that hang.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// What a tick of a route came to.
#[derive(Debug)]
pub struct Ticked {
    /// When to call again.
    pub next: Instant,
    /// What is worth a warning.
    pub no_header: Option<NoHeader>,
    /// Peers that changed their state.
    pub changes: Vec<PeerChange>,
}

impl Route {
    /// Where a switch stands, and which layer says so.
    pub fn switch(&self, switch: Switch) -> Setting<bool> {
        let below = switch.below(&self.options);
        self.state.overrides.effective(switch, below)
    }

    /// Whether a switch, or what it switches, is set on the running router.
    pub fn is_overridden(&self, switch: Switch) -> bool {
        self.state.overrides.get(switch).is_some()
            || (switch == Switch::Bodylog && self.state.capture.is_set())
    }

    /// The switches of the load gates as they are in force.
    pub fn switches(&self) -> Switches {
        let is_on = |switch| self.switch(switch).value;
        Switches {
            rate_limit: is_on(Switch::RateLimit),
            ttft: is_on(Switch::Ttft),
            ttft_429: is_on(Switch::Ttft429),
            tps: is_on(Switch::Tps),
            session_prio: is_on(Switch::SessionPrio),
        }
    }

    /// Takes in one measurement of a pool. Nothing while its signal is switched off.
    pub fn sample(&self, pool: PoolId, sample: Sample) {
        let switch = match sample {
            Sample::Ttft(_) => Switch::Ttft,
            Sample::Tps(_) | Sample::NoUsage | Sample::Aborted => Switch::Tps,
        };
        if !self.switch(switch).value {
            return;
        }
        let mut inner = self.state.inner.lock();
        // Read after the lock is taken, so that a waiter does not carry an old time.
        inner.book.sample(&self.roster, pool, sample, now());
    }

    /// Adds a finished request's prompt and cached tokens to its `session_prio` bucket.
    pub fn tokens(&self, facts: &Facts, prompt: u64, cached: u64) {
        if facts.grade.is_some() {
            self.state.inner.lock().book.tokens(facts, prompt, cached);
        }
    }

    /// Does what time alone makes due.
    pub fn tick(&self) -> Ticked {
        let switches = self.switches();
        self.state.change(|book, _, now| {
            let next = book.tick(&self.roster, switches, now);
            let Watched {
                changes,
                next: watch,
            } = book.watch(&self.roster, now);
            // A request that begins to wait meanwhile is not known yet.
            let watch = watch.map_or(now + WATCH_EVERY, |watch| watch.min(now + WATCH_EVERY));
            Ticked {
                next: next.min(watch),
                no_header: book.take_no_header_warning(),
                changes,
            }
        })
    }

    /// Every pool's gates at one moment, in the order of the pools.
    pub fn protections(&self) -> Vec<Protection> {
        let switches = self.switches();
        let inner = self.state.inner.lock();
        let now = now();
        self.pool_ids()
            .map(|pool| inner.book.protection(&self.roster, pool, switches, now))
            .collect()
    }

    /// Sets or, with `None`, removes a runtime limit of the route or of one pool.
    pub fn set_limit(&self, signal: Signal, pool: Option<PoolId>, limit: Option<RuntimeLimit>) {
        self.state.change(|book, _, now| {
            book.set_limit(&self.roster, signal, pool, limit, now);
        });
    }

    /// The runtime limit of the route or of one pool, with what is left of its life.
    pub fn runtime_limit(&self, signal: Signal, pool: Option<PoolId>) -> Option<RuntimeLimit> {
        let inner = self.state.inner.lock();
        inner.book.limit(&self.roster, signal, pool, now())
    }

    /// Whether a runtime limit is set anywhere on the route.
    pub fn has_runtime_limit(&self, signal: Signal) -> bool {
        let inner = self.state.inner.lock();
        let now = now();
        let scopes = self.pool_ids().map(Some).chain([None]);
        scopes
            .into_iter()
            .any(|pool| inner.book.limit(&self.roster, signal, pool, now).is_some())
    }

    /// Trips of the gates since the start or the last reset.
    pub fn trips(&self) -> Trips {
        self.state.inner.lock().book.trips()
    }

    /// Trips since the start: what a counter shows.
    pub fn trips_total(&self) -> Trips {
        let inner = self.state.inner.lock();
        inner.carried.trips(inner.book.trips())
    }

    /// Zeroes [`trips`](Self::trips); answers what they were.
    pub fn reset_trips(&self) -> Trips {
        let mut inner = self.state.inner.lock();
        let before = inner.book.reset_trips();
        inner.carried.add_trips(before);
        before
    }

    /// The `session_prio` table in force, with its counters since the start or the last reset.
    pub fn priority(&self) -> PriorityState {
        self.state.inner.lock().book.priority(&self.roster)
    }

    /// The same with the counters since the start.
    pub fn priority_total(&self) -> PriorityState {
        let inner = self.state.inner.lock();
        inner.carried.priority(inner.book.priority(&self.roster))
    }

    /// Zeroes the counters of [`priority`](Self::priority).
    pub fn reset_priority(&self) {
        let mut inner = self.state.inner.lock();
        let before = inner.book.priority(&self.roster);
        inner.carried.add_priority(&before);
        inner.book.reset_priority();
    }
}
