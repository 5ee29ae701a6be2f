//! What a listener is started with.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use ipnet::IpNet;
use subtle::ConstantTimeEq;

use service::renewed::Renewed;

/// A secret that is compared in constant time and never shown.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// A secret of this text.
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
    /// When the system has taken it: lost when the machine stops.
    None,
    /// When the disk has it; many frames share one sync.
    #[default]
    Batch,
    /// When the disk has it; one sync per frame.
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
    /// The bytes that must stay free of `total`.
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
    /// Days full records are kept.
    pub keep_days: u32,
    /// Days slim rows are kept.
    pub details_keep_days: u32,
    /// Most bytes below the root; the oldest go first.
    pub max_bytes: Option<u64>,
    /// Room to keep free. Below a half of it bodies are not stored, below a tenth nothing is.
    pub min_free: MinFree,
    /// Most bytes of frames in memory.
    pub memory: usize,
    /// When a frame counts as stored.
    pub durability: Durability,
    /// What senders of version 2 and HTTP callers from elsewhere must show.
    pub token: Option<Renewed<Secret>>,
    /// TLS of the frame port.
    pub tls: Option<Renewed<Arc<rustls::ServerConfig>>>,
    /// Addresses that may connect to the frame port; empty: all of them. With a token, senders of
    /// version 1, who cannot show it, must be named here.
    pub allow: Vec<IpNet>,
    /// Largest payload taken.
    pub max_frame: u32,
    /// Most connections on the frame port.
    pub max_connections: usize,
}

impl Config {
    /// The defaults, with this root directory.
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
