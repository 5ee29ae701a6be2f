//! Access to the peers: connections, probes and retries.

pub mod address;
mod body;
pub mod client;
pub mod connect;
mod driven;
pub mod engine;
pub mod headers;
mod here;
mod poll;
mod pool;
pub mod probe;
mod probe_client;
mod request_body;

pub use body::{PeerBody, Tunnel};
pub use client::{PeerClient, SendError};
pub use connect::ConnectTimeout;
pub use request_body::{BrokenUpload, RequestBody, StreamedRest};
