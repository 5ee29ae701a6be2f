//! Polls engines for their load, beside the request path, with one fetch per peer at a time.
//!
//! A poll never wakes a sleeping engine and never makes an engine load a model.
//! [`engine`](super::engine) reads the pages; the core ([`load`](router_core::load)) decides what
//! silence means.

mod llamacpp;
mod memory;
mod pace;
mod poller;
mod turns;

use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use tokio::sync::watch;
use tokio_util::task::task_tracker::TaskTrackerToken;

use self::memory::Memory;
use self::pace::Pace;
pub(super) use self::poller::Poller;
use super::probe::Assignment;

/// Polls one peer while its assignment's sender lives and its route wants polls. The pace is fixed:
/// a slow answer delays the next poll only when it takes longer than the interval. Cancel safe: a
/// poll changes nothing before its answer has arrived. `first_poll` is dropped after the first
/// poll, or when there is none to make.
pub(super) async fn poll_peer(
    poller: Arc<Poller>,
    mut assigned: watch::Receiver<Assignment>,
    first_poll: TaskTrackerToken,
    mut rng: StdRng,
) {
    let mut first_poll = Some(first_poll);
    let mut memory = Memory::default();
    // `None` before the first poll.
    let mut pace = None::<Pace>;
    loop {
        let asked = assigned.borrow_and_update().clone();
        let Some(interval) = interval(&asked) else {
            (memory, pace) = Default::default();
            drop(first_poll.take());
            if assigned.changed().await.is_err() {
                return;
            }
            continue;
        };
        let Some(pace_now) = &mut pace else {
            poller.poll_first(&asked, &mut memory).await;
            drop(first_poll.take());
            pace = Some(Pace::begin(interval, poller.epoch(), &mut rng));
            continue;
        };
        let due = pace_now.due(interval);
        tokio::select! {
            () = tokio::time::sleep_until(due) => {}
            changed = assigned.changed() => match changed {
                Ok(()) => {
                    // Another engine, or another address to poll: what was learned does not apply
                    // to it.
                    if assigned.borrow().peer.spec != asked.peer.spec {
                        (memory, pace) = Default::default();
                    }
                    continue;
                }
                Err(_) => return,
            },
        }
        // Boxed, so that a peer holds the room of a poll only while one is under way.
        Box::pin(poller.poll(&asked, &mut memory)).await;
        pace_now.polled(interval, &mut rng);
    }
}

fn interval(asked: &Assignment) -> Option<Duration> {
    asked
        .route
        .polls()
        .then_some(asked.route.options.load.poll_interval.value)
}
