//! A route's options as they are in force: every key of the catalogue, with its value and the layer
//! that supplied it. What `/_route_opts` and `llmctl route show` list.

use std::time::Duration;

use proto::admin::RouteOption;
use router_core::layered::Setting;
use router_core::session::{Place, SessionSource};
use serde_json::{Value, json};

use super::{
    AFFINITY, AFFINITY_ENABLED, API_KEYS, BALANCE, CROSS_TIER_FALLBACK, DEFAULT_MAX,
    EXPOSE_ROUTING_HEADERS, EXTRA_PATHS, FORWARD_AUTH, FULL_POLICY, FULL_STATUS, HASH,
    HASH_SATURATED, HEALTH_BAN_TTL, HEALTH_CHECK_INTERVAL, HEALTH_PROBE_PATH, HEALTH_TIMEOUT,
    MAX_BODY_SIZE, MAX_MORE_TRIES, MERGE_MODELS, Meta, REQUEST_TIMEOUT, RT_LIMIT_FACTOR,
    SESSION_SOURCES, TRANSPARENT,
};
use crate::config::units::{show_duration, show_size};
use crate::config::valid::{AffinityKind, RouteOptions};

/// Every option of a route, in the catalogue's order. Durations and sizes are written as in the
/// file; of a route's own keys only their number is told.
pub fn effective(options: &RouteOptions) -> Vec<RouteOption> {
    let o = options;
    vec![
        row(&DEFAULT_MAX.meta, &o.default_max, |v| json!(v)),
        row(&CROSS_TIER_FALLBACK.meta, &o.cross_tier_fallback, |v| {
            json!(v)
        }),
        row(&AFFINITY.meta, &o.affinity, |v| match v {
            AffinityKind::Hash => json!("hash"),
            AffinityKind::None => json!("none"),
        }),
        row(&AFFINITY_ENABLED.meta, &o.affinity_enabled, |v| json!(v)),
        row(&HASH.meta, &o.hash, |v| json!(v)),
        row(&HASH_SATURATED.meta, &o.hash_saturated, |v| json!(v)),
        row(&SESSION_SOURCES.meta, &o.session_sources, |v| {
            v.iter().map(source).collect()
        }),
        row(&BALANCE.meta, &o.balance, |v| json!(v)),
        row(&MERGE_MODELS.meta, &o.merge_models, |v| json!(v)),
        row(&FULL_POLICY.meta, &o.full_policy, |v| json!(v)),
        row(&FULL_STATUS.meta, &o.full_status, |v| json!(v)),
        row(&RT_LIMIT_FACTOR.meta, &o.rt_limit_factor, |v| json!(v)),
        row(&MAX_MORE_TRIES.meta, &o.max_more_tries, |v| json!(v)),
        row(
            &HEALTH_CHECK_INTERVAL.meta,
            &o.health_check_interval,
            duration,
        ),
        row(&HEALTH_BAN_TTL.meta, &o.health_ban_ttl, duration),
        row(&HEALTH_PROBE_PATH.meta, &o.health_probe_path, |v| json!(v)),
        row(&HEALTH_TIMEOUT.meta, &o.health_timeout, duration),
        row(&TRANSPARENT.meta, &o.transparent, |v| json!(v)),
        row(&API_KEYS.meta, &o.api_keys, |v| match v {
            None => json!("the shared key file"),
            Some(keys) if keys.is_empty() => json!("open"),
            Some(keys) => json!(format!("{} of its own", keys.len())),
        }),
        row(&FORWARD_AUTH.meta, &o.forward_auth, |v| json!(v)),
        row(&EXTRA_PATHS.meta, &o.extra_paths, |v| json!(v)),
        row(
            &EXPOSE_ROUTING_HEADERS.meta,
            &o.expose_routing_headers,
            |v| json!(v),
        ),
        row(&REQUEST_TIMEOUT.meta, &o.request_timeout, |v| {
            v.as_ref().map_or(json!("off"), duration)
        }),
        row(&MAX_BODY_SIZE.meta, &o.max_body_size, |v| {
            json!(show_size(*v))
        }),
    ]
}

fn row<T>(meta: &Meta, setting: &Setting<T>, value: impl FnOnce(&T) -> Value) -> RouteOption {
    RouteOption {
        key: meta.key.to_owned(),
        label: label(meta.key),
        group: meta.group.to_owned(),
        kind: meta.kind.allowed(),
        default: meta.default.to_owned(),
        description: meta.doc.to_owned(),
        value: value(&setting.value),
        source: setting.source.as_str().to_owned(),
    }
}

/// `health_ban_ttl` → `Health ban ttl`.
fn label(key: &str) -> String {
    let mut label = key.replace('_', " ");
    if let Some(first) = label.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    label
}

fn duration(duration: &Duration) -> Value {
    json!(show_duration(*duration))
}

/// A session source as the file spells it.
fn source(source: &SessionSource) -> Value {
    match &source.place {
        Place::Header(name) => json!(format!("header:{name}")),
        Place::Body(path) => json!(format!("body:{}", path.join("."))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::DEFAULTABLE;
    use super::*;
    use crate::config::{Env, RoutesAt, Sources, load};

    /// The options of a route file below a main file.
    fn options(main: &str, route: &str) -> Vec<RouteOption> {
        let directory = tempfile::tempdir().unwrap();
        let (config, file) = (
            directory.path().join("router.yaml"),
            directory.path().join("r.yaml"),
        );
        std::fs::write(&config, main).unwrap();
        std::fs::write(&file, route).unwrap();
        let routes = RoutesAt::Files(vec![file]);
        let env = Env::fixed::<String, String>([]);
        let loaded = load(&Sources {
            config: Some(config),
            routes,
            env,
        });
        effective(&loaded.routes[0].result.as_ref().unwrap().options)
    }

    #[test]
    fn every_key_of_the_catalogue_is_listed_in_its_order() {
        let listed: Vec<String> = options("{}", "peers: []")
            .into_iter()
            .map(|o| o.key)
            .collect();
        let known: Vec<&str> = DEFAULTABLE.iter().map(|meta| meta.key).collect();
        assert_eq!(listed, known);
    }

    #[test]
    fn each_value_names_its_layer() {
        let main = "defaults: {hash: rendezvous, health_ban_ttl: 90s}";
        let all = options(main, "peers: []\nhealth_ban_ttl: 2m\nmax_body_size: 1g");
        let of = |key: &str| {
            let option = all.iter().find(|option| option.key == key).unwrap();
            (option.value.clone(), option.source.as_str())
        };
        assert_eq!(of("hash"), (json!("rendezvous"), "global"));
        assert_eq!(of("health_ban_ttl"), (json!("2m"), "route"));
        assert_eq!(of("balance"), (json!("least_conn"), "default"));
    }

    #[test]
    fn keys_are_counted_and_not_shown() {
        let all = options("{}", "peers: []\napi_keys: {sk-secret: me}");
        let text = serde_json::to_string(&all).unwrap();
        assert!(
            text.contains("1 of its own") && !text.contains("sk-secret"),
            "{text}"
        );
    }
}
