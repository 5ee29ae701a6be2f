//! Peers, tiers and bans: which peers may be chosen now, and how much room there is.
//!
//! A *pool* is the list of peers that can serve one model of a route (the whole route when it has
//! no sub-pools). A *tier* is the peers of one priority. The *active tier* is the highest priority
//! that has an enabled, unbanned peer; the *candidates* are the enabled, unbanned peers of that tier.

mod ban;
mod capacity;
mod probe;
mod role;

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::admission::priority::PrioritySpec;
use crate::affinity::Affinity;
use crate::aimd::AdaptiveSpec;
use crate::balance::{Balance, Normalize};
use crate::health::HealthSpec;
use crate::load::LoadSpec;
use crate::signal::{Signal, SignalSpec};

pub use ban::{Ban, Change, Evidence};
pub use capacity::{Capacity, Load};
pub use probe::ProbeFacts;
pub(crate) use probe::Probes;
pub(crate) use role::ByRole;
pub use role::Role;

/// A peer's identity: `host:port`, IPv6 hosts in brackets. Two entries of one route with the same
/// key are one engine and share their in-flight count and their ban.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PeerKey(Arc<str>);

impl PeerKey {
    /// Wraps a `host:port` text that the caller has validated.
    pub fn new(host_port: impl Into<Arc<str>>) -> Self {
        Self(host_port.into())
    }

    /// The `host:port` text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PeerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How many requests a peer runs at once. At least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Slots(pub u32);

/// A preference between equally loaded peers, not a share of traffic. Finite and above 0.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Weight(f64);

impl Weight {
    /// `None` unless the number is finite and above 0.
    pub fn new(weight: f64) -> Option<Self> {
        (weight.is_finite() && weight > 0.0).then_some(Self(weight))
    }

    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl Default for Weight {
    fn default() -> Self {
        Self(1.0)
    }
}

impl Ord for Weight {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Weight {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Weight {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Weight {}

/// One peer of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerSpec {
    /// `host:port`.
    pub key: PeerKey,
    /// The operator's name for the peer; defaults to the key.
    pub name: Arc<str>,
    /// Larger numbers are preferred; peers of one number form a tier.
    pub priority: i64,
    /// `max_concurrency`.
    pub slots: Slots,
    /// When false, the peer is known, but never probed and never chosen.
    pub enabled: bool,
    /// Preference on ties.
    pub weight: Weight,
    /// The requests that the peer takes.
    pub role: Role,
    /// The peer keeps the sessions that live on it and gets no new ones.
    pub draining: bool,
    /// `slots` applies only until the engine has reported its own number.
    pub learns_slots: bool,
    /// Normalised URL, without a trailing slash. The tie-break of sticky sessions hashes it.
    pub url: Arc<str>,
}

/// The peers of one model, in file order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSpec {
    /// The `peers_by_model` key; `None` for the flat pool of a route.
    pub model: Option<Arc<str>>,
    /// File order; the order is part of the placement contract of `hash: crc32`.
    pub peers: Vec<PeerSpec>,
}

/// Behaviour when the pool's in-flight has reached its limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FullPolicy {
    /// Refuse with `full_status`.
    #[default]
    Reject,
    /// Wait for a slot, first come, first served, at most `wait_timeout`; then send all the same.
    Wait,
    /// Send although full; the engine queues.
    Overflow,
}

/// The parts of a route's configuration that its [`Book`](crate::book::Book) needs to decide.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteSpec {
    /// One pool without a model, or one per `peers_by_model` key, in file order.
    pub pools: Vec<PoolSpec>,
    /// How sessions are placed.
    pub affinity: Affinity,
    /// How all other requests are spread.
    pub balance: Balance,
    /// Behaviour of a full pool.
    pub full_policy: FullPolicy,
    /// Multiplies the pool limit and the peers' own maxima. Finite, above 0.
    pub rt_limit_factor: f64,
    /// Whether retries may go to a lower tier.
    pub cross_tier_fallback: bool,
    /// How long a ban lasts without renewal.
    pub ban_ttl: Duration,
    /// When failing or hanging peers lose their requests.
    pub health: HealthSpec,
    /// Reasons to refuse besides a full pool.
    pub guard: GuardSpec,
    /// How the engines' own load counts. `None`: engines are not polled, and load is in-flight.
    pub load: Option<LoadSpec>,
    /// How `least_busy` and `idle_aware` compare loads.
    pub normalize: Normalize,
    /// How sessions and prefixes are remembered.
    pub memory: MemorySpec,
}

/// What a pool remembers, and for how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemorySpec {
    /// A session that is idle for this long is forgotten.
    pub session_ttl: Duration,
    /// Maximum number of sessions in one pool.
    pub sessions_max: u32,
    /// Whether requests without a session are placed by their longest known prefix.
    pub prefixes: bool,
    /// Load bound for placing a new session: a peer must not hold more than this many times its
    /// share of the pool's load. At least 1; `None` = no bound.
    pub load_factor_max: Option<f64>,
}

impl Default for MemorySpec {
    fn default() -> Self {
        Self {
            session_ttl: Duration::from_secs(7200),
            sessions_max: 262_144,
            prefixes: false,
            load_factor_max: None,
        }
    }
}

impl RouteSpec {
    /// Whether pools remember the peer of each session.
    pub fn remembers_sessions(&self) -> bool {
        match self.affinity {
            Affinity::Sticky => true,
            Affinity::Hash { .. } => self.memory.load_factor_max.is_some(),
            Affinity::None => false,
        }
    }
}

/// The load gates of a route.
#[derive(Clone, Debug, PartialEq)]
pub struct GuardSpec {
    /// `ttft_*`.
    pub ttft: SignalSpec,
    /// `tps_*`.
    pub tps: SignalSpec,
    /// Present with `adaptive_cc: true`. The configuration has checked that a signal has a
    /// threshold.
    pub adaptive: Option<AdaptiveSpec>,
    /// `session_prio_*`; acts while the switch is on.
    pub priority: PrioritySpec,
    /// `wait_max`: maximum number of waiting requests per pool.
    pub wait_max: u32,
    /// `wait_timeout`.
    pub wait_timeout: Duration,
    /// Time between two slots of the five-minute average.
    pub cluster_avg_interval: Duration,
}

impl GuardSpec {
    /// The options of one signal.
    pub fn signal(&self, signal: Signal) -> &SignalSpec {
        match signal {
            Signal::Ttft => &self.ttft,
            Signal::Tps => &self.tps,
        }
    }
}

impl Default for GuardSpec {
    fn default() -> Self {
        Self {
            ttft: SignalSpec::default(),
            tps: SignalSpec::default(),
            adaptive: None,
            priority: PrioritySpec::default(),
            wait_max: 1024,
            wait_timeout: Duration::from_secs(10),
            cluster_avg_interval: Duration::from_secs(30),
        }
    }
}
