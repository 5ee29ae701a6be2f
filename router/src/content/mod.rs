//! What a body says: read once, never built into a tree, never re-encoded.

pub mod inspect;

pub use inspect::{Fields, Inspection};
