//! Every option as it is in force: `_route_opts`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

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
