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
use super::{
    Bounds, Kind, Meta, NAME, PEERS, PEERS_BY_MODEL, PEERS_FROM, choice, option, switch, within,
};
use crate::aliases::Aliases;
use crate::check::{self, Choice};
use crate::valid::{
    AffinityFallback, AffinityKind, AliasAnswers, Fallback, IdStrategy, Postprocess, SystemHoist,
};

/// The headings of a route's options, in the order of every listing.
pub(super) const GROUPS: [&str; 17] = [
    "peers", "affinity", "balance", "load", "capacity", "health", "ttft", "tps", "adaptive",
    "priority", "content", "auth", "paths", "headers", "time", "limits", "bodylog",
];

/// The keys of a route file.
pub(crate) static ROUTE: LazyLock<Vec<&'static Meta>> = LazyLock::new(|| {
    let mut all = vec![&NAME.meta, &PEERS, &PEERS_BY_MODEL, &PEERS_FROM];
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

/// Bounds of the time between two signs of life for a client.
const SSE_KEEPALIVE: Kind = Kind::Duration {
    min: Duration::from_millis(100),
    max: Duration::from_secs(3600),
    off: true,
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
        /// The default `max_concurrency` of a peer.
        default_max: u32 = option("default_max", SLOTS).default("20");

        /// Whether a retry may go to a tier of lower priority.
        cross_tier_fallback: bool = switch("cross_tier_fallback").default("false");

        /// Routes that get a request before its client gets an error: when this route is full or has no
        /// usable peer, and when a peer failed before it took the request and no other is left. A session
        /// keeps its home on this route (docs/http.md).
        fallback: Fallback = option("fallback", Kind::Routes).default("[]");
    }

    "affinity" {
        /// How sessions are placed. `hash`: by a pure function of the session and the peer list.
        /// `sticky_least_loaded`: a new session goes to the peer with the fewest sessions and stays
        /// there. `none`: every request is balanced on its own.
        affinity: AffinityKind = choice("affinity").default("hash");

        /// The switch behind `/_affinity_toggle`. When it is off, every request is balanced on its
        /// own.
        affinity_enabled: bool = switch("affinity_enabled").default("true");

        /// `crc32`: `crc32(session) % n` over the active tier's enabled peers in file order, banned
        /// ones included. `rendezvous`: the highest `xxh3_64(session ‖ 0x00 ‖ host:port)` over the
        /// unbanned peers; only a lost peer's sessions move. `rendezvous_md5`: the picks of recent
        /// llm-openresty.
        hash: Hash = choice("hash").default("crc32");

        /// What happens when a session's home peer is full. `fallback`: `balance` places this
        /// request. `keep`: the request goes to the home peer.
        hash_saturated: Saturated = choice("hash_saturated").default("fallback");

        /// Where the router looks for a session id. The first value that is not blank wins. Either
        /// a list of `header:<name>` and `body:<dotted.path>`, or the name of a list: `default`,
        /// `openresty`, `vllm-router` or `litellm` (docs/sessions.md). A bare `session_id`,
        /// `user_id` or `session_params.session_id` is the field of the body.
        session_sources: Arc<[SessionSource]> =
            option("session_sources", Kind::SessionSources).default("default");

        /// With `sticky_least_loaded`: a session that was idle for this long is forgotten. `0s`:
        /// each request is placed anew. The variable `VLLM_ROUTER_SLL_SESSION_EXPIRATION_IN_S` sets
        /// another default.
        session_ttl: Duration = option("session_ttl", Kind::Duration { min: Duration::ZERO, max: Duration::from_secs(31 * 24 * 3600), off: false })
            .default("7200s");

        /// With `sticky_least_loaded`: how many sessions a pool remembers. Beyond that it forgets
        /// the least recently used one.
        max_sessions: u32 = option("max_sessions", Kind::Whole { min: 1, max: 1_000_000 }).default("262144");

        /// How requests without a session are placed. `none`: they are balanced. `prefix`: they go
        /// to the peer that computed the longest known prefix of their conversation last.
        affinity_fallback: AffinityFallback = choice("affinity_fallback").default("none");

        /// No new session goes to a peer whose load is above this many times the pool's mean. A
        /// session that already lives there moves only when the peer is full.
        affinity_max_load_factor: Option<f64> = option("affinity_max_load_factor", Kind::NumberOrOff(Bounds::within(1.0, 1000.0)))
            .default("off");
    }

    "balance" {
        /// How requests without a home are spread.
        balance: Balance = choice("balance").says(Balance::RULES).default("least_conn");

        /// Whether `GET …/v1/models` is the union of the peers' lists. When false, one peer answers
        /// it.
        merge_models: bool = switch("merge_models").default("true");
    }

    "capacity" {
        /// What happens when the pool is full. `reject`: the answer is `full_status`. `wait`:
        /// requests wait in order of arrival, for up to `wait_timeout`, then `overflow`.
        /// `overflow`: the request is sent all the same, and the engine queues it.
        full_policy: FullPolicy = choice("full_policy").default("reject");

        /// The status of a refusal because the pool is full.
        full_status: u16 = option("full_status", Kind::Status(&[429, 503])).default("429");

        /// How many requests may wait for one pool. Further ones are refused with `full_status`.
        wait_max: u32 = option("wait_max", Kind::Whole { min: 1, max: 1_000_000 }).default("1024");

        /// How long a request may wait for a slot. Then it is sent although the pool is full.
        wait_timeout: Duration = option("wait_timeout", within(10, 1)).default("10s");

        /// Scales the pool's limit and the peers' own maxima.
        rt_limit_factor: f64 = option("rt_limit_factor", Kind::Number(Bounds::above(0.0, 1000.0))).default("1");

        /// The master switch behind `/_rate_limit_toggle`. When it is off, no request is refused
        /// for concurrency, TTFT or decode rate. Each gate that would have refused is still
        /// counted.
        load_rate_limit: bool = switch("load_rate_limit").default("true");

        /// How many further peers a request may try, as long as the client has received no byte of
        /// an answer.
        max_more_tries: u32 = option("max_more_tries", Kind::Whole { min: 0, max: 100 }).default("2");

        /// Time between two of the ten readings that `/_cluster_avg` averages. The average is only
        /// shown.
        cluster_avg_interval: Duration = option("cluster_avg_interval", within(10, 1)).default("30s").advanced();
    }

    "health" {
        /// Time between two probes of a peer, with jitter.
        health_check_interval: Duration = option("health_check_interval", within(10, 24)).default("10s");

        /// How long a ban lasts if no probe succeeds and none renews it.
        health_ban_ttl: Duration = option("health_ban_ttl", within(10, 24 * 31)).default("300s");

        /// The path that health probes request. 2xx means healthy, 429 busy, anything else bans the
        /// peer.
        health_probe_path: Arc<str> = option("health_probe_path", Kind::UrlPath)
            .read_by(check::url_path)
            .default("/v1/models");

        /// A probe's answer that takes longer means busy: the peer's state stays as it is.
        health_timeout: Duration = option("health_timeout", within(10, 1)).default("10s").advanced();
    }

    "ttft" {
        /// The switch behind `/_ttft_429_toggle`. When it is off, no request is refused for TTFT,
        /// but measuring and the adaptive limit go on.
        ttft_429: bool = switch("ttft_429").default("true");
    }

    "tps" {
        /// Completions with fewer tokens are not measured.
        tps_min_tokens: u32 = option("tps_min_tokens", Kind::Whole { min: 1, max: 1_000_000 })
            .default("16")
            .advanced();

        /// Completions that were decoded in less time are not measured.
        tps_min_decode: Duration = option("tps_min_decode_s", within(0, 24)).default("0.5").advanced();
    }

    "content" {
        /// Rules that refuse requests by their JSON body. The first rule that matches decides. Each
        /// rule has the keys of `reject_rules[]` below. A check reports a bad rule as an error. A
        /// running router logs a bad rule and drops it.
        reject_rules: Arc<Rules> = option("reject_rules", Kind::Rules).default("[]");

        /// The switch behind `/_reject_rules_toggle`. When it is off, no rule refuses anything.
        reject_rules_enabled: bool = switch("reject_rules_enabled").inherits("`true` when there are rules");

        /// The status of a refusal by a rule without a status of its own.
        reject_rules_status: u16 = option("reject_rules_status", REFUSAL).default("429");

        /// Whether the router asks the engine for the usage of streams on `/v1/chat/completions`
        /// and `/v1/completions`. The counts of tokens come from it. A client that did not ask for
        /// usage does not see the usage chunk.
        include_usage: bool = switch("include_usage").default("true");

        /// Whether the router removes the `x-anthropic-billing-header: …` that coding agents put at
        /// the start of a prompt. It differs in every request and so defeats prefix caches.
        cch_strip: bool = switch("cch_strip").default("true");

        /// Whether tool-call ids in requests for Kimi K2.5 and K2.6 are rewritten to the form that
        /// the model itself writes, `functions.<name>:<number>`.
        kimi_normalize: bool = switch("kimi_normalize").default("true");

        /// How `kimi_normalize` chooses the number of an id. `rerank`: the position of the call in
        /// the conversation. `hash`: a checksum of the call. `rerank_maxlast`: the position, but
        /// the last call gets the greatest number of all. `keepinc`: ids of the right form stay
        /// while their numbers rise, and the others get the next number.
        kimi_normalize_strategy: IdStrategy = choice("kimi_normalize_strategy").default("rerank").advanced();

        /// Which messages with `role: system` move to the top-level `system` on `/v1/messages` and
        /// its `count_tokens`, where that API expects them. `leading`: those before the first other
        /// message, so that each turn's prompt begins like the one before. `all`: those in
        /// mid-conversation too, which defeats the prefix cache. `off`: none.
        system_hoist: SystemHoist = choice("system_hoist").default("leading");

        /// The handler that rewrites successful answers on their way to the client, streams and
        /// JSON (docs/postprocess.md). The body log and the measurements see what the engine sent.
        postprocess: Postprocess = choice("postprocess").default("none");

        /// Names that clients ask for, each with the model that is served instead. A name may have one
        /// `*`; exact names come first, then patterns in file order, which leave served models alone
        /// (docs/aliases.md).
        models: Arc<Aliases> = option("models", Kind::Aliases).default("{}");

        /// The model's name in answers to a request by an alias: the one that was `asked` for, or the
        /// one that was `served`.
        alias_answers: AliasAnswers = choice("alias_answers").default("asked");

        /// When true, bodies pass byte for byte in both directions: the router inserts and removes
        /// nothing.
        transparent: bool = switch("transparent").default("false");
    }

    "auth" {
        /// Keys of this route alone, as `key: owner`. `{}` opens the route, `shared` asks for a key
        /// of the shared file. A key may be written as `sha256:<hex>`. A running router refuses a
        /// file that drops `api_keys` from a route with keys of its own: write which of the two is
        /// meant.
        api_keys: Option<Arc<BTreeMap<String, String>>> = option("api_keys", Kind::ApiKeys)
            .inherits("the shared key file")
            .secret();

        /// Whether a credential that the router has checked goes on to the engine. On an open route
        /// the client's credential always does. A peer's `api_key` replaces either.
        forward_auth: bool = switch("forward_auth").default("false");
    }

    "paths" {
        /// Further path prefixes that are forwarded besides `/v1/`, such as `/tokenize`.
        extra_paths: Arc<[Box<str>]> = option("extra_paths", Kind::Prefixes).default("[]");

        /// WebSocket upgrades (`/v1/realtime` and engines' own) are tunnelled to the session's peer and
        /// hold its slot until either side closes. false: they get 501.
        websockets: bool = switch("websockets").default("true");
    }

    "headers" {
        /// Whether answers carry `X-Routed-*` and `x-proxy-backend`. When false, they carry the
        /// request id alone.
        expose_routing_headers: bool = switch("expose_routing_headers").default("true");
    }

    "time" {
        /// The longest time for the whole request, from its first byte to the last byte of the
        /// answer.
        request_timeout: Option<Duration> = option("request_timeout", REQUEST_TIMEOUT_KIND)
            .inherits("`server.request_timeout`");

        /// How often a client that asked for a stream hears from the router while the engine has sent
        /// nothing: by a comment, on `/v1/messages` by a `ping` event. Balancers that cut silent
        /// connections then wait for a long prefill (docs/http.md).
        sse_keepalive: Option<Duration> = option("sse_keepalive", SSE_KEEPALIVE).default("off");

        /// How long a client may stop reading its answer. Then its connection ends, and its slot is
        /// free again.
        client_write_timeout: Duration = option("client_write_timeout", CLIENT_WRITE_TIMEOUT)
            .default("60s");
    }

    "limits" {
        /// The largest request body; a larger one gets 413. `server.max_body_size` is the ceiling.
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

impl Choice for AliasAnswers {
    const WORDS: &'static [(&'static str, Self)] =
        &[("asked", Self::Asked), ("served", Self::Served)];
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
