//! The members of a router's status that become metrics. Members that are missing or null are left
//! out, never taken for zero: routers of other versions answer with fewer or more.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::aggregate::RefusalReading;
use crate::aggregate::labels::clean;

/// Most routes taken from one router.
const ROUTES_MAX: usize = 512;

/// Most peers shown for one route.
const PEERS_MAX: usize = 512;

/// Most models, pools or reasons shown for one route.
const ENTRIES_MAX: usize = 128;

/// `_route_state`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct RouteState {
    /// Priority of the tier in use.
    #[serde(default)]
    pub active_level: Option<f64>,
    /// Its room.
    #[serde(default)]
    pub limit: Option<f64>,
    /// Its usable peers.
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

/// A pool of a by-model route, with tiers of its own.
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
    /// Its name.
    pub name: String,
    /// Its tier.
    pub priority: String,
    /// Requests on it.
    pub active: Option<f64>,
    /// 1 when banned.
    pub banned: Option<f64>,
    /// Its own limit.
    pub max: Option<f64>,
}

impl RouteState {
    /// That of a route that has no peers.
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
    /// The switch as it is in force.
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
    /// Their floors.
    #[serde(default, deserialize_with = "numbers")]
    pub adaptive_cc_min: Numbers,
    /// Their ceilings.
    #[serde(default, deserialize_with = "numbers")]
    pub adaptive_cc_max: Numbers,
    /// Requests in flight as the next tick reads them.
    #[serde(default, deserialize_with = "numbers")]
    pub adaptive_cc_conc: Numbers,
    /// Refusals that no tick has used yet.
    #[serde(default, deserialize_with = "numbers")]
    pub adaptive_cc_rej: Numbers,
}

/// Numbers by model; `_` for an undivided route.
type Numbers = BTreeMap<String, f64>;

/// Keeps the numbers of a map; a null is left out, and an empty Lua table, which is an empty list in
/// JSON, is an empty map.
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
    /// `invalid` routes have no status to ask for.
    #[serde(default)]
    status: String,
}

impl RouteList {
    /// The names that can be asked about: they become part of a path.
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
