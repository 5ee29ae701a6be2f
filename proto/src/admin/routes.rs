//! Every route at once: `GET /_routes`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Keys, PoolSignal, Reasons, Recording, SwitchState, Trips};

/// `GET /_routes`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Routes {
    /// By name, ascending.
    pub routes: Vec<Route>,
    /// The shared keys.
    pub keys: Keys,
    /// How the last load of the configuration went.
    pub config: Config,
    /// `serving`, `leaving`, `draining` or `stopped`.
    pub phase: String,
    /// The router's version.
    pub version: String,
}

/// One route of [`Routes`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Route {
    /// Its name.
    pub name: String,
    /// Its file.
    pub path: String,
    /// `ok`; `stale`: the file on disk is invalid and its last good version is in force; `invalid`:
    /// there is no good version and the route answers 503.
    pub status: RouteStatus,
    /// What is wrong with the file on disk; empty when the status is `ok`.
    pub errors: Vec<Problem>,
    /// One pool without a model, or one per `peers_by_model` key. Empty for an invalid route.
    pub pools: Vec<Pool>,
    /// Who may use it: `shared` keys, its `own`, or `open`.
    pub auth: Auth,
    /// Its switches, by the name `llmctl toggle` takes.
    pub switches: BTreeMap<String, SwitchState>,
    /// What of it is recorded, beside the switch `bodylog`; absent for an invalid route.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub recording: Option<Recording>,
    /// Requests refused since the start or the last reset, by reason.
    #[serde(default)]
    pub refused: Reasons,
    /// Requests that tripped a load gate while the master switch was off.
    #[serde(default)]
    pub trips: Trips,
}

/// Whether a route's file is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteStatus {
    /// The file on disk is in force.
    Ok,
    /// The file on disk is in force but for the values that `errors` names.
    Partly,
    /// The file on disk is invalid; its last good version is in force.
    Stale,
    /// The file on disk is invalid and nothing is in force.
    Invalid,
}

/// Which keys open a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Auth {
    /// The shared file's.
    Shared,
    /// The route's own.
    Own,
    /// None is needed.
    Open,
}

/// One problem of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Path as the router opened it.
    pub file: String,
    /// 1-based; 1 when the whole file is meant.
    pub line: usize,
    /// 1-based, in characters.
    pub column: usize,
    /// Key path, what was found, what is allowed.
    pub message: String,
    /// `error` or `warning`.
    pub severity: String,
    /// What a warning is called; absent for errors and from older routers.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub code: Option<String>,
}

/// The peers of one model, and their room.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pool {
    /// The `peers_by_model` key; absent on a flat route.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub model: Option<String>,
    /// Sum of `max_concurrency` over the active tier's unbanned peers.
    pub limit: u64,
    /// Requests on the same peers.
    pub in_flight: u64,
    /// How many they are.
    pub healthy_peers: u32,
    /// The adaptive limit, never above `limit`; absent while none acts.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub adaptive_limit: Option<f64>,
    /// Requests that wait for a slot.
    #[serde(default)]
    pub waiting: u32,
    /// Time to first token; absent while nothing is compared with it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ttft: Option<PoolSignal>,
    /// Decode rate; absent while nothing is compared with it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tps: Option<PoolSignal>,
    /// File order.
    pub peers: Vec<Peer>,
}

/// One peer of a [`Pool`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Peer {
    /// `host:port`.
    pub peer: String,
    /// The operator's name for it.
    pub name: String,
    /// Its tier.
    pub priority: i64,
    /// `max_concurrency`.
    pub max: u32,
    /// Requests on it, what is held back included.
    pub in_flight: u32,
    /// How much of that an operator holds back, see [`ActiveConnsSet`](super::ActiveConnsSet).
    #[serde(skip_serializing_if = "is_none_held", default)]
    pub held_back: u32,
    /// False: never probed, never chosen.
    pub enabled: bool,
    /// It keeps the sessions that live there and gets nothing else.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub draining: bool,
    /// Whether it is banned now.
    pub banned: bool,
    /// Seconds until the ban ends by itself.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ban_left_s: Option<u64>,
    /// The `gpu` label.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gpu: Option<String>,
}

fn is_none_held(held_back: &u32) -> bool {
    *held_back == 0
}

/// How the last load of the configuration went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// Whether every file was valid.
    pub last_reload_success: bool,
    /// When every file last was, milliseconds since the Unix epoch; absent if never.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_success_unix_ms: Option<u64>,
    /// What is wrong besides the files of routes: the main file, the directory of routes.
    #[serde(default)]
    pub errors: Vec<Problem>,
}
