//! Waiting for a slot: the queue is the core's, the wake-up is ours.
//!
//! Whoever changes a route's book hands free room over before the lock is let go, and sends each
//! reservation to the request that waits for it. A request that is gone by then drops its
//! reservation, and the slot goes to the next.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use rand::rngs::StdRng;
use router_core::admission::Refusal;
use router_core::book::{Ask, Book, Handed, Verdict, WaiterId};
use tokio::sync::oneshot;

use super::route::{Admitted, Inner, Kept, Placed, Route, RouteState, now};

/// How a wait ends.
type Outcome = Result<Placed, Refusal>;

/// Where each waiting request listens. Exactly the waiters of the book are in here.
pub(super) type Listeners = HashMap<WaiterId, Listener>;

/// One request that waits.
pub(super) struct Listener {
    sender: oneshot::Sender<Outcome>,
    /// What its reservation will keep of it.
    kept: Kept,
}

impl RouteState {
    /// Changes the book, and hands whatever room that makes to those who wait.
    pub(super) fn change<T>(
        self: &Arc<Self>,
        act: impl FnOnce(&mut Book, &mut StdRng, Instant) -> T,
    ) -> T {
        self.change_listening(|book, rng, _, now| act(book, rng, now))
    }

    fn change_listening<T>(
        self: &Arc<Self>,
        act: impl FnOnce(&mut Book, &mut StdRng, &mut Listeners, Instant) -> T,
    ) -> T {
        let mut inner = self.inner.lock();
        // Read after the lock is taken, so that nobody carries an old time.
        let now = now();
        let Inner {
            book,
            rng,
            listeners,
            ..
        } = &mut *inner;
        let result = act(book, rng, listeners, now);
        let handed = book.hand_over(now, rng);
        let sent: Vec<_> = handed
            .into_iter()
            .filter_map(|Handed { waiter, outcome }| {
                let Listener { sender, kept } = listeners.remove(&waiter)?;
                let outcome = outcome.map(|placement| Placed::new(self, placement, kept));
                Some((sender, outcome))
            })
            .collect();
        // A reservation whose listener is gone is dropped right here, which takes the lock again.
        drop(inner);
        for (sender, outcome) in sent {
            let _ = sender.send(outcome);
        }
        result
    }
}

/// A place in the queue of a full pool. Dropping it gives the place up; a slot that was handed over
/// in the meantime goes on to the next.
pub struct Waiting {
    route: Arc<Route>,
    id: WaiterId,
    handed: oneshot::Receiver<Outcome>,
}

impl Waiting {
    fn new(route: &Arc<Route>, id: WaiterId, kept: Kept, listeners: &mut Listeners) -> Self {
        let (sender, handed) = oneshot::channel();
        listeners.insert(id, Listener { sender, kept });
        Self {
            route: Arc::clone(route),
            id,
            handed,
        }
    }

    /// Waits for a slot, at most the route's `wait_timeout`; then goes past the limit.
    ///
    /// Cancel safe: dropping the future gives the place in the queue up.
    ///
    /// # Errors
    /// A gate that refuses at the end of the wait, or no peer that could take the request.
    pub async fn served(mut self) -> Outcome {
        let patience = self.route.spec().guard.wait_timeout;
        let handed = tokio::time::timeout(patience, &mut self.handed).await;
        if let Ok(Ok(outcome)) = handed {
            return outcome;
        }
        if let Some(outcome) = self.overflow() {
            return outcome;
        }
        // Handed over just now: it is on its way.
        let outcome = (&mut self.handed).await;
        outcome.expect("a waiter that left the queue was sent its outcome")
    }

    fn overflow(&self) -> Option<Outcome> {
        let state = &self.route.state;
        state.change_listening(|book, rng, listeners, now| {
            let outcome = book.overflow(self.id, now, rng)?;
            let Listener { kept, .. } = listeners.remove(&self.id)?;
            Some(outcome.map(|placement| Placed::new(state, placement, kept)))
        })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.route.state.change_listening(|book, _, listeners, _| {
            if book.leave(self.id) {
                listeners.remove(&self.id);
            }
        });
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting")
            .field("route", &self.route.name)
            .finish_non_exhaustive()
    }
}

impl Route {
    /// Puts those who wait under the switches in force, which may let them all go.
    pub fn obey_switches(&self) {
        let switches = self.switches();
        self.state.change(|book, _, _| book.obey(switches));
    }

    /// Admits and places one request, or queues it, in one critical section.
    ///
    /// # Errors
    /// The refusal with its numbers; nothing is reserved then.
    pub fn admit(self: &Arc<Self>, ask: Ask<'_>) -> Result<Admitted, Refusal> {
        let state = &self.state;
        let kept = Kept::of(self, &ask);
        state.change_listening(|book, rng, listeners, now| {
            match book.reserve(&self.roster, ask, now, rng) {
                Verdict::Send(placement) => {
                    Ok(Admitted::Placed(Placed::new(state, placement, kept)))
                }
                Verdict::Wait(id) => Ok(Admitted::Waiting(Waiting::new(self, id, kept, listeners))),
                Verdict::Refuse(refusal) => Err(refusal),
            }
        })
    }
}
