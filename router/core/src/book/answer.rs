//! The answers of the book: a reservation, a place in a queue, or a refusal.

use std::fmt;

use super::WaiterId;
use crate::admission::Refusal;
use crate::decision::{Facts, Mode};
use crate::health::{AnswerKind, Attempt};
use crate::pool::Role;

/// One reserved unit on one peer. Exactly one [`Book::release`](super::Book::release) ends it: a
/// ticket cannot be copied, and releasing consumes it. Dropping it instead leaks the unit for the
/// life of the book. So the edge keeps every ticket in a guard whose `Drop` releases it.
#[must_use = "a ticket holds a slot until it is released"]
pub struct Ticket {
    pub(super) slot: u32,
    /// Slot of the pool's state.
    pub(super) pool_slot: u32,
    /// Indices of the pool and of the peer in the resolved route under which the ticket was
    /// reserved.
    pub(super) pool: usize,
    pub(super) peer: usize,
    pub(super) role: Role,
    /// The active tier at the time of the reservation; a retry never goes above it.
    pub(super) tier: i64,
    /// The attempt under way on the peer; `None` once its end was reported.
    pub(super) attempt: Option<Attempt>,
    pub(super) kind: AnswerKind,
    /// The key of the request's session, where sessions are remembered.
    pub(super) session: Option<Box<[u8]>>,
}

impl fmt::Debug for Ticket {
    /// Leaves out the session, because it is a client's text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket")
            .field("pool", &self.pool)
            .field("peer", &self.peer)
            .field("role", &self.role)
            .field("tier", &self.tier)
            .finish_non_exhaustive()
    }
}

/// The placement of a request.
#[derive(Debug)]
pub struct Placement {
    /// The reserved unit.
    pub ticket: Ticket,
    /// Index of the peer in its [`PoolSpec`](crate::pool::PoolSpec).
    pub peer: usize,
    /// How the peer was found.
    pub mode: Mode,
    /// The numbers behind the decision.
    pub facts: Facts,
}

/// The answer to an [`PlacementRequest`](super::PlacementRequest).
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "the admit path is the common one and must not allocate"
)]
pub enum Verdict {
    /// A unit is reserved.
    Send(Placement),
    /// The request is queued. [`Book::hand_over`](super::Book::hand_over) will return it, unless it
    /// [leaves](super::Book::leave) before.
    Wait(WaiterId),
    /// Nothing is reserved.
    Refuse(Refusal),
}

/// The end of a waiter's wait.
#[derive(Debug)]
pub struct Handed {
    /// The waiter.
    pub waiter: WaiterId,
    /// The reserved unit, or the reason why the waiter gets none.
    pub outcome: Result<Placement, Refusal>,
}
