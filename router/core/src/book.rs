//! The one aggregate of a route: reserve, retry, release, observe.
//!
//! The edge keeps one `Book` per route behind one lock. State is keyed by peer, so it outlives a
//! reload: a new [`RouteSpec`] is *attached*, which resolves each peer to the state its key already
//! has, and the old one *detached* when its last request is gone. A peer's state is dropped once no
//! roster names it and no ticket holds it. Whether a request may come in is asked in `gates.rs`, where
//! it goes is chosen in `view.rs`; both only read, so that an explanation and a decision are the same.

mod gates;
mod pool;
mod priority;
mod roster;
mod show;
pub mod status;
mod table;
mod view;
mod waiters;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::Rng;
use serde::{Deserialize, Serialize};

use crate::admission::Refusal;
use crate::affinity::prefix::Prefix;
use crate::aimd::{self, Inputs};
use crate::balance::Balance;
use crate::decision::{Explanation, Facts, Mode, Outcome, PeerFacts};
use crate::layered::Override;
use crate::load::{Reading, Report, Standing};
use crate::pool::{Ban, Change, Evidence, PeerKey, RouteSpec, largest_tier_sum};
use crate::session::TABLE_KEY_BYTES_MAX;
use crate::signal::{Sample, Signal};
use crate::window::window_end;
use gates::{Gates, Moves};
use pool::{Adaptive, PoolState};
use priority::Priority;
use roster::{Members, Resolved};
use status::{NoHeader, PriorityState, Protection, Trips};
use table::Table;
use view::{Pick, View};
use waiters::Waiters;

pub use roster::{PoolId, Roster};
pub use waiters::WaiterId;

/// Expired sessions removed in one tick.
const SWEEP_MAX: usize = 256;

/// Time to the next tick when a sweep has left some.
const SWEEP_PAUSE: Duration = Duration::from_millis(5);

/// Prefixes that a pool remembers: a few thousand conversations, some 3 MiB.
const PREFIXES_MAX: usize = 65_536;

/// Shortest time between two ticks of an adaptive limit.
const TICK_MIN: Duration = Duration::from_millis(10);

/// All mutable state of one route.
#[derive(Debug, Default)]
pub struct Book {
    /// Held by every roster that names the peer and by every ticket on it.
    peers: Table<PeerKey, PeerState>,
    /// By `peers_by_model` key; held by every roster that has the pool and by every ticket of it.
    pools: Table<Option<Arc<str>>, PoolState>,
    /// The route's runtime limits.
    runtime: RuntimeLimits,
    priority: Priority,
    trips: Trips,
    waiters: Waiters,
    /// The first instant it saw: what windows are aligned to.
    epoch: Option<Instant>,
    /// Attached rosters by id.
    rosters: BTreeMap<u64, Named>,
    next_roster: u64,
    /// Tickets not released.
    outstanding: u64,
}

/// What is known about one peer.
#[derive(Debug, Default)]
struct PeerState {
    /// Tickets on it.
    in_flight: u32,
    ban: Ban,
    /// What its engine said last, on whatever route.
    reading: Reading,
    /// How many slots its engine says it has.
    learned: Option<u32>,
}

/// How many slots a roster holds.
#[derive(Clone, Copy, Debug)]
struct Named {
    pools: usize,
    peers: usize,
    buckets: usize,
}

/// A limit per signal, set on the running router.
#[derive(Debug, Default)]
struct RuntimeLimits {
    ttft: Override<f64>,
    tps: Override<f64>,
}

