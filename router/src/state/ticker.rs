//! The timed work of all routes: one task for the process, started at boot and kept over reloads. A
//! route has no loop of its own, so a reload restarts none. The task remembers when each route
//! wants its next tick and ticks the routes that are due, with the snapshot in force.
//!
//! The core decides what is due and when ([`Book::tick`](router_core::book::Book::tick)).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use router_core::book::PeerChange;
use router_core::pool::PeerKey;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Route, RouteTable};
use crate::clock::now;
use crate::telemetry::events::{Events, PeerRef};

/// Shortest pause between two ticks of a route. It limits the cost of a wrong time from the core;
/// no real interval is shorter.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// Sleep time of the task if no route wants a tick.
const IDLE: Duration = Duration::from_secs(3600);

/// When each route wants its next tick.
#[derive(Debug, Default)]
struct Ticker {
    due: HashMap<Arc<str>, Instant>,
}

/// Ticks the routes of the table in force until cancelled. `replaced` signals a new table. Cancel
/// safe: a tick of a route does not await.
pub async fn run(
    tables: Arc<ArcSwap<RouteTable>>,
    mut replaced: watch::Receiver<u64>,
    events: Arc<Events>,
    cancelled: CancellationToken,
) {
    let mut ticker = Ticker::default();
    let mut is_last = false;
    loop {
        let next = ticker.tick(&tables.load_full(), &events, now());
        tokio::select! {
            () = cancelled.cancelled() => return,
            () = tokio::time::sleep_until(next.into()) => {}
            changed = replaced.changed(), if !is_last => match changed {
                // The new files may have shorter intervals than those behind the stored times.
                Ok(()) => ticker.due.clear(),
                // No new table will arrive. Continue with the routes of this one.
                Err(_) => is_last = true,
            },
        }
    }
}

impl Ticker {
    /// Ticks every due route. Returns when the next one is due.
    fn tick(&mut self, table: &RouteTable, events: &Events, now: Instant) -> Instant {
        self.due.retain(|name, _| table.get(name).is_some());
        let mut next = now + IDLE;
        for route in table.routes() {
            let due = match self.due.get(&route.name) {
                Some(due) if *due > now => *due,
                _ => {
                    let ticked = route.tick();
                    if let Some(warning) = ticked.no_header {
                        events.no_session_header(&route.name, warning);
                    }
                    for PeerChange { peer, change } in &ticked.changes {
                        events.peer_health(peer_ref(route, peer), change);
                    }
                    let due = ticked.next.max(now + PAUSE_MIN);
                    self.due.insert(Arc::clone(&route.name), due);
                    due
                }
            };
            next = next.min(due);
        }
        next
    }
}

/// The label of a peer in the log.
fn peer_ref<'a>(route: &'a Route, peer: &'a PeerKey) -> PeerRef<'a> {
    let mut specs = route.spec().pools.iter().flat_map(|pool| &pool.peers);
    let spec = specs.find(|spec| spec.key == *peer);
    PeerRef {
        route: &route.name,
        peer,
        name: spec.map_or(peer.as_str(), |spec| &spec.name),
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;

    use super::*;
    use crate::testing::Tables;

    const FILE: &str = "peers: [{address: 10.0.0.11:8000}]\ncluster_avg_interval: 10s\n";

    /// A ticker with tables built from text.
    struct Stage {
        made: Tables,
        tables: Arc<ArcSwap<RouteTable>>,
        replaced: Option<watch::Sender<u64>>,
        cancelled: CancellationToken,
        tasks: JoinSet<()>,
    }

    impl Stage {
        fn start(routes: &[(&str, &str)]) -> Self {
            let mut made = Tables::new();
            let tables = Arc::new(ArcSwap::from_pointee(made.table("", routes)));
            let replaced = watch::Sender::new(0);
            let cancelled = CancellationToken::new();
            let mut tasks = JoinSet::new();
            tasks.spawn(run(
                Arc::clone(&tables),
                replaced.subscribe(),
                Arc::new(Events::new(Arc::clone(&made.metrics))),
                cancelled.clone(),
            ));
            Self {
                made,
                tables,
                replaced: Some(replaced),
                cancelled,
                tasks,
            }
        }

        fn replace(&mut self, routes: &[(&str, &str)]) {
            self.tables.store(Arc::new(self.made.table("", routes)));
            let replaced = self.replaced.as_ref().expect("tables still come");
            replaced.send_modify(|n| *n += 1);
        }

        /// Number of samples in each route's five-minute average.
        fn samples(&self) -> Vec<usize> {
            let count = |route: &Arc<Route>| route.protections()[0].average.slots.len();
            self.tables.load().routes().map(count).collect()
        }
    }

    async fn seconds(count: u64) {
        tokio::time::sleep(Duration::from_secs(count)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn every_route_is_ticked_when_it_asks_to_be() {
        let slow = FILE.replace("10s", "30s");
        let stage = Stage::start(&[("fast", FILE), ("slow", &slow)]);
        assert_eq!(stage.samples(), [0, 0]);
        seconds(61).await;
        assert_eq!(stage.samples(), [6, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reload_neither_restarts_nor_delays_what_is_due() {
        let mut stage = Stage::start(&[("chat", FILE)]);
        // Each reload comes before the next sample is due: a restarted loop would never take one.
        for _ in 0..9 {
            seconds(4).await;
            stage.replace(&[("chat", FILE)]);
        }
        seconds(1).await;
        assert_eq!(stage.samples(), [3]);
        stage.replace(&[("chat", FILE), ("new", FILE)]);
        seconds(11).await;
        assert_eq!(stage.samples(), [4, 1]);
        stage.replace(&[("new", FILE)]);
        seconds(10).await;
        assert_eq!(stage.samples(), [2]);
    }

    #[tokio::test(start_paused = true)]
    async fn it_goes_on_without_the_reloader_and_ends_when_told() {
        let mut stage = Stage::start(&[("chat", FILE)]);
        stage.replaced = None;
        seconds(21).await;
        assert_eq!(stage.samples(), [2]);
        stage.cancelled.cancel();
        stage
            .tasks
            .join_next()
            .await
            .expect("one task")
            .expect("it ends");
    }
}
