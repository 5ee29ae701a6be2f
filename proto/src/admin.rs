//! What the router's admin port, `llmctl` and the console say to each other, as JSON.
//!
//! Names are stable. Absent values are left out, lists may be empty, and readers must accept keys
//! they do not know. Where an answer carries a decision (`explanation`, `decisions`) its type is a
//! parameter: the router's core defines it, and this crate knows nothing of the router.

mod gates;
mod limits;
mod load;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use gates::{
    AdaptiveStatus, ClusterAvg, FLAT_POOL, IgnoredOverride, MetricItem, PoolAvg, PoolSignal,
    RateLimitStatus, Reasons, RefusalReset, RefusalStatus, SessionBucket, SessionStatus, Shadowed,
    SignalStatus, TpsStatus, Trips, TtftStatus,
};
pub use limits::{LimitScope, TpsLimit, TtftLimit};
pub use load::{
    AllSessions, Backend, Backends, FinishedSession, PoolSessions, RouteLoad, SessionHome, Sessions,
};

/// The body of every error: OpenAI's shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorDetail,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorDetail {
    /// For people.
    pub message: String,
    /// A class: `invalid_request_error`, `authentication_error`, `permission_error`,
    /// `not_found_error`, `server_error`.
    #[serde(rename = "type")]
    pub kind: String,
    /// For programs.
    pub code: String,
    /// Always null; clients of the shape expect the key.
    pub param: Option<String>,
}

/// `GET /readyz`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readiness {
    /// `ready`, `unready` (no route has a usable peer) or `draining`. 200 only for the first, else 503.
    pub status: String,
    /// Routes with at least one usable peer.
    pub usable_routes: usize,
    /// Routes there are, invalid ones included.
    pub routes: usize,
}

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
    /// How much of that an operator holds back, see [`ActiveConnsSet`].
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

/// The shared key file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keys {
    /// Its path.
    pub file: String,
    /// What the last read found: `ok`, `missing`, `unreadable` or `empty`.
    pub status: String,
    /// Why, when it was unreadable.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub detail: Option<String>,
    /// `keys`: holders of a key pass; `open`: everyone does; `closed`: nobody.
    pub in_force: KeysInForce,
    /// How many keys are in force. A set that was loaded stays in force when the file goes bad.
    pub count: usize,
    /// Entries of the file that were skipped, or are there twice; by line, never by text.
    pub problems: Vec<KeyProblem>,
}

/// Who passes where the shared keys decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeysInForce {
    /// Holders of a key.
    Keys,
    /// Everyone.
    Open,
    /// Nobody.
    Closed,
}

/// `GET /_keys`: the shared key file. `?fingerprint=<hex>` asks whether the keys in force are those of
/// this fingerprint, the SHA-256 over the lines `<sha256 of the key, hex>:<owner>\n` in ascending order.
/// The router never says its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeysAnswer {
    /// As in [`Routes::keys`].
    #[serde(flatten)]
    pub keys: Keys,
    /// Whether the fingerprint is that of the keys in force; absent unless asked.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub matches: Option<bool>,
}

/// An entry of the key file that was not taken as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyProblem {
    /// 1-based.
    pub line: usize,
    /// What is wrong with it.
    pub message: String,
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

/// `POST /_reload`: 200, or 422 when a file was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reload {
    /// Whether every file on disk is in force now.
    pub ok: bool,
    /// Names of the routes in force, ascending.
    pub routes: Vec<String>,
    /// Why files were refused. Valid files are in force all the same.
    pub errors: Vec<Problem>,
    /// What was accepted with a remark.
    pub warnings: Vec<Problem>,
}

/// `POST /_drain`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    /// Always true: readiness is off and the process will end.
    pub draining: bool,
}

/// `GET /<route>/_health_status`: peers by `host:port`, and `_meta`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthStatus {
    /// Every distinct peer.
    #[serde(flatten)]
    pub peers: BTreeMap<String, PeerHealth>,
    /// About the route's keys.
    #[serde(rename = "_meta")]
    pub meta: HealthMeta,
}

