//! Probes whether peers are alive: one owned task per distinct peer of each route.
//!
//! All peers are probed concurrently from start-up on, each at its own jittered pace. A new table
//! starts and ends tasks and updates the ones that stay, so a reload does not probe all peers at
//! once. [`verdict`] decides what an answer means; the core decides what a ban means.

mod generate;
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

use self::generate::{Generator, generate_for};
use self::prober::Prober;
use super::poll::{Poller, poll_peer};
use super::probe_client::{KeptConnection, ProbeClient};
use crate::state::{Peer, Route, RouteTable};
use crate::telemetry::events::{Events, PeerRef};
use router_config::valid::Engine;

/// First probes are spread over this time, so that a start with many peers makes no burst.
const FIRST_WITHIN: Duration = Duration::from_millis(200);

/// Fraction of the interval by which a pause may be longer or shorter.
const JITTER: f64 = 0.1;

/// Probes the peers of the table in force until cancelled. `replaced` signals a new table.
/// `first_round` closes once every peer of the first table has its tasks, and is empty once each of
/// these peers was asked for all that its route needs: its health, its models and its load.
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
        generator: Arc::new(Generator::new(asker.clone(), Arc::clone(&events))),
        poller: Arc::new(Poller::new(asker, events)),
        first_round,
    };
    let mut watches = Watches::default();
    loop {
        // Marked before the table is read, so that a table that arrives in between is seen next.
        replaced.mark_unchanged();
        watches.follow(&tables.load_full(), &asking);
        asking.first_round.close();
        loop {
            tokio::select! {
                () = cancelled.cancelled() => return watches.end().await,
                changed = replaced.changed() => match changed {
                    Ok(()) => break,
                    // No further table will come. The peers of this one still need probes.
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

/// What one task probes, according to the snapshot in force.
#[derive(Clone, Debug)]
pub(super) struct Assignment {
    pub(super) route: Arc<Route>,
    pub(super) peer: Arc<Peer>,
    /// Probes and polls share one connection, unless they overlap.
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

    /// The label of the peer in events.
    fn peer_ref(&self) -> PeerRef<'_> {
        PeerRef {
            route: &self.route.name,
            peer: &self.peer.spec.key,
            name: &self.peer.spec.name,
        }
    }

    /// The latest time of the next probe or poll of the peer itself.
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

    /// Whether another assignment may get another answer, so that the peer is probed at once.
    fn asks_differently(&self, next: &Self) -> bool {
        self.peer.spec != next.peer.spec || self.path() != next.path()
    }
}

/// The three kinds of task: probe, generated request and poll.
struct Asking {
    prober: Arc<Prober>,
    generator: Arc<Generator>,
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
    /// Health and load are asked separately, because a slow health check must not age the load.
    tasks: [AbortHandle; 3],
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
            // The result of a probe under way no longer counts.
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
        let generated = generate_for(Arc::clone(&asking.generator), assignments.clone(), seeded());
        let probes = watch_peer(
            Arc::clone(&asking.prober),
            assignments,
            asking.first_round.token(),
            seeded(),
        );
        let tasks = [
            self.tasks.spawn(probes),
            self.tasks.spawn(generated),
            self.tasks.spawn(polls),
        ];
        Watch { assigned, tasks }
    }

    async fn end(mut self) {
        self.tasks.shutdown().await;
    }
}

/// Probes one peer repeatedly until its assignment's sender is dropped. Cancel safe: a probe
/// changes nothing before its answer has arrived.
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
        // Boxed, so that a peer holds the room of a probe only while one is under way.
        Box::pin(prober.probe(&asked)).await;
        drop(first_probe.take());
        if pause(&asked, &mut assigned, &mut rng).await.is_err() {
            return;
        }
    }
}

/// Waits until the next probe is due. A new interval from a reload counts from the last probe. A
/// reload that changes what is asked makes the probe due at once.
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

/// A random factor around 1.
fn jitter(rng: &mut impl Rng) -> f64 {
    rng.random_range(1.0 - JITTER..=1.0 + JITTER)
}

fn seeded() -> StdRng {
    let mut seed = [0; 32];
    // The jitter only spreads probes over time. A fixed seed would still be correct.
    let _ = rand::TryRng::try_fill_bytes(&mut rand::rngs::SysRng, &mut seed);
    StdRng::from_seed(seed)
}

#[cfg(test)]
mod tests;
