//! `_route_opts`: every option of a route with its current value and its source.

use http::StatusCode;
use proto::admin::RouteOpts;
use router_core::layered::Source;
use router_core::signal::Signal;
use serde_json::{Map, Value};

use crate::admin::answer::{self, Answer};
use crate::state::{Route, Switch, adaptive_bounds};
use router_config::options::{Effective, effective, number};
use router_config::valid::{SignalOptions, largest_tier_by};

/// The route's options with all runtime overrides.
pub(super) fn all(route: &Route) -> Answer {
    let mut shown = effective(&route.options);
    overlay(route, &mut shown);
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

/// Applies all runtime overrides to the values from the files.
fn overlay(route: &Route, shown: &mut Effective) {
    for switch in Switch::ALL {
        let now = route.switch(switch);
        if now.source == Source::Runtime {
            shown.set(switch.option(), now.value.into(), now.source);
        }
    }
    let capture = &route.state.capture;
    if let Some(pct) = capture.pct() {
        shown.set("bodylog_pct", number(&pct), Source::Runtime);
    }
    if let Some(bodies) = capture.bodies() {
        let bodies = bodies.to_string().into();
        shown.set("bodylog_bodies", bodies, Source::Runtime);
    }
    let (ttft, tps) = (&route.options.ttft, &route.options.tps);
    for (signal, key, by_model, options) in [
        (Signal::Ttft, "ttft_limit_ms", "ttft_limit_by_model", ttft),
        (Signal::Tps, "tps_limit_tps", "tps_limit_by_model", tps),
    ] {
        if let Some((limit, _)) = route.runtime_limit(signal, None) {
            shown.set(key, number(&limit), Source::Runtime);
        }
        if let Some(limits) = limits_by_model(route, signal, options) {
            shown.set(by_model, limits, Source::Runtime);
        }
    }
}

/// The limits per model from the files, with the overrides applied; `None` without any override.
fn limits_by_model(route: &Route, signal: Signal, options: &SignalOptions) -> Option<Value> {
    let pools = route.pool_ids().zip(&route.spec().pools);
    let set: Vec<_> = pools
        .filter_map(|(id, pool)| {
            let (limit, _) = route.runtime_limit(signal, Some(id))?;
            Some((pool.model.as_deref()?.to_owned(), number(&limit)))
        })
        .collect();
    if set.is_empty() {
        return None;
    }
    let files = options.limit_by_model.value.iter();
    let mut limits: Map<String, Value> = files
        .map(|(model, limit)| (model.to_string(), number(limit)))
        .collect();
    limits.extend(set);
    Some(limits.into())
}
