//! How far a request came, whatever phase it ends in. Also the answers that the router makes
//! itself, and the last step, which builds the settled value and passes it to all its readers.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use chrono::Utc;
use http::StatusCode;
use router_bodylog::{Capture, End};
use router_core::decision::{Attempt, Choice, Hop};
use router_core::health::AttemptEnd;

use super::placed::Tries;
use super::{Arrival, Asked, Authorised, Inspected, Live, Phase, Placed, Queued, Received};
use crate::clock::now;
use crate::proxy::error::ApiError;
use crate::proxy::forward::at_peer;
use crate::proxy::respond::Routing;
use crate::settled::{Settled, Times, dash, no_source};
use crate::state::{OwnerSlot, Peer, Reservation, Route};
use answers::Meter;

/// The status recorded for a client that left before the router sent one (nginx uses the same
/// number).
const CLIENT_CLOSED: u16 = 499;

/// The facts known in the phase in which the request ended. Facts of later phases are absent.
#[derive(Debug)]
pub(in crate::proxy) struct Progress {
    arrival: Arrival,
    route: Option<Arc<Route>>,
    path_at: usize,
    owner: Option<Arc<str>>,
    /// Dropped when the request is settled.
    place: Option<OwnerSlot>,
    capture: Option<Box<Capture>>,
    received: Option<Received>,
    asked: Option<Asked>,
    choice: Option<Choice>,
    reservation: Option<Reservation>,
    sent: Option<Instant>,
    peer: Option<Arc<Peer>>,
    attempts: Vec<Attempt>,
    pings: u32,
}

/// How an answer ended.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) status: u16,
    pub(super) bytes_out: u64,
    pub(super) end: End,
    pub(super) first_chunk: Option<Instant>,
    pub(super) first_token: Option<Instant>,
    pub(super) last_chunk: Option<Instant>,
    pub(super) meter: Option<Meter>,
}

impl Ending {
    /// The end of a request to which the client got no answer.
    pub(super) fn left() -> Self {
        Self {
            status: CLIENT_CLOSED,
            bytes_out: 0,
            end: End::Left,
            first_chunk: None,
            first_token: None,
            last_chunk: None,
            meter: None,
        }
    }
}

impl From<Arrival> for Progress {
    fn from(arrival: Arrival) -> Self {
        Self {
            arrival,
            route: None,
            path_at: 0,
            owner: None,
            place: None,
            capture: None,
            received: None,
            asked: None,
            choice: None,
            reservation: None,
            sent: None,
            peer: None,
            attempts: Vec::new(),
            pings: 0,
        }
    }
}

impl From<Authorised> for Progress {
    fn from(authorised: Authorised) -> Self {
        Self {
            route: Some(authorised.route),
            path_at: authorised.path_at,
            owner: authorised.owner,
            place: authorised.place,
            capture: authorised.capture,
            ..Self::from(authorised.arrival)
        }
    }
}

impl From<Inspected> for Progress {
    fn from(inspected: Inspected) -> Self {
        Self {
            received: Some(inspected.received),
            asked: Some(inspected.asked),
            ..Self::from(inspected.authorised)
        }
    }
}

impl From<Queued> for Progress {
    fn from(queued: Queued) -> Self {
        Self {
            choice: Some(Choice::Wait {
                ahead: queued.ahead,
            }),
            ..Self::from(queued.inspected)
        }
    }
}

impl From<Placed> for Progress {
    fn from(placed: Placed) -> Self {
        let (mode, facts) = (placed.mode, placed.facts);
        let Tries {
            reservation,
            sent,
            pings,
            peer,
            attempts,
        } = placed.tries;
        Self {
            choice: Some(Choice::Send { mode, facts }),
            reservation: Some(reservation),
            sent: Some(sent),
            peer: Some(peer),
            attempts,
            pings,
            ..Self::from(placed.inspected)
        }
    }
}

/// These phases are dropped without an answer only if the client leaves.
impl<P> Phase for P
where
    Progress: From<P>,
{
    fn settle(self) {
        Progress::from(self).settle(Ending::left());
    }
}

impl Progress {
    /// Releases the slot. If the client left before its peer answered, the attempt counts as
    /// abandoned.
    fn give_up_slot(&mut self, end: End) {
        let Some(mut reservation) = self.reservation.take() else {
            return;
        };
        if end == End::Left
            && let (Some(route), Some(peer)) = (&self.route, &self.peer)
        {
            let events = &self.arrival.sinks.events;
            for change in route.attempt_ended(&mut reservation, AttemptEnd::Abandoned) {
                events.peer_health(at_peer(route, peer), &change);
            }
        }
    }

    /// The arrival of the request.
    pub(in crate::proxy) fn arrival(&self) -> &Arrival {
        &self.arrival
    }

    /// The route, if one was found.
    pub(in crate::proxy) fn route(&self) -> Option<&Arc<Route>> {
        self.route.as_ref()
    }

    /// The model that the client asked for, if the request was inspected.
    pub(in crate::proxy) fn model(&self) -> Option<&str> {
        self.asked.as_ref()?.model.as_deref()
    }

    /// The path without the route prefix and without the query.
    pub(in crate::proxy) fn path(&self) -> &str {
        let path = self.arrival.uri.path();
        path.get(self.path_at..).unwrap_or_default()
    }

