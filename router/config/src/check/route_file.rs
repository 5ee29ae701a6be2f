//! `routes/<name>.yaml` → [`Route`].

use std::path::Path;
use std::sync::Arc;

use router_core::layered::{Setting, Source};
use router_core::rules::Rules;

use super::main_file::Base;
use super::names::name_flaw;
use super::peers::pools;
use super::reader::Reader;
use super::section::{Layers, keys};
use super::{guard, load};
use crate::options::{
    AFFINITY, AFFINITY_ENABLED, AFFINITY_FALLBACK, AFFINITY_MAX_LOAD_FACTOR, API_KEYS, BALANCE,
    CCH_STRIP, CLUSTER_AVG_INTERVAL, CROSS_TIER_FALLBACK, DEFAULT_MAX, EXPOSE_ROUTING_HEADERS,
    EXTRA_PATHS, FORWARD_AUTH, FULL_POLICY, FULL_STATUS, HASH, HASH_SATURATED, HEALTH_BAN_TTL,
    HEALTH_CHECK_INTERVAL, HEALTH_PROBE_PATH, HEALTH_TIMEOUT, INCLUDE_USAGE, KIMI_NORMALIZE,
    KIMI_NORMALIZE_STRATEGY, LOAD_RATE_LIMIT, MAX_BODY_SIZE, MAX_MORE_TRIES, MAX_SESSIONS,
    MERGE_MODELS, NAME, POSTPROCESS, REJECT_RULES, REJECT_RULES_ENABLED, REJECT_RULES_STATUS,
    REQUEST_TIMEOUT, ROUTE, RT_LIMIT_FACTOR, SESSION_SOURCES, SESSION_TTL, SYSTEM_HOIST, TPS,
    TPS_MIN_DECODE_S, TPS_MIN_TOKENS, TRANSPARENT, TTFT, TTFT_429, WAIT_MAX, WAIT_TIMEOUT,
};
use crate::tree::{Node, Span, Value};
use crate::units::show_size;
use crate::valid::{Route, RouteOptions};

/// A route file's content, best effort: with errors reported only its name counts.
pub(crate) struct RouteFile {
    /// The route.
    pub(crate) route: Route,
    /// Where `name` is set.
    pub(crate) name_at: Option<Span>,
}

/// Checks one route file.
pub(crate) fn route_file(reader: &mut Reader, path: &Path, root: &Node, base: &Base) -> RouteFile {
    let is_mapping = matches!(root.value, Value::Map(_));
    if !is_mapping {
        let message = if root.is_null() {
            "the file is empty"
        } else {
            "expected a mapping"
        };
        reader
            .error(root.span.clone(), message)
            .help("`peers: []` is the least that a route file holds");
    } else {
        keys(reader, root, ROUTE, "a mapping");
    }
    let layers = Layers {
        own: root,
        global: Some(&base.defaults),
    };
    let name = name(reader, path, root);
    let options = options(reader, &layers, base);
    let pools = if is_mapping {
        pools(reader, root, options.default_max.value)
    } else {
        Vec::new()
    };
    guard::whole_route(reader, &layers, &options, &pools);
    RouteFile {
        route: Route {
            name,
            path: path.to_owned(),
            pools,
            options,
        },
        name_at: root.get(NAME.meta.key).map(|node| node.span.clone()),
    }
}

/// The name a file gives its route, or else its stem. An unusable `name` leaves the stem, so that
/// the file has a name to be reported under.
fn name(reader: &mut Reader, path: &Path, root: &Node) -> Arc<str> {
    let stem = stem(path);
    if let Some(node) = root.get(NAME.meta.key) {
        return reader
            .key(NAME.meta.key, |reader| NAME.read(reader, node))
            .unwrap_or(stem);
    }
    if let Some(flaw) = name_flaw(&stem) {
        reader
            .error(
                0..0,
                format!("the file's stem `{stem}` names the route, and {flaw}"),
            )
            .help("rename the file, or give the route a `name`");
    }
    stem
}

/// A file's name without `.yaml`.
pub(crate) fn stem(path: &Path) -> Arc<str> {
    path.file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .as_ref()
        .into()
}

