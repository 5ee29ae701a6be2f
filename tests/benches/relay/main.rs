//! Compares the cost of the router with a bare pass-through, in one interleaved run.
//!
//! `cargo bench -p system-tests --bench relay [-- --rounds N] [--edits|--recording]`, release
//! profile, Linux, two cores or more. The servers share core 0. The load and its backend have
//! core 1. Each case runs floor and router in turns, so that a machine whose speed varies affects both.
//! The bench reports the CPU time per request of each child process, their ratio with its spread
//! over the rounds, the added time to the first chunk, and memory. It asserts nothing: people read
//! the numbers.
//!
//! A second table compares the router with itself: a route that edits requests and answers with a
//! `transparent` one. `--edits` prints only that table. The last tables compare a router that
//! records every exchange with one that records nothing, and one whose listener is away with one
//! whose listener is there; `--recording` prints only these.
//!
//! Requests are text, code and tool calls with the escapes of real prompts (`shared/prompt.rs`). The router runs with keys, sessions, admission and metrics; its access log is off, because the
//! floor has none.

mod backend;
mod child;
mod floor;
mod latency;
mod load;
#[path = "../shared/prompt.rs"]
mod prompt;
mod recorded;
#[path = "../shared/report.rs"]
mod report;

use std::process::{Command, ExitCode};
use std::time::Duration;

use child::Target;
use load::{Case, Shape};

/// Duration of one turn of one target.
const TURN: Duration = Duration::from_secs(3);
/// Concurrent requests in the cases that measure CPU.
const CONCURRENCY: usize = 64;
/// Concurrent streams in the paced case.
const STREAMS: usize = 500;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = || {
        tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .expect("threads can be started")
    };
    if let [mode, upstream] = arguments.as_slice()
        && mode == "serve-floor"
    {
        let upstream = upstream.parse().expect("the parent passes an address");
        runtime().block_on(floor::serve(upstream));
        return ExitCode::SUCCESS;
    }
    let rounds = match arguments.iter().position(|argument| argument == "--rounds") {
        Some(at) => arguments
            .get(at + 1)
            .and_then(|n| n.parse().ok())
            .unwrap_or(0),
        None => 5,
    };
    if rounds == 0 {
        report::line(
            "usage: cargo bench -p system-tests --bench relay [-- [--edits|--recording] [--rounds N]], N from 1 up",
        );
        return ExitCode::from(2);
    }
    let only = ["--edits", "--recording"]
        .into_iter()
        .find(|only| arguments.iter().any(|argument| argument == only));
    pin_to_the_load_core();
    runtime().block_on(run(rounds, only));
    ExitCode::SUCCESS
}

/// Moves this process, and the threads that it will start, away from the servers' core.
fn pin_to_the_load_core() {
    let pinned = Command::new("taskset")
        .args(["-cp", "1", &std::process::id().to_string()])
        .output();
    if !pinned.is_ok_and(|output| output.status.success()) {
        report::line(
            "taskset failed: load and servers share their cores, the numbers are worse than usual",
        );
    }
}

async fn run(rounds: usize, only: Option<&str>) {
    let backend = backend::spawn().await;
    let router = child::router(backend.address, "").await;
    if only.is_none() {
        beside_the_floor(&child::floor(backend.address).await, &router, rounds).await;
    }
    if only != Some("--recording") {
        edited(&router, rounds).await;
    }
    if only != Some("--edits") {
        recorded::run(backend.address, &router, rounds).await;
    }
}

/// Measures the cost of edits of requests and answers.
async fn edited(router: &Target, rounds: usize) {
    let (bare, edited) = (router.by("/bare"), router.by("/edited"));
    report::header("CPU µs", ["transparent", "edited"]);
    for case in [
        Case {
            name: "64-chunk stream, per chunk",
            shape: Shape::Stream,
            body: 1 << 10,
            limit: Some(1.10),
        },
        Case {
            name: "32 KiB",
            shape: Shape::Reply,
            body: 32 << 10,
            limit: None,
        },
    ] {
        compare(&case, [&bare, &edited], rounds).await;
    }
}

async fn beside_the_floor(floor: &Target, router: &Target, rounds: usize) {
    let idle = [floor.memory_kib(), router.memory_kib()];
    // Streams run first, because memory that other cases leave in the allocator is not the cost of
    // a stream.
    let (mut base, mut ours) = (Vec::new(), Vec::new());
    let (mut open, mut cpu) = ([0; 2], [Vec::new(), Vec::new()]);
    for _ in 0..rounds {
        for (at, target) in [floor, router].into_iter().enumerate() {
            let paced = load::paced_streams(target, STREAMS).await;
            open[at] = open[at].max(paced.memory_kib);
            cpu[at].push(paced.cpu);
            if at == 0 {
                base.push(paced.ttft_p50);
            } else {
                ours.push(paced.ttft_p50);
            }
        }
    }
    report_added(&base, &ours);
    report_memory("floor", idle[0], open[0]);
    report_memory("router", idle[1], open[1]);
    let cases = [
        Case {
            name: "1 KiB",
            shape: Shape::Reply,
            body: 1 << 10,
            limit: Some(1.20),
        },
        Case {
            name: "32 KiB",
            shape: Shape::Reply,
            body: 32 << 10,
            limit: Some(1.5),
        },
        Case {
            name: "1 MiB",
            shape: Shape::Reply,
            body: 1 << 20,
            limit: Some(1.6),
        },
        Case {
            name: "64-chunk stream, per chunk",
            shape: Shape::Stream,
            body: 1 << 10,
            limit: Some(0.9),
        },
    ];
    report::header("CPU µs", ["floor", "router"]);
    for case in &cases {
        compare(case, [floor, router], rounds).await;
    }
    report::ratio("stream paced at 20 ms, per chunk", &cpu, Some(1.0));
}

/// Measures both targets in turns and prints the row.
async fn compare(case: &Case, targets: [&Target; 2], rounds: usize) {
    let mut costs = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        // Each target goes first equally often.
        for at in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
            costs[at].push(load::cpu_per_unit(targets[at], case, CONCURRENCY, TURN).await);
        }
    }
    report::ratio(case.name, &costs, case.limit);
}

/// Prints the added time to the first chunk.
fn report_added(floor: &[Duration], router: &[Duration]) {
    let [base, ours] = [floor, router].map(|times| {
        let ms: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
        report::median(&ms)
    });
    report::line(&format!(
        "{STREAMS} streams paced at 20 ms, first chunk p50: floor {base:.2} ms, router {ours:.2} ms, added {:.2} ms (promise 0.6)",
        ours - base
    ));
}

/// Prints the resident memory.
fn report_memory(name: &str, idle_kib: u64, open_kib: u64) {
    let each = open_kib.saturating_sub(idle_kib) as f64 / STREAMS as f64;
    report::line(&format!(
        "{name}: {:.1} MiB idle, {each:.1} KiB more per open stream (router's goal: 10 MiB, 30 KiB)",
        idle_kib as f64 / 1024.0
    ));
}
