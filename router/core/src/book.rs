//! The one aggregate of a route: reserve, retry, release, observe.
//!
//! The edge keeps one `Book` per route behind one lock. State is keyed by peer, so it outlives a
//! reload: a new [`RouteSpec`] is *attached*, which resolves each peer to the state its key already
//! has, and the old one *detached* when its last request is gone. A peer's state is dropped once no
//! resolved route names it and no ticket holds it.
//!
//! Here are the state, who holds it, and the count of what is in flight; each file beside has one
//! kind of question or event.

mod answer;
mod attempts;
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
use crate::health::{AnswerKind, Attempt, Health};
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
pub use attempts::{PeerChange, Watched};
pub use peers::{Known, Limits, Polled};
pub use placement_request::{Pin, PlacementRequest, Switches};
pub use resolved_route::{PoolId, ResolvedRoute};
pub use runtime::RuntimeLimit;
pub use sessions::{MemoryState, SessionBinding};
pub use waiters::WaiterId;

/// All mutable state of one route.
#[derive(Debug, Default)]
pub struct Book {
    /// Held by every resolved route that names the peer and by every ticket on it.
    peers: Table<PeerKey, PeerState>,
    /// By `peers_by_model` key; held by every resolved route that has the pool and by every ticket of it.
    pools: Table<Option<Arc<str>>, PoolState>,
    /// The route's runtime limits.
    runtime: RuntimeLimits,
    priority: Priority,
    trips: Trips,
    waiters: Waiters,
    /// The first instant it saw: what windows are aligned to.
    epoch: Option<Instant>,
    /// By id.
    routes: BTreeMap<u64, Attached>,
    next_route: u64,
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
    /// What became of the requests it got.
    health: Health,
}