/// Every option of a route but its peers.
pub(super) fn options(reader: &mut Reader, layers: &Layers<'_>, base: &Base) -> RouteOptions {
    let tps = guard::signal(reader, layers, &TPS);
    let reject_rules = reject_rules(reader, layers);
    let has_rules = !reject_rules.value.is_empty();
    let balance = layers.setting(reader, &BALANCE);
    let mut options = RouteOptions {
        default_max: layers.setting(reader, &DEFAULT_MAX),
        cross_tier_fallback: layers.setting(reader, &CROSS_TIER_FALLBACK),
        affinity: layers.setting(reader, &AFFINITY),
        affinity_enabled: layers.setting(reader, &AFFINITY_ENABLED),
        hash: layers.setting(reader, &HASH),
        hash_saturated: layers.setting(reader, &HASH_SATURATED),
        session_sources: layers.setting(reader, &SESSION_SOURCES),
        session_ttl: layers.over(reader, &SESSION_TTL, base.session_ttl),
        max_sessions: layers.setting(reader, &MAX_SESSIONS),
        affinity_fallback: layers.setting(reader, &AFFINITY_FALLBACK),
        affinity_max_load_factor: layers.setting(reader, &AFFINITY_MAX_LOAD_FACTOR),
        load: load::options(reader, layers, balance.value),
        balance,
        merge_models: layers.setting(reader, &MERGE_MODELS),
        full_policy: layers.setting(reader, &FULL_POLICY),
        full_status: layers.setting(reader, &FULL_STATUS),
        wait_max: layers.setting(reader, &WAIT_MAX),
        wait_timeout: layers.setting(reader, &WAIT_TIMEOUT),
        rt_limit_factor: layers.setting(reader, &RT_LIMIT_FACTOR),
        load_rate_limit: layers.setting(reader, &LOAD_RATE_LIMIT),
        cluster_avg_interval: layers.setting(reader, &CLUSTER_AVG_INTERVAL),
        max_more_tries: layers.setting(reader, &MAX_MORE_TRIES),
        health_check_interval: layers.setting(reader, &HEALTH_CHECK_INTERVAL),
        health_ban_ttl: layers.setting(reader, &HEALTH_BAN_TTL),
        health_probe_path: layers.setting(reader, &HEALTH_PROBE_PATH),
        health_timeout: layers.setting(reader, &HEALTH_TIMEOUT),
        ttft: guard::signal(reader, layers, &TTFT),
        ttft_429: layers.setting(reader, &TTFT_429),
        adaptive: guard::adaptive(reader, layers, &tps),
        tps,
        tps_min_tokens: layers.setting(reader, &TPS_MIN_TOKENS),
        tps_min_decode: layers.setting(reader, &TPS_MIN_DECODE_S),
        priority: guard::priority(reader, layers),
        reject_rules,
        reject_rules_enabled: layers.over(reader, &REJECT_RULES_ENABLED, has_rules),
        reject_rules_status: reject_rules_status(reader, layers),
        include_usage: layers.setting(reader, &INCLUDE_USAGE),
        cch_strip: layers.setting(reader, &CCH_STRIP),
        kimi_normalize: layers.setting(reader, &KIMI_NORMALIZE),
        kimi_normalize_strategy: layers.setting(reader, &KIMI_NORMALIZE_STRATEGY),
        system_hoist: layers.setting(reader, &SYSTEM_HOIST),
        postprocess: layers.setting(reader, &POSTPROCESS),
        transparent: layers.setting(reader, &TRANSPARENT),
        api_keys: layers.over(reader, &API_KEYS, None),
        forward_auth: layers.setting(reader, &FORWARD_AUTH),
        extra_paths: layers.setting(reader, &EXTRA_PATHS),
        expose_routing_headers: layers.setting(reader, &EXPOSE_ROUTING_HEADERS),
        request_timeout: layers.over(reader, &REQUEST_TIMEOUT, base.request_timeout),
        max_body_size: layers.setting(reader, &MAX_BODY_SIZE),
        bodylog: guard::bodylog(reader, layers),
    };
    if base.request_timeout_set && options.request_timeout.source == Source::Default {
        options.request_timeout.source = Source::Global;
    }
    cap_body(reader, layers, base, &mut options);
    guard::combinations(reader, layers, &options);
    options
}

/// The rules that can be used; where some cannot, the setting says so.
fn reject_rules(reader: &mut Reader, layers: &Layers<'_>) -> Setting<Arc<Rules>> {
    let Setting { value, source } = layers.setting(reader, &REJECT_RULES);
    Setting {
        source: if value.is_whole {
            source
        } else {
            Source::DefaultInvalid
        },
        value: value.rules,
    }
}

fn reject_rules_status(reader: &mut Reader, layers: &Layers<'_>) -> Setting<u16> {
    let Setting { value, source } = layers.setting(reader, &REJECT_RULES_STATUS);
    let value = u16::try_from(value).expect("its range ends at 599");
    Setting { value, source }
}

/// `max_body_size` stays under the server's; a route that asks for more is told so.
fn cap_body(reader: &mut Reader, layers: &Layers<'_>, base: &Base, options: &mut RouteOptions) {
    let size = &mut options.max_body_size;
    if size.value <= base.max_body_size {
        return;
    }
    size.value = base.max_body_size;
    if let Some(node) = layers.own.get(MAX_BODY_SIZE.meta.key) {
        let ceiling = show_size(base.max_body_size);
        reader.key(MAX_BODY_SIZE.meta.key, |reader| {
            reader.warning(
                "capped-by-server",
                node.span.clone(),
                format!("above `server.max_body_size`: {ceiling} is in force"),
            );
        });
    }
}