/// One peer of [`HealthStatus`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerHealth {
    /// Requests on it.
    pub active: u32,
    /// Whether it is banned now.
    pub banned: bool,
}

/// About a route's keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthMeta {
    /// Whether the shared file's keys are in force.
    pub api_keys_configured: bool,
    /// Whether this route asks for a key.
    pub route_auth_enabled: bool,
    /// `ok`, `missing`, `unreadable` or `empty`.
    pub key_file_status: String,
}

/// The 503 of a route without peers, on `_health_status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoPeers {
    /// `no_healthy_peer`.
    pub error: ErrorDetail,
    /// About the route's keys.
    #[serde(rename = "_meta")]
    pub meta: HealthMeta,
}

/// `GET /<route>/_active_conns`: requests in flight by `host:port`.
pub type ActiveConns = BTreeMap<String, u32>;

/// `POST /<route>/_active_conns_set`: `?peer=&value=` holds units of a peer back until so many are in
/// flight on it, `?peer=&delete=1` gives them back, `?flush=1` those of every peer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActiveConnsSet {
    /// Always true.
    pub ok: bool,
    /// The route.
    pub route: String,
    /// `set`, `delete` or `flush_all`.
    pub action: String,
    /// The peer's `host:port`; absent for all of them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peer: Option<String>,
    /// In flight on it before; of `set` alone.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub before: Option<u32>,
    /// In flight on it now; of `set` alone.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub value: Option<u32>,
    /// How many units were held back until now; of `delete` and `flush_all`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub given_back: Option<u32>,
}

/// `GET /<route>/_route_state`. On a by-model route the numbers are those of the pool of `?model=`,
/// else of the first; [`RouteState::pools`] has them all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RouteState {
    /// The route.
    pub route: String,
    /// The pool these numbers are of; absent on a flat route.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub model: Option<String>,
    /// Priority of the active tier; 0 when every peer is banned (`healthy_peers_in_level` is 0 then).
    pub active_level: i64,
    /// Sum of `max_concurrency` over the active tier's unbanned peers: what admission compares with,
    /// before `rt_limit_factor`.
    pub limit: u64,
    /// Requests on the same peers.
    pub in_flight: u64,
    /// How many they are.
    pub healthy_peers_in_level: u32,
    /// The largest sum of `max_concurrency` over any tier's unbanned peers. Shown, never enforced.
    pub largest_tier_limit: u64,
    /// Multiplies the limit and the peers' own maxima.
    pub rt_limit_factor: f64,
    /// Tiers by priority.
    pub by_priority: BTreeMap<String, Tier>,
    /// Every pool's room.
    pub pools: Vec<PoolState>,
}

/// One tier of a pool; the sums count unbanned peers only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tier {
    /// Its priority.
    pub priority: i64,
    /// Unbanned peers.
    pub healthy: u32,
    /// Banned peers.
    pub banned: u32,
    /// Requests on the unbanned.
    pub active: u64,
    /// Sum of their `max_concurrency`.
    pub max: u64,
    /// File order.
    pub peers: Vec<TierPeer>,
}

/// One peer of a [`Tier`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierPeer {
    /// The operator's name for it.
    pub name: String,
    /// `host:port`.
    pub peer: String,
    /// Whether it is banned now.
    pub banned: bool,
    /// False: never probed, never chosen, in no sum.
    pub enabled: bool,
    /// Requests on it.
    pub active: u32,
    /// `max_concurrency`.
    pub max: u32,
}

/// A pool's room.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolState {
    /// The `peers_by_model` key; absent on a flat route.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub model: Option<String>,
    /// As in [`RouteState`].
    pub active_level: i64,
    /// As in [`RouteState`].
    pub limit: u64,
    /// As in [`RouteState`].
    pub in_flight: u64,
    /// As in [`RouteState`].
    pub healthy_peers_in_level: u32,
    /// As in [`RouteState`].
    pub largest_tier_limit: u64,
}

