//! The fourth phase: a request holds a slot and is sent to a peer.

use std::sync::Arc;
use std::time::Instant;

use http::HeaderValue;
use router_core::book::PoolId;
use router_core::decision::{Attempt, Facts, Mode};
use router_core::health::AttemptEnd;

use super::Inspected;
use crate::proxy::forward::at_peer;
use crate::proxy::respond::Routing;
use crate::state::{self, Peer, Reservation, Route};
use crate::telemetry::events::Events;

/// A request that holds a slot and is sent to a peer.
#[derive(Debug)]
pub(in crate::proxy) struct Placed {
    /// The request.
    pub(in crate::proxy) inspected: Inspected,
    /// The peer of the request.
    pub(in crate::proxy) pool: PoolId,
    /// How the first peer was found.
    pub(in crate::proxy) mode: Mode,
    /// The numbers behind the decision.
    pub(in crate::proxy) facts: Facts,
    /// The attempts so far.
    pub(in crate::proxy) tries: Tries,
}

/// The attempts of a request, and their slot.
#[derive(Debug)]
pub(in crate::proxy) struct Tries {
    /// The slot. It moves to another peer with each attempt.
    pub(in crate::proxy) reservation: Reservation,
    /// When the request was first written to a peer's connection.
    pub(in crate::proxy) sent: Instant,
    /// The peer of the current or last attempt.
    pub(in crate::proxy) peer: Arc<Peer>,
    /// Pings that the client got because the peer was silent.
    pub(in crate::proxy) pings: u32,
    /// One entry per tried peer. The last entry belongs to `peer`.
    pub(in crate::proxy) attempts: Vec<Attempt>,
}

impl Placed {
    /// Starts sending a request to the peer chosen for it.
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
                pings: 0,
                attempts: vec![attempt(&peer)],
                peer,
            },
            inspected,
            pool,
            mode: placed.mode,
            facts: placed.facts,
        }
    }

    /// The request's route.
    pub(in crate::proxy) fn route(&self) -> &Arc<Route> {
        &self.inspected.authorised.route
    }

    /// `x-request-id`.
    pub(in crate::proxy) fn rid(&self) -> &str {
        &self.inspected.authorised.arrival.rid
    }

    /// The value of `x-request-id`.
    pub(in crate::proxy) fn id(&self) -> &HeaderValue {
        &self.inspected.authorised.arrival.id
    }

    /// How the request was routed, for the response's headers.
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
    /// Switches to another peer. The reservation has already moved to it.
    pub(in crate::proxy) fn go_on(&mut self, peer: &Arc<Peer>) {
        self.peer = Arc::clone(peer);
        self.attempts.push(attempt(peer));
    }

    /// Records that the last attempt failed.
    pub(in crate::proxy) fn failed(&mut self, why: &Arc<str>) {
        if let Some(attempt) = self.attempts.last_mut() {
            attempt.error = Some(Arc::clone(why));
        }
    }

    /// Records the first byte of a successful answer.
    pub(in crate::proxy) fn first_byte(&mut self, route: &Route, events: &Events) {
        for change in route.first_byte(&mut self.reservation) {
            events.peer_health(at_peer(route, &self.peer), &change);
        }
    }

    /// Records the end of the current attempt, which may change the peer's state.
    pub(in crate::proxy) fn ended(&mut self, route: &Route, events: &Events, end: AttemptEnd) {
        self.note(end);
        for change in route.attempt_ended(&mut self.reservation, end) {
            events.peer_health(at_peer(route, &self.peer), &change);
        }
    }

    /// Records the end of the last attempt, and releases the slot.
    pub(in crate::proxy) fn finish(&mut self, route: &Route, events: &Events, end: AttemptEnd) {
        self.note(end);
        for change in route.finish(&mut self.reservation, end) {
            events.peer_health(at_peer(route, &self.peer), &change);
        }
    }

    fn note(&mut self, end: AttemptEnd) {
        if let (Some(attempt), AttemptEnd::Failed(failure)) = (self.attempts.last_mut(), end) {
            attempt.failure = Some(failure);
        }
    }

    /// Number of attempts after the first.
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
