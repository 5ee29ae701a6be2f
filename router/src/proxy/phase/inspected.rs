//! The third phase: a request whose body was read and understood.

use std::sync::Arc;
use std::time::Instant;

use super::Authorised;

/// A request body that was read.
#[derive(Clone, Copy, Debug)]
pub(in crate::proxy) struct Received {
    /// Its length.
    pub(in crate::proxy) bytes: u64,
    /// When its last byte came.
    pub(in crate::proxy) at: Instant,
}

/// What a request asks for.
#[derive(Debug)]
pub(in crate::proxy) struct Asked {
    /// The body's `model`, its first 128 bytes.
    pub(in crate::proxy) model: Option<Arc<str>>,
    /// The body is one JSON object.
    pub(in crate::proxy) is_json_object: bool,
    /// As `X-Routed-Session` shows it.
    pub(in crate::proxy) session: Arc<str>,
    /// As `X-Routed-Source` shows it.
    pub(in crate::proxy) source: Arc<str>,
}

/// A request whose body was read and understood.
#[derive(Debug)]
pub(in crate::proxy) struct Inspected {
    /// Who sent it, and where to.
    pub(in crate::proxy) authorised: Authorised,
    /// Its body.
    pub(in crate::proxy) received: Received,
    /// What it says.
    pub(in crate::proxy) asked: Asked,
}

/// An inspected request that waits for a slot.
#[derive(Debug)]
pub(in crate::proxy) struct Queued {
    /// The request.
    pub(in crate::proxy) inspected: Inspected,
    /// Requests that waited before it when it came.
    pub(in crate::proxy) ahead: u32,
}
