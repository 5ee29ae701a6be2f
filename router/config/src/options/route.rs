//! The options of a route, apart from its peers.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use router_core::affinity::{Hash, Saturated};
use router_core::balance::Balance;
use router_core::pool::FullPolicy;
use router_core::rules::Rules;
use router_core::session::SessionSource;

use super::adaptive::{ADAPTIVE, AdaptiveOptions};
use super::bodylog::{BODYLOG, BodylogOptions};
use super::define::options;
use super::health::{HEALTH, HealthOptions};
use super::load::{LOAD, LoadOptions};
use super::priority::{PRIORITY_OPTIONS, PriorityOptions};
use super::rules::REFUSAL;
use super::server::{BODY, REQUEST_TIMEOUT_KIND};
use super::signals::{SignalOptions, TPS, TTFT};
use super::{Bounds, Kind, Meta, NAME, PEERS, PEERS_BY_MODEL, choice, option, switch, within};
use crate::check::{self, Choice};
use crate::valid::{AffinityFallback, AffinityKind, IdStrategy, Postprocess, SystemHoist};

/// The headings of a route's options, in the order of every listing.
pub(super) const GROUPS: [&str; 17] = [
    "peers", "affinity", "balance", "load", "capacity", "health", "ttft", "tps", "adaptive",
    "priority", "content", "auth", "paths", "headers", "time", "limits", "bodylog",
];

/// The keys of a route file.
pub(crate) static ROUTE: LazyLock<Vec<&'static Meta>> = LazyLock::new(|| {
    let mut all = vec![&NAME.meta, &PEERS, &PEERS_BY_MODEL];
    all.extend(DEFAULTABLE.iter());
    all
});

/// The keys of `defaults:`: those of a route file that do not belong to a single route.
pub(crate) static DEFAULTABLE: LazyLock<Vec<&'static Meta>> = LazyLock::new(|| {
    let mut all = ROUTE_OPTIONS.metas();
    all.sort_by_key(|meta| GROUPS.iter().position(|group| *group == meta.group));
    all
});

/// Bounds of the time without progress while sending to a client.
const CLIENT_WRITE_TIMEOUT: Kind = Kind::Duration {
    min: Duration::from_secs(1),
    max: Duration::from_secs(24 * 3600),
    off: false,
};

/// The largest concurrency that a peer may have.
pub(super) const SLOTS: Kind = Kind::Whole {
    min: 1,
    max: 1_000_000,
};

