//! Waiting for a slot: the queue is the core's, the wake-up is ours.
//!
//! Whoever changes a route's book hands free room over before the lock is let go, and sends each
//! reservation to the request that waits for it. A request that is gone by then drops its
//! reservation, and the slot goes to the next.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use router_core::admission::Refusal;
use router_core::book::{Book, Handed, PlacementRequest, PoolId, Verdict, WaiterId};
use tokio::sync::oneshot;

use super::route::{Admitted, Inner, Kept, Placed, Route, RouteState};
use crate::clock::now;

/// How often a waiting request looks for the time at which its pool may change by itself: a ban may be
/// set that ends before whatever it knows of.
const LOOK_EVERY: Duration = Duration::from_secs(1);

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
    pool: PoolId,
    /// Requests that waited before it when it came.
    ahead: usize,
    handed: oneshot::Receiver<Outcome>,
}

impl Waiting {
    /// Requests that waited before it when it came.
    pub fn ahead(&self) -> u32 {
        u32::try_from(self.ahead).unwrap_or(u32::MAX)
    }

    /// Waits for a slot, at most the route's `wait_timeout`; then goes past the limit.
    ///
    /// Cancel safe: dropping the future gives the place in the queue up.
    ///
    /// # Errors
    /// A gate that refuses at the end of the wait, or no peer that could take the request.
    pub async fn served(mut self) -> Outcome {
        let patience = self.route.spec().guard.wait_timeout;
        let patience = tokio::time::sleep(patience);
        tokio::pin!(patience);
        loop {
            let (next, change) = self.next_look();
            tokio::select! {
                biased;
                handed = &mut self.handed => match handed {
                    Ok(outcome) => return outcome,
                    Err(_) => break,
                },
                () = &mut patience => break,
                () = tokio::time::sleep_until(next.into()) => {}
            }
            if change.is_some_and(|change| change <= now()) {
                // Room that comes with time alone is handed over by whoever notices.
                self.route.state.change(|_, _, _| ());
            }
        }
        if let Some(outcome) = self.overflow() {
            return outcome;
        }
        // Handed over just now: it is on its way.
        let outcome = (&mut self.handed).await;
        outcome.expect("a waiter that left the queue was sent its outcome")
    }

    /// When to look again, and when its pool may change by itself.
    fn next_look(&self) -> (Instant, Option<Instant>) {
        let mut inner = self.route.state.inner.lock();
        let now = now();
        let change = inner.book.changes_at(&self.route.roster, self.pool, now);
        let look = now + LOOK_EVERY;
        (change.map_or(look, |change| change.min(look)), change)
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
    pub fn admit(self: &Arc<Self>, ask: PlacementRequest<'_>) -> Result<Admitted, Refusal> {
        let state = &self.state;
        let kept = Kept::of(&ask);
        state.change_listening(|book, rng, listeners, now| {
            match book.reserve(&self.roster, ask, now, rng) {
                Verdict::Send(placement) => {
                    Ok(Admitted::Placed(Placed::new(state, placement, kept)))
                }
                Verdict::Wait(id) => {
                    let (sender, handed) = oneshot::channel();
                    listeners.insert(id, Listener { sender, kept });
                    Ok(Admitted::Waiting(Waiting {
                        route: Arc::clone(self),
                        id,
                        pool: ask.pool,
                        ahead: book.ahead(id),
                        handed,
                    }))
                }
                Verdict::Refuse(refusal) => Err(refusal),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use router_core::book::Switches;
    use router_core::pool::{Evidence, PeerKey};
    use tokio::task::JoinSet;

    use super::*;
    use crate::testing::Tables;

    const FILE: &str = "peers:
  - {address: '10.0.0.11:8000', max_concurrency: 1}
  - {address: '10.0.0.12:8000', max_concurrency: 1}
full_policy: wait
wait_timeout: 60s
health_ban_ttl: 3500ms
";

    fn ask() -> PlacementRequest<'static> {
        PlacementRequest {
            switches: Switches::DEFAULT,
            ..PlacementRequest::new(PoolId(0), None)
        }
    }

    fn waiting(route: &Arc<Route>) -> Waiting {
        match route.admit(ask()) {
            Ok(Admitted::Waiting(waiting)) => waiting,
            other => panic!("it does not wait: {other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_ban_that_ends_by_time_alone_lets_the_first_waiter_in_at_its_end() {
        let table = Tables::new().table("", &[("chat", FILE)]);
        let route = table.routes().next().expect("one route");
        let peer = PeerKey::new("10.0.0.12:8000");
        // Set while somebody waits already: nobody knew of it when the wait began.
        let mut held = [(); 2].map(|()| route.reserve(ask()).expect("there is room"));
        held.sort_by_key(|placed| placed.peer);
        let [first, second] = [(); 2].map(|()| waiting(route));
        assert_eq!((first.ahead(), second.ahead()), (0, 1));
        let began = now();
        let mut tasks = JoinSet::new();
        for (name, waiting) in [("first", first), ("second", second)] {
            tasks.spawn(async move { (name, waiting.served().await) });
        }
        tokio::time::sleep(Duration::from_millis(1_250)).await;
        route.observe(&peer, Evidence::Failed);
        let [_on_the_other, on_the_banned] = held;
        assert_eq!(on_the_banned.peer, 1);
        drop(on_the_banned);
        let (name, placed) = tasks.join_next().await.expect("two wait").expect("it ends");
        let placed = placed.expect("it is placed");
        assert_eq!((name, placed.peer), ("first", 1));
        let waited = (now() - began).as_millis();
        assert!((4_750..4_760).contains(&waited), "{waited} ms");
        assert!(tasks.try_join_next().is_none(), "one slot came");
        drop(placed);
        let (name, placed) = tasks
            .join_next()
            .await
            .expect("one waits")
            .expect("it ends");
        assert_eq!((name, placed.is_ok()), ("second", true));
    }
}