/// `GET /<route>/_route_opts`: every option of the route as it is in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RouteOpts {
    /// The route.
    pub route: String,
    /// What an operator tunes, in the order of the reference.
    pub options: Vec<RouteOption>,
    /// Engine internals, in the same order: they can be set, and hardly ever need to be.
    #[serde(default)]
    pub advanced: Vec<RouteOption>,
    /// What the adaptive limit of each pool moves between, switched on or not.
    #[serde(default)]
    pub adaptive_bounds: Vec<AdaptiveBounds>,
}

/// What the adaptive limit of one pool moves between; bans do not matter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdaptiveBounds {
    /// The pool's model; absent on a flat route.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub model: Option<String>,
    /// The largest sum of `max_concurrency` that the enabled peers of one tier have.
    pub max: u64,
    /// The floor.
    pub min: u64,
    /// Where a fresh limit starts.
    pub init: u64,
}

/// One option of [`RouteOpts`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RouteOption {
    /// As written in the file.
    pub key: String,
    /// For people.
    pub label: String,
    /// The heading it stands under.
    pub group: String,
    /// What is allowed.
    pub kind: String,
    /// The built-in default as it would be written; for keys without one, what holds instead.
    pub default: String,
    /// Its meaning, one or two sentences of Markdown.
    pub description: String,
    /// The value in force: durations and sizes as they are written, the rest as JSON.
    pub value: Value,
    /// Where it comes from: `runtime`, `route`, `global`, `default` or `default (invalid)`.
    pub source: String,
}

/// `GET /<route>/_route_debug?sid=&model=`: where a session lives and where it would go now. `E` is
/// the core's explanation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RouteDebug<E> {
    /// The route.
    pub route: String,
    /// The pool's model; absent on a flat route.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub model: Option<String>,
    /// The session asked about.
    pub session_id: String,
    /// The placement function, or `none`.
    pub algorithm: String,
    /// Name of the peer where the session lives when nobody is banned; absent with `none`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub natural_target: Option<String>,
    /// Its `host:port`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub natural_peer: Option<String>,
    /// The `crc32` value, or its weight.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub natural_hash: Option<u64>,
    /// Whether it is banned now.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub natural_banned: Option<bool>,
    /// Name of the peer that a request would get now; absent when it would be refused.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub actual_pick: Option<String>,
    /// Its `host:port`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub actual_peer: Option<String>,
    /// The home's `crc32` value or weight in this decision.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub actual_hash: Option<u64>,
    /// How the peer would be found.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub actual_mode: Option<String>,
    /// Whether sessions place requests now.
    pub session_affinity_enabled: bool,
    /// Every peer of the pool, file order.
    pub scores: Vec<Score>,
    /// Every fact behind it.
    pub explanation: E,
}

/// One peer of [`RouteDebug`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Score {
    /// Its place in the file, from 0: what `crc32` counts in a route of one tier.
    pub idx: usize,
    /// The operator's name for it.
    pub name: String,
    /// `host:port`.
    pub peer: String,
    /// Its weight for this session, with the rendezvous hashes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hash: Option<u64>,
    /// Whether it is banned now.
    pub banned: bool,
}

/// `_route_debug` and `_route_inspect` for a model that a by-model route does not have: 200.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownModel {
    /// The route.
    pub route: String,
    /// `model_not_supported`.
    pub error: String,
    /// What to do.
    pub hint: String,
    /// The model asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub model: Option<String>,
    /// The models there are.
    pub supported_models: Vec<String>,
}

/// `/<route>/_route_inspect?sid=`: what would become of this request. Nothing is sent or counted; 503
/// when every peer is banned. `E` is the core's explanation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RouteInspect<E> {
    /// The route.
    pub route: String,
    /// The body's model.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub model: Option<String>,
    /// As `X-Routed-Session` would show it.
    pub session_id: String,
    /// As `X-Routed-Source` would; `query.sid` for `?sid=`.
    pub source: String,
    /// How the peer would be found; absent when the request would be refused.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mode: Option<String>,
    /// The home's `crc32` value or weight.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hash: Option<u64>,
    /// The content rule that would refuse it, whatever the rest says.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rule: Option<RuleVerdict>,
    /// Name of the peer; absent when the request would be refused.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pick: Option<String>,
    /// Its `host:port`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peer: Option<String>,
    /// Priority of the active tier; 0 when there is none.
    pub active_level: i64,
    /// A billing header would be taken out of the body.
    #[serde(default)]
    pub cch_stripped: bool,
    /// Every fact behind it.
    pub explanation: E,
}

