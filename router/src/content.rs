//! What a body says: read once, never built into a tree, never re-encoded.

#[cfg(test)]
mod corpora;
pub mod facts;
pub mod filter;
pub mod inflate;
pub mod inspect;
mod json;
pub mod meter;
pub mod postprocess;
pub mod prefix;
pub mod scan;
pub mod splice;
pub mod sse;
pub mod transform;
pub mod turn;
mod usage_filter;

pub use facts::Wanted;
pub use inspect::{Fields, Inspection};
pub use meter::Meter;
pub use turn::Turn;
