//! The router. [`run`] is the composition root: it builds the parts in order and gives each part
//! only what it needs. `main` only calls [`cli::main`], and `llmctl up` calls [`run`] in its own
//! process.

// The checks of the fuzzers name this crate, and the crate's own tests include these checks.
#[cfg(test)]
extern crate self as router;

pub mod admin;
pub mod cli;
pub mod clock;
pub mod content;
pub mod control;
mod discovery;
pub mod explain;
pub mod findings;
mod healthcheck;
pub mod placement;
pub mod proxy;
pub mod reload;
mod run;
pub mod settled;
pub mod signals;
pub mod state;
pub mod telemetry;
pub mod upstream;
pub mod watch;

pub use state::{Switch, Target, adaptive_bounds};

pub use run::{AccessLines, Ended, Options, Ready, StartError, run};

#[cfg(test)]
mod testing;

/// jemalloc, which gives memory back after a burst: pages that stay free for ten seconds return to
/// the system, and a thread of its own sees to that when the router is idle.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;
