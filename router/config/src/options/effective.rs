//! A route's options as they are in force: every key of the catalogue, with its value and the layer
//! that supplied it. What `/_route_opts` and `llmctl route show` list.

use std::time::Duration;

use proto::admin::RouteOption;
use router_core::admission::priority::Bucket;
use router_core::layered::{Setting, Source};
use router_core::rules::Rule;
use router_core::session::{Place, SessionSource};
use router_core::signal::{Metric, Statistic};
use serde::Serialize;
use serde_json::{Value, json};

use super::adaptive::*;
use super::bodylog::*;
use super::content::*;
use super::load::*;
use super::priority::*;
use super::signals::*;
use super::{
    AFFINITY, AFFINITY_ENABLED, API_KEYS, BALANCE, CLUSTER_AVG_INTERVAL, CROSS_TIER_FALLBACK,
    DEFAULT_MAX, EXPOSE_ROUTING_HEADERS, EXTRA_PATHS, FORWARD_AUTH, FULL_POLICY, FULL_STATUS, HASH,
    HASH_SATURATED, HEALTH_BAN_TTL, HEALTH_CHECK_INTERVAL, HEALTH_PROBE_PATH, HEALTH_TIMEOUT,
    INCLUDE_USAGE, LOAD_RATE_LIMIT, MAX_BODY_SIZE, MAX_MORE_TRIES, MERGE_MODELS, Meta, POSTPROCESS,
    REJECT_RULES, REJECT_RULES_ENABLED, REJECT_RULES_STATUS, REQUEST_TIMEOUT, RT_LIMIT_FACTOR,
    SESSION_SOURCES, TRANSPARENT, WAIT_MAX, WAIT_TIMEOUT,
};
use crate::check::Choice;
use crate::units::{show_duration, show_size};
use crate::valid::{
    AdaptiveOptions, AffinityKind, BodylogOptions, PriorityOptions, RouteOptions, SignalOptions,
};

/// Every option of a route, each list in the catalogue's order.
#[derive(Clone, Debug)]
pub struct Effective {
    /// What an operator tunes.
    pub options: Vec<RouteOption>,
    /// Engine internals.
    pub advanced: Vec<RouteOption>,
}

impl Effective {
    /// Both lists.
    pub fn iter(&self) -> impl Iterator<Item = &RouteOption> {
        self.options.iter().chain(&self.advanced)
    }

    /// Puts a value of the running router over what the files say.
    pub fn set(&mut self, key: &str, value: Value, source: Source) {
        let mut all = self.options.iter_mut().chain(&mut self.advanced);
        if let Some(row) = all.find(|row| row.key == key) {
            row.value = value;
            row.source = source.as_str().to_owned();
        }
    }
}

/// An option with its place among the two lists.
#[derive(Clone)]
struct Row {
    is_advanced: bool,
    option: RouteOption,
}

/// Every option of a route. Durations and sizes are written as in the file; of a route's own keys
/// only their number is told.
pub fn effective(options: &RouteOptions) -> Effective {
    let (advanced, options): (Vec<Row>, Vec<Row>) =
        rows(options).into_iter().partition(|row| row.is_advanced);
    let bare = |rows: Vec<Row>| rows.into_iter().map(|row| row.option).collect();
    Effective {
        options: bare(options),
        advanced: bare(advanced),
    }
}