impl RuntimeLimits {
    fn of(&self, signal: Signal) -> &Override<f64> {
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

/// What a request came to; nothing is moved yet.
struct Decision {
    /// What the gates move; absent without a usable peer.
    moves: Option<Moves>,
    outcome: Result<Pick, Refusal>,
    /// Whether the pool is full for it.
    is_full: bool,
}

impl Decision {
    /// Whether it would be placed, were the pool not full, and may wait for that.
    fn must_wait(&self) -> bool {
        let may_wait = self.moves.is_some_and(|moves| moves.may_wait);
        self.is_full && may_wait && self.outcome.is_ok()
    }
}

/// One request as the choice sees it.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Which pool serves it.
    pub pool: PoolId,
    /// The raw session id; `None` when the request named none or affinity is switched off.
    pub session: Option<&'a [u8]>,
    /// The session's [`table_key`](crate::session::SessionId::table_key); without it the session is
    /// not remembered.
    pub key: Option<&'a [u8]>,
    /// The conversation's prefixes, shortest first; empty where nothing is placed by them.
    pub prefix: &'a [Prefix],
    /// Indices, ascending, of the pool's peers that list the request's model; `None`: any may serve it.
    pub pin: Option<&'a [usize]>,
    /// What happens when none of these is usable: any other peer, or a refusal.
    pub pin_falls_back: bool,
    /// The turn of a usable `x-phanrouter-session` header. Without one the request counts as fully
    /// warm. Read only while `session_prio` is on.
    pub turn: Option<u32>,
    /// A model list or health request: passes every load gate and is not counted by any.
    pub exempt: bool,
    /// The route's switches as they are in force.
    pub switches: Switches,
}

impl<'a> Ask<'a> {
    /// A request without a turn, with every switch at its built-in default.
    pub const fn new(pool: PoolId, session: Option<&'a [u8]>) -> Self {
        let key = match session {
            Some(session) if session.len() <= TABLE_KEY_BYTES_MAX => Some(session),
            _ => None,
        };
        Self {
            pool,
            session,
            key,
            prefix: &[],
            pin: None,
            pin_falls_back: true,
            turn: None,
            exempt: false,
            switches: Switches::DEFAULT,
        }
    }

    /// Nobody's request, to look at a pool with: of turn 1, which is refused first.
    const fn under(pool: PoolId, switches: Switches) -> Self {
        Self {
            switches,
            turn: Some(1),
            ..Self::new(pool, None)
        }
    }
}

/// The switches that a decision obeys, runtime overrides applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switches {
    /// `load_rate_limit`: off, the three load gates only count trips.
    pub rate_limit: bool,
    /// `ttft_enabled`: off, TTFT neither refuses nor shrinks the adaptive limit.
    pub ttft: bool,
    /// `ttft_429`: off, TTFT shrinks the adaptive limit but refuses nobody.
    pub ttft_429: bool,
    /// `tps_enabled`: off, the decode rate neither refuses nor moves the adaptive limit.
    pub tps: bool,
    /// `session_prio`.
    pub session_prio: bool,
}

impl Switches {
    /// The built-in defaults.
    pub const DEFAULT: Self = Self {
        rate_limit: true,
        ttft: true,
        ttft_429: true,
        tps: true,
        session_prio: false,
    };
}

/// Where a request that names a model may be retried.
#[derive(Clone, Copy, Debug)]
pub struct Pin<'a> {
    /// As [`Ask::pin`].
    pub peers: &'a [usize],
    /// As [`Ask::pin_falls_back`].
    pub falls_back: bool,
}

/// A limit set on the running router: the value, and its life (`None` = until reset).
pub type RuntimeLimit = (f64, Option<Duration>);

/// One reserved unit on one peer. Exactly one [`Book::release`] ends it: it cannot be copied, and
/// releasing consumes it. Dropping it instead leaks the unit for the life of the book, so the
/// edge keeps every ticket in a guard whose `Drop` releases it.
#[derive(Debug)]
#[must_use = "a ticket holds a slot until it is released"]
pub struct Ticket {
    slot: u32,
    /// Slot of the pool's state.
    pool_slot: u32,
    /// Index of the pool and of the peer in the roster it was reserved under.
    pool: usize,
    peer: usize,
    /// The active tier when it was reserved; a retry never goes above it.
    tier: i64,
}

/// Where a request goes.
#[derive(Debug)]
pub struct Placement {
    /// The reserved unit.
    pub ticket: Ticket,
    /// Index of the peer in its [`PoolSpec`](crate::pool::PoolSpec).
    pub peer: usize,
    /// How it was found.
    pub mode: Mode,
    /// The numbers behind it.
    pub facts: Facts,
}

/// The answer to an [`Ask`].
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "the admit path is the common one and must not allocate"
)]
pub enum Verdict {
    /// Reserved.
    Send(Placement),
    /// Queued: [`Book::hand_over`] will name it, unless it [leaves](Book::leave) before.
    Wait(WaiterId),
    /// Nothing is reserved.
    Refuse(Refusal),
}

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