options! {
    /// Every option of a route but its peers. One field per knob, spelled as in the file.
    pub struct RouteOptions, declared in ROUTE_OPTIONS: RouteTable;

    /// What a peer's load is, and what models mean.
    load: LoadOptions in LOAD;
    /// When peers that fail or hang lose their requests.
    health: HealthOptions in HEALTH;
    /// `ttft_*`.
    ttft: SignalOptions in TTFT;
    /// `tps_*`.
    tps: SignalOptions in TPS;
    /// `adaptive_cc` and `adaptive_cc_*`.
    adaptive: AdaptiveOptions in ADAPTIVE;
    /// `session_prio` and `session_prio_*`.
    priority: PriorityOptions in PRIORITY_OPTIONS;
    /// `bodylog` and `bodylog_*`.
    bodylog: BodylogOptions in BODYLOG;

    "peers" {
        /// `max_concurrency` of the peers that have none.
        default_max: u32 = option("default_max", SLOTS).default("20");

        /// Retries may go to a tier of lower priority.
        cross_tier_fallback: bool = switch("cross_tier_fallback").default("false");
    }

    "affinity" {
        /// How sessions are placed: `hash`: by a pure function of session and peer list;
        /// `sticky_least_loaded`: a new session goes to the peer with the fewest sessions and stays
        /// there; `none`: every request is balanced.
        affinity: AffinityKind = choice("affinity").default("hash");

        /// The switch behind `/_affinity_toggle`: off, every request is balanced.
        affinity_enabled: bool = switch("affinity_enabled").default("true");

        /// `crc32`: `crc32(session) % n` over the active tier's enabled peers in file order, banned
        /// ones included. `rendezvous`: the highest `xxh3_64(session ‖ 0x00 ‖ host:port)` over the
        /// unbanned peers; only a lost peer's sessions move. `rendezvous_md5`: the picks of recent
        /// llm-openresty.
        hash: Hash = choice("hash").default("crc32");

        /// What a session does when its home peer is full: `fallback` to `balance` for this
        /// request, or `keep` to its home.
        hash_saturated: Saturated = choice("hash_saturated").default("fallback");

        /// Where session ids are looked for; the first that is not blank wins. A list of
        /// `header:<name>` and `body:<dotted.path>`, or a list that has a name: `default`,
        /// `openresty`, `vllm-router` or `litellm` (docs/sessions.md). A bare `session_id`,
        /// `user_id` or `session_params.session_id` is the body's field.
        session_sources: Arc<[SessionSource]> =
            option("session_sources", Kind::SessionSources).default("default");

        /// `sticky_least_loaded`: a session that was idle for so long is forgotten. `0s`: each
        /// request is placed anew. The variable `VLLM_ROUTER_SLL_SESSION_EXPIRATION_IN_S` sets
        /// another default.
        session_ttl: Duration = option("session_ttl", Kind::Duration { min: Duration::ZERO, max: Duration::from_secs(31 * 24 * 3600), off: false })
            .default("7200s");

        /// `sticky_least_loaded`: sessions a pool remembers; beyond it the least recently used one
        /// is forgotten.
        max_sessions: u32 = option("max_sessions", Kind::Whole { min: 1, max: 1_000_000 }).default("262144");

        /// For requests that name no session: `none`: they are balanced; `prefix`: they go where
        /// the longest known prefix of their conversation was computed last.
        affinity_fallback: AffinityFallback = choice("affinity_fallback").default("none");

        /// A session is not placed for the first time on a peer whose load is above this many times
        /// its pool's mean; one that is at home there moves only when it is full.
        affinity_max_load_factor: Option<f64> = option("affinity_max_load_factor", Kind::NumberOrOff(Bounds::within(1.0, 1000.0)))
            .default("off");
    }

    "balance" {
        /// How requests without a home are spread.
        balance: Balance = choice("balance").says(Balance::RULES).default("least_conn");

        /// `GET …/v1/models` is the union of the peers' lists; false: it is proxied.
        merge_models: bool = switch("merge_models").default("true");
    }

    "capacity" {
        /// When the pool is full: `reject` with `full_status`; `wait`: first come, first served, up
        /// to `wait_timeout`, then `overflow`; or `overflow`: send all the same and let the engine
        /// queue.
        full_policy: FullPolicy = choice("full_policy").default("reject");

        /// The status of a refusal for concurrency.
        full_status: u16 = option("full_status", Kind::Status(&[429, 503])).default("429");

        /// Requests that may wait for one pool; further ones are refused with `full_status`.
        wait_max: u32 = option("wait_max", Kind::Whole { min: 1, max: 1_000_000 }).default("1024");

        /// How long a request waits at most; then it is sent although the pool is full.
        wait_timeout: Duration = option("wait_timeout", within(10, 1)).default("10s");

        /// Scales the pool's limit and the peers' own maxima.
        rt_limit_factor: f64 = option("rt_limit_factor", Kind::Number(Bounds::above(0.0, 1000.0))).default("1");

        /// The master switch behind `/_rate_limit_toggle`: off, nobody is refused for concurrency,
        /// TTFT or decode rate, and each trip is counted all the same.
        load_rate_limit: bool = switch("load_rate_limit").default("true");

        /// How many further candidates a request may try while no byte of a response has reached
        /// the client.
        max_more_tries: u32 = option("max_more_tries", Kind::Whole { min: 0, max: 100 }).default("2");

        /// Between two of the ten readings that `/_cluster_avg` averages. Shown, never acted on.
        cluster_avg_interval: Duration = option("cluster_avg_interval", within(10, 1)).default("30s").advanced();
    }

    "health" {
        /// The pause between two probes of a peer, jittered.
        health_check_interval: Duration = option("health_check_interval", within(10, 24)).default("10s");

        /// How long a ban lasts that no probe renews.
        health_ban_ttl: Duration = option("health_ban_ttl", within(10, 24 * 31)).default("300s");

        /// What is asked of a peer: 2xx is healthy, 429 is busy, anything else bans.
        health_probe_path: Arc<str> = option("health_probe_path", Kind::UrlPath)
            .read_by(check::url_path)
            .default("/v1/models");

        /// A probe's answer that takes longer means busy: the peer's state stays as it is.
        health_timeout: Duration = option("health_timeout", within(10, 1)).default("10s").advanced();
    }

    "ttft" {
        /// The switch behind `/_ttft_429_toggle`: off, nobody is refused for it, while measuring
        /// and the adaptive limit go on.
        ttft_429: bool = switch("ttft_429").default("true");
    }

    "tps" {
        /// Completions of fewer tokens are not measured.
        tps_min_tokens: u32 = option("tps_min_tokens", Kind::Whole { min: 1, max: 1_000_000 })
            .default("16")
            .advanced();

        /// Completions that took less time to decode are not measured.
        tps_min_decode: Duration = option("tps_min_decode_s", within(0, 24)).default("0.5").advanced();
    }

    "content" {
        /// Requests that are refused for what their JSON body says, by the first rule that holds;
        /// each rule has the keys of `reject_rules[]` below. A bad rule is an error for a check; a
        /// running router logs it and drops that rule.
        reject_rules: Arc<Rules> = option("reject_rules", Kind::Rules).default("[]");

        /// The switch behind `/_reject_rules_toggle`: off, no rule refuses anything.
        reject_rules_enabled: bool = switch("reject_rules_enabled").inherits("`true` when there are rules");

        /// The status of refusals by rules that have none of their own.
        reject_rules_status: u16 = option("reject_rules_status", REFUSAL).default("429");

        /// A stream on `/v1/chat/completions` or `/v1/completions` is asked for its usage, which
        /// feeds every count of tokens; the usage chunk is left out of what a client sees that did
        /// not ask.
        include_usage: bool = switch("include_usage").default("true");

        /// The `x-anthropic-billing-header: …` that coding agents put at the start of a prompt,
        /// different in every request, is taken out, so that prefix caches hit.
        cch_strip: bool = switch("cch_strip").default("true");

        /// Tool-call ids in requests for Kimi K2.5 and K2.6 are written as the model writes them,
        /// `functions.<name>:<number>`.
        kimi_normalize: bool = switch("kimi_normalize").default("true");

        /// The number in such an id: `rerank`: the call's position in the conversation; `hash`: a
        /// checksum of the call; `rerank_maxlast`: the position, but the last call gets the
        /// greatest number that was there; `keepinc`: ids of the right form stay while their
        /// numbers rise, the others get the next number.
        kimi_normalize_strategy: IdStrategy = choice("kimi_normalize_strategy").default("rerank").advanced();

        /// On `/v1/messages` and its `count_tokens`, messages with `role: system` move to the
        /// top-level `system`, where that API has them: `leading`: those before the first other
        /// message, so that the prompt of each turn begins as the one before; `all`: those in
        /// mid-conversation too, which costs the prefix cache; `off`: none.
        system_hoist: SystemHoist = choice("system_hoist").default("leading");

        /// The handler that rewrites successful answers, streams and JSON, on their way to the
        /// client (docs/postprocess.md). The body log and the measuring see what the engine sent.
        postprocess: Postprocess = choice("postprocess").default("none");

        /// Bodies byte for byte, both ways: nothing is ever inserted or removed.
        transparent: bool = switch("transparent").default("false");
    }

    "auth" {
        /// Keys of this route alone, `key: owner`; `{}` opens it, `shared` asks for a key of the
        /// shared file. A key may be given as `sha256:<hex>`. A running router refuses a file that
        /// drops `api_keys` from a route with keys of its own: write which of the two is meant.
        api_keys: Option<Arc<BTreeMap<String, String>>> = option("api_keys", Kind::ApiKeys)
            .inherits("the shared key file")
            .secret();

        /// A credential that the router has validated goes on to the engine. On an open route the
        /// client's always does; a peer's `api_key` replaces either.
        forward_auth: bool = switch("forward_auth").default("false");
    }

    "paths" {
        /// Engine-native prefixes that are forwarded besides `/v1/`, such as `/tokenize`.
        extra_paths: Arc<[Box<str>]> = option("extra_paths", Kind::Prefixes).default("[]");
    }

    "headers" {
        /// `X-Routed-*` and `x-proxy-backend` on responses; false: the request id alone.
        expose_routing_headers: bool = switch("expose_routing_headers").default("true");
    }

    "time" {
        /// The whole request, first byte to last.
        request_timeout: Option<Duration> = option("request_timeout", REQUEST_TIMEOUT_KIND)
            .inherits("`server.request_timeout`");

        /// How long a client may take nothing of its answer. Then its connection ends, and its slot is
        /// free again.
        client_write_timeout: Duration = option("client_write_timeout", CLIENT_WRITE_TIMEOUT)
            .default("60s");
    }

    "limits" {
        /// Larger bodies get 413. Capped by `server.max_body_size`.
        max_body_size: u64 = option("max_body_size", BODY).default("10m");
    }
}

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

impl Choice for SystemHoist {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("all", Self::All),
        ("leading", Self::Leading),
        ("off", Self::Off),
    ];
}

impl Choice for IdStrategy {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("rerank", Self::Rerank),
        ("hash", Self::Hash),
        ("rerank_maxlast", Self::RerankMaxlast),
        ("keepinc", Self::Keepinc),
    ];
}
