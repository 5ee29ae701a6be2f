//! What time alone does to the routes: one task for the process, started at boot and kept over
//! reloads. No loop of a route is ever restarted, because no route has a loop: the task remembers
//! when each asked to be called next and calls whoever is due, under the snapshot in force.
//!
//! What is due, and when, is the core's business ([`Book::tick`](router_core::book::Book::tick)).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::RouteTable;
use super::route::now;
use crate::telemetry::events::Events;

/// Shortest pause between two ticks of a route, whatever it asks for: a bound on what a mistake
/// there can cost. No interval of a route is shorter.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// How long the task sleeps when no route asks for anything.
const IDLE: Duration = Duration::from_secs(3600);

/// When each route wants its next tick.
#[derive(Debug, Default)]
struct Ticker {
    due: HashMap<Arc<str>, Instant>,
}

/// Ticks the routes of the table in force until cancelled; `replaced` says when it is another one.
/// Cancel safe: nothing is awaited while a route is at work.
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
                // Another file may ask for shorter intervals than the one that set the time.
                Ok(()) => ticker.due.clear(),
                // No table will come any more; the routes of this one are still ours.
                Err(_) => is_last = true,
            },
        }
    }
}

impl Ticker {
    /// Ticks every route that is due and answers when the next one is.
    fn tick(&mut self, table: &RouteTable, events: &Events, now: Instant) -> Instant {
        self.due.retain(|name, _| table.get(name).is_some());
        let mut next = now + IDLE;
        for route in table.routes() {
            let due = match self.due.get(&route.name) {
                Some(due) if *due > now => *due,
                _ => {
                    let (asked, warning) = route.tick();
                    if let Some(warning) = warning {
                        events.no_session_header(&route.name, warning);
                    }
                    let due = asked.max(now + PAUSE_MIN);
                    self.due.insert(Arc::clone(&route.name), due);
                    due
                }
            };
            next = next.min(due);
        }
        next
    }
}
