//! Asking engines how busy they are: beside the request path, one fetch per peer at a time.
//!
//! A poll never wakes a sleeping engine and never makes one load a model. What a page says is in
//! [`engine`](super::engine); what a silence means is the core's business
//! ([`load`](router_core::load)).

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

/// Polls one peer for as long as its assignment's sender lives, while its route wants it. The pace is
/// fixed: a slow answer delays the next poll only when it takes longer than the interval. Cancel
/// safe: a poll changes nothing before its answer is here. `first_poll` is let go after the first
/// poll, or when there is none to do.
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
                    // Another engine, or another place to ask: what was learned is not about it.
                    if assigned.borrow().peer.spec != asked.peer.spec {
                        (memory, pace) = Default::default();
                    }
                    continue;
                }
                Err(_) => return,
            },
        }
        poller.poll(&asked, &mut memory).await;
        pace_now.polled(interval, &mut rng);
    }
}

fn interval(asked: &Assignment) -> Option<Duration> {
    asked
        .route
        .polls()
        .then_some(asked.route.options.load.poll_interval.value)
}
