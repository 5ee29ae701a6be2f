//! What would become of a request, and what became of the last ones: `_route_debug`,
//! `_route_inspect` and `_decisions`.

use serde::{Deserialize, Serialize};

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
