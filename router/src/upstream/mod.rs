//! The other side: how a peer is reached, probed and retried.

mod target;

pub use target::Target;
