//! The single aggregate of a route: reserve, retry, release, observe.
//!
//! The edge keeps one `Book` per route behind one lock. The state is keyed by peer, so it outlives
//! a reload. A new [`RouteSpec`] is *attached*, which resolves each peer to the state of its key.
//! The old one is *detached* when its last request is gone. A peer's state is dropped once no
//! resolved route names it and no ticket holds it.
//!
//! This file has the state, its holders and the count of in-flight requests. Each file beside it
//! has one kind of question or event.

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
use crate::pool::{Ban, ByRole, PeerKey, Probes, Role, RouteSpec};
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
    /// State by peer. Every resolved route that names the peer and every ticket on the peer hold
    /// it.
    peers: Table<PeerKey, PeerState>,
    /// State by `peers_by_model` key. Every resolved route that has the pool and every ticket of
    /// the pool hold it.
    pools: Table<Option<Arc<str>>, PoolState>,
    /// The route's runtime limits.
    runtime: RuntimeLimits,
    priority: Priority,
    trips: Trips,
    waiters: Waiters,
    /// The first instant that the book saw. Windows are aligned to it.
    epoch: Option<Instant>,
    /// Attached routes by id.
    routes: BTreeMap<u64, Attached>,
    next_route: u64,
    /// Number of tickets that are not released.
    outstanding: u64,
}

/// The state of one peer.
#[derive(Debug, Default)]
struct PeerState {
    /// Number of tickets on the peer.
    in_flight: u32,
    ban: Ban,
    /// What the last probes said.
    probes: Probes,
    /// The last reading of the engine, from any route that polls it.
    reading: Reading,
    /// The number of slots that the engine reports.
    learned: Option<u32>,
    /// Health of the peer, from the outcomes of its requests.
    health: Health,
}

/// A resolved route in use, with its candidate sets.
#[derive(Debug)]
struct Attached {
    resolved: ResolvedRoute,
    /// Index = pool.
    candidate_sets: Vec<ByRole<CandidateSet>>,
    /// Index = pool: the bounds of its adaptive limit. `None` without `adaptive_cc`.
    bounds: Vec<Option<Bounds>>,
}

impl Book {
    /// Resolves the peers of a spec to their state and creates missing state. If the spec attached
    /// before polled no peer and this one polls, its peers stay candidates until their first poll
    /// has ended.
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

    /// Gives up a resolved route. State of peers that no resolved route names and no ticket holds
    /// is dropped. Tickets reserved under the route may still be released, but not retried. A
    /// second call does nothing.
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

    /// Debug-asserts the invariants: the sum of the peers' in-flight is the number of unreleased
    /// tickets, and every slot is held by exactly the resolved routes and tickets that refer to it.
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

    /// The pool from the view of a request of any model. Evaluates every peer unless the pool's
    /// candidate set is [current](Self::refresh).
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

    /// The pool from the view of one request. Peers that do not list its model are left out, unless
    /// none of those that do is usable and the request may fall back. The draining peer on which
    /// its session lives is included.
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

    /// When time alone may next change a peer of a pool, because a ban ends or a reading becomes
    /// stale.
    fn due(&self, resolved: &ResolvedRoute, pool: PoolId, role: Role) -> Option<Instant> {
        let attached = self.routes.get(&resolved.id)?;
        attached.candidate_sets[pool.0][role].due()
    }

    /// Evaluates a peer again after an event that concerns it.
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

    /// Gives up one hold on a peer. With the last hold, pools forget what they remember of the
    /// peer: another peer may get its place.
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

    /// `attempt` is the attempt under way, or `None` if its end was reported; in that case it does
    /// not affect the peer.
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
