//! What the body log costs: recording beside none, and a listener that is away beside one that is
//! there. The listener shares core 1 with the load, which goes before it: what the listener takes of
//! a core is no latency of the router's.

use std::net::SocketAddr;

use system_tests::bodylog::{Listener, Start};
use tempfile::TempDir;

use crate::child::{self, Target};
use crate::load::{Case, Shape};
use crate::{TURN, compare, latency, report};

/// Compares with `silent`, which records nothing.
pub(crate) async fn run(upstream: SocketAddr, silent: &Target, rounds: usize) {
    let store = directory();
    let start = Start::new(
        env!("CARGO_BIN_EXE_bodylog-listener-under-test"),
        store.path(),
    );
    let quiet = [("RUST_LOG".to_owned(), "warn".to_owned())];
    let start = start.environment(quiet).under("nice", &["-n", "19"]);
    let listener = Listener::start(start).await;
    let away = {
        let free = std::net::TcpListener::bind("127.77.0.1:0").expect("loopback has free ports");
        free.local_addr().expect("it is bound")
    };
    let [there_spool, away_spool] = [directory(), directory()];
    let there = child::router(upstream, &recording(listener.frames, &there_spool)).await;
    both("silent", silent, "recorded", &there, Some(1.15), rounds).await;
    let alone = child::router(upstream, &recording(away, &away_spool)).await;
    both("there", &there, "away", &alone, None, rounds).await;
}

fn directory() -> TempDir {
    // Beside the build, because the system's directory may be memory.
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the build has a directory")
}

/// `bodylog:` of a main file.
fn recording(listener: SocketAddr, spool: &TempDir) -> String {
    format!(
        "bodylog: {{listener: \"{listener}\", spool: {{dir: {}, max_bytes: 16g}}}}",
        spool.path().display()
    )
}

async fn both(
    base: &str,
    base_target: &Target,
    ours: &str,
    our_target: &Target,
    limit: Option<f64>,
    rounds: usize,
) {
    let targets = [base_target, our_target];
    let case = |name, shape, body, limit| Case {
        name,
        shape,
        body,
        limit,
    };
    report::header("CPU µs", [base, ours]);
    for case in [
        case("1 KiB", Shape::Reply, 1 << 10, limit),
        case("32 KiB", Shape::Reply, 32 << 10, None),
        case("64-chunk stream, per chunk", Shape::Stream, 1 << 10, None),
    ] {
        compare(&case, targets, rounds).await;
    }
    let mut took = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        for at in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
            took[at].push(latency::measure(targets[at], TURN).await);
        }
    }
    report::header("latency µs, 1000 requests/s", [base, ours]);
    for (at, name) in ["p50", "p99"].into_iter().enumerate() {
        let each = took
            .each_ref()
            .map(|of| of.iter().map(|l| l[at]).collect::<Vec<_>>());
        report::ratio(&case(name, Shape::Reply, 0, None), &each[0], &each[1]);
    }
}
