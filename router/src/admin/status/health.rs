//! `_health_status` and `_active_conns`: the distinct peers of a route.

use std::collections::BTreeMap;

use http::StatusCode;
use proto::admin::{ActiveConns, ErrorBody, HealthMeta, HealthStatus, NoPeers, PeerHealth};

use super::{has_no_peers, no_peers};
use crate::admin::answer::{self, Answer};
use crate::state::{Route, RouteKeys, RouteTable};
use router_config::keys::InForce;

/// `_health_status`.
pub(super) fn status(table: &RouteTable, route: &Route) -> Answer {
    let meta = meta(table, route);
    if has_no_peers(route) {
        return answer::json(
            StatusCode::SERVICE_UNAVAILABLE,
            &NoPeers {
                error: no_peers(),
                meta,
            },
        );
    }
    answer::json(
        StatusCode::OK,
        &HealthStatus {
            peers: peers(route),
            meta,
        },
    )
}

/// `_active_conns`.
pub(super) fn active(route: &Route) -> Answer {
    if has_no_peers(route) {
        return answer::json(
            StatusCode::SERVICE_UNAVAILABLE,
            &ErrorBody { error: no_peers() },
        );
    }
    let active: ActiveConns = peers(route)
        .into_iter()
        .map(|(peer, health)| (peer, health.active))
        .collect();
    answer::json(StatusCode::OK, &active)
}

/// A peer that is in several pools is one engine: its numbers are the same in each.
fn peers(route: &Route) -> BTreeMap<String, PeerHealth> {
    let facts = route.pool_ids().flat_map(|pool| route.peer_facts(pool));
    facts
        .map(|peer| {
            (
                peer.peer.to_string(),
                PeerHealth {
                    active: peer.in_flight,
                    banned: peer.banned,
                },
            )
        })
        .collect()
}

fn meta(table: &RouteTable, route: &Route) -> HealthMeta {
    HealthMeta {
        api_keys_configured: matches!(table.keys.in_force, InForce::Keys(_)),
        route_auth_enabled: match &route.keys {
            RouteKeys::Shared => !table.keys.is_open(),
            RouteKeys::Own(keys) => !keys.is_empty(),
        },
        key_file_status: table.keys.status.as_str().to_owned(),
    }
}
