//! The one aggregate of a route: reserve, retry, release, observe.
//!
//! The edge keeps one `Book` per route behind one lock. State is keyed by peer, so it outlives a
//! reload: a new [`RouteSpec`] is *attached*, which resolves each peer to the state its key already
//! has, and the old one *detached* when its last request is gone. A peer's state is dropped once no
//! roster names it and no ticket holds it.
//!
//! Here are the state, who holds it, and the count of what is in flight; each file beside has one
//! kind of question or event.

mod answer;
mod bounds;
mod candidate_set;
mod decide;
mod gates;
mod measure;
mod peers;
mod placement_request;
mod pool;
mod priority;
mod resolved_route;
mod runtime;
mod sessions;
mod show;
pub mod status;
mod table;
mod view;
mod wait;
mod waiters;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use crate::aimd::Bounds;
use crate::load::Reading;
use crate::pool::{Ban, ByRole, PeerKey, Role, RouteSpec};
use candidate_set::CandidateSet;
use gates::Gates;
use pool::PoolState;
use priority::Priority;
use resolved_route::PoolMembers;
use runtime::RuntimeLimits;
use status::Trips;
use table::Table;
use view::View;
use waiters::Waiters;

pub use answer::{Handed, Placement, Ticket, Verdict};
pub use peers::{Known, Limits};
pub use placement_request::{Pin, PlacementRequest, Switches};
pub use resolved_route::{PoolId, ResolvedRoute};
pub use runtime::RuntimeLimit;
pub use sessions::{MemoryState, SessionBinding};
pub use waiters::WaiterId;

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
    /// By id.
    rosters: BTreeMap<u64, Attached>,
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

/// A roster in use, and what its decisions go over.
#[derive(Debug)]
struct Attached {
    roster: ResolvedRoute,
    /// Index = pool.
    lineups: Vec<ByRole<CandidateSet>>,
    /// Index = pool: between what its adaptive limit moves. `None` without `adaptive_cc`.
    bounds: Vec<Option<Bounds>>,
}

impl Book {
    /// Resolves a spec's peers to their state, creating what is new. Where the spec attached before
    /// polled nobody and this one does, its peers stay candidates until their first poll has ended.
    pub fn attach(&mut self, spec: RouteSpec) -> ResolvedRoute {
        debug_assert!(spec.rt_limit_factor.is_finite() && spec.rt_limit_factor > 0.0);
        let mut members = Vec::with_capacity(spec.pools.len());
        for pool in &spec.pools {
            let peers = pool
                .peers
                .iter()
                .map(|peer| self.peers.acquire(&peer.key))
                .collect();
            let slot = self.pools.acquire(&pool.model);
            members.push(PoolMembers::new(&spec.guard, pool, slot, peers));
        }
        let buckets = self.priority.acquire(&spec.guard.priority);
        let before = self.rosters.values().next_back();
        if spec.load.is_some() && before.is_some_and(|before| before.roster.spec.load.is_none()) {
            for slot in members.iter().flat_map(|pool| &pool.peers) {
                self.peers.get_mut(*slot).reading.begin();
            }
            let lineups = self.rosters.values_mut().flat_map(|one| &mut one.lineups);
            lineups
                .flat_map(ByRole::iter_mut)
                .for_each(CandidateSet::forget);
        }
        let id = self.next_roster;
        self.next_roster += 1;
        let roster = ResolvedRoute::new(id, spec, members, buckets);
        let attached = Attached {
            lineups: vec![ByRole::default(); roster.members.len()],
            bounds: bounds::of(&roster, &self.peers),
            roster: roster.clone(),
        };
        self.rosters.insert(id, attached);
        roster
    }

    /// Gives up a roster; state of peers that no roster names and no ticket holds is dropped.
    /// Tickets reserved under it may still be released, not retried. A second call does nothing.
    pub fn detach(&mut self, roster: &ResolvedRoute) {
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
        let named = |count: fn(&ResolvedRoute) -> usize| {
            self.rosters
                .values()
                .map(|one| count(&one.roster))
                .sum::<usize>() as u64
        };
        let peers =
            |roster: &ResolvedRoute| roster.members.iter().map(|pool| pool.peers.len()).sum();
        debug_assert_eq!(self.peers.holders(), named(peers) + self.outstanding);
        debug_assert_eq!(
            self.pools.holders(),
            named(|roster| roster.members.len()) + self.outstanding
        );
        let running = self.pools.iter().map(|pool| pool.drain.running());
        debug_assert_eq!(running.map(u64::from).sum::<u64>(), self.outstanding);
        for (_, sessions) in self.pools.iter().flat_map(|pool| pool.sessions.iter()) {
            sessions.check();
        }
        self.pools.iter().for_each(|pool| pool.prefixes.check());
        self.priority.check(named(|roster| roster.buckets.len()));
        self.waiters.check(|id| self.rosters.contains_key(&id));
        for Attached {
            roster,
            lineups,
            bounds,
        } in self.rosters.values()
        {
            debug_assert_eq!(*bounds, bounds::of(roster, &self.peers));
            for (pool, lineups) in lineups.iter().enumerate() {
                for (role, lineup) in lineups.iter() {
                    lineup.check(roster, (pool, role), &self.peers);
                }
            }
        }
    }