/// The content rule that stands against a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleVerdict {
    /// The rule's name.
    pub name: String,
    /// What holds.
    pub cond: String,
    /// The status of the refusal.
    pub status: u16,
}

/// `GET /<route>/_decisions?n=` and `GET /_decisions?n=`. `R` is the core's receipt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decisions<R> {
    /// Newest first.
    pub decisions: Vec<R>,
}

/// Where a switch stands, and which layer says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchState {
    /// The value in force.
    pub enabled: bool,
    /// `runtime`, `route`, `global`, `default` or `default (invalid)`.
    pub source: String,
    /// Seconds since it was set on the running router; absent unless the source is `runtime`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub age_s: Option<u64>,
}

/// `GET /<route>/_reject_rules_status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectRulesStatus {
    /// The route.
    pub route: String,
    /// Always true.
    pub ok: bool,
    /// Whether the rules refuse anything now.
    pub enabled: bool,
    /// Where that comes from: `runtime`, `route`, `global`, `default` or `default (invalid)`.
    pub source: String,
    /// The status of rules that have none of their own.
    pub default_status: u16,
    /// How many rules there are.
    pub rule_count: usize,
    /// Where the rules come from; `default (invalid)` when some were dropped.
    pub rules_source: String,
    /// In the order they are tried.
    pub rules: Vec<RejectRule>,
}

/// `GET /<route>/_cch_strip_status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CchStripStatus {
    /// The route.
    pub route: String,
    /// Whether billing headers are taken out now.
    pub enabled: bool,
    /// Where that comes from: `runtime`, `route`, `global`, `default` or `default (invalid)`.
    pub source: String,
    /// What the files say.
    pub default: bool,
    /// Bodies looked at since the start or the last `?reset_counters=1`.
    pub parsed_total: u64,
    /// Bodies that lost a header.
    pub stripped_total: u64,
    /// Their share, from 0 to 1.
    pub strip_ratio: f64,
}

/// `/<route>/_cch_test?path=&full=1`: what the transforms would make of a body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CchTest {
    /// The route.
    pub route: String,
    /// The API path that the body would be for.
    pub path: String,
    /// A billing header would be taken out.
    pub cch_stripped: bool,
    /// The stream would be asked for its usage.
    pub include_usage_injected: bool,
    /// Tool-call ids that would be replaced.
    pub kimi_changes: usize,
    /// System messages that would move.
    pub system_hoisted: usize,
    /// As `X-Routed-Session` would show it.
    pub session_id: String,
    /// As `X-Routed-Source` would.
    pub source: String,
    /// Length of what an engine would get, bytes.
    pub body_len: usize,
    /// MD5 of what an engine would get, lower-case hexadecimal: two bodies compared without showing either.
    pub body_md5: String,
    /// Length of the body as it came, which is what the body log records, bytes.
    pub bodylog_len: usize,
    /// MD5 of the body as it came.
    pub bodylog_md5: String,
    /// An engine would get other bytes than came.
    pub bodylog_differs: bool,
    /// What an engine would get, with `full=1`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub body_after: Option<String>,
}

/// One rule of [`RejectRulesStatus`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectRule {
    /// What it is called; need not be unique.
    pub name: String,
    /// The status of its refusals.
    pub status: u16,
    /// When it refuses.
    pub cond: String,
    /// Refusals by rules of this name since the start or the last `?reset_counters=1`.
    pub hits: u64,
}

/// `GET /<route>/_<switch>_toggle`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Toggle {
    /// The route.
    pub route: String,
    /// The name `llmctl toggle` takes.
    pub switch: String,
    /// The value in force.
    pub enabled: bool,
    /// Where it comes from.
    pub source: String,
    /// What the switch counts since the start or the last `?reset_counters=1`, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub counters: BTreeMap<String, u64>,
}

