//! What the owners of keys use: `GET /_owners`.

use serde::{Deserialize, Serialize};

/// `GET /_owners`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owners {
    /// Whether any owner is limited; nothing is counted otherwise.
    pub limited: bool,
    /// Owners that sent a request or have an entry of their own, by name.
    pub owners: Vec<Owner>,
}

/// One owner of [`Owners`], over all routes.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The owner's name.
    pub owner: String,
    /// Requests that run or wait.
    pub in_flight: u32,
    /// The most that may; absent without a limit.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub max_concurrency: Option<u32>,
    /// Requests that may begin in a minute; absent without a limit.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub requests_per_minute: Option<u32>,
    /// Requests refused for too many at once, since the start.
    pub refused_concurrency: u64,
    /// Requests refused for coming too fast, since the start.
    pub refused_rate: u64,
}
