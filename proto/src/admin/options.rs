//! Every option in force: `_route_opts`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// `GET /<route>/_route_opts`: every option of the route in force.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RouteOpts {
    /// The route.
    pub route: String,
    /// Options for operators, in the order of the reference.
    pub options: Vec<RouteOption>,
    /// Engine internals, in the same order. They can be set, but rarely need to be.
    #[serde(default)]
    pub advanced: Vec<RouteOption>,
    /// The bounds of the adaptive limit of each pool, even if it is switched off.
    #[serde(default)]
    pub adaptive_bounds: Vec<AdaptiveBounds>,
}

/// The bounds of the adaptive limit of one pool. Bans do not affect them.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdaptiveBounds {
    /// The pool's model; absent on a flat route.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub model: Option<String>,
    /// The largest sum of `max_concurrency` over the enabled peers of one tier.
    pub max: u64,
    /// The floor.
    pub min: u64,
    /// Start point of a fresh limit.
    pub init: u64,
}

/// One option of [`RouteOpts`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RouteOption {
    /// The spelling in the file.
    pub key: String,
    /// A label for people.
    pub label: String,
    /// The heading in listings.
    pub group: String,
    /// The allowed values.
    pub kind: String,
    /// The built-in default as written in a file. For keys without a default, the value that
    /// applies instead.
    pub default: String,
    /// Its meaning, one or two sentences of Markdown.
    pub description: String,
    /// The value in force: durations and sizes as written in a file, other values as JSON.
    pub value: Value,
    /// The layer that sets it: `runtime`, `route`, `global`, `default` or `default (invalid)`.
    pub source: String,
}
