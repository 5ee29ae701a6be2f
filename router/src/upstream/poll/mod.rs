//! Asking engines how busy they are: beside the request path, one fetch per peer at a time.
//!
//! A poll never wakes a sleeping engine and never makes one load a model. What a page says is in
//! [`engine`](super::engine); what a silence means is the core's business
//! ([`load`](router_core::load)).

mod llamacpp;
mod poller;

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::task::task_tracker::TaskTrackerToken;

pub(super) use self::poller::Poller;
use super::probe::Assignment;

/// Share of the interval over which first polls are spread.
const OFFSET: f64 = 0.1;

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
    let mut memory = poller::Memory::default();
    let mut due = Instant::now();
    let mut first = true;
    loop {
        let asked = assigned.borrow_and_update().clone();
        let Some(interval) = interval(&asked) else {
            memory = poller::Memory::default();
            first = true;
            drop(first_poll.take());
            if assigned.changed().await.is_err() {
                return;
            }
            continue;
        };
        if first {
            // At once, so that a start waits for one round only; then out of step with the others.
            poller.poll(&asked, &mut memory).await;
            drop(first_poll.take());
            due = Instant::now() + interval.mul_f64(1.0 + OFFSET * rng.random::<f64>());
            first = false;
            continue;
        }
        tokio::select! {
            () = tokio::time::sleep_until(due) => {}
            changed = assigned.changed() => match changed {
                Ok(()) => {
                    // Another engine, or another place to ask: what was learned is not about it.
                    first = assigned.borrow().peer.spec != asked.peer.spec;
                    if first {
                        memory = poller::Memory::default();
                    }
                    continue;
                }
                Err(_) => return,
            },
        }
        poller.poll(&asked, &mut memory).await;
        due = next(due, interval, Instant::now());
    }
}

/// The next tick of a fixed pace; ticks that passed during a slow poll are skipped.
fn next(due: Instant, interval: Duration, now: Instant) -> Instant {
    let next = due + interval;
    if next > now { next } else { now + interval }
}

fn interval(asked: &Assignment) -> Option<Duration> {
    asked
        .route
        .polls()
        .then_some(asked.route.options.load.poll_interval.value)
}
