//! The options of a route, in its file or under `defaults:`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use router_core::affinity::{Hash, Saturated};
use router_core::balance::Balance;
use router_core::pool::FullPolicy;
use router_core::session::SessionSource;

use super::adaptive::*;
use super::bodylog::*;
use super::content::*;
use super::load::*;
use super::priority::*;
use super::server::{BODY, REQUEST_TIMEOUT_KIND};
use super::signals::*;
use super::{
    Bounds, Kind, Meta, NAME, OptionDef, PEERS, PEERS_BY_MODEL, REJECT_RULES, REJECT_RULES_ENABLED,
    REJECT_RULES_STATUS, within,
};
use crate::check::{self, Choice};
use crate::valid::{AffinityKind, Postprocess};

/// The keys of a route file.
pub(crate) static ROUTE: &[&Meta] = &[
    &NAME.meta,
    &PEERS,
    &PEERS_BY_MODEL,
    &DEFAULT_MAX.meta,
    &CROSS_TIER_FALLBACK.meta,
    &AFFINITY.meta,
    &AFFINITY_ENABLED.meta,
    &HASH.meta,
    &HASH_SATURATED.meta,
    &SESSION_SOURCES.meta,
    &SESSION_TTL.meta,
    &MAX_SESSIONS.meta,
    &AFFINITY_FALLBACK.meta,
    &AFFINITY_MAX_LOAD_FACTOR.meta,
    &BALANCE.meta,
    &LOAD_SIGNAL.meta,
    &POLL_INTERVAL.meta,
    &POLL_TIMEOUT.meta,
    &STALE_AFTER.meta,
    &STALE_POLICY.meta,
    &HOLD_MAX.meta,
    &LOAD_MODEL.meta,
    &NORMALIZE.meta,
    &PIN_MODEL.meta,
    &PIN_FALLBACK.meta,
    &UNKNOWN_MODEL.meta,
    &MERGE_MODELS.meta,
    &FULL_POLICY.meta,
    &FULL_STATUS.meta,
    &WAIT_MAX.meta,
    &WAIT_TIMEOUT.meta,
    &RT_LIMIT_FACTOR.meta,
    &LOAD_RATE_LIMIT.meta,
    &MAX_MORE_TRIES.meta,
    &CLUSTER_AVG_INTERVAL.meta,
    &HEALTH_CHECK_INTERVAL.meta,
    &HEALTH_BAN_TTL.meta,
    &HEALTH_PROBE_PATH.meta,
    &HEALTH_TIMEOUT.meta,
    &TTFT_ENABLED.meta,
    &TTFT_429.meta,
    &TTFT_LIMIT_MS.meta,
    &TTFT_LIMIT_BY_MODEL.meta,
    &TTFT_METRICS.meta,
    &TTFT_EWMA_ALPHA.meta,
    &TTFT_WINDOW.meta,
    &TTFT_TTL.meta,
    &TTFT_PROBE_WINDOW.meta,
    &TTFT_PROBE_PER_WINDOW.meta,
    &TPS_ENABLED.meta,
    &TPS_LIMIT_TPS.meta,
    &TPS_LIMIT_BY_MODEL.meta,
    &TPS_METRICS.meta,
    &TPS_EWMA_ALPHA.meta,
    &TPS_WINDOW.meta,
    &TPS_TTL.meta,
    &TPS_PROBE_WINDOW.meta,
    &TPS_PROBE_PER_WINDOW.meta,
    &TPS_MIN_TOKENS.meta,
    &TPS_MIN_DECODE_S.meta,
    &ADAPTIVE_CC.meta,
    &ADAPTIVE_CC_INTERVAL.meta,
    &ADAPTIVE_CC_DEC.meta,
    &ADAPTIVE_CC_INC.meta,
    &ADAPTIVE_CC_MIN.meta,
    &ADAPTIVE_CC_MIN_FRAC.meta,
    &ADAPTIVE_CC_INIT.meta,
    &ADAPTIVE_CC_INIT_FRAC.meta,
    &ADAPTIVE_CC_PRESSURE_FRAC.meta,
    &ADAPTIVE_CC_SLACK_FRAC.meta,
    &ADAPTIVE_CC_ABS.meta,
    &ADAPTIVE_CC_TTL.meta,
    &ADAPTIVE_CC_USE_TTFT.meta,
    &ADAPTIVE_CC_HOLD_WHEN_IDLE.meta,
    &SESSION_PRIO.meta,
    &SESSION_PRIO_R_NEW.meta,
    &SESSION_PRIO_FULL_TURN.meta,
    &SESSION_PRIO_SEVERE.meta,
    &SESSION_PRIO_RELEASE.meta,
    &SESSION_PRIO_T1_PROBES.meta,
    &SESSION_PRIO_WARN_FRAC.meta,
    &SESSION_PRIO_TABLE.meta,
    &REJECT_RULES.meta,
    &REJECT_RULES_ENABLED.meta,
    &REJECT_RULES_STATUS.meta,
    &INCLUDE_USAGE.meta,
    &CCH_STRIP.meta,
    &KIMI_NORMALIZE.meta,
    &KIMI_NORMALIZE_STRATEGY.meta,
    &SYSTEM_HOIST.meta,
    &POSTPROCESS.meta,
    &TRANSPARENT.meta,
    &API_KEYS.meta,
    &FORWARD_AUTH.meta,
    &EXTRA_PATHS.meta,
    &EXPOSE_ROUTING_HEADERS.meta,
    &REQUEST_TIMEOUT.meta,
    &MAX_BODY_SIZE.meta,
    &BODYLOG.meta,
    &BODYLOG_PCT.meta,
    &BODYLOG_SLOW.meta,
    &BODYLOG_BODIES.meta,
    &BODYLOG_REDACT_PATHS.meta,
];

