//! `_route_opts`: every option of a route with the value in force and where it comes from.

use http::StatusCode;
use proto::admin::RouteOpts;
use router_core::layered::Source;
use router_core::signal::Signal;

use crate::admin::answer::{self, Answer};
use crate::config::options::{effective, number};
use crate::config::valid::largest_tier_by;
use crate::state::{Route, Switch, adaptive_bounds};

/// The route's options, what was set on the running router applied.
pub(super) fn all(route: &Route) -> Answer {
    let mut shown = effective(&route.options);
    for switch in Switch::ALL {
        let now = route.switch(switch);
        if now.source == Source::Runtime {
            shown.set(switch.option(), now.value.into(), now.source);
        }
    }
    for (signal, key) in [
        (Signal::Ttft, "ttft_limit_ms"),
        (Signal::Tps, "tps_limit_tps"),
    ] {
        if let Some((limit, _)) = route.runtime_limit(signal, None) {
            shown.set(key, number(&limit), Source::Runtime);
        }
    }
    let pools = route.spec().pools.iter().zip(&route.peers);
    let pools = pools.map(|(pool, peers)| {
        let peers = peers.iter().map(|peer| &peer.spec);
        let slots = largest_tier_by(peers, |peer| route.slots(peer));
        (pool.model.as_deref(), slots)
    });
    answer::json(
        StatusCode::OK,
        &RouteOpts {
            route: route.name.to_string(),
            options: shown.options,
            advanced: shown.advanced,
            adaptive_bounds: adaptive_bounds(&route.options.adaptive, pools),
        },
    )
}
