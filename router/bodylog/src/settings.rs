//! The configuration of the body log, as plain values.

use std::path::PathBuf;
use std::sync::Arc;

/// The settings of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The listener. If `None`, nothing is recorded.
    pub target: Option<Target>,
    /// Memory limit for the records of all routes together, bytes.
    pub memory: u64,
    /// Where records wait while the listener is unreachable. If `None`, they wait in memory only.
    pub spool: Option<SpoolSettings>,
}

/// The listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// `host:port`, an IPv6 host in brackets.
    pub address: Arc<str>,
    /// The file with the token that the listener requires, read for each connection.
    pub token_file: Option<PathBuf>,
    /// Whether the listener uses TLS.
    pub tls: Option<Tls>,
}

/// The files for TLS, read for each connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The authorities that may sign the listener's certificate. If `None`, those of the system.
    pub ca_file: Option<PathBuf>,
    /// The certificate chain and key that the router shows to the listener.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// The spool's directory and size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpoolSettings {
    /// Its directory.
    pub dir: PathBuf,
    /// Largest total size, bytes.
    pub max_bytes: u64,
}
