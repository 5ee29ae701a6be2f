//! What a body says: read once, never built into a tree, never re-encoded.

pub mod facts;
pub mod inspect;

pub use facts::Wanted;
pub use inspect::{Fields, Inspection};
