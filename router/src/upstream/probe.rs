//! Asking peers whether they are alive: one owned task per distinct peer of each route.
//!
//! All peers are probed concurrently, from start-up on, each at its own jittered pace. A new table
//! starts and ends tasks and reaches the ones that stay; a reload does not probe everybody at once.
//! What an answer means is in [`verdict`]; what a ban means is the core's business.

mod models;
mod prober;
pub mod verdict;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use router_core::pool::PeerKey;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use self::prober::Prober;
use super::poll::{Poller, poll_peer};
use super::probe_client::{KeptConnection, ProbeClient};
use crate::state::{Peer, Route, RouteTable};
use crate::telemetry::events::Events;
use router_config::valid::Engine;

/// First probes are spread over this long, so that a start with many peers is no burst.
const FIRST_WITHIN: Duration = Duration::from_millis(200);

/// Share of the interval by which a pause may be longer or shorter.
const JITTER: f64 = 0.1;

/// Probes the peers of the table in force until cancelled; `replaced` says when it is another one.
/// `first_round` is closed once every peer of the first table has its tasks, and is empty when each
/// of them was asked once for all that is wanted of it: whether it lives, its models and its load.
pub async fn supervise(
    tables: Arc<ArcSwap<RouteTable>>,
    mut replaced: watch::Receiver<u64>,
    events: Arc<Events>,
    first_round: TaskTracker,
    cancelled: CancellationToken,
) {
    let asker = ProbeClient::new();
    let asking = Asking {
        prober: Arc::new(Prober::new(asker.clone(), Arc::clone(&events))),
        poller: Arc::new(Poller::new(asker, events)),
        first_round,
    };
    let mut watches = Watches::default();
    loop {
        // Marked before the table is read: a table that comes in between is seen next.
        replaced.mark_unchanged();
        watches.follow(&tables.load_full(), &asking);
        asking.first_round.close();
        loop {
            tokio::select! {
                () = cancelled.cancelled() => return watches.end().await,
                changed = replaced.changed() => match changed {
                    Ok(()) => break,
                    // No table will come any more; the peers of this one are still ours.
                    Err(_) => {
                        cancelled.cancelled().await;
                        return watches.end().await;
                    }
                },
                Some(_) = watches.tasks.join_next() => {}
            }
        }
    }
}

/// What one task probes, under the snapshot in force.
#[derive(Clone, Debug)]
pub(super) struct Assignment {
    pub(super) route: Arc<Route>,
    pub(super) peer: Arc<Peer>,
    /// Both kinds of question go over one connection, as long as they do not meet.
    pub(super) line: Arc<KeptConnection>,
}

impl Assignment {
    fn path(&self) -> &str {
        self.peer
            .spec
            .probe
            .as_deref()
            .unwrap_or(&self.route.options.health_probe_path.value)
    }

    /// When the peer itself is asked something next, at the latest.
    pub(super) fn next_within(&self) -> Duration {
        let (spec, options) = (&self.peer.spec, &self.route.options);
        let probes = options.health_check_interval.value;
        let polls_it =
            self.route.polls() && spec.engine != Engine::None && spec.metrics_url.is_none();
        if polls_it {
            probes.min(options.load.poll_interval.value)
        } else {
            probes
        }
    }

    /// Whether another assignment may get another answer, so that its peer is asked at once.
    fn asks_differently(&self, next: &Self) -> bool {
        self.peer.spec != next.peer.spec || self.path() != next.path()
    }
}

/// The two kinds of question.
struct Asking {
    prober: Arc<Prober>,
    poller: Arc<Poller>,
    first_round: TaskTracker,
}

/// The running tasks.
#[derive(Default)]
struct Watches {
    by_peer: HashMap<(Arc<str>, PeerKey), Watch>,
    tasks: JoinSet<()>,
}

struct Watch {
    assigned: watch::Sender<Assignment>,
    /// Its health and its load are asked apart: a slow health check must not age the load.
    tasks: [AbortHandle; 2],
}

impl Watches {
    fn follow(&mut self, table: &RouteTable, asking: &Asking) {
        let mut before = std::mem::take(&mut self.by_peer);
        for route in table.routes() {
            for peer in route
                .distinct_peers()
                .into_iter()
                .filter(|peer| peer.spec.enabled)
            {
                let key = (Arc::clone(&route.name), peer.spec.key.clone());
                let before = before.remove(&key);
                let line = before
                    .as_ref()
                    .map(|watch| watch.assigned.borrow().line.clone());
                let next = Assignment {
                    route: Arc::clone(route),
                    peer: Arc::clone(peer),
                    line: line.unwrap_or_default(),
                };
                let watch = match before {
                    Some(watch) => {
                        watch.assigned.send_replace(next);
                        watch
                    }
                    None => self.start(next, asking),
                };
                self.by_peer.insert(key, watch);
            }
        }
        for gone in before.into_values() {
            // A question under way decides nothing any more.
            gone.tasks.iter().for_each(AbortHandle::abort);
        }
    }

    fn start(&mut self, first: Assignment, asking: &Asking) -> Watch {
        let (assigned, assignments) = watch::channel(first);
        let polls = poll_peer(
            Arc::clone(&asking.poller),
            assignments.clone(),
            asking.first_round.token(),
            seeded(),
        );
        let probes = watch_peer(
            Arc::clone(&asking.prober),
            assignments,
            asking.first_round.token(),
            seeded(),
        );
        let tasks = [self.tasks.spawn(probes), self.tasks.spawn(polls)];
        Watch { assigned, tasks }
    }

    async fn end(mut self) {
        self.tasks.shutdown().await;
    }
}

/// Probes one peer again and again, until its assignment's sender is gone. Cancel safe: a probe
/// changes nothing before its answer is here.
async fn watch_peer(
    prober: Arc<Prober>,
    mut assigned: watch::Receiver<Assignment>,
    first_probe: TaskTrackerToken,
    mut rng: StdRng,
) {
    let mut first_probe = Some(first_probe);
    tokio::time::sleep(FIRST_WITHIN.mul_f64(rng.random::<f64>())).await;
    loop {
        let asked = assigned.borrow_and_update().clone();
        prober.probe(&asked).await;
        drop(first_probe.take());
        if pause(&asked, &mut assigned, &mut rng).await.is_err() {
            return;
        }
    }
}

/// Waits until the next probe is due. A reload's new interval counts from the last probe, and a
/// reload that asks something else is due at once.
async fn pause(
    asked: &Assignment,
    assigned: &mut watch::Receiver<Assignment>,
    rng: &mut impl Rng,
) -> Result<(), watch::error::RecvError> {
    let ended = Instant::now();
    let factor = jitter(rng);
    loop {
        let interval = {
            let next = assigned.borrow_and_update();
            if asked.asks_differently(&next) {
                return Ok(());
            }
            next.route.options.health_check_interval.value
        };
        tokio::select! {
            () = tokio::time::sleep_until(ended + interval.mul_f64(factor)) => return Ok(()),
            changed = assigned.changed() => changed?,
        }
    }
}

/// A factor around 1.
fn jitter(rng: &mut impl Rng) -> f64 {
    rng.random_range(1.0 - JITTER..=1.0 + JITTER)
}

fn seeded() -> StdRng {
    let mut seed = [0; 32];
    // Only spreads probes over time; a fixed seed would still be correct.
    let _ = rand::TryRng::try_fill_bytes(&mut rand::rngs::SysRng, &mut seed);
    StdRng::from_seed(seed)
}

#[cfg(test)]
mod tests;