    /// The pool as a request of any model sees it. Looks at every peer unless the pool's lineup is
    /// [current](Self::refresh).
    fn view<'a>(
        &'a self,
        roster: &'a ResolvedRoute,
        pool: PoolId,
        role: Role,
        now: Instant,
    ) -> View<'a> {
        let attached = self.rosters.get(&roster.id);
        let attached = attached.expect("a detached roster is not asked");
        let lineup = match &attached.lineups[pool.0][role] {
            lineup if lineup.is_current(now) => Cow::Borrowed(lineup),
            _ => Cow::Owned(CandidateSet::new(roster, (pool.0, role), &self.peers, now)),
        };
        let memory = self.pools.get(roster.members[pool.0].pool);
        View::new(roster, (pool, role), &self.peers, memory, lineup, now)
    }

    /// The pool as a request sees it: without the peers that do not list its model, unless none of
    /// those that do is usable and another may serve it; with the draining peer that its session
    /// lives on.
    fn view_for<'a>(
        &'a self,
        roster: &'a ResolvedRoute,
        ask: &PlacementRequest<'a>,
        now: Instant,
    ) -> View<'a> {
        let view = self.view(roster, ask.pool, ask.role, now);
        let mut view = match ask.pin {
            Some(pin) => view.pinned(pin, ask.pin_falls_back),
            None => view,
        };
        view.lodge(ask);
        view
    }

    /// Brings a pool's lineup up to date, so that views of it cost nothing.
    fn refresh(&mut self, roster: u64, pool: PoolId, role: Role, now: Instant) {
        let Self { rosters, peers, .. } = self;
        if let Some(Attached {
            roster, lineups, ..
        }) = rosters.get_mut(&roster)
            && !lineups[pool.0][role].is_current(now)
        {
            lineups[pool.0][role].make(roster, (pool.0, role), peers, now);
        }
    }

    /// When time alone may next change a peer of a pool: a ban ends, a reading grows old.
    fn due(&self, roster: &ResolvedRoute, pool: PoolId, role: Role) -> Option<Instant> {
        let attached = self.rosters.get(&roster.id)?;
        attached.lineups[pool.0][role].due()
    }

    /// Looks at a peer again, to which something has happened.
    fn touch(&mut self, slot: u32, now: Instant) {
        let Self { rosters, peers, .. } = self;
        let state = peers.get(slot);
        for Attached {
            roster, lineups, ..
        } in rosters.values_mut()
        {
            for (pool, index) in roster.places.of(slot) {
                let role = roster.spec.pools[*pool].peers[*index].role;
                lineups[*pool][role].touch(roster, *pool, *index, state, now);
            }
        }
    }

    fn gates<'a>(
        &'a self,
        roster: &'a ResolvedRoute,
        ask: PlacementRequest<'a>,
        now: Instant,
    ) -> Gates<'a> {
        let members = &roster.members[ask.pool.0];
        let attached = self.rosters.get(&roster.id);
        Gates {
            route: &roster.spec,
            members,
            bounds: attached.and_then(|attached| attached.bounds[ask.pool.0]),
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

    /// Gives up one hold on a peer. With the last one goes what pools remember of it: its place may
    /// become another peer's.
    fn let_go(&mut self, slot: u32) {
        if self.peers.let_go(slot) {
            for pool in self.pools.iter_mut() {
                let tables = pool.sessions.iter_mut();
                tables.for_each(|sessions| sessions.forget_peer(slot));
                pool.prefixes.forget_peer(slot);
            }
        }
    }

    fn occupy(&mut self, slot: u32, now: Instant) {
        self.peers.hold(slot);
        let peer = self.peers.get_mut(slot);
        peer.in_flight += 1;
        peer.reading.placed();
        self.outstanding += 1;
        self.touch(slot, now);
    }

    fn vacate(&mut self, slot: u32, now: Instant) {
        let peer = self.peers.get_mut(slot);
        peer.in_flight -= 1;
        peer.reading.released(peer.in_flight, now);
        self.outstanding -= 1;
        self.touch(slot, now);
        self.let_go(slot);
    }
}
