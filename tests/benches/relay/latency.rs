//! Latency under a steady load that does not saturate the router.

use std::time::Duration;

use system_tests::wire::{End, Wire};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::child::Target;
use crate::load::request;

/// Requests per second, over all connections.
const RATE: u32 = 1000;
const CONNECTIONS: u32 = 20;

/// Median and 99th percentile of the time from sending a request to the end of its answer, in
/// microseconds.
pub(crate) async fn measure(target: &Target, turn: Duration) -> [f64; 2] {
    let mut clients = JoinSet::new();
    let (pause, begin) = (Duration::from_secs(1) * CONNECTIONS / RATE, Instant::now());
    for n in 0..CONNECTIONS {
        let (request, address) = (
            request(target, n as usize, "reply", 1 << 10),
            target.address,
        );
        // Spread over time, so that the requests do not come all at once.
        let mut ticks = interval_at(begin + pause * n / CONNECTIONS, pause);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        clients.spawn(async move {
            let mut wire = Wire::connect(address).await;
            let mut took = Vec::new();
            while Instant::now() < begin + turn {
                ticks.tick().await;
                let sent = Instant::now();
                wire.send(&request).await;
                let reply = wire.reply("POST").await;
                assert!(
                    reply.status == 200 && reply.end == End::Clean,
                    "status {}",
                    reply.status
                );
                took.push((Instant::now() - sent).as_secs_f64() * 1e6);
            }
            took
        });
    }
    let mut all: Vec<f64> = clients.join_all().await.into_iter().flatten().collect();
    all.sort_by(f64::total_cmp);
    [all[all.len() / 2], all[all.len() * 99 / 100]]
}
