//! The router. `run` is the composition root; `main` only calls it.

pub mod config;
pub mod telemetry;