/// Every option, in the catalogue's order.
fn rows(options: &RouteOptions) -> Vec<Row> {
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
fn placement(o: &RouteOptions) -> Vec<Row> {
    vec![
        row(&DEFAULT_MAX.meta, &o.default_max, |v| json!(v)),
        row(&CROSS_TIER_FALLBACK.meta, &o.cross_tier_fallback, |v| {
            json!(v)
        }),
        row(&AFFINITY.meta, &o.affinity, |v| match v {
            AffinityKind::Hash => json!("hash"),
            AffinityKind::StickyLeastLoaded => json!("sticky_least_loaded"),
            AffinityKind::None => json!("none"),
        }),
        row(&AFFINITY_ENABLED.meta, &o.affinity_enabled, |v| json!(v)),
        row(&HASH.meta, &o.hash, |v| json!(v)),
        row(&HASH_SATURATED.meta, &o.hash_saturated, |v| json!(v)),
        row(&SESSION_SOURCES.meta, &o.session_sources, |v| {
            v.iter().map(source).collect()
        }),
        row(&SESSION_TTL.meta, &o.session_ttl, duration),
        row(&MAX_SESSIONS.meta, &o.max_sessions, |v| json!(v)),
        row(&AFFINITY_FALLBACK.meta, &o.affinity_fallback, word),
        row(
            &AFFINITY_MAX_LOAD_FACTOR.meta,
            &o.affinity_max_load_factor,
            or_off,
        ),
        row(&BALANCE.meta, &o.balance, |v| json!(v)),
        row(&LOAD_SIGNAL.meta, &o.load.signal, word),
        row(&POLL_INTERVAL.meta, &o.load.poll_interval, duration),
        row(&POLL_TIMEOUT.meta, &o.load.poll_timeout, duration),
        row(&STALE_AFTER.meta, &o.load.stale_after, duration),
        row(&STALE_POLICY.meta, &o.load.stale_policy, word),
        row(&HOLD_MAX.meta, &o.load.hold_max, duration),
        row(&LOAD_MODEL.meta, &o.load.model, word),
        row(&NORMALIZE.meta, &o.load.normalize, word),
        row(&PIN_MODEL.meta, &o.load.pin_model, |v| json!(v)),
        row(&PIN_FALLBACK.meta, &o.load.pin_fallback, word),
        row(&UNKNOWN_MODEL.meta, &o.load.unknown_model, word),
        row(&MERGE_MODELS.meta, &o.merge_models, |v| json!(v)),
        row(&FULL_POLICY.meta, &o.full_policy, |v| json!(v)),
        row(&FULL_STATUS.meta, &o.full_status, |v| json!(v)),
        row(&WAIT_MAX.meta, &o.wait_max, |v| json!(v)),
        row(&WAIT_TIMEOUT.meta, &o.wait_timeout, duration),
        row(&RT_LIMIT_FACTOR.meta, &o.rt_limit_factor, number),
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
fn signals(o: &RouteOptions) -> Vec<Row> {
    let mut rows = signal(&TTFT, &o.ttft);
    rows.insert(1, row(&TTFT_429.meta, &o.ttft_429, |v| json!(v)));
    rows.extend(signal(&TPS, &o.tps));
    rows.push(row(&TPS_MIN_TOKENS.meta, &o.tps_min_tokens, |v| json!(v)));
    rows.push(row(&TPS_MIN_DECODE_S.meta, &o.tps_min_decode, duration));
    rows
}

fn signal(knobs: &SignalKnobs, o: &SignalOptions) -> Vec<Row> {
    vec![
        row(&knobs.enabled.meta, &o.enabled, |v| json!(v)),
        row(&knobs.limit.meta, &o.limit, number_or_off),
        row(&knobs.limit_by_model.meta, &o.limit_by_model, |v| {
            v.iter()
                .map(|(model, limit)| (model.to_string(), number(limit)))
                .collect()
        }),
        row(&knobs.metrics.meta, &o.metrics, |v| {
            v.as_ref()
                .map_or(json!("off"), |table| table.iter().map(metric).collect())
        }),
        row(&knobs.ewma_alpha.meta, &o.ewma_alpha, number),
        row(&knobs.window.meta, &o.window, duration),
        row(&knobs.ttl.meta, &o.ttl, duration),
        row(&knobs.probe_window.meta, &o.probe_window, duration),
        row(&knobs.probe_per_window.meta, &o.probe_per_window, |v| {
            json!(v)
        }),
    ]
}

/// `adaptive_cc*`.
fn adaptive(o: &AdaptiveOptions) -> Vec<Row> {
    vec![
        row(&ADAPTIVE_CC.meta, &o.enabled, |v| json!(v)),
        row(&ADAPTIVE_CC_INTERVAL.meta, &o.interval, duration),
        row(&ADAPTIVE_CC_DEC.meta, &o.dec, number),
        row(&ADAPTIVE_CC_INC.meta, &o.inc, number),
        row(&ADAPTIVE_CC_MIN.meta, &o.min, or_off),
        row(&ADAPTIVE_CC_MIN_FRAC.meta, &o.min_frac, number),
        row(&ADAPTIVE_CC_INIT.meta, &o.init, or_off),
        row(&ADAPTIVE_CC_INIT_FRAC.meta, &o.init_frac, number_or_off),
        row(&ADAPTIVE_CC_PRESSURE_FRAC.meta, &o.pressure_frac, number),
        row(&ADAPTIVE_CC_SLACK_FRAC.meta, &o.slack_frac, number),
        row(&ADAPTIVE_CC_ABS.meta, &o.headroom, number),
        row(&ADAPTIVE_CC_TTL.meta, &o.ttl, duration),
        row(&ADAPTIVE_CC_USE_TTFT.meta, &o.use_ttft, |v| json!(v)),
        row(&ADAPTIVE_CC_HOLD_WHEN_IDLE.meta, &o.hold_when_idle, |v| {
            json!(v)
        }),
    ]
}

/// `session_prio*`.
fn priority(o: &PriorityOptions) -> Vec<Row> {
    vec![
        row(&SESSION_PRIO.meta, &o.enabled, |v| json!(v)),
        row(&SESSION_PRIO_R_NEW.meta, &o.r_new, number),
        row(&SESSION_PRIO_FULL_TURN.meta, &o.full_turn, |v| json!(v)),
        row(&SESSION_PRIO_SEVERE.meta, &o.severe, number),
        row(&SESSION_PRIO_RELEASE.meta, &o.release, number),
        row(&SESSION_PRIO_T1_PROBES.meta, &o.t1_probes, |v| json!(v)),
        row(&SESSION_PRIO_WARN_FRAC.meta, &o.warn_frac, number),
        row(&SESSION_PRIO_TABLE.meta, &o.table, |v| {
            v.as_ref()
                .map_or(json!("off"), |table| table.iter().map(bucket).collect())
        }),
    ]
}

/// Content, keys, paths, headers, time, sizes.
fn requests(o: &RouteOptions) -> Vec<Row> {
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
        row(&INCLUDE_USAGE.meta, &o.include_usage, |v| json!(v)),
        row(&CCH_STRIP.meta, &o.cch_strip, |v| json!(v)),
        row(&KIMI_NORMALIZE.meta, &o.kimi_normalize, |v| json!(v)),
        row(
            &KIMI_NORMALIZE_STRATEGY.meta,
            &o.kimi_normalize_strategy,
            word,
        ),
        row(&SYSTEM_HOIST.meta, &o.system_hoist, |v| json!(v)),
        row(&POSTPROCESS.meta, &o.postprocess, word),
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
fn bodylog(o: &BodylogOptions) -> Vec<Row> {
    vec![
        row(&BODYLOG.meta, &o.enabled, |v| json!(v)),
        row(&BODYLOG_PCT.meta, &o.pct, number),
        row(&BODYLOG_SLOW.meta, &o.slow, |v| {
            v.as_ref().map_or(json!("off"), duration)
        }),
        row(&BODYLOG_BODIES.meta, &o.bodies, |v| json!(v.to_string())),
        row(&BODYLOG_REDACT_PATHS.meta, &o.redact_paths, |v| {
            v.iter().map(|path| json!(path.to_string())).collect()
        }),
    ]
}

fn row<T>(meta: &Meta, setting: &Setting<T>, value: impl FnOnce(&T) -> Value) -> Row {
    let option = RouteOption {
        key: meta.key.to_owned(),
        label: label(meta.key),
        group: meta.group.to_owned(),
        kind: meta.kind.allowed(),
        default: meta.default.to_owned(),
        description: meta.doc.to_owned(),
        value: value(&setting.value),
        source: setting.source.as_str().to_owned(),
    };
    Row {
        is_advanced: meta.advanced,
        option,
    }
}

/// Parts of keys that people write otherwise.
const WORDS: [(&str, &str); 10] = [
    ("api", "API"),
    ("cc", "concurrency"),
    ("ewma", "EWMA"),
    ("frac", "fraction"),
    ("pct", "percent"),
    ("prio", "priority"),
    ("t1", "turn 1"),
    ("tps", "TPS"),
    ("ttft", "TTFT"),
    ("ttl", "TTL"),
];

/// `health_ban_ttl` → `Health ban TTL`.
fn label(key: &str) -> String {
    let word = |part| {
        let known = WORDS.iter().find(|(short, _)| *short == part);
        known.map_or(part, |(_, word)| *word)
    };
    let mut label = key.split('_').map(word).collect::<Vec<_>>().join(" ");
    if let Some(first) = label.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    label
}

/// A number, whole ones without a fraction.
pub fn number(value: &f64) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() < EXACT {
        json!(*value as i64)
    } else {
        json!(value)
    }
}

fn number_or_off(value: &Option<f64>) -> Value {
    value.as_ref().map_or(json!("off"), number)
}

fn or_off<T: Serialize>(value: &Option<T>) -> Value {
    value.as_ref().map_or(json!("off"), |value| json!(value))
}

/// A row of a metric table as the file spells it.
fn metric(metric: &Metric) -> Value {
    let (name, threshold) = (&metric.name, number(&metric.threshold));
    match metric.statistic {
        Statistic::Mean => json!({ "metric": name, "threshold": threshold }),
        Statistic::Quantile(q) => json!({ "metric": name, "q": q, "threshold": threshold }),
    }
}

/// A row of `session_prio_table`.
fn bucket(bucket: &Bucket) -> Value {
    json!({
        "min_turn": bucket.min_turn,
        "share": number(&bucket.share),
        "tol": number(&bucket.tol),
    })
}

/// A word as the file spells it.
fn word<T: Choice + PartialEq>(value: &T) -> Value {
    let found = T::WORDS.iter().find(|(_, known)| known == value);
    json!(found.map(|(word, _)| word))
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
    use crate::{Env, RoutesAt, Sources, load};

    /// The options of a route file below a main file.
    fn options(main: &str, route: &str) -> Effective {
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
            advise: false,
        });
        effective(&loaded.routes[0].result.as_ref().unwrap().options)
    }

    #[test]
    fn every_key_of_the_catalogue_is_listed_in_its_order() {
        let listed = options("{}", "peers: []");
        let keys = |list: &[RouteOption]| -> Vec<String> {
            list.iter().map(|option| option.key.clone()).collect()
        };
        let known = |advanced: bool| -> Vec<&str> {
            let metas = DEFAULTABLE.iter().filter(|meta| meta.advanced == advanced);
            metas.map(|meta| meta.key).collect()
        };
        assert_eq!(keys(&listed.options), known(false));
        assert_eq!(keys(&listed.advanced), known(true));
    }

    #[test]
    fn a_key_reads_as_words() {
        assert_eq!(
            label("adaptive_cc_min_frac"),
            "Adaptive concurrency min fraction"
        );
        assert_eq!(label("ttft_limit_ms"), "TTFT limit ms");
        assert_eq!(label("balance"), "Balance");
    }

    #[test]
    fn a_default_is_shown_as_its_own_value() {
        let listed = options("{}", "peers: []");
        for meta in DEFAULTABLE.iter().filter(|meta| meta.has_literal_default()) {
            let row = listed.iter().find(|row| row.key == meta.key).unwrap();
            let shown = match &row.value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            // Units may be written in more than one way.
            let seconds = |text: &str| crate::units::duration(text);
            let equal = shown == meta.default
                || seconds(&shown).is_some() && seconds(&shown) == seconds(meta.default);
            assert!(
                equal || meta.default.starts_with('['),
                "{}: {shown}",
                meta.key
            );
        }
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
        let text = serde_json::to_string(&all.options).unwrap();
        assert!(
            text.contains("1 of its own") && !text.contains("sk-secret"),
            "{text}"
        );
    }
}
