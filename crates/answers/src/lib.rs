//! Reads the answers of engines, without I/O, clock or state. The router reads an answer as it
//! passes, the listener reads the stored one, and both reach the same conclusions.

mod block;
pub mod cursor;
pub mod finish;
pub mod inflate;
pub mod json;
pub mod meter;
pub mod redact;
pub mod sse;
pub mod strings;
mod usage;

pub use meter::Meter;
pub use usage::Usage;
