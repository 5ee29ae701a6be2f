//! The one aggregate of a route: reserve, retry, release, observe.
//!
//! The edge keeps one `Book` per route behind one lock. State is keyed by peer, so it outlives a
//! reload: a new [`RouteSpec`] is *attached*, which resolves each peer to the state its key already
//! has, and the old one *detached* when its last request is gone. A peer's state is dropped once no
//! roster names it and no ticket holds it. The choices themselves are in `view.rs`.

mod roster;
pub mod status;
mod table;
mod view;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::Rng;
use serde::{Deserialize, Serialize};

use crate::admission::Refusal;
use crate::admission::priority::Bucket;
use crate::balance::Balance;
use crate::decision::{Explanation, Facts, Mode, Outcome, PeerFacts};
use crate::pool::{Ban, Change, Evidence, PeerKey, RouteSpec, largest_tier_sum};
use crate::signal::{Sample, Signal};
use roster::Members;
use status::{
    Average, BucketState, NoHeader, PriorityState, Protection, SignalState, Tally, Trips,
};
use table::Table;
use view::{Pick, View};

pub use roster::{PoolId, Roster};

/// All mutable state of one route.
#[derive(Debug, Default)]
pub struct Book {
    /// Held by every roster that names the peer and by every ticket on it.
    peers: Table<PeerKey, PeerState>,
    /// By `peers_by_model` key; held by every roster that has the pool.
    pools: Table<Option<Arc<str>>, PoolState>,
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
}

/// How many slots a roster holds.
#[derive(Clone, Copy, Debug)]
struct Named {
    pools: usize,
    peers: usize,
}

#[derive(Debug, Default)]
struct PoolState {
    /// Index after the peer that `round_robin` picked last.
    cursor: usize,
}

