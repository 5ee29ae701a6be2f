//! A route's options as they are in force: every key of the catalogue, with its value and the layer
//! that supplied it. What `/_route_opts` and `llmctl route show` list.

use std::time::Duration;

use proto::admin::RouteOption;
use router_core::layered::Setting;
use router_core::rules::Rule;
use router_core::session::{Place, SessionSource};
use router_core::signal::{Metric, Statistic};
use serde::Serialize;
use serde_json::{Value, json};

use super::adaptive::*;
use super::bodylog::*;
use super::priority::*;
use super::signals::*;
use super::{
    AFFINITY, AFFINITY_ENABLED, API_KEYS, BALANCE, CLUSTER_AVG_INTERVAL, CROSS_TIER_FALLBACK,
    DEFAULT_MAX, EXPOSE_ROUTING_HEADERS, EXTRA_PATHS, FORWARD_AUTH, FULL_POLICY, FULL_STATUS, HASH,
    HASH_SATURATED, HEALTH_BAN_TTL, HEALTH_CHECK_INTERVAL, HEALTH_PROBE_PATH, HEALTH_TIMEOUT,
    LOAD_RATE_LIMIT, MAX_BODY_SIZE, MAX_MORE_TRIES, MERGE_MODELS, Meta, REJECT_RULES,
    REJECT_RULES_ENABLED, REJECT_RULES_STATUS, REQUEST_TIMEOUT, RT_LIMIT_FACTOR, SESSION_SOURCES,
    TRANSPARENT,
};
use crate::config::units::{show_duration, show_size};
use crate::config::valid::{
    AdaptiveOptions, AffinityKind, BodylogOptions, PriorityOptions, RouteOptions, SignalOptions,
};

/// Every option of a route, in the catalogue's order. Durations and sizes are written as in the
/// file; of a route's own keys only their number is told.
pub fn effective(options: &RouteOptions) -> Vec<RouteOption> {
    [
        placement(options),
        signals(options),
        adaptive(&options.adaptive),
        priority(&options.priority),
        requests(options),
        bodylog(&options.bodylog),
    ]
    .concat()
}

/// Peers, affinity, balance, capacity, health.
fn placement(o: &RouteOptions) -> Vec<RouteOption> {
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
        row(&LOAD_RATE_LIMIT.meta, &o.load_rate_limit, |v| json!(v)),
        row(&MAX_MORE_TRIES.meta, &o.max_more_tries, |v| json!(v)),
        row(
            &CLUSTER_AVG_INTERVAL.meta,
            &o.cluster_avg_interval,
            duration,
        ),
        row(
            &HEALTH_CHECK_INTERVAL.meta,
            &o.health_check_interval,
            duration,
        ),
        row(&HEALTH_BAN_TTL.meta, &o.health_ban_ttl, duration),
        row(&HEALTH_PROBE_PATH.meta, &o.health_probe_path, |v| json!(v)),
        row(&HEALTH_TIMEOUT.meta, &o.health_timeout, duration),
    ]
}

/// `ttft_*` and `tps_*`.
fn signals(o: &RouteOptions) -> Vec<RouteOption> {
    let mut rows = signal(&TTFT, &o.ttft);
    rows.insert(1, row(&TTFT_429.meta, &o.ttft_429, |v| json!(v)));
    rows.extend(signal(&TPS, &o.tps));
    rows.push(row(&TPS_MIN_TOKENS.meta, &o.tps_min_tokens, |v| json!(v)));
    rows.push(row(&TPS_MIN_DECODE_S.meta, &o.tps_min_decode, duration));
    rows
}

fn signal(knobs: &SignalKnobs, o: &SignalOptions) -> Vec<RouteOption> {
    vec![
        row(&knobs.enabled.meta, &o.enabled, |v| json!(v)),
        row(&knobs.limit.meta, &o.limit, or_off),
        row(&knobs.limit_by_model.meta, &o.limit_by_model, |v| json!(v)),
        row(&knobs.metrics.meta, &o.metrics, |v| {
            v.as_ref()
                .map_or(json!("off"), |table| table.iter().map(metric).collect())
        }),
        row(&knobs.ewma_alpha.meta, &o.ewma_alpha, |v| json!(v)),
        row(&knobs.window.meta, &o.window, duration),
        row(&knobs.ttl.meta, &o.ttl, duration),
        row(&knobs.probe_window.meta, &o.probe_window, duration),
        row(&knobs.probe_per_window.meta, &o.probe_per_window, |v| {
            json!(v)
        }),
    ]
}