/// Where a session lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lodging {
    /// Index of the peer in its pool.
    pub peer: usize,
    /// Time since it was placed there.
    pub age: Duration,
    /// Time since it was used.
    pub idle: Duration,
}

/// What a pool remembers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryState {
    /// Sessions, expired ones that no sweep has met included.
    pub sessions: u64,
    /// Sessions pushed out by the cap, since the start.
    pub evicted: u64,
    /// Sessions that expired, since the start.
    pub expired: u64,
    /// Prefixes.
    pub prefixes: u64,
}

/// The end of a wait.
#[derive(Debug)]
pub struct Handed {
    /// Who waited.
    pub waiter: WaiterId,
    /// Its unit, or why it gets none.
    pub outcome: Result<Placement, Refusal>,
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
    /// Resolves a spec's peers to their state, creating what is new.
    pub fn attach(&mut self, spec: RouteSpec) -> Roster {
        debug_assert!(spec.rt_limit_factor.is_finite() && spec.rt_limit_factor > 0.0);
        let mut members = Vec::with_capacity(spec.pools.len());
        for pool in &spec.pools {
            let peers = pool
                .peers
                .iter()
                .map(|peer| self.peers.acquire(&peer.key))
                .collect();
            let slot = self.pools.acquire(&pool.model);
            members.push(Members::new(&spec.guard, pool, slot, peers));
        }
        let buckets = self.priority.acquire(&spec.guard.priority);
        let id = self.next_roster;
        self.next_roster += 1;
        let named = Named {
            pools: members.len(),
            peers: members.iter().map(|pool| pool.peers.len()).sum(),
            buckets: buckets.len(),
        };
        self.rosters.insert(id, named);
        Roster::new(Resolved {
            id,
            spec,
            members,
            buckets,
        })
    }

    /// Gives up a roster; state of peers that no roster names and no ticket holds is dropped.
    /// Tickets reserved under it may still be released, not retried. A second call does nothing.
    pub fn detach(&mut self, roster: &Roster) {
        if self.rosters.remove(&roster.id).is_none() {
            return;
        }
        for pool in &roster.members {
            self.pools.let_go(pool.pool);
            for peer in &pool.peers {
                self.let_go(*peer);
            }
        }
        self.priority.let_go(&roster.buckets);
    }

    /// Admits and chooses in one step. Cost O(peers of the pool); no allocation when it is admitted.
    pub fn reserve(
        &mut self,
        roster: &Roster,
        ask: Ask<'_>,
        now: Instant,
        rng: &mut impl Rng,
    ) -> Verdict {
        self.epoch.get_or_insert(now);
        let decision = self.decide(roster, ask, false, now, rng);
        if let (Some(moves), Ok(pick)) = (decision.moves, &decision.outcome)
            && moves.may_wait
        {
            let ahead = self.waiters.len(roster, &ask);
            if decision.is_full || ahead > 0 {
                return self.queue(roster, ask, moves, pick.facts, ahead, now);
            }
        }
        match self.settle(roster, ask, decision, now) {
            Ok(placement) => Verdict::Send(placement),
            Err(refusal) => Verdict::Refuse(refusal),
        }
    }

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

    /// How many wait for a pool, those of earlier rosters included.
    pub fn waiting(&self, roster: &Roster, pool: PoolId) -> usize {
        self.waiters.len_of_pool(roster.members[pool.0].pool)
    }

    /// Decides about a waiter again; `None` when it has to go on waiting, or does not wait.
    fn serve(
        &mut self,
        id: WaiterId,
        past_limit: bool,
        now: Instant,
        rng: &mut impl Rng,
    ) -> Option<Result<Placement, Refusal>> {
        let waiter = self.waiters.get(id)?;
        let ask = waiter.ask(id.pool());
        let mut decision = self.decide(&waiter.roster, ask, past_limit, now, rng);
        if decision.must_wait() {
            return None;
        }
        if let Ok(pick) = &mut decision.outcome {
            let waited = now.saturating_duration_since(waiter.since);
            pick.facts.waited_ms = Some(u64::try_from(waited.as_millis()).unwrap_or(u64::MAX));
        }
        let waiter = self.waiters.leave(id)?;
        Some(self.settle(&waiter.roster, waiter.ask(id.pool()), decision, now))
    }