/// One request as the choice sees it.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Which pool serves it.
    pub pool: PoolId,
    /// The raw session id; `None` when the request named none or affinity is switched off.
    pub session: Option<&'a [u8]>,
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
        Self {
            pool,
            session,
            turn: None,
            exempt: false,
            switches: Switches::DEFAULT,
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

/// A limit set on the running router: the value, and its life (`None` = until reset).
pub type RuntimeLimit = (f64, Option<Duration>);

/// One reserved unit on one peer. Exactly one [`Book::release`] ends it: it cannot be copied, and
/// releasing consumes it. Dropping it instead leaks the unit for the life of the book, so the
/// edge keeps every ticket in a guard whose `Drop` releases it.
#[derive(Debug)]
#[must_use = "a ticket holds a slot until it is released"]
pub struct Ticket {
    slot: u32,
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
    /// Nothing is reserved.
    Refuse(Refusal),
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
            members.push(Members {
                pool: self.pools.acquire(&pool.model),
                peers,
            });
        }
        let id = self.next_roster;
        self.next_roster += 1;
        let peers = members.iter().map(|pool| pool.peers.len()).sum();
        let pools = members.len();
        self.rosters.insert(id, Named { pools, peers });
        Roster { id, spec, members }
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
                self.peers.let_go(*peer);
            }
        }
    }

    /// Admits and chooses in one step. Cost O(peers of the pool), no allocation.
    pub fn reserve(
        &mut self,
        roster: &Roster,
        ask: Ask<'_>,
        now: Instant,
        rng: &mut impl Rng,
    ) -> Verdict {
        match self.decide(roster, ask, now, rng) {
            Ok(pick) => Verdict::Send(self.commit(roster, ask.pool.0, pick)),
            Err(refusal) => Verdict::Refuse(refusal),
        }
    }

    /// Moves a reservation to the next candidate after a failed attempt: the ticket's own peer and
    /// the pool indices in `tried` are out. The request is never counted twice and never uncounted
    /// between. `None`: nobody is left, the ticket stays where it was.
    ///
    /// The next candidate is of the tier the request was placed in; with `cross_tier_fallback` also
    /// the least loaded peer of each lower tier, one per tier and request, in descending priority.
    /// `roster` is the one the ticket was reserved under.
    pub fn retry(
        &mut self,
        roster: &Roster,
        ticket: &mut Ticket,
        tried: &[usize],
        now: Instant,
    ) -> Option<usize> {
        let slots = &roster.members[ticket.pool].peers;
        debug_assert_eq!(
            slots[ticket.peer], ticket.slot,
            "a ticket is retried under its own roster"
        );
        let next = self
            .view(roster, PoolId(ticket.pool), now)
            .next(ticket, tried)?;
        self.occupy(slots[next]);
        self.vacate(ticket.slot);
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
        let _ = now;
        self.vacate(ticket.slot);
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

    /// What would happen to `ask`. Counts nothing, advances no round-robin cursor; given the same
    /// random numbers, [`reserve`](Self::reserve) does the same.
    pub fn explain(
        &self,
        roster: &Roster,
        ask: Ask<'_>,
        now: Instant,
        rng: &mut impl Rng,
    ) -> Explanation {
        let outcome = match self.decide(roster, ask, now, rng) {
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
        Explanation {
            peers: self.view(roster, ask.pool, now).peer_facts(ask.session),
            outcome,
            gates: Vec::new(),
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

    /// Takes in one measurement of a request of `pool`. Windows that ended before `now` are folded
    /// first. O(metrics), no allocation once the pool was measured.
    pub fn sample(&mut self, roster: &Roster, pool: PoolId, sample: Sample, now: Instant) {
        let _ = (roster, pool, sample, now);
    }

    /// Adds a finished request's prompt and cached tokens to its bucket, or to the requests without
    /// a usable header. Nothing when `session_prio` was off when it was placed.
    pub fn tokens(&mut self, facts: &Facts, prompt: u64, cached: u64) {
        let _ = (facts, prompt, cached);
    }

    /// Does what time alone makes due: folds windows, moves adaptive limits, samples the averages.
    /// Answers when it wants to be called next.
    pub fn tick(&mut self, roster: &Roster, switches: Switches, now: Instant) -> Instant {
        let _ = (roster, switches);
        now + Duration::from_secs(1)
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
        let _ = (roster, signal, pool, limit, now);
        None
    }

    /// The runtime limit of the route or of one pool, with what is left of its life.
    pub fn limit(
        &self,
        roster: &Roster,
        signal: Signal,
        pool: Option<PoolId>,
        now: Instant,
    ) -> Option<RuntimeLimit> {
        let _ = (roster, signal, pool, now);
        None
    }

    /// Every gate of a pool as it is now.
    pub fn protection(
        &self,
        roster: &Roster,
        pool: PoolId,
        switches: Switches,
        now: Instant,
    ) -> Protection {
        let _ = switches;
        let limits = self.limits(roster, pool, now);
        Protection {
            in_flight: limits.in_flight,
            pool_limit: limits.limit,
            limit: limits.limit as f64,
            waiting: 0,
            ttft: SignalState::default(),
            tps: SignalState::default(),
            adaptive: None,
            average: Average::default(),
        }
    }

    /// Requests that tripped a gate while the master switch was off, since the start or the last
    /// [`reset_trips`](Self::reset_trips). Never part of the refusals.
    pub fn trips(&self) -> Trips {
        Trips::default()
    }

    /// Zeroes [`trips`](Self::trips); answers what they were.
    pub fn reset_trips(&mut self) -> Trips {
        Trips::default()
    }

    /// The `session_prio` table in force with its counters.
    pub fn priority(&self, roster: &Roster) -> PriorityState {
        let bucket = |bucket: &Bucket| BucketState {
            bucket: *bucket,
            tally: Tally::default(),
        };
        PriorityState {
            buckets: roster
                .spec
                .guard
                .priority
                .table
                .iter()
                .map(bucket)
                .collect(),
            no_header: Tally::default(),
        }
    }

    /// Zeroes the counters of [`priority`](Self::priority).
    pub fn reset_priority(&mut self) {}

    /// Once for each minute in which more than `session_prio_warn_frac` of the requests had no
    /// usable header: its numbers. The edge asks after each [`tick`](Self::tick) and logs.
    pub fn take_no_header_warning(&mut self) -> Option<NoHeader> {
        None
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
        debug_assert_eq!(self.pools.holders(), named(|roster| roster.pools));
    }

    fn view<'a>(&'a self, roster: &'a Roster, pool: PoolId, now: Instant) -> View<'a> {
        debug_assert!(
            self.rosters.contains_key(&roster.id),
            "a detached roster is not asked"
        );
        View::new(roster, pool.0, &self.peers, now)
    }

    fn decide(
        &self,
        roster: &Roster,
        ask: Ask<'_>,
        now: Instant,
        rng: &mut impl Rng,
    ) -> Result<Pick, Refusal> {
        let cursor = self.pools.get(roster.members[ask.pool.0].pool).cursor;
        self.view(roster, ask.pool, now)
            .decide(ask.session, cursor, rng)
    }

    fn commit(&mut self, roster: &Roster, pool: usize, pick: Pick) -> Placement {
        let Pick {
            peer,
            mode,
            facts,
            balanced,
        } = pick;
        let members = &roster.members[pool];
        if balanced && roster.spec.balance == Balance::RoundRobin {
            self.pools.get_mut(members.pool).cursor = peer + 1;
        }
        let slot = members.peers[peer];
        self.occupy(slot);
        Placement {
            ticket: Ticket {
                slot,
                pool,
                peer,
                tier: facts.tier,
            },
            peer,
            mode,
            facts,
        }
    }

    fn occupy(&mut self, slot: u32) {
        self.peers.hold(slot);
        self.peers.get_mut(slot).in_flight += 1;
        self.outstanding += 1;
    }

    fn vacate(&mut self, slot: u32) {
        self.peers.get_mut(slot).in_flight -= 1;
        self.peers.let_go(slot);
        self.outstanding -= 1;
    }
}
