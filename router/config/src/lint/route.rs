//! Advice on one route.

use std::time::Duration;

use router_core::load::StalePolicy;
use router_core::pool::FullPolicy;

use super::{peers, place, rules, warn};
use crate::check::Reader;
use crate::options::ROUTE;
use crate::tree::{Node, Value};
use crate::units::show_duration;
use crate::valid::{AffinityKind, LoadSignal, Route, RouteOptions};

/// A pause between two turns of a conversation that is clearly not long.
const TURN_PAUSE: Duration = Duration::from_secs(60);

/// Reports warnings for a route without errors.
pub(crate) fn route(reader: &mut Reader, root: &Node, route: &Route) {
    let options = &route.options;
    affinity(reader, root, options);
    health(reader, root, options);
    load(reader, root, options);
    unused(reader, root, route);
    peers::peers(reader, root, route);
    rules::rules(reader, root, options);
}

fn affinity(reader: &mut Reader, root: &Node, options: &RouteOptions) {
    let off = if options.affinity.value == AffinityKind::None {
        Some("affinity: none")
    } else if !options.affinity_enabled.value {
        Some("affinity_enabled: false")
    } else {
        None
    };
    if let (Some(off), Some(at)) = (off, place(root, "session_sources")) {
        let message = format!("session ids are looked for, and with `{off}` they place nothing");
        warn(reader, "session_sources", at, "affinity-unused", message);
    }
    let ttl = options.session_ttl.value;
    let needed = options
        .request_timeout
        .value
        .unwrap_or(TURN_PAUSE)
        .max(TURN_PAUSE);
    if options.affinity.value == AffinityKind::StickyLeastLoaded
        && !ttl.is_zero()
        && ttl < needed
        && let Some(at) = place(root, "session_ttl")
    {
        let message = format!(
            "a session is forgotten after {}, and {}",
            show_duration(ttl),
            match options.request_timeout.value {
                Some(request) if request >= TURN_PAUSE => {
                    format!("one request may take {}", show_duration(request))
                }
                _ => "people think for longer between two turns".to_owned(),
            }
        );
        warn(reader, "session_ttl", at, "session-ttl-short", message);
    }
}

fn health(reader: &mut Reader, root: &Node, options: &RouteOptions) {
    let ban = options.health_ban_ttl.value;
    let renewed = options.health_check_interval.value + options.health_timeout.value;
    let set = ["health_ban_ttl", "health_check_interval", "health_timeout"];
    let set = set
        .into_iter()
        .find_map(|key| Some((key, place(root, key)?)));
    if ban < renewed
        && let Some((key, at)) = set
    {
        let message = format!(
            "a ban lasts {}, and the next probe may need {} to renew it",
            show_duration(ban),
            show_duration(renewed)
        );
        warn(reader, key, at, "ban-lapses", message);
    }
}

fn load(reader: &mut Reader, root: &Node, options: &RouteOptions) {
    let load = &options.load;
    let set = ["hold_max", "stale_after"];
    let set = set
        .into_iter()
        .find_map(|key| Some((key, place(root, key)?)));
    if load.signal.value == LoadSignal::Engine
        && load.stale_policy.value == StalePolicy::Hold
        && load.hold_max.value <= load.stale_after.value
        && let Some((key, at)) = set
    {
        let message = format!(
            "a peer is stale after {} and held until {}: never",
            show_duration(load.stale_after.value),
            show_duration(load.hold_max.value)
        );
        warn(reader, key, at, "hold-lapses", message);
    }
}

/// Options that have no effect because of another option: the keys, whether they have an effect,
/// and what they need.
fn unused(reader: &mut Reader, root: &Node, route: &Route) {
    let options = &route.options;
    let affinity = options.affinity.value;
    let full = options.full_policy.value;
    let polled = options.load.signal.value == LoadSignal::Engine;
    let pins = options.load.pin_model.value;
    let table: [(&[&str], bool, &str); 9] = [
        (
            &["hash", "hash_saturated"],
            affinity == AffinityKind::Hash,
            "`affinity: hash`",
        ),
        (
            &["session_ttl", "max_sessions"],
            affinity == AffinityKind::StickyLeastLoaded,
            "`affinity: sticky_least_loaded`",
        ),
        (
            &["wait_max", "wait_timeout"],
            full == FullPolicy::Wait,
            "`full_policy: wait`",
        ),
        (
            &["full_status"],
            full != FullPolicy::Overflow,
            "a `full_policy` that refuses",
        ),
        (
            &[
                "poll_interval",
                "poll_timeout",
                "stale_after",
                "stale_policy",
                "hold_max",
                "load_model",
            ],
            polled,
            "`load_signal: engine`",
        ),
        (
            &["pin_fallback", "unknown_model"],
            pins,
            "`pin_model: true`",
        ),
        (
            &["normalize"],
            options.balance.value.needs_engine_load(),
            "`balance: least_busy` or `idle_aware`",
        ),
        (
            &["cross_tier_fallback"],
            has_tiers(route),
            "peers of more than one `priority`",
        ),
        (
            &["reject_rules_status"],
            !options.reject_rules.value.is_empty(),
            "`reject_rules`",
        ),
    ];
    for (keys, acts, wanted) in table {
        for key in keys.iter().filter(|_| !acts) {
            without(reader, root, key, wanted);
        }
    }
    if !options.adaptive.enabled.value
        && let Value::Map(pairs) = &root.value
    {
        for (key, _) in pairs
            .iter()
            .filter(|(key, _)| key.text.starts_with("adaptive_cc_"))
        {
            without(reader, root, &key.text, "`adaptive_cc: true`");
        }
    }
}

/// An option that is set to its own default misleads nobody, so it gives no warning.
fn without(reader: &mut Reader, root: &Node, key: &str, wanted: &str) {
    if let Some(at) = place(root, key).filter(|_| !is_default(root, key)) {
        let message = format!("does nothing without {wanted}");
        warn(reader, key, at, "unused-option", message);
    }
}

fn is_default(root: &Node, key: &str) -> bool {
    let written = root.get(key).and_then(Node::as_scalar);
    let meta = ROUTE.iter().find(|meta| meta.key == key);
    written
        .zip(meta)
        .is_some_and(|(scalar, meta)| scalar.text == meta.default)
}

fn has_tiers(route: &Route) -> bool {
    route.pools.iter().any(|pool| {
        let first = pool.peers.first().map(|peer| peer.priority);
        pool.peers.iter().any(|peer| Some(peer.priority) != first)
    })
}
