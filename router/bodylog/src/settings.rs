//! What the body log is configured with, in plain values.

use std::path::PathBuf;
use std::sync::Arc;

/// The settings of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The listener; `None`: nothing is recorded.
    pub target: Option<Target>,
    /// Bytes of records in memory, all routes together.
    pub memory: u64,
    /// Where records wait while the listener is away; `None`: in memory only.
    pub spool: Option<SpoolSettings>,
}

/// The listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// `host:port`, an IPv6 host in brackets.
    pub address: Arc<str>,
    /// The file with the token it asks for, read at each connection.
    pub token_file: Option<PathBuf>,
    /// It speaks TLS.
    pub tls: Option<Tls>,
}

/// Files for TLS, read at each connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The authorities that may sign the listener's certificate; `None`: the system's.
    pub ca_file: Option<PathBuf>,
    /// Certificate chain and key that are shown to the listener.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// The spool's directory and size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpoolSettings {
    /// Its directory.
    pub dir: PathBuf,
    /// Bytes it may hold.
    pub max_bytes: u64,
}