    /// Queues a request that every other gate lets in, or refuses it when the queue is full.
    fn queue(
        &mut self,
        roster: &Roster,
        ask: Ask<'_>,
        moves: Moves,
        facts: Facts,
        ahead: usize,
        now: Instant,
    ) -> Verdict {
        if ahead >= roster.spec.guard.wait_max as usize {
            let refusal = self.gates(roster, ask, now).full(&facts);
            self.note(roster, ask.pool, moves, Err(&refusal), now);
            return Verdict::Refuse(refusal);
        }
        let state = self.pools.get_mut(roster.members[ask.pool.0].pool);
        if let Some(hold) = moves.hold {
            state.is_held = hold;
        }
        if let Some(life) = moves.demand {
            // Whoever waits wants more than the limit gives.
            state.adaptive.refuse(life, now);
        }
        Verdict::Wait(self.waiters.join(roster, ask, now))
    }

    /// Carries a decision out.
    fn settle(
        &mut self,
        roster: &Roster,
        ask: Ask<'_>,
        decision: Decision,
        now: Instant,
    ) -> Result<Placement, Refusal> {
        let Decision { moves, outcome, .. } = decision;
        if let Some(moves) = moves {
            let facts = outcome.as_ref().map(|pick| pick.facts);
            self.note(roster, ask.pool, moves, facts, now);
        }
        outcome.map(|pick| self.commit(roster, ask, pick, now))
    }

    /// Moves a reservation to the next candidate after a failed attempt: the ticket's own peer and
    /// the pool indices in `tried` are out. The request is never counted twice and never uncounted
    /// between. `None`: nobody is left, the ticket stays where it was.
    ///
    /// The next candidate is of the tier the request was placed in; with `cross_tier_fallback` also
    /// the least loaded peer of each lower tier, one per tier and request, in descending priority.
    /// A pinned request goes to the peers of its pin first, and to others only where it may fall back.
    /// `roster` is the one the ticket was reserved under.
    pub fn retry(
        &mut self,
        roster: &Roster,
        ticket: &mut Ticket,
        tried: &[usize],
        pin: Option<Pin<'_>>,
        now: Instant,
    ) -> Option<usize> {
        let slots = &roster.members[ticket.pool].peers;
        debug_assert_eq!(
            slots[ticket.peer], ticket.slot,
            "a ticket is retried under its own roster"
        );
        let any = self.view(roster, PoolId(ticket.pool), now);
        let next = match pin {
            None => any.next(ticket, tried)?,
            Some(Pin { peers, falls_back }) => {
                let next = any.pinned(peers).next(ticket, tried);
                next.or_else(|| any.next(ticket, tried).filter(|_| falls_back))?
            }
        };
        self.occupy(slots[next]);
        self.vacate(ticket.slot, now);
        ticket.slot = slots[next];
        ticket.peer = next;
        Some(next)
    }

