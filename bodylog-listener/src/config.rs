//! The settings a listener starts with.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use ipnet::IpNet;
use subtle::ConstantTimeEq;

use service::renewed::Renewed;

/// A secret. It is compared in constant time and never printed.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Creates a secret from its text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Whether `candidate` is the secret.
    pub fn matches(&self, candidate: &str) -> bool {
        self.0.as_bytes().ct_eq(candidate.as_bytes()).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// When a frame counts as stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Durability {
    /// When the kernel has it. The frame is lost if the machine crashes.
    None,
    /// When it is on disk. Many frames share one sync.
    #[default]
    Batch,
    /// When it is on disk, with one sync per frame.
    Always,
}

/// How much room must stay free.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MinFree {
    /// Percent of the file system.
    Percent(f64),
    /// Bytes.
    Bytes(u64),
}

impl MinFree {
    /// The number of bytes that must stay free on a file system of `total` bytes.
    pub fn bytes_of(self, total: u64) -> u64 {
        match self {
            Self::Percent(percent) => (total as f64 * percent / 100.0) as u64,
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// Settings of a listener. Start from [`Config::new`].
#[derive(Clone, Debug)]
pub struct Config {
    /// Root directory; created if it is missing.
    pub dir: PathBuf,
    /// Days to keep full records.
    pub keep_days: u32,
    /// Days to keep slim rows.
    pub details_keep_days: u32,
    /// Most bytes below the root. The oldest files are deleted first.
    pub max_bytes: Option<u64>,
    /// Disk space to keep free. Below half of it, bodies are not stored; below a tenth, nothing is
    /// stored.
    pub min_free: MinFree,
    /// Most bytes of frames in memory.
    pub memory: usize,
    /// When a frame counts as stored.
    pub durability: Durability,
    /// The token that senders of version 2 and HTTP callers from other hosts must show.
    pub token: Option<Renewed<Secret>>,
    /// TLS for the frame port.
    pub tls: Option<Renewed<Arc<rustls::ServerConfig>>>,
    /// Addresses that may connect to the frame port. Empty means all. When a token is set, senders
    /// of version 1, which cannot show it, must be listed here.
    pub allow: Vec<IpNet>,
    /// Largest payload accepted.
    pub max_frame: u32,
    /// Most connections on the frame port.
    pub max_connections: usize,
}

impl Config {
    /// The defaults, for this root directory.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            keep_days: 7,
            details_keep_days: 365,
            max_bytes: None,
            min_free: MinFree::Percent(10.0),
            memory: 512 << 20,
            durability: Durability::Batch,
            token: None,
            tls: None,
            allow: Vec::new(),
            max_frame: proto::frame::MAX_PAYLOAD,
            max_connections: 1024,
        }
    }
}
