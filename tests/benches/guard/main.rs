//! The cost of requests, counted instead of timed: callgrind counts instructions and allocations of
//! the router.
//!
//! `tests/run` builds a release of the router and runs `cargo bench --workspace --profile
//! dev --bench guard -- --router target/release/router`. The bench fails when a count is more than 5
//! % above the record in `counts.txt`. `--write` makes a new record; commit it with the change that
//! explains it. `--keep DIRECTORY` keeps callgrind's files for `callgrind_annotate`.
//!
//! Each scenario runs twice, with few requests and with many. The difference of the counts is
//! divided by the difference of the numbers, so start-up and shutdown do not count. Requests come
//! one after the other on one connection, and an engine in memory sends each answer in one write,
//! so that the router does the same reads in every run.

mod callgrind;
mod engine;
#[path = "../shared/prompt.rs"]
mod prompt;
mod record;
#[path = "../shared/report.rs"]
#[expect(dead_code, reason = "only the other benches print ratios")]
mod report;
mod scenario;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use record::{Counts, Record};
use scenario::{Requests, Scenario};

/// The largest growth of a count without a new record, in per cent.
const GROWTH_MAX: f64 = 5.0;

/// The command line.
struct Arguments {
    router: PathBuf,
    write: bool,
    keep: Option<PathBuf>,
}

fn main() -> ExitCode {
    let Some(arguments) = arguments() else {
        report::line("usage: guard --router FILE [--write] [--keep DIRECTORY]");
        return ExitCode::from(2);
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("threads can be started");
    let mut counted = Record::default();
    for scenario in Scenario::ALL {
        counted.add(scenario, runtime.block_on(count(&arguments, scenario)));
    }
    if arguments.write {
        counted.save();
        report::line("the record is written");
    }
    match counted.compare(&Record::load(), GROWTH_MAX) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn arguments() -> Option<Arguments> {
    let (mut router, mut write, mut keep) = (None, false, None);
    let mut rest = std::env::args().skip(1);
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--router" => router = Some(PathBuf::from(rest.next()?)),
            "--keep" => keep = Some(PathBuf::from(rest.next()?)),
            "--write" => write = true,
            // Cargo adds this argument.
            "--bench" => {}
            _ => return None,
        }
    }
    Some(Arguments {
        router: router?,
        write,
        keep,
    })
}

/// Counts the cost of one request of a scenario.
async fn count(arguments: &Arguments, scenario: Scenario) -> Counts {
    let few = run(arguments, scenario, Requests::FEW);
    let many = run(arguments, scenario, Requests::MANY);
    let (few, many) = tokio::join!(few, many);
    let requests = (Requests::MANY.0 - Requests::FEW.0) as f64;
    Counts {
        instructions: many.instructions.saturating_sub(few.instructions) as f64 / requests,
        allocations: many.allocations.saturating_sub(few.allocations) as f64 / requests,
    }
}

async fn run(arguments: &Arguments, scenario: Scenario, requests: Requests) -> callgrind::Totals {
    let own = tempfile::tempdir().expect("a temporary directory");
    let directory = arguments.keep.as_deref().unwrap_or(own.path());
    let out = directory.join(format!("callgrind.{}.{}", scenario.id(), requests.0));
    let router = absolute(&arguments.router);
    scenario::drive(scenario, requests, &router, &out).await;
    callgrind::read(&out)
}

/// Cargo runs a bench in its package directory, but people name files from the workspace root.
fn absolute(path: &Path) -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    workspace.join(path)
}
