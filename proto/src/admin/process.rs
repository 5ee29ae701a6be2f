//! The process as a whole: readiness, reload, drain.

use serde::{Deserialize, Serialize};

use super::Problem;

/// `GET /readyz`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readiness {
    /// `ready`, `unready` (no route has a usable peer) or `draining`. 200 only for the first, else 503.
    pub status: String,
    /// Routes with at least one usable peer.
    pub usable_routes: usize,
    /// Number of routes, including invalid ones.
    pub routes: usize,
}

/// `POST /_reload`: 200, or 422 when a file was rejected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reload {
    /// Whether the full content of all files is in force now.
    pub ok: bool,
    /// Names of the routes in force, ascending.
    pub routes: Vec<String>,
    /// Why files, or some of their values, are not in force. Everything else is in force.
    pub errors: Vec<Problem>,
    /// Warnings about accepted values.
    pub warnings: Vec<Problem>,
}

/// `POST /_drain`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    /// Always true: readiness is off and the process will end.
    pub draining: bool,
}
