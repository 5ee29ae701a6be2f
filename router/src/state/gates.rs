//! A route's load gates: the changes by time and by operators, and their state for display. Every
//! function takes the route's lock once, for O(its pools) work.

use std::time::{Duration, Instant};

use router_core::book::status::{NoHeader, PriorityState, Protection, Trips};
use router_core::book::{PeerChange, PoolId, RuntimeLimit, Switches, Watched};
use router_core::decision::Facts;
use router_core::layered::Setting;
use router_core::signal::{Sample, Signal};

use super::{Route, Switch};
use crate::clock::now;

/// Longest time between two checks for hanging peers.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// The result of a route's tick.
#[derive(Debug)]
pub struct Ticked {
    /// When to tick next.
    pub next: Instant,
    /// A condition to warn about.
    pub no_header: Option<NoHeader>,
    /// Peers that changed state.
    pub changes: Vec<PeerChange>,
}

impl Route {
    /// The value of a switch, and the layer that it comes from.
    pub fn switch(&self, switch: Switch) -> Setting<bool> {
        let below = switch.below(&self.options);
        self.state.overrides.effective(switch, below)
    }

    /// Whether a switch, or a setting that it controls, is overridden on the running router.
    pub fn is_overridden(&self, switch: Switch) -> bool {
        self.state.overrides.get(switch).is_some()
            || (switch == Switch::Bodylog && self.state.capture.is_set())
    }

    /// The values in force of the load gates' switches.
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

    /// Takes one sample of a pool. Ignored while its signal is switched off.
    pub fn sample(&self, pool: PoolId, sample: Sample) {
        let switch = match sample {
            Sample::Ttft(_) => Switch::Ttft,
            Sample::Tps(_) | Sample::NoUsage | Sample::Aborted => Switch::Tps,
        };
        if !self.switch(switch).value {
            return;
        }
        let mut inner = self.state.inner.lock();
        // The clock is read under the lock; otherwise a caller that waited for the lock would use
        // an old time.
        inner.book.sample(&self.roster, pool, sample, now());
    }

    /// Adds a finished request's prompt and cached tokens to its `session_prio` bucket.
    pub fn tokens(&self, facts: &Facts, prompt: u64, cached: u64) {
        if facts.grade.is_some() {
            self.state.inner.lock().book.tokens(facts, prompt, cached);
        }
    }

    /// Does all work that is due by time.
    pub fn tick(&self) -> Ticked {
        let switches = self.switches();
        self.state.change(|book, _, now| {
            let next = book.tick(&self.roster, switches, now);
            let Watched {
                changes,
                next: watch,
            } = book.watch(&self.roster, now);
            // This does not cover a request that starts to wait in the meantime.
            let watch = watch.map_or(now + WATCH_EVERY, |watch| watch.min(now + WATCH_EVERY));
            Ticked {
                next: next.min(watch),
                no_header: book.take_no_header_warning(),
                changes,
            }
        })
    }

    /// The gates of all pools at one moment, in pool order.
    pub fn protections(&self) -> Vec<Protection> {
        let switches = self.switches();
        let inner = self.state.inner.lock();
        let now = now();
        self.pool_ids()
            .map(|pool| inner.book.protection(&self.roster, pool, switches, now))
            .collect()
    }

    /// Sets the runtime limit of the route or of one pool; `None` removes it.
    pub fn set_limit(&self, signal: Signal, pool: Option<PoolId>, limit: Option<RuntimeLimit>) {
        self.state.change(|book, _, now| {
            book.set_limit(&self.roster, signal, pool, limit, now);
        });
    }

    /// The runtime limit of the route or of one pool, with its remaining lifetime.
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

    /// Number of gate trips since the start or the last reset.
    pub fn trips(&self) -> Trips {
        self.state.inner.lock().book.trips()
    }

    /// Number of trips since the start, as a counter shows it.
    pub fn trips_total(&self) -> Trips {
        let inner = self.state.inner.lock();
        inner.carried.trips(inner.book.trips())
    }

    /// Zeroes [`trips`](Self::trips) and returns the old counts.
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

    /// The same table with the counters since the start.
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
