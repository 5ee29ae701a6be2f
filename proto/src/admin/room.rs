//! Tiers and their room: `_route_state`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `GET /<route>/_route_state`. On a by-model route the numbers belong to the pool of `?model=`,
/// else to the first pool; [`RouteState::pools`] has all pools.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RouteState {
    /// The route.
    pub route: String,
    /// The pool of these numbers; absent on a flat route.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub model: Option<String>,
    /// Priority of the active tier; 0 when every peer is banned (`healthy_peers_in_level` is 0 then).
    pub active_level: i64,
    /// Sum of `max_concurrency` over the active tier's unbanned peers. Admission compares in-flight
    /// with it, before `rt_limit_factor`.
    pub limit: u64,
    /// Requests on these peers.
    pub in_flight: u64,
    /// Number of these peers.
    pub healthy_peers_in_level: u32,
    /// The largest sum of `max_concurrency` over any tier's unbanned peers. Shown, never enforced.
    pub largest_tier_limit: u64,
    /// Multiplies the limit and the peers' own maxima.
    pub rt_limit_factor: f64,
    /// Tiers by priority.
    pub by_priority: BTreeMap<String, Tier>,
    /// The room of every pool.
    pub pools: Vec<PoolState>,
}

/// One tier of a pool; the sums count unbanned peers only.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tier {
    /// Priority of the tier.
    pub priority: i64,
    /// Number of unbanned peers.
    pub healthy: u32,
    /// Number of banned peers.
    pub banned: u32,
    /// Requests on the unbanned peers.
    pub active: u64,
    /// Sum of the unbanned peers' `max_concurrency`.
    pub max: u64,
    /// Peers in file order.
    pub peers: Vec<TierPeer>,
}

/// One peer of a [`Tier`].
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierPeer {
    /// The operator's name for the peer.
    pub name: String,
    /// `host:port`.
    pub peer: String,
    /// Whether the peer is banned now.
    pub banned: bool,
    /// When false, the peer is never probed, never chosen, and in no sum.
    pub enabled: bool,
    /// Requests on the peer.
    pub active: u32,
    /// `max_concurrency`.
    pub max: u32,
}

/// The room of a pool.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolState {
    /// The `peers_by_model` key; absent on a flat route.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub model: Option<String>,
    /// Same as in [`RouteState`].
    pub active_level: i64,
    /// Same as in [`RouteState`].
    pub limit: u64,
    /// Same as in [`RouteState`].
    pub in_flight: u64,
    /// Same as in [`RouteState`].
    pub healthy_peers_in_level: u32,
    /// Same as in [`RouteState`].
    pub largest_tier_limit: u64,
}
