//! The decision that a request would get, and the decisions of the last requests: `_route_debug`,
//! `_route_inspect` and `_decisions`.

use serde::{Deserialize, Serialize};

/// `GET /<route>/_route_debug?sid=&model=`: the home peer of a session and the peer that it would
/// get now. `E` is the core's explanation.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RouteDebug<E> {
    /// The route.
    pub route: String,
    /// The pool's model; absent on a flat route.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub model: Option<String>,
    /// The session of the query.
    pub session_id: String,
    /// The placement function, or `none`.
    pub algorithm: String,
    /// Name of the session's home peer when no peer is banned; absent with `none`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub natural_target: Option<String>,
    /// `host:port` of this peer.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub natural_peer: Option<String>,
    /// The `crc32` value, or the peer's weight.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub natural_hash: Option<u64>,
    /// Whether this peer is banned now.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub natural_banned: Option<bool>,
    /// Name of the peer that a request would get now; absent when the request would be refused.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub actual_pick: Option<String>,
    /// `host:port` of this peer.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub actual_peer: Option<String>,
    /// The `crc32` value or weight of the home peer in this decision.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub actual_hash: Option<u64>,
    /// How the peer would be found.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub actual_mode: Option<String>,
    /// Whether sessions affect placement now.
    pub session_affinity_enabled: bool,
    /// Every peer of the pool, file order.
    pub scores: Vec<Score>,
    /// Every fact behind the decision.
    pub explanation: E,
}

/// One peer of [`RouteDebug`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Score {
    /// Position in the file, from 0: the number that `crc32` counts in a route of one tier.
    pub idx: usize,
    /// The operator's name for the peer.
    pub name: String,
    /// `host:port`.
    pub peer: String,
    /// The peer's weight for this session, with the rendezvous hashes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hash: Option<u64>,
    /// Whether the peer is banned now.
    pub banned: bool,
}

/// Answer of `_route_debug` and `_route_inspect` for a model that a by-model route does not have,
/// with status 200.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownModel {
    /// The route.
    pub route: String,
    /// `model_not_supported`.
    pub error: String,
    /// How to fix the request.
    pub hint: String,
    /// The requested model.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub model: Option<String>,
    /// The models of the route.
    pub supported_models: Vec<String>,
}

/// `/<route>/_route_inspect?sid=`: the decision that this request would get. Nothing is sent or
/// counted; 503 when every peer is banned. `E` is the core's explanation.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RouteInspect<E> {
    /// The route.
    pub route: String,
    /// The body's model.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub model: Option<String>,
    /// The session as `X-Routed-Session` would show it.
    pub session_id: String,
    /// The source as `X-Routed-Source` would show it; `query.sid` for `?sid=`.
    pub source: String,
    /// How the peer would be found; absent when the request would be refused.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mode: Option<String>,
    /// The `crc32` value or weight of the home peer.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hash: Option<u64>,
    /// The content rule that would refuse the request, regardless of the other fields.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rule: Option<RuleVerdict>,
    /// Name of the peer; absent when the request would be refused.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pick: Option<String>,
    /// `host:port` of this peer.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peer: Option<String>,
    /// Priority of the active tier; 0 when there is none.
    pub active_level: i64,
    /// Whether a billing header would be removed from the body.
    #[serde(default)]
    pub cch_stripped: bool,
    /// Every fact behind the decision.
    pub explanation: E,
}

/// The content rule that would refuse a request.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleVerdict {
    /// The rule's name.
    pub name: String,
    /// The condition that holds.
    pub cond: String,
    /// The status of the refusal.
    pub status: u16,
}

/// `GET /<route>/_decisions?n=` and `GET /_decisions?n=`. `R` is the core's receipt.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decisions<R> {
    /// Newest first.
    pub decisions: Vec<R>,
}
