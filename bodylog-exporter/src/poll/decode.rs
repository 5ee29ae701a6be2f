//! The members of a router's status that become metrics. Missing or null members are left out, not
//! taken for zero: other versions of routers answer with fewer or more.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::aggregate::RefusalReading;
use crate::aggregate::labels::clean;

/// Maximum number of routes per router.
const ROUTES_MAX: usize = 512;

/// Maximum number of peers shown per route.
const PEERS_MAX: usize = 512;

/// Maximum number of models, pools or reasons shown per route.
const ENTRIES_MAX: usize = 128;

/// `_route_state`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct RouteState {
    /// Priority of the active tier.
    #[serde(default)]
    pub active_level: Option<f64>,
    /// Slots of the active tier.
    #[serde(default)]
    pub limit: Option<f64>,
    /// Usable peers of the active tier.
    #[serde(default)]
    pub healthy_peers_in_level: Option<f64>,
    #[serde(default)]
    by_priority: BTreeMap<String, Tier>,
    #[serde(default)]
    pools: Vec<PoolPeers>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
struct Tier {
    #[serde(default)]
    peers: Vec<Peer>,
}

/// A pool of a by-model route, with its own tiers.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
struct PoolPeers {
    #[serde(default)]
    by_priority: BTreeMap<String, Tier>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
struct Peer {
    #[serde(default)]
    name: String,
    #[serde(default)]
    peer: String,
    #[serde(default)]
    banned: Option<bool>,
    #[serde(default)]
    active: Option<f64>,
    #[serde(default)]
    max: Option<f64>,
}

/// One peer, for display.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerState {
    /// `host:port`.
    pub peer: String,
    /// The peer's name.
    pub name: String,
    /// The peer's tier.
    pub priority: String,
    /// Requests on the peer.
    pub active: Option<f64>,
    /// 1 if the peer is banned.
    pub banned: Option<f64>,
    /// The peer's own limit.
    pub max: Option<f64>,
}

impl RouteState {
    /// The state of a route without peers.
    pub(super) fn without_peers() -> Self {
        Self {
            limit: Some(0.0),
            healthy_peers_in_level: Some(0.0),
            ..Self::default()
        }
    }

    /// Every distinct peer, by tier, address and name.
    pub fn peers(&self) -> Vec<PeerState> {
        let tiers = self
            .by_priority
            .iter()
            .chain(self.pools.iter().flat_map(|pool| &pool.by_priority));
        let mut peers: BTreeMap<(String, String, String), PeerState> = BTreeMap::new();
        for (priority, tier) in tiers {
            for peer in &tier.peers {
                let state = PeerState {
                    peer: clean(&peer.peer).into_owned(),
                    name: clean(&peer.name).into_owned(),
                    priority: clean(priority).into_owned(),
                    active: peer.active,
                    banned: peer.banned.map(|banned| f64::from(u8::from(banned))),
                    max: peer.max,
                };
                let key = (
                    state.priority.clone(),
                    state.peer.clone(),
                    state.name.clone(),
                );
                if peers.len() < PEERS_MAX {
                    peers.entry(key).or_insert(state);
                }
            }
        }
        peers.into_values().collect()
    }
}

/// `_tps_status` or `_ttft_status`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Limiter {
    /// The value of the switch in force.
    #[serde(default)]
    pub active: Option<bool>,
    /// Output rate, by model.
    #[serde(default, deserialize_with = "numbers")]
    pub ewma_tps: Numbers,
    /// Time to the first token, by model.
    #[serde(default, deserialize_with = "numbers")]
    pub ewma_ms: Numbers,
    /// Adaptive limits, by model.
    #[serde(default, deserialize_with = "numbers")]
    pub adaptive_cc: Numbers,
    /// Lower bounds of the adaptive limits.
    #[serde(default, deserialize_with = "numbers")]
    pub adaptive_cc_min: Numbers,
    /// Upper bounds of the adaptive limits.
    #[serde(default, deserialize_with = "numbers")]
    pub adaptive_cc_max: Numbers,
    /// Requests in flight, as the next tick will see them.
    #[serde(default, deserialize_with = "numbers")]
    pub adaptive_cc_conc: Numbers,
    /// Refusals since the last tick.
    #[serde(default, deserialize_with = "numbers")]
    pub adaptive_cc_rej: Numbers,
}

/// Numbers by model; `_` for an undivided route.
type Numbers = BTreeMap<String, f64>;

/// Keeps the numbers of a map. Nulls are left out. An empty Lua table, which is encoded as an empty
/// JSON list, is an empty map.
fn numbers<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Numbers, D::Error> {
    let value = serde_json::Value::deserialize(from)?;
    let Some(map) = value.as_object() else {
        return Ok(Numbers::new());
    };
    Ok(map
        .iter()
        .filter_map(|(name, value)| Some((clean(name).into_owned(), value.as_f64()?)))
        .take(ENTRIES_MAX)
        .collect())
}

/// `/_routes`.
#[derive(Debug, Deserialize)]
pub(super) struct RouteList {
    routes: Vec<NamedRoute>,
}

#[derive(Debug, Deserialize)]
struct NamedRoute {
    name: String,
    /// `invalid` routes have no status.
    #[serde(default)]
    status: String,
}

impl RouteList {
    /// The names that are safe to become part of a path.
    pub(super) fn names(self) -> Vec<Box<str>> {
        let is_name = |name: &str| {
            !name.is_empty()
                && name.len() <= 128
                && name
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
                && !name.starts_with('.')
        };
        self.routes
            .into_iter()
            .filter(|route| route.status != "invalid" && is_name(&route.name))
            .take(ROUTES_MAX)
            .map(|route| route.name.into())
            .collect()
    }
}

/// `_429_status?all=1`.
#[derive(Debug, Deserialize)]
pub(super) struct RefusalStatus {
    #[serde(default)]
    by_route: BTreeMap<String, BTreeMap<String, serde_json::Value>>,
}

impl RefusalStatus {
    pub(super) fn reading(self) -> RefusalReading {
        let counters = |reasons: BTreeMap<String, serde_json::Value>| {
            reasons
                .into_iter()
                .take(ENTRIES_MAX)
                .filter_map(|(reason, count)| Some((clean(&reason).into(), count.as_u64()?)))
                .collect()
        };
        self.by_route
            .into_iter()
            .take(ROUTES_MAX)
            .map(|(route, reasons)| (clean(&route).into(), counters(reasons)))
            .collect()
    }
}
