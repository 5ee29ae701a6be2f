//! Body-log rows in, Prometheus metrics out.
//!
//! The listener writes one row per exchange into hourly files. This program reads each row once and
//! counts it: [`tail`] reads, [`aggregate`] counts (pure), [`checkpoint`] keeps the position and the
//! counts together, [`epoch`] puts the three in the order that makes a crash neither lose nor double,
//! [`families`] shows, [`poll`] adds what running routers say, `kubernetes` (a feature, on by
//! default) what a cluster says, [`http`] serves. [`run()`] is the composition root; `main` only calls
//! [`cli::main`].

// The check of the fuzzer is included by a test and names the crate as the fuzzer does.
#[cfg(test)]
extern crate self as bodylog_exporter;

pub mod aggregate;
pub mod checkpoint;
pub mod cli;
pub mod epoch;
pub mod families;
pub mod histogram;
pub mod http;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
pub mod poll;
pub mod resolver;
pub mod run;
pub mod shared;
pub mod tail;

pub use run::{Config, RunError, run};
