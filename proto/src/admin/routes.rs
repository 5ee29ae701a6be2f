//! All routes at once: `GET /_routes`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Keys, PoolSignal, ProcessPhase, Reasons, Recording, SwitchState, Trips};

/// `GET /_routes`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Routes {
    /// Routes by name, ascending.
    pub routes: Vec<Route>,
    /// The shared keys.
    pub keys: Keys,
    /// The result of the last load of the configuration.
    pub config: Config,
    /// The phase of the process.
    pub phase: ProcessPhase,
    /// The router's version.
    pub version: String,
}

/// One route of [`Routes`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Route {
    /// Name of the route.
    pub name: String,
    /// Path of its file.
    pub path: String,
    /// `ok`; `stale`: the file on disk is invalid and its last valid version is in force;
    /// `invalid`: there is no valid version and the route answers 503.
    pub status: RouteStatus,
    /// The problems of the file on disk; empty when the status is `ok`.
    pub errors: Vec<Problem>,
    /// One pool without a model, or one per `peers_by_model` key. Empty for an invalid route.
    pub pools: Vec<Pool>,
    /// Equal on routers where the route has the same peers in the same order, the same options and
    /// the same own keys. Absent for an invalid route. Credentials of peers are left out.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fingerprint: Option<String>,
    /// Prompt tokens that came from caches; absent without answered prompts.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hits: Option<CacheHits>,
    /// Where more peers come from; absent without `peers_from`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peers_from: Option<PeerSource>,
    /// The keys that the route accepts: `shared` keys, its `own`, or none (`open`).
    pub auth: Auth,
    /// The route's switches, by their names in `llmctl toggle`.
    pub switches: BTreeMap<String, SwitchState>,
    /// How much is recorded while the switch `bodylog` is on; absent for an invalid route.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub recording: Option<Recording>,
    /// Refused requests since the start or the last reset, by reason.
    #[serde(default)]
    pub refused: Reasons,
    /// Requests that tripped a load gate while the master switch was off.
    #[serde(default)]
    pub trips: Trips,
}

/// The source of a route's peers (`peers_from`).
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerSource {
    /// What it is, in words.
    pub source: String,
    /// Number of peers that it gave last.
    pub peers: usize,
    /// Seconds since it gave them; absent before it first did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub age_s: Option<u64>,
    /// Why it fails; absent while it answers.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
    /// Seconds since it began to fail.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failing_s: Option<u64>,
}

/// Whether a route's file is in force.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteStatus {
    /// The file on disk is in force.
    Ok,
    /// The file on disk is in force, except for the values that `errors` names.
    Partly,
    /// The file on disk is invalid; its last valid version is in force.
    Stale,
    /// The file on disk is invalid and nothing is in force.
    Invalid,
}

/// The keys that a route accepts.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Auth {
    /// The keys of the shared file.
    Shared,
    /// The route's own keys.
    Own,
    /// No key is required.
    Open,
}

/// One problem of one file.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Path as the router opened it.
    pub file: String,
    /// 1-based; 1 when the problem concerns the whole file.
    pub line: usize,
    /// 1-based, in characters.
    pub column: usize,
    /// Key path, what was found, and what is allowed.
    pub message: String,
    /// `error` or `warning`.
    pub severity: String,
    /// The code of a warning; absent for errors and from older routers.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub code: Option<String>,
}

/// The peers of one model, and their room.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pool {
    /// The `peers_by_model` key; absent on a flat route.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub model: Option<String>,
    /// Sum of `max_concurrency` over the active tier's unbanned peers.
    pub limit: u64,
    /// Requests on these peers.
    pub in_flight: u64,
    /// Number of these peers.
    pub healthy_peers: u32,
    /// The adaptive limit, never above `limit`; absent while no adaptive limit acts.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub adaptive_limit: Option<f64>,
    /// Requests that wait for a slot.
    #[serde(default)]
    pub waiting: u32,
    /// Time to first token; absent without a threshold to compare with.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ttft: Option<PoolSignal>,
    /// Decode rate; absent without a threshold to compare with.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tps: Option<PoolSignal>,
    /// Peers in file order.
    pub peers: Vec<Peer>,
}