/// How many of [`ROUTE`]'s first keys belong to one route alone.
const ROUTE_ONLY: usize = 3;

/// The keys of `defaults:`.
pub(crate) static DEFAULTABLE: &[&Meta] = ROUTE.split_at(ROUTE_ONLY).1;

/// The greatest concurrency a peer may be said to have.
pub(super) const SLOTS: Kind = Kind::Whole {
    min: 1,
    max: 1_000_000,
};

/// `default_max`.
pub(crate) static DEFAULT_MAX: OptionDef<u32> =
    OptionDef::new("peers", "default_max", SLOTS, check::whole)
        .default("20")
        .doc("`max_concurrency` of the peers that have none.");
/// `cross_tier_fallback`.
pub(crate) static CROSS_TIER_FALLBACK: OptionDef<bool> =
    OptionDef::new("peers", "cross_tier_fallback", Kind::Bool, check::boolean)
        .default("false")
        .doc("Retries may go to a tier of lower priority.");
/// `affinity`.
pub(crate) static AFFINITY: OptionDef<AffinityKind> =
    OptionDef::new("affinity", "affinity", Kind::Choice(AffinityKind::words), check::choice)
        .default("hash")
        .doc("How sessions are placed: `hash`: by a pure function of session and peer list; `sticky_least_loaded`: a new session goes to the peer with the fewest sessions and stays there; `none`: every request is balanced.");
/// `affinity_enabled`.
pub(crate) static AFFINITY_ENABLED: OptionDef<bool> =
    OptionDef::new("affinity", "affinity_enabled", Kind::Bool, check::boolean)
        .default("true")
        .doc("The switch behind `/_affinity_toggle`: off, every request is balanced.");
/// `hash`.
pub(crate) static HASH: OptionDef<Hash> = OptionDef::new("affinity", "hash", Kind::Choice(Hash::words), check::choice)
    .default("crc32")
    .doc("`crc32`: `crc32(session) % n` over the active tier's enabled peers in file order, banned ones included. `rendezvous`: the highest `xxh3_64(session ‖ 0x00 ‖ host:port)` over the unbanned peers; only a lost peer's sessions move. `rendezvous_md5`: the picks of recent llm-openresty.");
/// `hash_saturated`.
pub(crate) static HASH_SATURATED: OptionDef<Saturated> =
    OptionDef::new("affinity", "hash_saturated", Kind::Choice(Saturated::words), check::choice)
        .default("fallback")
        .doc("What a session does when its home peer is full: `fallback` to `balance` for this request, or `keep` to its home.");
/// `session_sources`.
pub(crate) static SESSION_SOURCES: OptionDef<Arc<[SessionSource]>> =
    OptionDef::new("affinity", "session_sources", Kind::SessionSources, check::session_sources)
        .default("[\"header:x-litellm-session-id\", \"header:x-claude-code-session-id\", \"header:x-session-id\", \"body:metadata.session_id\", \"body:litellm_metadata.session_id\", \"body:metadata.user_id.session_id\", \"body:metadata.user_id\", \"body:user\"]")
        .doc("Where session ids are looked for; the first that is not blank wins. `header:<name>` or `body:<dotted.path>`; `session_params.session_id`, `session_id` and `user_id` are short for the body's fields of these names.");
