//! Polls running routers for their routes, limits, loads, averages and refusals.
//!
//! A round asks every route of every router concurrently, within a time limit, and the answers
//! replace the previous ones in one step: a scrape never sees half a round. A route that does not
//! answer keeps its last values for three rounds.

mod client;
mod decode;
mod round;
pub(crate) mod state;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

pub use self::client::{Client, ClientError, RouterUrl};
pub use self::decode::{Limiter, PeerState, RouteState};
pub use self::state::{ENDPOINTS, Polled, Reading, RoutePoll, RouterPoll};

use crate::shared::Shared;

/// Number of rounds that a value may be missing before it disappears.
const KEPT_ROUNDS: u32 = 3;

/// How routers are polled.
#[derive(Clone, Debug)]
pub struct PollConfig {
    /// The routers to poll.
    pub routers: Vec<RouterUrl>,
    /// From the start of one round to the start of the next.
    pub interval: Duration,
}

/// Polls until stopped.
///
/// Cancel safe: an interrupted round changes nothing.
pub async fn run(config: PollConfig, client: Client, shared: Arc<Shared>, stop: CancellationToken) {
    shared.polled(Polled::nothing_from(&config.routers));
    let mut ticks = tokio::time::interval(config.interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let before = shared.last_polled();
        let kept = config.interval * KEPT_ROUNDS;
        let routes = shared
            .resolver()
            .map(|resolver| Arc::clone(&resolver.routes));
        let routes = routes.as_deref().unwrap_or_default();
        let round = round::round(&config.routers, &client, &before, routes, kept);
        tokio::select! {
            () = stop.cancelled() => return,
            (polled, refusals) = round => {
                for (router, reading) in refusals {
                    shared.refusals(&router, reading);
                }
                shared.polled(polled);
            }
        }
    }
}
