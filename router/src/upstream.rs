//! The other side: how a peer is reached, probed and retried.

pub mod client;
pub mod connect;
pub mod engine;
pub mod headers;
mod here;
mod poll;
pub mod probe;
mod probe_client;
mod target;

pub use client::{PeerClient, SendError};
pub use connect::ConnectTimeout;
pub use target::Target;
