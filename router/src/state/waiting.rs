//! Waiting for a slot: the core keeps the queue, this module wakes the requests.
//!
//! Every change of a route's book hands over free slots before the lock is released, and sends each
//! reservation to the waiting request. If that request is gone, its reservation is dropped, and the
//! slot goes to the next one.

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

/// How often a waiting request asks when its pool may change by time alone: a new ban may end
/// before the times it knows.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The result of a wait.
type Outcome = Result<Placed, Refusal>;

/// The channel of each waiting request. Contains exactly the waiters in the book.
pub(super) type Listeners = HashMap<WaiterId, Listener>;

/// One waiting request.
pub(super) struct Listener {
    sender: oneshot::Sender<Outcome>,
    /// The parts of the request that its reservation will keep.
    kept: Kept,
}

impl RouteState {
    /// Changes the book, and hands the slots that become free to waiting requests.
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
        // The clock is read under the lock; otherwise a caller that waited for the lock would use
        // an old time.
        let now = now();
        let Inner {
            book,
            rng,
            listeners,
            ..
        } = &mut *inner;
        let result = act(book, rng, listeners, now);
        if listeners.is_empty() {
            return result;
        }
        let handed = book.hand_over(now, rng);
        let sent: Vec<_> = handed
            .into_iter()
            .filter_map(|Handed { waiter, outcome }| {
                let Listener { sender, kept } = listeners.remove(&waiter)?;
                let outcome = outcome.map(|placement| Placed::new(self, placement, kept));
                Some((sender, outcome))
            })
            .collect();
        // Unlock first: a reservation without a listener is dropped below, which takes the lock
        // again.
        drop(inner);
        for (sender, outcome) in sent {
            let _ = sender.send(outcome);
        }
        result
    }
}

/// A place in the queue of a full pool. Dropping it gives up the place; a slot that was already
/// handed over goes to the next request.
pub struct Waiting {
    route: Arc<Route>,
    id: WaiterId,
    pool: PoolId,
    /// Number of requests that were already waiting when it arrived.
    ahead: usize,
    handed: oneshot::Receiver<Outcome>,
}

impl Waiting {
    /// Number of requests that were already waiting when it arrived.
    pub fn ahead(&self) -> u32 {
        u32::try_from(self.ahead).unwrap_or(u32::MAX)
    }

    /// Waits for a slot for at most the route's `wait_timeout`, then ignores the limit.
    ///
    /// Cancel safe: dropping the future gives up the place in the queue.
    ///
    /// # Errors
    /// A gate refuses the request at the end of the wait, or no peer can take it.
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
                // No event announces a slot that becomes free by time alone, so this change hands
                // it over.
                self.route.state.change(|_, _, _| ());
            }
        }
        if let Some(outcome) = self.overflow() {
            return outcome;
        }
        // The slot was handed over just now, and its message is on its way.
        let outcome = (&mut self.handed).await;
        outcome.expect("a waiter that left the queue was sent its outcome")
    }

    /// When to check again, and when the pool may change by time alone.
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
    /// Applies the switches in force to the waiting requests, which may admit all of them.
    pub fn obey_switches(&self) {
        let switches = self.switches();
        self.state.change(|book, _, _| book.obey(switches));
    }

    /// Admits and places one request, or queues it, in one critical section.
    ///
    /// # Errors
    /// The refusal with its numbers. Nothing is reserved then.
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
        // Banned while requests already wait, so the wait began without knowing about the ban.
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