/// `GET /<route>/_bodylog_toggle`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BodylogToggle {
    /// The switch.
    #[serde(flatten)]
    pub toggle: Toggle,
    /// What it switches.
    #[serde(flatten)]
    pub recording: Recording,
}

/// How much of a route's requests is recorded while its switch `bodylog` is on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    /// Share of requests that is recorded, percent.
    pub sample_pct: f64,
    /// The layer it comes from.
    pub sample_pct_source: String,
    /// `full`, `none` or `truncate(<size>)`.
    pub bodies: String,
    /// The layer it comes from.
    pub bodies_source: String,
    /// Seconds since either was last changed on the running router; absent unless one comes from
    /// there.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub age_s: Option<u64>,
}

/// `POST /<route>/_bodylog_toggle`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BodylogToggled {
    /// The switch.
    #[serde(flatten)]
    pub toggled: Toggled,
    /// Share of requests that is recorded, percent.
    pub sample_pct: Changed<f64>,
    /// `full`, `none` or `truncate(<size>)`.
    pub bodies: Changed<String>,
}

/// A value before and after a change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Changed<T> {
    /// What was in force.
    pub before: T,
    /// What is.
    pub after: T,
    /// The layer that says so.
    pub source: String,
}

/// `GET /<route>/_bodylog_status`. Counts since the start of the process; those of `write_count`,
/// `drop_count` and `last_log_ts` are the route's, the others all routes' together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BodylogStatus {
    /// The route.
    pub route: String,
    /// Whether a listener is configured; nothing is recorded without.
    pub listener_configured: bool,
    /// Whether the route's exchanges are recorded.
    pub enabled: bool,
    /// Share of requests that is recorded, percent.
    pub sample_pct: f64,
    /// `full`, `none` or `truncate(<size>)`.
    pub bodies: String,
    /// Whether the listener is connected.
    pub connected: bool,
    /// Records of the route that were queued for delivery.
    pub write_count: u64,
    /// Records of the route that were lost before that.
    pub drop_count: u64,
    /// When the last request that was queued began, Unix seconds.
    pub last_log_ts: Option<f64>,
    /// Bytes on disk that wait for the listener.
    pub spool_bytes: u64,
    /// Age of the oldest of them, seconds.
    pub spool_oldest_s: f64,
    /// Why there is no spool though one is configured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub spool_error: Option<String>,
    /// Records of this run queued and not acknowledged.
    pub unacked: u64,
    /// Bytes that records hold in memory.
    pub inflight_bytes: u64,
    /// Records queued.
    pub queued_total: u64,
    /// Records that the listener has stored.
    pub acked_total: u64,
    /// Records lost, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Records queued without bodies or headers for want of room.
    pub shed_total: u64,
    /// The time of this answer, Unix seconds.
    pub now: f64,
}

/// `POST /<route>/_<switch>_toggle`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Toggled {
    /// The route.
    pub route: String,
    /// The name `llmctl toggle` takes.
    pub switch: String,
    /// The value in force before.
    pub before: bool,
    /// Where that came from.
    pub source_before: String,
    /// The value in force now.
    pub after: bool,
    /// The same, under the name `GET` uses.
    pub enabled: bool,
    /// Where it comes from now.
    pub source: String,
    /// Whether the switch's counters were zeroed.
    #[serde(default)]
    pub counters_reset: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_status_reads_back_with_meta_apart_from_peers() {
        let text = r#"{"10.1.4.21:8000":{"active":7,"banned":false},"_meta":{"api_keys_configured":true,"route_auth_enabled":true,"key_file_status":"ok"}}"#;
        let status: HealthStatus = serde_json::from_str(text).unwrap();
        assert_eq!(status.peers.len(), 1);
        assert_eq!(serde_json::to_string(&status).unwrap(), text);
    }

    #[test]
    fn unknown_keys_are_accepted() {
        let text = r#"{"enabled":true,"source":"route","since":"later"}"#;
        assert!(serde_json::from_str::<SwitchState>(text).is_ok());
    }
}
