//! The queues of requests that wait for a slot: first come, first served among requests that may go
//! to the same peers.
//!
//! There is one queue for each pool of each resolved route and each set of pinned peers. A request
//! keeps its peers, so after a reload the old queues empty beside the new ones. Free room goes to
//! the request that has waited longest among those that can use it.

use std::collections::BTreeMap;
use std::time::Instant;

use super::{PlacementRequest, PoolId, ResolvedRoute, Switches};
use crate::affinity::Hashed;
use crate::affinity::prefix::Prefix;
use crate::health::AnswerKind;
use crate::pool::Role;

/// Identifies a queue: the id of a resolved route, the index of its pool, the role, and a hash of
/// the pinned peers. Two sets of peers that collide share a queue, which is still fair.
type Place = (u64, usize, Role, Option<u64>);

/// One waiting request. Unique for the life of its book, in order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId {
    number: u64,
    place: Place,
}

/// The parts of a request that are kept while it waits.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) resolved: ResolvedRoute,
    pub(super) role: Role,
    /// Without the bytes if the id was hashed in advance: they may be megabytes.
    session: Option<Box<[u8]>>,
    hashed: Option<Box<Hashed>>,
    key: Option<Box<[u8]>>,
    prefix: Box<[Prefix]>,
    pin: Option<Box<[usize]>>,
    pin_falls_back: bool,
    turn: Option<u32>,
    answer: AnswerKind,
    switches: Switches,
    pub(super) since: Instant,
}

impl Waiter {
    /// The request, ready to be decided again.
    pub(super) fn request(&self, pool: PoolId) -> PlacementRequest<'_> {
        PlacementRequest {
            pool,
            role: self.role,
            session: self.session.as_deref(),
            hashed: self.hashed.as_deref(),
            key: self.key.as_deref(),
            prefix: &self.prefix,
            pin: self.pin.as_deref(),
            pin_falls_back: self.pin_falls_back,
            turn: self.turn,
            answer: self.answer,
            exempt: false,
            switches: self.switches,
        }
    }
}

/// All queues of a book. The route's `wait_max` bounds the queues of one pool together.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    /// By number, in order of arrival. No queue is empty.
    queues: BTreeMap<Place, BTreeMap<u64, Waiter>>,
    next: u64,
}

impl Waiters {
    /// Length of a request's queue.
    pub(super) fn len(&self, resolved: &ResolvedRoute, request: &PlacementRequest<'_>) -> usize {
        let queue = self.queues.get(&place(resolved, request));
        queue.map_or(0, BTreeMap::len)
    }

    /// Number of requests that wait for the pool whose state has this slot, in any resolved route.
    pub(super) fn len_of_pool(&self, slot: u32) -> usize {
        let of_pool = |((_, pool, _, _), queue): (&Place, &BTreeMap<u64, Waiter>)| {
            let first = queue.values().next()?;
            (first.resolved.members[*pool].pool == slot).then_some(queue.len())
        };
        self.queues.iter().filter_map(of_pool).sum()
    }

    /// Adds a request at the end of its queue. O(log n).
    pub(super) fn join(
        &mut self,
        resolved: &ResolvedRoute,
        request: PlacementRequest<'_>,
        now: Instant,
    ) -> WaiterId {
        let number = self.next;
        self.next += 1;
        let place = place(resolved, &request);
        let waiter = Waiter {
            resolved: resolved.clone(),
            role: request.role,
            session: request.session.map(|session| match request.hashed {
                Some(_) => Box::default(),
                None => Box::from(session),
            }),
            hashed: request.hashed.map(|hashed| Box::new(hashed.clone())),
            key: request.key.map(Box::from),
            prefix: request.prefix.into(),
            pin: request.pin.map(Box::from),
            pin_falls_back: request.pin_falls_back,
            turn: request.turn,
            answer: request.answer,
            switches: request.switches,
            since: now,
        };
        self.queues.entry(place).or_default().insert(number, waiter);
        WaiterId { number, place }
    }

    /// Removes a request from its queue. `None` when it is no longer there. O(log n).
    pub(super) fn leave(&mut self, id: WaiterId) -> Option<Waiter> {
        let queue = self.queues.get_mut(&id.place)?;
        let waiter = queue.remove(&id.number)?;
        if queue.is_empty() {
            self.queues.remove(&id.place);
        }
        Some(waiter)
    }

    pub(super) fn get(&self, id: WaiterId) -> Option<&Waiter> {
        self.queues.get(&id.place)?.get(&id.number)
    }

    /// Number of requests ahead of a request in its queue.
    pub(super) fn ahead(&self, id: WaiterId) -> usize {
        let queue = self.queues.get(&id.place);
        queue.map_or(0, |queue| queue.range(..id.number).count())
    }

    /// The first request of each queue, in order of arrival. Does not allocate when no request
    /// waits.
    pub(super) fn heads(&self) -> Vec<WaiterId> {
        let head = |(place, queue): (&Place, &BTreeMap<u64, Waiter>)| {
            let (number, _) = queue.first_key_value()?;
            Some(WaiterId {
                number: *number,
                place: *place,
            })
        };
        let mut heads: Vec<WaiterId> = self.queues.iter().filter_map(head).collect();
        heads.sort_unstable();
        heads
    }

    /// Applies these switches to every waiting request.
    pub(super) fn obey(&mut self, switches: Switches) {
        for waiter in self.queues.values_mut().flat_map(BTreeMap::values_mut) {
            waiter.switches = switches;
        }
    }

    pub(super) fn check(&self, is_attached: impl Fn(u64) -> bool) {
        for ((resolved, _, _, _), queue) in &self.queues {
            debug_assert!(!queue.is_empty(), "an empty queue is removed");
            debug_assert!(
                is_attached(*resolved),
                "a resolved with waiters is attached"
            );
        }
    }
}

impl WaiterId {
    pub(super) fn pool(self) -> PoolId {
        PoolId(self.place.1)
    }
}

fn place(resolved: &ResolvedRoute, request: &PlacementRequest<'_>) -> Place {
    // FNV-1a, word by word. Does not allocate for a request that does not wait.
    let step = |hash: u64, index: &usize| (hash ^ *index as u64).wrapping_mul(0x0100_0000_01b3);
    let pin = request
        .pin
        .map(|pin| pin.iter().fold(0xcbf2_9ce4_8422_2325, step));
    (resolved.id, request.pool.0, request.role, pin)
}
