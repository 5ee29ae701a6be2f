//! Reads body-log rows and exposes Prometheus metrics.
//!
//! The listener writes one row per exchange into hourly files. This program reads each row once and
//! counts it: [`tail`] reads, [`aggregate`] counts (pure), [`checkpoint`] saves the position and
//! the counts together, [`epoch`] runs the three in an order in which a crash neither loses nor
//! doubles a row, [`families`] encodes the metrics, [`poll`] adds the state of running routers,
//! `kubernetes` (a feature, on by default) adds the state of a cluster, [`http`] serves. [`run()`]
//! is the composition root; `main` only calls [`cli::main`].

// A test includes the fuzzer's check, which refers to this crate by its name.
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
pub mod now;
pub mod poll;
pub mod resolver;
pub mod run;
pub mod shared;
pub mod tail;

pub use run::{Config, RunError, run};
