//! Who waits for a slot: first come, first served among those who may go to the same peers.
//!
//! There is one queue for each pool of each resolved route and each set of pinned peers. A request keeps the
//! peers it came with, so after a reload the old queues empty beside the new ones. Free room goes to
//! whoever has waited longest of all that can use it.

use std::collections::BTreeMap;
use std::time::Instant;

use super::{PlacementRequest, PoolId, ResolvedRoute, Switches};
use crate::affinity::Hashed;
use crate::affinity::prefix::Prefix;
use crate::health::AnswerKind;
use crate::pool::Role;

/// Which queue: a resolved route's id, the index of its pool, the role, and what stands for the pinned peers. Two
/// sets that collide share a queue, which is still fair.
type Place = (u64, usize, Role, Option<u64>);

/// One waiting request. Unique for the life of its book; the order is that of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId {
    number: u64,
    place: Place,
}

/// What is kept of a request while it waits.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) resolved: ResolvedRoute,
    pub(super) role: Role,
    /// Without its bytes where it is hashed: they may be megabytes.
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
    /// The request, asked again.
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

/// Every queue of a book. Those of one pool together are bounded by its `wait_max`.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    /// By number, which is the order of arrival. No queue is empty.
    queues: BTreeMap<Place, BTreeMap<u64, Waiter>>,
    next: u64,
}

impl Waiters {
    /// How many wait in the queue of a request.
    pub(super) fn len(&self, resolved: &ResolvedRoute, request: &PlacementRequest<'_>) -> usize {
        let queue = self.queues.get(&place(resolved, request));
        queue.map_or(0, BTreeMap::len)
    }

    /// How many wait for the pool whose state has this slot, in whatever resolved route.
    pub(super) fn len_of_pool(&self, slot: u32) -> usize {
        let of_pool = |((_, pool, _, _), queue): (&Place, &BTreeMap<u64, Waiter>)| {
            let first = queue.values().next()?;
            (first.resolved.members[*pool].pool == slot).then_some(queue.len())
        };
        self.queues.iter().filter_map(of_pool).sum()
    }

    /// Puts a request at the end of its queue. O(log n).
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

    /// Takes a request out of its queue; `None` when it is there no more. O(log n).
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

    /// How many came before a request in its queue.
    pub(super) fn ahead(&self, id: WaiterId) -> usize {
        let queue = self.queues.get(&id.place);
        queue.map_or(0, |queue| queue.range(..id.number).count())
    }

    /// The first of each queue, in the order of arrival. No allocation when nobody waits.
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

    /// Puts everyone under these switches.
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
    // FNV-1a, word by word: no allocation on the way of a request that does not wait.
    let step = |hash: u64, index: &usize| (hash ^ *index as u64).wrapping_mul(0x0100_0000_01b3);
    let pin = request
        .pin
        .map(|pin| pin.iter().fold(0xcbf2_9ce4_8422_2325, step));
    (resolved.id, request.pool.0, request.role, pin)
}