/// A resolved route in use, and what its decisions go over.
#[derive(Debug)]
struct Attached {
    resolved: ResolvedRoute,
    /// Index = pool.
    candidate_sets: Vec<ByRole<CandidateSet>>,
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
        let before = self.routes.values().next_back();
        if spec.load.is_some() && before.is_some_and(|before| before.resolved.spec.load.is_none()) {
            for slot in members.iter().flat_map(|pool| &pool.peers) {
                self.peers.get_mut(*slot).reading.begin();
            }
            let candidate_sets = self
                .routes
                .values_mut()
                .flat_map(|one| &mut one.candidate_sets);
            candidate_sets
                .flat_map(ByRole::iter_mut)
                .for_each(CandidateSet::forget);
        }
        let id = self.next_route;
        self.next_route += 1;
        let resolved = ResolvedRoute::new(id, spec, members, buckets);
        let attached = Attached {
            candidate_sets: vec![ByRole::default(); resolved.members.len()],
            bounds: bounds::of(&resolved, &self.peers),
            resolved: resolved.clone(),
        };
        self.routes.insert(id, attached);
        resolved
    }

    /// Gives up a resolved route; state of peers that no resolved route names and no ticket holds is dropped.
    /// Tickets reserved under it may still be released, not retried. A second call does nothing.
    pub fn detach(&mut self, resolved: &ResolvedRoute) {
        if self.routes.remove(&resolved.id).is_none() {
            return;
        }
        for pool in &resolved.members {
            self.pools.release_hold(pool.pool);
            for peer in &pool.peers {
                self.release_hold(*peer);
            }
        }
        self.priority.release_hold(&resolved.buckets);
    }

    /// Debug-asserts the invariants: the peers' in-flight adds up to the tickets not released, and
    /// every slot is held by exactly the resolved routes and tickets that know it.
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
            self.routes
                .values()
                .map(|one| count(&one.resolved))
                .sum::<usize>() as u64
        };
        let peers =
            |resolved: &ResolvedRoute| resolved.members.iter().map(|pool| pool.peers.len()).sum();
        debug_assert_eq!(self.peers.holders(), named(peers) + self.outstanding);
        debug_assert_eq!(
            self.pools.holders(),
            named(|resolved| resolved.members.len()) + self.outstanding
        );
        let running = self.pools.iter().map(|pool| pool.drain.running());
        debug_assert_eq!(running.map(u64::from).sum::<u64>(), self.outstanding);
        self.peers.iter().for_each(|peer| peer.health.check());
        for (_, sessions) in self.pools.iter().flat_map(|pool| pool.sessions.iter()) {
            sessions.check();
        }
        self.pools.iter().for_each(|pool| pool.prefixes.check());
        self.priority
            .check(named(|resolved| resolved.buckets.len()));
        self.waiters.check(|id| self.routes.contains_key(&id));
        for Attached {
            resolved,
            candidate_sets,
            bounds,
        } in self.routes.values()
        {
            debug_assert_eq!(*bounds, bounds::of(resolved, &self.peers));
            for (pool, candidate_sets) in candidate_sets.iter().enumerate() {
                for (role, candidate_set) in candidate_sets.iter() {
                    candidate_set.check(resolved, (pool, role), &self.peers);
                }
            }
        }
    }

    /// The pool as a request of any model sees it. Looks at every peer unless the pool's candidate set is
    /// [current](Self::refresh).
    fn view<'a>(
        &'a self,
        resolved: &'a ResolvedRoute,
        pool: PoolId,
        role: Role,
        now: Instant,
    ) -> View<'a> {
        let attached = self.routes.get(&resolved.id);
        let attached = attached.expect("a detached resolved is not asked");
        let candidate_set = match &attached.candidate_sets[pool.0][role] {
            candidate_set if candidate_set.is_current(now) => Cow::Borrowed(candidate_set),
            _ => Cow::Owned(CandidateSet::new(
                resolved,
                (pool.0, role),
                &self.peers,
                now,
            )),
        };
        let memory = self.pools.get(resolved.members[pool.0].pool);
        View::new(
            resolved,
            (pool, role),
            &self.peers,
            memory,
            candidate_set,
            now,
        )
    }

    /// The pool as a request sees it: without the peers that do not list its model, unless none of
    /// those that do is usable and another may serve it; with the draining peer that its session
    /// lives on.
    fn view_for<'a>(
        &'a self,
        resolved: &'a ResolvedRoute,
        request: &PlacementRequest<'a>,
        now: Instant,
    ) -> View<'a> {
        let view = self.view(resolved, request.pool, request.role, now);
        let mut view = match request.pin {
            Some(pin) => view.pinned(pin, request.pin_falls_back),
            None => view,
        };
        view.admit_bound_session(request);
        view
    }

    /// Brings a pool's candidate set up to date, so that views of it cost nothing.
    fn refresh(&mut self, resolved: u64, pool: PoolId, role: Role, now: Instant) {
        let Self { routes, peers, .. } = self;
        if let Some(Attached {
            resolved,
            candidate_sets,
            ..
        }) = routes.get_mut(&resolved)
            && !candidate_sets[pool.0][role].is_current(now)
        {
            candidate_sets[pool.0][role].make(resolved, (pool.0, role), peers, now);
        }
    }

    /// When time alone may next change a peer of a pool: a ban ends, a reading grows old.
    fn due(&self, resolved: &ResolvedRoute, pool: PoolId, role: Role) -> Option<Instant> {
        let attached = self.routes.get(&resolved.id)?;
        attached.candidate_sets[pool.0][role].due()
    }

    /// Looks at a peer again, to which something has happened.
    fn touch(&mut self, slot: u32, now: Instant) {
        let Self { routes, peers, .. } = self;
        let state = peers.get(slot);
        for Attached {
            resolved,
            candidate_sets,
            ..
        } in routes.values_mut()
        {
            for (pool, index) in resolved.places.of(slot) {
                let role = resolved.spec.pools[*pool].peers[*index].role;
                candidate_sets[*pool][role].touch(resolved, *pool, *index, state, now);
            }
        }
    }

    fn gates<'a>(
        &'a self,
        resolved: &'a ResolvedRoute,
        request: PlacementRequest<'a>,
        now: Instant,
    ) -> Gates<'a> {
        let members = &resolved.members[request.pool.0];
        let attached = self.routes.get(&resolved.id);
        Gates {
            route: &resolved.spec,
            members,
            bounds: attached.and_then(|attached| attached.bounds[request.pool.0]),
            pool: self.pools.get(members.pool),
            runtime: &self.runtime,
            request,
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
    fn release_hold(&mut self, slot: u32) {
        if self.peers.release_hold(slot) {
            for pool in self.pools.iter_mut() {
                let tables = pool.sessions.iter_mut();
                tables.for_each(|sessions| sessions.forget_peer(slot));
                pool.prefixes.forget_peer(slot);
            }
        }
    }

    fn occupy(&mut self, slot: u32, kind: AnswerKind, now: Instant) -> Attempt {
        self.peers.hold(slot);
        let peer = self.peers.get_mut(slot);
        peer.in_flight += 1;
        peer.reading.placed();
        let attempt = peer.health.begin(kind, now);
        self.outstanding += 1;
        self.touch(slot, now);
        attempt
    }

    /// `attempt`: the one under way, unless its end was reported; it says nothing about the peer then.
    fn vacate(&mut self, slot: u32, attempt: Option<Attempt>, now: Instant) {
        let peer = self.peers.get_mut(slot);
        if let Some(mut attempt) = attempt {
            peer.health.abort(&mut attempt, now);
        }
        peer.in_flight -= 1;
        peer.reading.released(peer.in_flight, now);
        self.outstanding -= 1;
        self.touch(slot, now);
        self.release_hold(slot);
    }
}
