//! The JSON types of the router's admin port, which `llmctl` and the console read.
//!
//! Names are stable. Absent values are left out, lists may be empty, and readers must accept
//! unknown keys. Where an answer carries a decision (`explanation`, `decisions`), its type is a
//! parameter: the router's core defines it, and this crate does not depend on the router.

mod bodylog;
mod error;
mod explain;
mod findings;
mod gates;
mod health;
mod keys;
mod limits;
mod load;
mod options;
mod owners;
mod process;
mod room;
mod routes;
mod rules;
mod targets;
mod toggle;
mod transforms;

pub use bodylog::{BodylogStatus, BodylogToggle, BodylogToggled, Recording};
pub use error::{ErrorBody, ErrorDetail};
pub use explain::{Decisions, RouteDebug, RouteInspect, RuleVerdict, Score, UnknownModel};
pub use findings::{Finding, FindingCode, Findings, Severity};
pub use gates::{
    AdaptiveStatus, ClusterAvg, FLAT_POOL, IgnoredOverride, MetricItem, PoolAvg, PoolSignal,
    RateLimitStatus, Reasons, RefusalReset, RefusalStatus, SessionBucket, SessionStatus, Shadowed,
    SignalStatus, TpsStatus, Trips, TtftStatus,
};
pub use health::{ActiveConns, ActiveConnsSet, HealthMeta, HealthStatus, NoPeers, PeerHealth};
pub use keys::{KeyProblem, Keys, KeysAnswer, KeysInForce};
pub use limits::{LimitScope, TpsLimit, TtftLimit};
pub use load::{
    AllSessions, Backend, Backends, FinishedSession, PoolSessions, RouteLoad, SessionHome, Sessions,
};
pub use options::{AdaptiveBounds, RouteOption, RouteOpts};
pub use owners::{Owner, Owners};
pub use process::{Drain, ProcessPhase, Readiness, ReadyStatus, Reload};
pub use room::{PoolState, RouteState, Tier, TierPeer};
pub use routes::{
    Auth, CacheHits, Config, Peer, PeerSource, PeerState, Pool, Problem, PromptTokens, Route,
    RouteStatus, Routes,
};
pub use rules::{RejectRule, RejectRulesStatus};
pub use targets::TargetGroup;
pub use toggle::{Changed, SwitchState, Toggle, Toggled};
pub use transforms::{CchStripStatus, CchTest};