/// `balance`.
pub(crate) static BALANCE: OptionDef<Balance> = OptionDef::new(
    "balance",
    "balance",
    Kind::Choice(Balance::words),
    check::choice,
)
.default("least_conn")
.doc(Balance::RULES);
/// `merge_models`.
pub(crate) static MERGE_MODELS: OptionDef<bool> =
    OptionDef::new("balance", "merge_models", Kind::Bool, check::boolean)
        .default("true")
        .doc("`GET …/v1/models` is the union of the peers' lists; false: it is proxied.");
/// `full_policy`.
pub(crate) static FULL_POLICY: OptionDef<FullPolicy> =
    OptionDef::new("capacity", "full_policy", Kind::Choice(FullPolicy::words), check::choice)
        .default("reject")
        .doc("When the pool is full: `reject` with `full_status`; `wait`: first come, first served, up to `wait_timeout`, then `overflow`; or `overflow`: send all the same and let the engine queue.");
/// `wait_max`.
pub(crate) static WAIT_MAX: OptionDef<u32> = OptionDef::new(
    "capacity",
    "wait_max",
    Kind::Whole {
        min: 1,
        max: 1_000_000,
    },
    check::whole,
)
.default("1024")
.doc("Requests that may wait for one pool; further ones are refused with `full_status`.");
/// `wait_timeout`.
pub(crate) static WAIT_TIMEOUT: OptionDef<Duration> =
    OptionDef::new("capacity", "wait_timeout", within(10, 1), check::duration)
        .default("10s")
        .doc("How long a request waits at most; then it is sent although the pool is full.");
/// `full_status`.
pub(crate) static FULL_STATUS: OptionDef<u16> = OptionDef::new(
    "capacity",
    "full_status",
    Kind::Status(&[429, 503]),
    check::status,
)
.default("429")
.doc("The status of a refusal for concurrency.");
/// `rt_limit_factor`.
pub(crate) static RT_LIMIT_FACTOR: OptionDef<f64> = OptionDef::new(
    "capacity",
    "rt_limit_factor",
    Kind::Number(Bounds::above(0.0, 1000.0)),
    check::number,
)
.default("1")
.doc("Scales the pool's limit and the peers' own maxima.");
/// `load_rate_limit`.
pub(crate) static LOAD_RATE_LIMIT: OptionDef<bool> =
    OptionDef::new("capacity", "load_rate_limit", Kind::Bool, check::boolean)
        .default("true")
        .doc("The master switch behind `/_rate_limit_toggle`: off, nobody is refused for concurrency, TTFT or decode rate, and each trip is counted all the same.");
/// `max_more_tries`.
pub(crate) static MAX_MORE_TRIES: OptionDef<u32> =
    OptionDef::new("capacity", "max_more_tries", Kind::Whole { min: 0, max: 100 }, check::whole)
        .default("2")
        .doc("How many further candidates a request may try while no byte of a response has reached the client.");
/// `cluster_avg_interval`.
pub(crate) static CLUSTER_AVG_INTERVAL: OptionDef<Duration> = OptionDef::new(
    "capacity",
    "cluster_avg_interval",
    within(10, 1),
    check::duration,
)
.default("30s")
.doc("Between two of the ten readings that `/_cluster_avg` averages. Shown, never acted on.")
.advanced();
/// `health_check_interval`.
pub(crate) static HEALTH_CHECK_INTERVAL: OptionDef<Duration> = OptionDef::new(
    "health",
    "health_check_interval",
    within(10, 24),
    check::duration,
)
.default("10s")
.doc("The pause between two probes of a peer, jittered.");
/// `health_ban_ttl`.
pub(crate) static HEALTH_BAN_TTL: OptionDef<Duration> = OptionDef::new(
    "health",
    "health_ban_ttl",
    within(10, 24 * 31),
    check::duration,
)
.default("300s")
.doc("How long a ban lasts that no probe renews.");
/// `health_probe_path`.
pub(crate) static HEALTH_PROBE_PATH: OptionDef<Arc<str>> = OptionDef::new(
    "health",
    "health_probe_path",
    Kind::UrlPath,
    check::url_path,
)
.default("/v1/models")
.doc("What is asked of a peer: 2xx is healthy, 429 is busy, anything else bans.");
/// `health_timeout`.
pub(crate) static HEALTH_TIMEOUT: OptionDef<Duration> =
    OptionDef::new("health", "health_timeout", within(10, 1), check::duration)
        .default("10s")
        .doc("A probe's answer that takes longer means busy: the peer's state stays as it is.")
        .advanced();
