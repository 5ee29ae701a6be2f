//! Reads the parts of a body that the router needs: scans it once, builds no tree, never re-encodes
//! it.

pub mod alias;
#[cfg(test)]
mod corpora;
pub mod facts;
pub mod filter;
pub mod form;
pub mod inspect;
pub mod postprocess;
pub mod prefix;
mod reader;
pub mod splice;
pub mod stored;
pub mod transform;
pub mod turn;
mod unreadable;
mod usage_filter;

pub use facts::Wanted;
pub use form::{Form, FormError, is_form};
pub use inspect::{Fields, Inspection};
pub use turn::Turn;
pub use unreadable::Unreadable;
