//! The load: closed loops over kept-alive connections for CPU, open streams for latency.

use std::time::Duration;

use system_tests::wire::{End, Wire, encode};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::backend::CHUNKS;
use crate::child::{KEY, Target};
use crate::prompt;

/// The kind of request in a case.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One small JSON answer; the unit is the request.
    Reply,
    /// A stream of [`CHUNKS`] chunks; the unit is the chunk.
    Stream,
}

/// One case.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) shape: Shape,
    /// Size of the request body, in bytes.
    pub(crate) body: usize,
    /// The ratio that the project aims for.
    pub(crate) limit: Option<f64>,
}

/// The results of a paced run.
pub(crate) struct Paced {
    /// CPU time of the target per chunk, in microseconds.
    pub(crate) cpu: f64,
    /// Median time from sending the request to its first chunk.
    pub(crate) ttft_p50: Duration,
    /// Resident memory of the target while all streams were open, in KiB.
    pub(crate) memory_kib: u64,
}

/// A chat request of `size` bytes with its own session.
pub(crate) fn request(target: &Target, session: usize, kind: &str, size: usize) -> Vec<u8> {
    let body = prompt::chat(session, size);
    let path = format!("{}/v1/chat/completions", target.prefix);
    let bearer = format!("Bearer {KEY}");
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("accept", "application/json"),
        ("user-agent", "bench"),
        ("x-bench", kind),
    ];
    encode("POST", &path, &headers, body.as_bytes())
}

/// CPU time of the target per request, or per chunk of a stream, in microseconds.
pub(crate) async fn cpu_per_unit(
    target: &Target,
    case: &Case,
    concurrency: usize,
    turn: Duration,
) -> f64 {
    let kind = if case.shape == Shape::Stream {
        "stream"
    } else {
        "reply"
    };
    let mut workers = JoinSet::new();
    let (warm, begin) = (turn / 10, Instant::now());
    for session in 0..concurrency {
        let (request, address) = (request(target, session, kind, case.body), target.address);
        let (from, to) = (begin + warm, begin + warm + turn);
        workers.spawn(async move {
            let mut wire = Wire::connect(address).await;
            let mut done = 0_u64;
            while Instant::now() < to {
                wire.send(&request).await;
                let reply = wire.reply("POST").await;
                assert!(
                    reply.status == 200 && reply.end == End::Clean,
                    "status {}",
                    reply.status
                );
                done += u64::from(Instant::now() >= from);
            }
            done
        });
    }
    tokio::time::sleep_until(begin + warm).await;
    let before = target.cpu();
    let mut requests = 0;
    while let Some(done) = workers.join_next().await {
        requests += done.expect("a worker ends by itself");
    }
    let used = target.cpu().saturating_sub(before);
    let units = if case.shape == Shape::Stream {
        requests * CHUNKS as u64
    } else {
        requests
    };
    used.as_secs_f64() * 1e6 / units as f64
}

/// Opens `count` paced streams, one every two milliseconds, so that their chunks are spread over
/// time.
pub(crate) async fn paced_streams(target: &Target, count: usize) -> Paced {
    let mut clients = JoinSet::new();
    let before = target.cpu();
    let mut next = tokio::time::interval(Duration::from_millis(2));
    let (all_open, opened) = tokio::sync::watch::channel(false);
    for session in 0..count {
        next.tick().await;
        let (request, address) = (request(target, session, "paced", 1 << 10), target.address);
        let mut opened = opened.clone();
        clients.spawn(async move {
            let mut wire = Wire::connect(address).await;
            let sent = Instant::now();
            wire.send(&request).await;
            wire.head("POST").await;
            wire.piece().await.expect("a first chunk");
            let ttft = Instant::now() - sent;
            while wire.piece().await.is_ok() {}
            opened
                .wait_for(|open| *open)
                .await
                .expect("the sender outlives its streams");
            ttft
        });
    }
    let memory_kib = target.memory_kib();
    all_open.send_replace(true);
    let mut ttfts = Vec::new();
    while let Some(ttft) = clients.join_next().await {
        ttfts.push(ttft.expect("a client ends by itself"));
    }
    ttfts.sort_unstable();
    let used = target.cpu().saturating_sub(before);
    Paced {
        cpu: used.as_secs_f64() * 1e6 / (count * CHUNKS) as f64,
        ttft_p50: ttfts[ttfts.len() / 2],
        memory_kib,
    }
}
