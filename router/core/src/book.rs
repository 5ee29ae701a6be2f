//! The one aggregate of a route: reserve, retry, release, observe.
//!
//! The edge keeps one `Book` per route behind one lock. State is keyed by peer, so it outlives a
//! reload: a new [`RouteSpec`] is *attached*, which resolves each peer to the state its key already
//! has, and the old one *detached* when its last request is gone.

use std::time::Instant;

use rand::Rng;

use crate::admission::Refusal;
use crate::decision::{Explanation, Facts, Mode, PeerFacts};
use crate::pool::{Change, Evidence, PeerKey, PeerSpec, RouteSpec};

/// All mutable state of one route.
#[derive(Debug, Default)]
pub struct Book {}

/// A [`RouteSpec`] whose peers are resolved to their state. Made by [`Book::attach`]; belongs to
/// that book alone.
#[derive(Debug)]
pub struct Roster {
    spec: RouteSpec,
}

/// Index of a pool in [`RouteSpec::pools`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolId(pub usize);

/// One request as the choice sees it.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Which pool serves it.
    pub pool: PoolId,
    /// The raw session id; `None` when the request named none or affinity is switched off.
    pub session: Option<&'a [u8]>,
}

/// One reserved unit on one peer. Exactly one [`Book::release`] ends it; it cannot be copied.
#[derive(Debug)]
#[must_use = "a ticket holds a slot until it is released"]
pub struct Ticket {
    _private: (),
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
pub enum Verdict {
    /// Reserved.
    Send(Placement),
    /// Nothing is reserved.
    Refuse(Refusal),
}

impl Book {
    /// Resolves a spec's peers to their state, creating what is new.
    pub fn attach(&mut self, spec: RouteSpec) -> Roster {
        Roster { spec }
    }

    /// Gives up a roster; state of peers that no roster names and no ticket holds is dropped.
    pub fn detach(&mut self, _roster: &Roster) {}

    /// Admits and chooses in one step. Cost O(peers of the pool), no allocation.
    pub fn reserve(
        &mut self,
        _roster: &Roster,
        _ask: Ask<'_>,
        _now: Instant,
        _rng: &mut impl Rng,
    ) -> Verdict {
        Verdict::Refuse(Refusal::NoHealthyPeer {
            peers: 0,
            banned: 0,
        })
    }

    /// Moves a reservation to the next candidate after a failed attempt: the pool indices in
    /// `tried` are out. The request is never counted twice and never uncounted between. `None`:
    /// nobody is left, the ticket stays where it was.
    pub fn retry(
        &mut self,
        _roster: &Roster,
        _ticket: &mut Ticket,
        _tried: &[usize],
        _now: Instant,
    ) -> Option<usize> {
        None
    }

    /// Ends a reservation.
    pub fn release(&mut self, _ticket: Ticket) {}

    /// Records what a probe or the request path learned about a peer.
    pub fn observe(
        &mut self,
        _roster: &Roster,
        _peer: &PeerKey,
        _evidence: Evidence,
        _now: Instant,
    ) -> Option<Change> {
        None
    }

    /// What would happen to `ask`. Counts nothing, advances no round-robin counter.
    pub fn explain(
        &self,
        _roster: &Roster,
        _ask: Ask<'_>,
        _now: Instant,
        _rng: &mut impl Rng,
    ) -> Explanation {
        Explanation {
            peers: Vec::new(),
            outcome: crate::decision::Outcome::Refuse(Refusal::NoHealthyPeer {
                peers: 0,
                banned: 0,
            }),
        }
    }

    /// Every peer of a pool as it is now, file order.
    pub fn peers(&self, _roster: &Roster, _pool: PoolId, _now: Instant) -> Vec<PeerFacts> {
        Vec::new()
    }
}

impl Roster {
    /// The configuration behind this roster.
    pub fn spec(&self) -> &RouteSpec {
        &self.spec
    }

    /// The pool of a `peers_by_model` key, or the flat pool.
    pub fn pool(&self, model: Option<&str>) -> Option<PoolId> {
        self.spec
            .pools
            .iter()
            .position(|p| p.model.is_none() || p.model.as_deref() == model)
            .map(PoolId)
    }

    /// A peer of a pool.
    pub fn peer(&self, pool: PoolId, index: usize) -> &PeerSpec {
        &self.spec.pools[pool.0].peers[index]
    }
}
