//! What a body says: read once, never built into a tree, never re-encoded.

pub mod facts;
pub mod inspect;
pub mod meter;
pub mod sse;
pub mod turn;

pub use facts::Wanted;
pub use inspect::{Fields, Inspection};
pub use meter::Meter;
pub use turn::Turn;