/// `adaptive_cc*`.
fn adaptive(o: &AdaptiveOptions) -> Vec<RouteOption> {
    vec![
        row(&ADAPTIVE_CC.meta, &o.enabled, |v| json!(v)),
        row(&ADAPTIVE_CC_INTERVAL.meta, &o.interval, duration),
        row(&ADAPTIVE_CC_DEC.meta, &o.dec, |v| json!(v)),
        row(&ADAPTIVE_CC_INC.meta, &o.inc, |v| json!(v)),
        row(&ADAPTIVE_CC_MIN.meta, &o.min, or_off),
        row(&ADAPTIVE_CC_MIN_FRAC.meta, &o.min_frac, |v| json!(v)),
        row(&ADAPTIVE_CC_INIT.meta, &o.init, or_off),
        row(&ADAPTIVE_CC_INIT_FRAC.meta, &o.init_frac, or_off),
        row(&ADAPTIVE_CC_PRESSURE_FRAC.meta, &o.pressure_frac, |v| {
            json!(v)
        }),
        row(&ADAPTIVE_CC_SLACK_FRAC.meta, &o.slack_frac, |v| json!(v)),
        row(&ADAPTIVE_CC_ABS.meta, &o.headroom, |v| json!(v)),
        row(&ADAPTIVE_CC_TTL.meta, &o.ttl, duration),
        row(&ADAPTIVE_CC_USE_TTFT.meta, &o.use_ttft, |v| json!(v)),
        row(&ADAPTIVE_CC_HOLD_WHEN_IDLE.meta, &o.hold_when_idle, |v| {
            json!(v)
        }),
    ]
}

/// `session_prio*`.
fn priority(o: &PriorityOptions) -> Vec<RouteOption> {
    vec![
        row(&SESSION_PRIO.meta, &o.enabled, |v| json!(v)),
        row(&SESSION_PRIO_R_NEW.meta, &o.r_new, |v| json!(v)),
        row(&SESSION_PRIO_FULL_TURN.meta, &o.full_turn, |v| json!(v)),
        row(&SESSION_PRIO_SEVERE.meta, &o.severe, |v| json!(v)),
        row(&SESSION_PRIO_RELEASE.meta, &o.release, |v| json!(v)),
        row(&SESSION_PRIO_T1_PROBES.meta, &o.t1_probes, |v| json!(v)),
        row(&SESSION_PRIO_WARN_FRAC.meta, &o.warn_frac, |v| json!(v)),
        row(&SESSION_PRIO_TABLE.meta, &o.table, |v| {
            v.as_ref().map_or(json!("off"), |table| json!(table))
        }),
    ]
}

/// Content, keys, paths, headers, time, sizes.
fn requests(o: &RouteOptions) -> Vec<RouteOption> {
    vec![
        row(&REJECT_RULES.meta, &o.reject_rules, |v| {
            v.iter().map(rule).collect()
        }),
        row(&REJECT_RULES_ENABLED.meta, &o.reject_rules_enabled, |v| {
            json!(v)
        }),
        row(&REJECT_RULES_STATUS.meta, &o.reject_rules_status, |v| {
            json!(v)
        }),
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

/// `bodylog*`.
fn bodylog(o: &BodylogOptions) -> Vec<RouteOption> {
    vec![
        row(&BODYLOG.meta, &o.enabled, |v| json!(v)),
        row(&BODYLOG_PCT.meta, &o.pct, |v| json!(v)),
        row(&BODYLOG_SLOW.meta, &o.slow, |v| {
            v.as_ref().map_or(json!("off"), duration)
        }),
        row(&BODYLOG_BODIES.meta, &o.bodies, |v| json!(v.to_string())),
        row(&BODYLOG_REDACT_PATHS.meta, &o.redact_paths, |v| {
            v.iter().map(|path| json!(path.to_string())).collect()
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

fn or_off<T: Serialize>(value: &Option<T>) -> Value {
    value.as_ref().map_or(json!("off"), |value| json!(value))
}

/// A row of a metric table as the file spells it.
fn metric(metric: &Metric) -> Value {
    let (name, threshold) = (&metric.name, metric.threshold);
    match metric.statistic {
        Statistic::Mean => json!({ "metric": name, "threshold": threshold }),
        Statistic::Quantile(q) => json!({ "metric": name, "q": q, "threshold": threshold }),
    }
}

fn duration(duration: &Duration) -> Value {
    json!(show_duration(*duration))
}

/// A rule's name and condition, with what it has of its own.
fn rule(rule: &Rule) -> Value {
    let mut shown = json!({ "name": rule.name, "cond": rule.condition });
    if let Some(status) = rule.status {
        shown["status"] = json!(status);
    }
    if let Some(message) = &rule.message {
        shown["message"] = json!(message);
    }
    shown
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
