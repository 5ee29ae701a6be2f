//! Measures the cost of storing for the listener, and the memory that a backlog takes. The bench
//! `relay` measures the cost of recording for the router.
//!
//! `cargo bench -p system-tests --bench bodylog [-- CASE…] [--rounds N] [--gib N]`, release
//! profile, Linux, two cores. Without a named case, all cases run:
//!
//! | case | compares |
//! |---|---|
//! | `store` | the listener with a plain writer of the same bytes that syncs as often |
//! | `replay` | the listener's memory with its budget while a backlog arrives |
//! | `spool` | the router's memory with its budget while it delivers a backlog from its spool |
//!
//! Both sides of a comparison run in turns, so that a machine whose speed varies affects both. The
//! bench asserts nothing: people read the numbers.

mod memory;
#[path = "../shared/report.rs"]
mod report;
mod sender;
mod store;

use std::path::Path;
use std::process::ExitCode;

use system_tests::bodylog::{Listener, Start};
use tempfile::TempDir;

/// The options on the command line.
struct Wanted {
    cases: Vec<String>,
    rounds: usize,
    /// Size of the backlogs, in GiB.
    gib: u64,
}

impl Wanted {
    fn parse(arguments: impl Iterator<Item = String>) -> Option<Self> {
        let mut wanted = Self {
            cases: Vec::new(),
            rounds: 5,
            gib: 1,
        };
        let mut arguments = arguments.filter(|argument| argument != "--bench");
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--rounds" => wanted.rounds = arguments.next()?.parse().ok().filter(|n| *n > 0)?,
                "--gib" => wanted.gib = arguments.next()?.parse().ok().filter(|n| *n > 0)?,
                "store" | "replay" | "spool" => wanted.cases.push(argument),
                _ => return None,
            }
        }
        Some(wanted)
    }

    fn has(&self, case: &str) -> bool {
        self.cases.is_empty() || self.cases.iter().any(|wanted| wanted == case)
    }
}

fn main() -> ExitCode {
    let Some(wanted) = Wanted::parse(std::env::args().skip(1)) else {
        report::line(
            "usage: cargo bench -p system-tests --bench bodylog [-- store|replay|spool …] [--rounds N] [--gib N]",
        );
        return ExitCode::from(2);
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("threads can be started");
    runtime.block_on(async {
        if wanted.has("store") {
            store::run(wanted.rounds).await;
        }
        if wanted.has("replay") {
            memory::replay(wanted.gib).await;
        }
        if wanted.has("spool") {
            memory::spool(wanted.gib).await;
        }
    });
    ExitCode::SUCCESS
}

/// A listener in its own directory, which logs no more than in production.
async fn listener(dir: &Path, more: impl FnOnce(Start) -> Start) -> Listener {
    let quiet = [("RUST_LOG".to_owned(), "warn".to_owned())];
    let start = Start::new(env!("CARGO_BIN_EXE_bodylog-listener-under-test"), dir);
    Listener::start(more(start.environment(quiet))).await
}

fn directory() -> TempDir {
    // A directory beside the build, because the system's temporary directory may be in memory.
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the build has a directory")
}

/// The side that goes first changes with each round.
fn turns(round: usize) -> [usize; 2] {
    if round.is_multiple_of(2) {
        [0, 1]
    } else {
        [1, 0]
    }
}
