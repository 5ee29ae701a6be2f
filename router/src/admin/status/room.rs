//! `_route_state`: the tiers and their free slots.

use std::collections::BTreeMap;

use http::StatusCode;
use proto::admin::{ErrorBody, PoolState, RouteState, Tier, TierPeer};
use router_core::book::PoolId;
use router_core::decision::PeerFacts;

use super::explain::unknown_model;
use super::{has_no_peers, no_peers};
use crate::admin::answer::{self, Answer};
use crate::admin::query::{Params, Refused};
use crate::state::Route;

/// `_route_state`.
pub(super) fn state(route: &Route, params: &Params) -> Result<Answer, Refused> {
    if has_no_peers(route) {
        return Ok(answer::json(
            StatusCode::SERVICE_UNAVAILABLE,
            &ErrorBody { error: no_peers() },
        ));
    }
    let pool = match params.get("model")? {
        Some(model) => match route.pool(Some(model)) {
            Some(pool) => pool,
            None => return Ok(unknown_model(route, Some(model))),
        },
        None => PoolId(0),
    };
    let PoolState {
        model,
        active_level,
        limit,
        in_flight,
        healthy_peers_in_level,
        largest_tier_limit,
    } = pool_state(route, pool);
    let state = RouteState {
        route: route.name.to_string(),
        model,
        active_level,
        limit,
        in_flight,
        healthy_peers_in_level,
        largest_tier_limit,
        rt_limit_factor: route.options.rt_limit_factor.value,
        by_priority: tiers(&route.peer_facts(pool)),
        pools: route
            .pool_ids()
            .map(|pool| pool_state(route, pool))
            .collect(),
    };
    Ok(answer::json(StatusCode::OK, &state))
}

fn pool_state(route: &Route, pool: PoolId) -> PoolState {
    let limits = route.limits(pool);
    PoolState {
        model: route.spec().pools[pool.0]
            .model
            .as_deref()
            .map(str::to_owned),
        active_level: limits.tier.unwrap_or_default(),
        limit: limits.limit,
        in_flight: limits.in_flight,
        healthy_peers_in_level: limits.healthy_peers,
        largest_tier_limit: limits.largest_tier_sum,
    }
}

fn tiers(peers: &[PeerFacts]) -> BTreeMap<String, Tier> {
    let mut tiers = BTreeMap::new();
    for peer in peers {
        let tier = tiers
            .entry(peer.priority.to_string())
            .or_insert_with(|| Tier {
                priority: peer.priority,
                healthy: 0,
                banned: 0,
                active: 0,
                max: 0,
                peers: Vec::new(),
            });
        if peer.banned {
            tier.banned += 1;
        } else if peer.enabled {
            tier.healthy += 1;
            tier.active += u64::from(peer.in_flight);
            tier.max += u64::from(peer.slots);
        }
        tier.peers.push(TierPeer {
            name: peer.name.clone(),
            peer: peer.peer.to_string(),
            banned: peer.banned,
            enabled: peer.enabled,
            active: peer.in_flight,
            max: peer.slots,
        });
    }
    tiers
}