/// One peer of a [`Pool`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Peer {
    /// `host:port`.
    pub peer: String,
    /// The operator's name for the peer.
    pub name: String,
    /// Priority of the peer's tier.
    pub priority: i64,
    /// `max_concurrency`.
    pub max: u32,
    /// Requests on the peer, including held-back units.
    pub in_flight: u32,
    /// Number of units that an operator holds back, see [`ActiveConnsSet`](super::ActiveConnsSet).
    #[serde(skip_serializing_if = "is_none_held", default)]
    pub held_back: u32,
    /// When false, the peer is never probed and never chosen.
    pub enabled: bool,
    /// The peer keeps the sessions that live there and gets nothing else.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub draining: bool,
    /// Whether the peer is banned now.
    pub banned: bool,
    /// Seconds until the ban expires.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ban_left_s: Option<u64>,
    /// What the router thinks of it, beside a ban.
    #[serde(skip_serializing_if = "PeerState::is_healthy", default)]
    pub state: PeerState,
    /// Seconds since it entered the state; absent while it is healthy.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub state_s: Option<u64>,
    /// Why it is in that state, in words; absent while it is healthy.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub why: Option<String>,
    /// Prompt tokens that came from the peer's cache; absent without answered prompts.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hits: Option<CacheHits>,
    /// The `gpu` label.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gpu: Option<String>,
}

/// How much of the prompts came from prefix caches, over the last minutes. A prompt is always the
/// whole prompt, the cached part included.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheHits {
    /// The last minute.
    pub last_1m: PromptTokens,
    /// The last five minutes.
    pub last_5m: PromptTokens,
    /// Of the last five minutes, the requests that were the first of their session. Only for
    /// routes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub first_5m: Option<PromptTokens>,
    /// Of the last five minutes, the later requests of their session. Only for routes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub again_5m: Option<PromptTokens>,
}

/// Tokens of prompts.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptTokens {
    /// Number of prompts.
    pub prompts: u64,
    /// Their tokens.
    pub tokens: u64,
    /// Those of the tokens that came from a cache.
    pub cached: u64,
}

impl PromptTokens {
    /// The hit rate in percent, rounded down; `None` without tokens.
    pub fn percent(&self) -> Option<u64> {
        self.cached.saturating_mul(100).checked_div(self.tokens)
    }
}

/// What the router thinks of a peer.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerState {
    /// It takes every request.
    #[default]
    Healthy,
    /// It gives no first byte: no new sessions.
    Suspect,
    /// Its answers failed: no requests.
    Ejected,
    /// One request at a time decides whether it returns.
    Probing,
    /// Its slots ramp up.
    Returning,
    /// Its load page is silent while it lives: it counts as full.
    Held,
    /// Its load is not known: no requests.
    Stale,
    /// Its probes get no answer: it takes requests all the same.
    Busy,
    /// A state that a newer router knows.
    #[serde(other)]
    Unknown,
}

impl PeerState {
    /// Whether the peer takes every request.
    pub fn is_healthy(&self) -> bool {
        *self == Self::Healthy
    }

    /// Whether the peer takes no requests.
    pub fn is_out(self) -> bool {
        matches!(self, Self::Ejected | Self::Probing | Self::Stale)
    }

    /// As it is written in JSON and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Suspect => "suspect",
            Self::Ejected => "ejected",
            Self::Probing => "probing",
            Self::Returning => "returning",
            Self::Held => "held",
            Self::Stale => "stale",
            Self::Busy => "busy",
            Self::Unknown => "unknown",
        }
    }
}

fn is_none_held(held_back: &u32) -> bool {
    *held_back == 0
}

/// The result of the last load of the configuration.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// Whether every file was valid.
    pub last_reload_success: bool,
    /// When every file was last valid, milliseconds since the Unix epoch; absent if never.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_success_unix_ms: Option<u64>,
    /// Problems outside of route files: in the main file, or with the directory of routes.
    #[serde(default)]
    pub errors: Vec<Problem>,
}
