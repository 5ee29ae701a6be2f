//! Decides whether a request may come in at all. One file per gate. A refusal is a value, not an
//! error.

pub mod concurrency;
mod gate;
pub mod priority;
pub mod probe;
mod refusal;
pub mod slow;

pub use gate::{Gate, Gates};
pub use refusal::{Budget, Full, Probes, RETRY_AFTER_S_MAX, Refusal, Slow};
