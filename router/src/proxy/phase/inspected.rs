//! The third phase: the body of a request was read and inspected.

use std::sync::Arc;
use std::time::Instant;

use super::Authorised;

/// Facts about a request body that was read.
#[derive(Clone, Copy, Debug)]
pub(in crate::proxy) struct Received {
    /// Length in bytes.
    pub(in crate::proxy) bytes: u64,
    /// When its last byte arrived.
    pub(in crate::proxy) at: Instant,
}

/// The contents of a request.
#[derive(Debug)]
pub(in crate::proxy) struct Asked {
    /// The body's `model`, its first 128 bytes.
    pub(in crate::proxy) model: Option<Arc<str>>,
    /// The session, as in `X-Routed-Session`.
    pub(in crate::proxy) session: Arc<str>,
    /// The source of the session id, as in `X-Routed-Source`.
    pub(in crate::proxy) source: Arc<str>,
}

/// A request with a body that was read and inspected.
#[derive(Debug)]
pub(in crate::proxy) struct Inspected {
    /// The phase before.
    pub(in crate::proxy) authorised: Authorised,
    /// The body.
    pub(in crate::proxy) received: Received,
    /// The contents.
    pub(in crate::proxy) asked: Asked,
}

/// An inspected request that waits for a slot.
#[derive(Debug)]
pub(in crate::proxy) struct Queued {
    /// The request.
    pub(in crate::proxy) inspected: Inspected,
    /// Number of requests that were already waiting when it arrived.
    pub(in crate::proxy) ahead: u32,
}
