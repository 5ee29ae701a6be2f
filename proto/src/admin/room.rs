//! Tiers and how much room they have: `_route_state`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

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