    /// Ends a reservation. O(1), no allocation.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "consuming the ticket makes a second release impossible"
    )]
    pub fn release(&mut self, ticket: Ticket, now: Instant) {
        let epoch = self.epoch(now);
        self.pools.get_mut(ticket.pool_slot).drain.end(epoch, now);
        self.pools.let_go(ticket.pool_slot);
        self.vacate(ticket.slot, now);
    }

    /// Records what a probe or the request path learned about a peer, in every pool that names it.
    /// A failure bans it for the roster's `ban_ttl`. `None` when nothing changed, and for a peer
    /// that no roster names any more.
    pub fn observe(
        &mut self,
        roster: &Roster,
        peer: &PeerKey,
        evidence: Evidence,
        now: Instant,
    ) -> Option<Change> {
        let slot = self.peers.find(peer)?;
        self.peers
            .get_mut(slot)
            .ban
            .observe(evidence, roster.spec.ban_ttl, now)
    }

    /// Takes in what a poll of a peer's engine found; answers what the reading is worth now. `None` for
    /// a peer that no roster names any more, and where nothing is polled.
    pub fn report_load(
        &mut self,
        roster: &Roster,
        peer: &PeerKey,
        report: Report,
        now: Instant,
    ) -> Option<Standing> {
        let spec = roster.spec.load.as_ref()?;
        let slot = self.peers.find(peer)?;
        let state = self.peers.get_mut(slot);
        state.reading.report(report, state.in_flight, now);
        Some(state.reading.standing(spec, state.in_flight, now))
    }

    /// Remembers how many slots a peer's engine says it has; answers what it said before.
    pub fn learn_slots(&mut self, peer: &PeerKey, slots: u32) -> Option<u32> {
        let slot = self.peers.find(peer)?;
        self.peers.get_mut(slot).learned.replace(slots.max(1))
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

    /// Renews a session at the end of a response: a long stream keeps it alive.
    pub fn renew_session(&mut self, ticket: &Ticket, key: &[u8], now: Instant) {
        let sessions = &mut self.pools.get_mut(ticket.pool_slot).sessions;
        sessions.touch(key, ticket.slot, now);
    }

    /// Releases a session in every pool; answers in how many it lived.
    pub fn finish_session(&mut self, key: &[u8]) -> u32 {
        let held = |pool: &mut PoolState| u32::from(pool.sessions.finish(key));
        self.pools.iter_mut().map(held).sum()
    }

    /// Where a session lives in a pool.
    pub fn find_session(
        &self,
        roster: &Roster,
        pool: PoolId,
        key: &[u8],
        now: Instant,
    ) -> Option<Lodging> {
        let members = &roster.members[pool.0];
        let sessions = &self.pools.get(members.pool).sessions;
        let seat = sessions.find(key, roster.spec.memory.session_ttl, now)?;
        let peer = members.peers.iter().position(|slot| *slot == seat.peer)?;
        Some(Lodging {
            peer,
            age: now.saturating_duration_since(seat.since),
            idle: now.saturating_duration_since(seat.used),
        })
    }

    /// What a pool remembers: sessions, those pushed out by the cap, those expired, prefixes.
    pub fn memory(&self, roster: &Roster, pool: PoolId) -> MemoryState {
        let state = self.pools.get(roster.members[pool.0].pool);
        let (evicted, expired) = state.sessions.losses();
        MemoryState {
            sessions: state.sessions.len() as u64,
            evicted,
            expired,
            prefixes: state.prefixes.len() as u64,
        }
    }

    /// What would happen to `ask`. Counts nothing, advances no round-robin cursor; given the same
    /// random numbers, [`reserve`](Self::reserve) does the same.
    pub fn explain(
        &self,
        roster: &Roster,
        ask: Ask<'_>,
        now: Instant,
        rng: &mut impl Rng,
    ) -> Explanation {
        let view = self.view_for(roster, &ask, now);
        let decision = self.decide(roster, ask, false, now, rng);
        let ahead = self.waiters.len(roster, &ask);
        let may_wait = decision.moves.is_some_and(|moves| moves.may_wait);
        let waits = decision.must_wait() || (may_wait && ahead > 0);
        let guard = &roster.spec.guard;
        let outcome = match decision.outcome {
            Ok(pick) if waits && ahead >= guard.wait_max as usize => {
                Outcome::Refuse(self.gates(roster, ask, now).full(&pick.facts))
            }
            Ok(_) if waits => Outcome::Wait {
                ahead: ahead as u32,
                wait_max: guard.wait_max,
                timeout_s: guard.wait_timeout.as_secs_f64(),
            },
            Ok(pick) => {
                let spec = roster.peer(ask.pool, pick.peer);
                Outcome::Send {
                    peer: spec.key.clone(),
                    name: spec.name.to_string(),
                    mode: pick.mode,
                    facts: pick.facts,
                }
            }
            Err(refusal) => Outcome::Refuse(refusal),
        };
        let gates = view.capacity().map(|capacity| {
            let gates = self.gates(roster, ask, now);
            gates.explain(&capacity)
        });
        Explanation {
            peers: view.peer_facts(ask.session),
            outcome,
            gates: gates.unwrap_or_default(),
        }
    }

    /// Every peer of a pool as it is now, file order.
    pub fn peers(&self, roster: &Roster, pool: PoolId, now: Instant) -> Vec<PeerFacts> {
        self.view(roster, pool, now).peer_facts(None)
    }

    /// The room of a pool as it is now.
    pub fn limits(&self, roster: &Roster, pool: PoolId, now: Instant) -> Limits {
        let view = self.view(roster, pool, now);
        let active = view.capacity();
        Limits {
            tier: active.map(|active| active.tier),
            limit: active.map_or(0, |active| active.limit),
            in_flight: active.map_or(0, |active| active.in_flight),
            healthy_peers: active.map_or(0, |active| active.healthy_peers),
            largest_tier_sum: largest_tier_sum(view.iter().map(|(_, peer)| peer)),
        }
    }

    /// Takes in one measurement of a request of `pool`. A window that ended before `now` is folded
    /// first. O(metrics), no allocation once the pool was measured.
    pub fn sample(&mut self, roster: &Roster, pool: PoolId, sample: Sample, now: Instant) {
        let epoch = *self.epoch.get_or_insert(now);
        let members = &roster.members[pool.0];
        let state = self.pools.get_mut(members.pool);
        let (signal, value) = match sample {
            Sample::Ttft(ms) => (Signal::Ttft, ms),
            Sample::Tps(rate) => (Signal::Tps, rate),
            Sample::NoUsage => return state.tps.no_usage += 1,
            Sample::Aborted => return state.tps.aborted += 1,
        };
        let (spec, metrics) = (
            roster.spec.guard.signal(signal),
            &members.criteria(signal).metrics,
        );
        let meter = &mut state.signal_mut(signal).meter;
        meter.record(value, spec, metrics, epoch, now);
    }

    /// Adds a finished request's prompt and cached tokens to its bucket, or to the requests without
    /// a usable header. Nothing when `session_prio` was off when it was placed.
    pub fn tokens(&mut self, facts: &Facts, prompt: u64, cached: u64) {
        if let Some(grade) = facts.grade {
            self.priority.tokens(grade, prompt, cached);
        }
    }

    /// Does what time alone makes due: folds windows, moves adaptive limits, samples the averages.
    /// Answers when it wants to be called next, always after `now`. A call too early does nothing,
    /// one too late does once what was due.
    pub fn tick(&mut self, roster: &Roster, switches: Switches, now: Instant) -> Instant {
        let epoch = *self.epoch.get_or_insert(now);
        self.obey(switches);
        let guard = &roster.spec.guard;
        let mut next = window_end(epoch, guard.cluster_avg_interval, now);
        for signal in Signal::ALL {
            next = next.min(window_end(epoch, guard.signal(signal).window, now));
        }
        if switches.session_prio {
            next = next.min(self.priority.minute_end(epoch, now));
        }
        self.priority.roll(guard.priority.warn_frac, epoch, now);
        for (index, members) in roster.members.iter().enumerate() {
            let in_flight = self.view(roster, PoolId(index), now).in_flight();
            let state = self.pools.get_mut(members.pool);
            if state
                .sessions
                .sweep(roster.spec.memory.session_ttl, SWEEP_MAX, now)
            {
                next = next.min(now + SWEEP_PAUSE);
            }
            for signal in Signal::ALL {
                let metrics = &members.criteria(signal).metrics;
                let meter = &mut state.signal_mut(signal).meter;
                meter.fold(guard.signal(signal), metrics, now);
            }
            state
                .average
                .sample(in_flight, epoch, guard.cluster_avg_interval, now);
            if let Some(due) = self.adapt(roster, PoolId(index), switches, in_flight, now) {
                next = next.min(due);
            }
        }
        next
    }

    /// Moves a pool's adaptive limit when that is due; answers when it is due next.
    fn adapt(
        &mut self,
        roster: &Roster,
        pool: PoolId,
        switches: Switches,
        in_flight: u64,
        now: Instant,
    ) -> Option<Instant> {
        let slot = roster.members[pool.0].pool;
        let Some(spec) = &roster.spec.guard.adaptive else {
            // A limit learned under another configuration is no start point for the next.
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
        let gates = self.gates(roster, Ask::under(pool, switches), now);
        let moved = gates.adaptive_limit().and_then(|limit| {
            let inputs = Inputs {
                limit,
                in_flight,
                refused: gates.pool.adaptive.refused(gates.demand_life(spec), now),
                health: gates.health(spec),
            };
            aimd::tick(spec, gates.bounds()?, inputs)
        });
        let adaptive = &mut self.pools.get_mut(slot).adaptive;
        if let Some(limit) = moved {
            adaptive.use_up_refused();
            adaptive.store(limit, (!spec.hold_when_idle).then_some(spec.ttl), now);
        }
        adaptive.due = Some(next);
        Some(next)
    }

    /// Sets or, with `None`, removes a runtime limit of the route or of one pool; answers what was
    /// in force before. A limit of a pool beats the route's and lives as long as the pool does.
    pub fn set_limit(
        &mut self,
        roster: &Roster,
        signal: Signal,
        pool: Option<PoolId>,
        limit: Option<RuntimeLimit>,
        now: Instant,
    ) -> Option<RuntimeLimit> {
        let before = self.limit(roster, signal, pool, now);
        let held = match pool {
            Some(pool) => {
                let state = self.pools.get_mut(roster.members[pool.0].pool);
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
        roster: &Roster,
        signal: Signal,
        pool: Option<PoolId>,
        now: Instant,
    ) -> Option<RuntimeLimit> {
        let held = match pool {
            Some(pool) => {
                let state = self.pools.get(roster.members[pool.0].pool);
                &state.signal(signal).runtime
            }
            None => self.runtime.of(signal),
        };
        Some((held.get(now)?, held.left(now)))
    }

    /// Every gate of a pool as it is now.
    pub fn protection(
        &self,
        roster: &Roster,
        pool: PoolId,
        switches: Switches,
        now: Instant,
    ) -> Protection {
        let capacity = self.view(roster, pool, now).capacity();
        let gates = self.gates(roster, Ask::under(pool, switches), now);
        show::protection(&gates, capacity, self.waiting(roster, pool) as u32)
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
    pub fn priority(&self, roster: &Roster) -> PriorityState {
        let table = &roster.spec.guard.priority.table;
        self.priority.state(table, &roster.buckets)
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

    /// Debug-asserts the invariants: the peers' in-flight adds up to the tickets not released, and
    /// every slot is held by exactly the rosters and tickets that know it.
    pub fn check(&self) {
        self.peers.check();
        self.pools.check();
        let in_flight: u64 = self
            .peers
            .iter()
            .map(|peer| u64::from(peer.in_flight))
            .sum();
        debug_assert_eq!(in_flight, self.outstanding);
        let named =
            |count: fn(&Named) -> usize| self.rosters.values().map(count).sum::<usize>() as u64;
        debug_assert_eq!(
            self.peers.holders(),
            named(|roster| roster.peers) + self.outstanding
        );
        debug_assert_eq!(
            self.pools.holders(),
            named(|roster| roster.pools) + self.outstanding
        );
        let running = self.pools.iter().map(|pool| pool.drain.running());
        debug_assert_eq!(running.map(u64::from).sum::<u64>(), self.outstanding);
        self.priority.check(named(|roster| roster.buckets));
        self.waiters.check(|id| self.rosters.contains_key(&id));
    }

    fn view<'a>(&'a self, roster: &'a Roster, pool: PoolId, now: Instant) -> View<'a> {
        debug_assert!(
            self.rosters.contains_key(&roster.id),
            "a detached roster is not asked"
        );
        let memory = self.pools.get(roster.members[pool.0].pool);
        View::new(roster, pool.0, &self.peers, memory, None, now)
    }

    /// The pool as a request sees it: without the peers that do not list its model, unless none of
    /// those that do is usable and another may serve it.
    fn view_for<'a>(&'a self, roster: &'a Roster, ask: &Ask<'a>, now: Instant) -> View<'a> {
        let memory = self.pools.get(roster.members[ask.pool.0].pool);
        let pinned = View::new(roster, ask.pool.0, &self.peers, memory, ask.pin, now);
        if ask.pin.is_some() && ask.pin_falls_back && pinned.capacity().is_none() {
            pinned.unpinned()
        } else {
            pinned
        }
    }

    fn gates<'a>(&'a self, roster: &'a Roster, ask: Ask<'a>, now: Instant) -> Gates<'a> {
        let members = &roster.members[ask.pool.0];
        Gates {
            route: &roster.spec,
            members,
            pool: self.pools.get(members.pool),
            runtime: &self.runtime,
            ask,
            past_limit: false,
            epoch: self.epoch(now),
            now,
        }
    }

    /// The first instant this book saw, which may be `now`.
    fn epoch(&self, now: Instant) -> Instant {
        self.epoch.unwrap_or(now)
    }

    /// `past_limit`: whatever the concurrency gate says.
    fn decide(
        &self,
        roster: &Roster,
        ask: Ask<'_>,
        past_limit: bool,
        now: Instant,
        rng: &mut impl Rng,
    ) -> Decision {
        let view = self.view_for(roster, &ask, now);
        let Some(capacity) = view.capacity() else {
            return Decision {
                moves: None,
                outcome: Err(view.no_healthy_peer()),
                is_full: false,
            };
        };
        let gates = Gates {
            past_limit,
            ..self.gates(roster, ask, now)
        };
        let hearing = gates.hear(&capacity);
        let place = |facts| view.place(facts, &ask, rng);
        Decision {
            moves: Some(hearing.moves),
            outcome: hearing.outcome.map(place),
            is_full: hearing.is_full,
        }
    }

    /// Moves what a hearing moves: the hold flag, probe slots, demand and the counters.
    fn note(
        &mut self,
        roster: &Roster,
        pool: PoolId,
        moves: Moves,
        outcome: Result<Facts, &Refusal>,
        now: Instant,
    ) {
        let (epoch, guard) = (self.epoch(now), &roster.spec.guard);
        let state = self.pools.get_mut(roster.members[pool.0].pool);
        if let Some(hold) = moves.hold {
            state.is_held = hold;
        }
        match outcome {
            Ok(facts) => {
                for signal in Signal::ALL {
                    if facts.probes.contains(signal.into()) {
                        let aligned = window_end(epoch, guard.signal(signal).probe_window, now);
                        let probes = &mut state.signal_mut(signal).probes;
                        probes.take(moves.budget, aligned, now);
                    }
                }
                self.trips.add(facts.tripped);
            }
            Err(Refusal::ConcurrencyLimit(_)) => {
                if let Some(life) = moves.demand {
                    state.adaptive.refuse(life, now);
                }
            }
            Err(_) => {}
        }
        if let Some(grade) = moves.grade {
            self.priority.roll(guard.priority.warn_frac, epoch, now);
            self.priority.count(grade, outcome.is_ok());
        }
    }

    fn commit(&mut self, roster: &Roster, ask: Ask<'_>, pick: Pick, now: Instant) -> Placement {
        let Pick {
            peer,
            mode,
            facts,
            balanced,
        } = pick;
        let epoch = self.epoch(now);
        let pool = ask.pool.0;
        let members = &roster.members[pool];
        let slot = members.peers[peer];
        let state = self.pools.get_mut(members.pool);
        if balanced && roster.spec.balance == Balance::RoundRobin {
            state.turn += 1;
        }
        let memory = &roster.spec.memory;
        if let (Some(key), true) = (ask.key, roster.spec.remembers_sessions()) {
            let max = memory.sessions_max as usize;
            // The expiry comes before the renewal: one that is found expired begins anew.
            if state.sessions.find(key, memory.session_ttl, now).is_none() {
                state.sessions.finish(key);
            }
            state.sessions.bind(key, slot, max, now);
        } else if memory.prefixes && ask.session.is_none() {
            state.prefixes.record(ask.prefix, slot, PREFIXES_MAX);
        }
        state.drain.start(epoch, now);
        self.pools.hold(members.pool);
        self.occupy(slot);
        Placement {
            ticket: Ticket {
                slot,
                pool_slot: members.pool,
                pool,
                peer,
                tier: facts.tier,
            },
            peer,
            mode,
            facts,
        }
    }

    /// Gives up one hold on a peer. With the last one goes what pools remember of it: its place may
    /// become another peer's.
    fn let_go(&mut self, slot: u32) {
        if self.peers.let_go(slot) {
            for pool in self.pools.iter_mut() {
                pool.sessions.forget_peer(slot);
                pool.prefixes.forget_peer(slot);
            }
        }
    }

    fn occupy(&mut self, slot: u32) {
        self.peers.hold(slot);
        let peer = self.peers.get_mut(slot);
        peer.in_flight += 1;
        peer.reading.placed();
        self.outstanding += 1;
    }

    fn vacate(&mut self, slot: u32, now: Instant) {
        let peer = self.peers.get_mut(slot);
        peer.in_flight -= 1;
        peer.reading.released(peer.in_flight, now);
        self.let_go(slot);
        self.outstanding -= 1;
    }
}