    /// How the request was routed, if a peer was tried.
    pub(in crate::proxy) fn routing(&self) -> Option<Routing<'_>> {
        let (Some(asked), Some(peer)) = (&self.asked, &self.peer) else {
            return None;
        };
        let Some(Choice::Send { mode, .. }) = self.choice else {
            return None;
        };
        Some(Routing {
            session: &asked.session,
            source: &asked.source,
            mode,
            peer,
            retries: self.attempts.len().saturating_sub(1),
        })
    }

    /// The end of the request. All log lines, counters and records read the same value.
    pub(super) fn settle(mut self, ending: Ending) {
        self.give_up_slot(ending.end);
        let (route, capture) = (self.route.take(), self.capture.take());
        let (sinks, head) = (
            Arc::clone(&self.arrival.sinks),
            Arc::clone(&self.arrival.head),
        );
        let is_logged = self.arrival.is_logged;
        let settled = self.settled(route.as_deref(), ending);
        let counters = match &route {
            Some(route) => &route.state.metrics,
            None => sinks.metrics.unrouted(),
        };
        counters.request_done(&settled, |model| {
            route
                .as_deref()
                .is_some_and(|route| route.state.models.has(model))
        });
        sinks.findings.observe(&settled, route.as_deref());
        if let Some(access) = sinks.access.as_ref().filter(|_| is_logged) {
            access.write(&settled);
        }
        if let (Some(route), Some(receipt)) = (&route, settled.receipt()) {
            route.state.decisions.push(receipt);
        }
        if let Some(capture) = capture {
            capture.settle(Box::new(settled));
        }
        head.expect();
    }

    fn settled(self, route: Option<&Route>, ending: Ending) -> Settled {
        let arrival = self.arrival;
        let (model, alias, session, source) = match self.asked {
            Some(asked) => (asked.model, asked.alias, asked.session, asked.source),
            None => (None, None, dash(), no_source()),
        };
        Settled {
            rid: arrival.rid,
            method: arrival.method,
            uri: arrival.uri,
            path_at: self.path_at,
            trace_id: arrival.trace_id,
            route: route.map(|route| Arc::clone(&route.name)),
            owner: self.owner,
            model,
            served_model: alias.map(|alias| alias.served),
            session,
            source,
            choice: self.choice,
            hops: arrival.hops,
            attempts: self.attempts,
            pings: self.pings,
            peer_name: self.peer.map(|peer| Arc::clone(&peer.spec.name)),
            status: ending.status,
            bytes_in: self.received.map_or(0, |received| received.bytes),
            bytes_out: ending.bytes_out,
            times: Times {
                arrived: arrival.at,
                received: self.received.map(|received| received.at),
                sent: self.sent,
                first_chunk: ending.first_chunk,
                first_token: ending.first_token,
                last_chunk: ending.last_chunk,
                ended: now(),
            },
            ended_at: Utc::now(),
            end: ending.end,
            meter: ending.meter,
        }
    }
}

/// A request that the router refuses, in any phase.
#[derive(Debug)]
pub(in crate::proxy) struct Refused {
    /// How far the request came.
    pub(in crate::proxy) progress: Live<Progress>,
    /// The error for the client.
    pub(in crate::proxy) error: ApiError,
}

impl Refused {
    /// Refuses a request in its current phase.
    pub(in crate::proxy) fn new<P: Phase>(phase: Live<P>, error: ApiError) -> Box<Self>
    where
        Progress: From<P>,
    {
        let mut progress = phase.next(Progress::from);
        if let Some(capture) = &mut progress.capture {
            capture.refused(error.code());
        }
        Box::new(Self { progress, error })
    }

    /// Refuses a request with a caller that may not use the route.
    pub(in crate::proxy) fn on_route(
        arrival: Live<Arrival>,
        route: &Arc<Route>,
        path_at: usize,
        error: ApiError,
    ) -> Box<Self> {
        let mut refused = Self::new(arrival, error);
        refused.progress.route = Some(Arc::clone(route));
        refused.progress.path_at = path_at;
        refused
    }

    /// Refuses an inspected request because of a placement decision.
    pub(in crate::proxy) fn decided(
        inspected: Live<Inspected>,
        choice: Choice,
        error: ApiError,
    ) -> Box<Self> {
        let mut refused = Self::new(inspected, error);
        refused.progress.choice = Some(choice);
        refused
    }

    /// Hands the request to another route, before it is refused.
    pub(in crate::proxy) fn fall_back(self, next: &Arc<Route>) -> Live<Authorised> {
        let why = self.error.code();
        self.progress.next(|progress| {
            let mut arrival = progress.arrival;
            if let Some(route) = &progress.route {
                route.state.metrics.fell_back(&next.name);
                arrival.hops.push(Hop {
                    route: Arc::clone(&route.name),
                    why: why.into(),
                    attempts: progress.attempts,
                });
            }
            Authorised {
                arrival,
                route: Arc::clone(next),
                path_at: progress.path_at,
                owner: progress.owner,
                place: progress.place,
                capture: progress.capture,
            }
        })
    }

    /// Records the body of a request that is refused before the inspection.
    pub(in crate::proxy) fn having_read(mut self: Box<Self>, received: Received) -> Box<Self> {
        self.progress.received = Some(received);
        self
    }
}

/// An answer made by the router, until it is handed over.
#[derive(Debug)]
pub(in crate::proxy) struct LocalAnswer {
    progress: Progress,
    status: StatusCode,
    bytes_out: u64,
}

impl LocalAnswer {
    /// Starts the answer to a request, with this body.
    pub(in crate::proxy) fn of(mut progress: Progress, status: StatusCode, body: &Bytes) -> Self {
        if let Some(capture) = &mut progress.capture {
            capture.local(body);
        }
        Self {
            progress,
            status,
            bytes_out: body.len() as u64,
        }
    }
}

impl Phase for LocalAnswer {
    fn settle(self) {
        let last = self.progress.attempts.last();
        let is_broken = last.is_some_and(|attempt| attempt.error.is_some());
        self.progress.settle(Ending {
            status: self.status.as_u16(),
            bytes_out: self.bytes_out,
            end: if is_broken { End::Broken } else { End::Whole },
            ..Ending::left()
        });
    }
}