/// `include_usage`.
pub(crate) static INCLUDE_USAGE: OptionDef<bool> =
    OptionDef::new("content", "include_usage", Kind::Bool, check::boolean)
        .default("true")
        .doc("A stream on `/v1/chat/completions` or `/v1/completions` is asked for its usage, which feeds every count of tokens; the usage chunk is left out of what a client sees that did not ask.");
/// `postprocess`.
pub(crate) static POSTPROCESS: OptionDef<Postprocess> =
    OptionDef::new("content", "postprocess", Kind::Choice(Postprocess::words), check::choice)
        .default("none")
        .doc("The handler that rewrites successful answers, streams and JSON, on their way to the client (docs/postprocess.md). The body log and the measuring see what the engine sent.");
/// `transparent`.
pub(crate) static TRANSPARENT: OptionDef<bool> =
    OptionDef::new("content", "transparent", Kind::Bool, check::boolean)
        .default("false")
        .doc("Bodies byte for byte, both ways: nothing is ever inserted or removed.");
/// `api_keys`; unset: the shared file's.
pub(crate) static API_KEYS: OptionDef<Option<Arc<BTreeMap<String, String>>>> = OptionDef::new(
    "auth",
    "api_keys",
    Kind::ApiKeys,
    check::api_keys,
)
.default("the shared key file")
.doc("Keys of this route alone, `key: owner`; `{}` opens it. A key may be given as `sha256:<hex>`.")
.secret();
/// `forward_auth`.
pub(crate) static FORWARD_AUTH: OptionDef<bool> =
    OptionDef::new("auth", "forward_auth", Kind::Bool, check::boolean)
        .default("false")
        .doc("A credential that the router has validated goes on to the engine. On an open route the client's always does; a peer's `api_key` replaces either.");
/// `extra_paths`.
pub(crate) static EXTRA_PATHS: OptionDef<Arc<[Box<str>]>> =
    OptionDef::new("paths", "extra_paths", Kind::Prefixes, check::prefixes)
        .default("[]")
        .doc("Engine-native prefixes that are forwarded besides `/v1/`, such as `/tokenize`.");
/// `expose_routing_headers`.
pub(crate) static EXPOSE_ROUTING_HEADERS: OptionDef<bool> = OptionDef::new(
    "headers",
    "expose_routing_headers",
    Kind::Bool,
    check::boolean,
)
.default("true")
.doc("`X-Routed-*` and `x-proxy-backend` on responses; false: the request id alone.");
/// `request_timeout`; unset: the server's.
pub(crate) static REQUEST_TIMEOUT: OptionDef<Option<Duration>> = OptionDef::new(
    "time",
    "request_timeout",
    REQUEST_TIMEOUT_KIND,
    check::duration_or_off,
)
.default("`server.request_timeout`")
.doc("The whole request, first byte to last.");
/// `max_body_size`.
pub(crate) static MAX_BODY_SIZE: OptionDef<u64> =
    OptionDef::new("limits", "max_body_size", BODY, check::size)
        .default("10m")
        .doc("Larger bodies get 413. Capped by `server.max_body_size`.");

impl Choice for Postprocess {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("none", Self::None),
        ("strip_actual_usage", Self::StripActualUsage),
        ("vllm_format", Self::VllmFormat),
    ];
}

impl Choice for AffinityKind {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("hash", Self::Hash),
        ("sticky_least_loaded", Self::StickyLeastLoaded),
        ("none", Self::None),
    ];
}

impl Choice for Hash {
    const WORDS: &'static [(&'static str, Self)] = Self::WORDS;
}

impl Choice for Saturated {
    const WORDS: &'static [(&'static str, Self)] = Self::WORDS;
}

impl Choice for Balance {
    const WORDS: &'static [(&'static str, Self)] = Self::WORDS;
}

impl Choice for FullPolicy {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("reject", Self::Reject),
        ("wait", Self::Wait),
        ("overflow", Self::Overflow),
    ];
}
