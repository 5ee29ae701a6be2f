//! The fourth phase: a request that has a slot and is sent to a peer.

use std::sync::Arc;
use std::time::Instant;

use router_core::book::PoolId;
use router_core::decision::{Attempt, Facts, Mode};
use router_core::health::AttemptEnd;

use super::Inspected;
use crate::proxy::forward::at_peer;
use crate::proxy::respond::Routing;
use crate::state::{self, Peer, Reservation, Route};
use crate::telemetry::events::Events;

/// A request that has a slot and is sent to a peer.
#[derive(Debug)]
pub(in crate::proxy) struct Placed {
    /// The request.
    pub(in crate::proxy) inspected: Inspected,
    /// Where it is placed.
    pub(in crate::proxy) pool: PoolId,
    /// How the first peer was found.
    pub(in crate::proxy) mode: Mode,
    /// The numbers behind the decision.
    pub(in crate::proxy) facts: Facts,
    /// The attempts so far.
    pub(in crate::proxy) tries: Tries,
}

/// The attempts at getting an answer, and the slot they use.
#[derive(Debug)]
pub(in crate::proxy) struct Tries {
    /// The slot; it moves with each attempt.
    pub(in crate::proxy) reservation: Reservation,
    /// When the request was first handed to a peer's connection.
    pub(in crate::proxy) sent: Instant,
    /// The peer in use, or tried last.
    pub(in crate::proxy) peer: Arc<Peer>,
    /// One entry per peer tried; the last one is `peer`'s.
    pub(in crate::proxy) attempts: Vec<Attempt>,
}

impl Placed {
    /// A request that is sent now to the peer chosen for it.
    pub(in crate::proxy) fn of(
        inspected: Inspected,
        pool: PoolId,
        placed: state::Placed,
        now: Instant,
    ) -> Self {
        let peer = Arc::clone(&inspected.authorised.route.peers[pool.0][placed.peer]);
        Self {
            tries: Tries {
                reservation: placed.reservation,
                sent: now,
                attempts: vec![attempt(&peer)],
                peer,
            },
            inspected,
            pool,
            mode: placed.mode,
            facts: placed.facts,
        }
    }

    /// Its route.
    pub(in crate::proxy) fn route(&self) -> &Arc<Route> {
        &self.inspected.authorised.route
    }

    /// `x-request-id`.
    pub(in crate::proxy) fn rid(&self) -> &str {
        &self.inspected.authorised.arrival.rid
    }

    /// How it was routed, for the response's headers.
    pub(in crate::proxy) fn routing(&self) -> Routing<'_> {
        Routing {
            session: &self.inspected.asked.session,
            source: &self.inspected.asked.source,
            mode: self.mode,
            peer: &self.tries.peer,
            retries: self.tries.retries(),
        }
    }
}

impl Tries {
    /// Goes on to another peer, which the reservation has moved to.
    pub(in crate::proxy) fn go_on(&mut self, peer: &Arc<Peer>) {
        self.peer = Arc::clone(peer);
        self.attempts.push(attempt(peer));
    }

    /// The last attempt failed.
    pub(in crate::proxy) fn failed(&mut self, why: &Arc<str>) {
        if let Some(attempt) = self.attempts.last_mut() {
            attempt.error = Some(Arc::clone(why));
        }
    }

    /// The first byte of a successful answer has come from the peer.
    pub(in crate::proxy) fn first_byte(&mut self, route: &Route, events: &Events) {
        for change in route.first_byte(&mut self.reservation) {
            events.peer_health(at_peer(route, &self.peer), &change);
        }
    }

    /// The attempt under way has ended, which may change its peer's state.
    pub(in crate::proxy) fn ended(&mut self, route: &Route, events: &Events, end: AttemptEnd) {
        if let (Some(attempt), AttemptEnd::Failed(failure)) = (self.attempts.last_mut(), end) {
            attempt.failure = Some(failure);
        }
        for change in route.attempt_ended(&mut self.reservation, end) {
            events.peer_health(at_peer(route, &self.peer), &change);
        }
    }

    /// Attempts beyond the first.
    pub(in crate::proxy) fn retries(&self) -> usize {
        self.attempts.len().saturating_sub(1)
    }
}

fn attempt(peer: &Peer) -> Attempt {
    Attempt {
        peer: peer.spec.key.clone(),
        error: None,
        failure: None,
    }
}
