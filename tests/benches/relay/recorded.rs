//! The cost of the body log: recording compared with no recording, and an absent listener compared
//! with a present one. The listener shares core 1 with the load. When latency is measured, the load
//! has priority, because the CPU time of a listener is not latency of the router.

use std::net::SocketAddr;

use system_tests::bodylog::{Listener, Start};
use tempfile::TempDir;

use crate::child::{self, Target};
use crate::load::{Case, Shape};
use crate::{TURN, compare, latency, report};

/// Compares with `silent`, a router that records nothing.
pub(crate) async fn run(upstream: SocketAddr, silent: &Target, rounds: usize) {
    let (at_once, _at_once) = listener(&[]).await;
    let (behind, _behind) = listener(&["-n", "19"]).await;
    let away = {
        let free = std::net::TcpListener::bind("127.77.0.1:0").expect("loopback has free ports");
        free.local_addr().expect("it is bound")
    };
    let spools = [directory(), directory(), directory()];
    let there = child::router(upstream, &recording(at_once.frames, &spools[0])).await;
    let calm = child::router(upstream, &recording(behind.frames, &spools[1])).await;
    let names = ["silent", "recorded"];
    costs(names, [silent, &there], Some(1.15), rounds).await;
    latencies(names, [silent, &calm], rounds).await;
    let alone = child::router(upstream, &recording(away, &spools[2])).await;
    let names = ["there", "away"];
    costs(names, [&there, &alone], None, rounds).await;
    latencies(names, [&calm, &alone], rounds).await;
}

/// A listener under `nice` with these arguments, and its directory.
async fn listener(nice: &[&str]) -> (Listener, TempDir) {
    let store = directory();
    let start = Start::new(
        env!("CARGO_BIN_EXE_bodylog-listener-under-test"),
        store.path(),
    );
    let quiet = [("RUST_LOG".to_owned(), "warn".to_owned())];
    let start = start.environment(quiet);
    let start = match nice {
        [] => start,
        nice => start.under("nice", nice),
    };
    (Listener::start(start).await, store)
}

fn directory() -> TempDir {
    // A directory beside the build, because the system's temporary directory may be in memory.
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the build has a directory")
}

/// The `bodylog:` section of a main file.
fn recording(listener: SocketAddr, spool: &TempDir) -> String {
    format!(
        "bodylog: {{listener: \"{listener}\", spool: {{dir: {}, max_bytes: 16g}}}}",
        spool.path().display()
    )
}

async fn costs(names: [&str; 2], targets: [&Target; 2], limit: Option<f64>, rounds: usize) {
    report::header("CPU µs", names);
    for (name, shape, body, limit) in [
        ("1 KiB", Shape::Reply, 1 << 10, limit),
        ("32 KiB", Shape::Reply, 32 << 10, None),
        ("64-chunk stream, per chunk", Shape::Stream, 1 << 10, None),
    ] {
        let case = Case {
            name,
            shape,
            body,
            limit,
        };
        compare(&case, targets, rounds).await;
    }
}

async fn latencies(names: [&str; 2], targets: [&Target; 2], rounds: usize) {
    let mut took = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        for at in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
            took[at].push(latency::measure(targets[at], TURN).await);
        }
    }
    report::header("latency µs, 1000 requests/s", names);
    for (at, name) in ["p50", "p99"].into_iter().enumerate() {
        let each = took
            .each_ref()
            .map(|of| of.iter().map(|l| l[at]).collect::<Vec<_>>());
        report::ratio(name, &each, None);
    }
}
