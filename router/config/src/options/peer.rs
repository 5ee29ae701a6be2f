//! The keys that only a single route has: its name and its peers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use router_core::pool::Weight;

use super::{Bounds, Kind, Meta, OptionDef};
use crate::check::{self, Choice, Endpoint};
use crate::valid::{Engine, EngineDialect, Role, Secret};

/// The kind of a peer's `max_concurrency`.
const SLOTS_OR_AUTO: Kind = Kind::WholeOrAuto {
    min: 1,
    max: 1_000_000,
};

/// The keys of one peer.
pub(crate) static PEER: &[&Meta] = &[
    &ADDRESS.meta,
    &URL.meta,
    &PEER_NAME.meta,
    &PRIORITY.meta,
    &MAX_CONCURRENCY.meta,
    &PEER_SLOTS.meta,
    &WEIGHT.meta,
    &ROLE.meta,
    &DRAINING.meta,
    &ENGINE.meta,
    &METRICS_URL.meta,
    &PROBE.meta,
    &API_KEY.meta,
    &ENABLED.meta,
    &GPU.meta,
];

/// `name` of a route.
pub(crate) static NAME: OptionDef<Arc<str>> =
    OptionDef::new("route", "name", Kind::RouteName, check::route_name)
        .default("the file's stem")
        .doc("The route's name: the first segment of its paths.");
/// `peers`.
pub(crate) static PEERS: Meta = Meta {
    key: "peers",
    group: "peers",
    kind: Kind::Peers,
    default: "required, unless `peers_by_model` or `peers_from` is there",
    doc: "The engines of the route. The order is part of `hash: crc32`. `[]` is valid: the route answers 503. One text such as `${BACKENDS}` may list their addresses or URLs, separated by commas.",
    secret: false,
    advanced: false,
};
/// `peers_by_model`.
pub(crate) static PEERS_BY_MODEL: Meta = Meta {
    key: "peers_by_model",
    group: "peers",
    kind: Kind::PeersByModel,
    default: "unset",
    doc: "One pool of peers a model, instead of `peers`; an unknown model gets 400 with the list.",
    secret: false,
    advanced: false,
};

/// `peers_from`.
pub(crate) static PEERS_FROM: Meta = Meta {
    key: "peers_from",
    group: "peers",
    kind: Kind::PeersFrom,
    default: "unset",
    doc: "Where more peers of the route come from, next to or instead of `peers`: `file` or `dns`. A source that fails keeps the peers that it gave last. See docs/discovery.md.",
    secret: false,
    advanced: false,
};

/// The keys of `peers_from`.
pub(crate) static PEERS_FROM_KEYS: &[&Meta] = &[&PEERS_FROM_FILE.meta, &PEERS_FROM_DNS];

/// `peers_from.file`.
pub(crate) static PEERS_FROM_FILE: OptionDef<PathBuf> =
    OptionDef::new("peers_from", "file", Kind::File, check::file)
        .default("unset")
        .doc("A watched file, YAML or JSON, relative to the route file: a list of peers as under `peers`, of addresses, or of Prometheus's `{targets, labels}`.");
/// `peers_from.dns`.
pub(crate) static PEERS_FROM_DNS: Meta = Meta {
    key: "dns",
    group: "peers_from",
    kind: Kind::Section(|| PEERS_FROM_DNS_KEYS),
    default: "unset",
    doc: "A name that stands for one address for each engine, such as that of a headless service.",
    secret: false,
    advanced: false,
};

/// The keys of `peers_from.dns`.
pub(crate) static PEERS_FROM_DNS_KEYS: &[&Meta] = &[
    &PEERS_FROM_DNS_NAME.meta,
    &PEERS_FROM_DNS_PORT.meta,
    &PEERS_FROM_DNS_REFRESH.meta,
];

/// `peers_from.dns.name`.
pub(crate) static PEERS_FROM_DNS_NAME: OptionDef<Arc<str>> =
    OptionDef::new("dns", "name", Kind::Text, check::text)
        .default("required")
        .doc("The name to resolve, by the system's resolver (A and AAAA).");
/// `peers_from.dns.port`.
pub(crate) static PEERS_FROM_DNS_PORT: OptionDef<u32> = OptionDef::new(
    "dns",
    "port",
    Kind::Whole {
        min: 1,
        max: 65_535,
    },
    check::whole,
)
.default("required")
.doc("The port of every engine.");
/// `peers_from.dns.refresh`.
pub(crate) static PEERS_FROM_DNS_REFRESH: OptionDef<Duration> = OptionDef::new(
    "dns",
    "refresh",
    Kind::Duration {
        min: Duration::from_millis(100),
        max: Duration::from_secs(3600),
        off: false,
    },
    check::duration,
)
.default("10s")
.doc("How often the name is resolved again.");

/// `peers[].address`.
pub(crate) static ADDRESS: OptionDef<Endpoint> =
    OptionDef::new("peer", "address", Kind::Address, check::address)
        .default("required, unless `url` is there")
        .doc("`host:port` of an engine that speaks plain HTTP; an IPv6 host in brackets.");
/// `peers[].url`.
pub(crate) static URL: OptionDef<Endpoint> = OptionDef::new("peer", "url", Kind::Url, check::url)
    .default("unset")
    .doc("Instead of `address`: an `http` or `https` URL with an optional base path, without credentials and query.");
/// `peers[].name`.
pub(crate) static PEER_NAME: OptionDef<Arc<str>> =
    OptionDef::new("peer", "name", Kind::Text, check::text)
        .default("`host:port`")
        .doc("What headers, logs and metrics call it. Unique in its pool.");
/// `peers[].priority`.
pub(crate) static PRIORITY: OptionDef<i64> =
    OptionDef::new("peer", "priority", Kind::Integer, check::integer)
        .default("0")
        .doc("A larger number is preferred. Peers with the same number form a tier.");
/// `peers[].max_concurrency`.
pub(crate) static MAX_CONCURRENCY: OptionDef<Option<u32>> =
    OptionDef::new("peer", "max_concurrency", SLOTS_OR_AUTO, check::slots)
        .default("`default_max`")
        .doc("How many requests the peer runs at once. `auto`: what its engine reports, and `default_max` until then.");
/// `peers[].slots`.
pub(crate) static PEER_SLOTS: OptionDef<Option<u32>> =
    OptionDef::new("peer", "slots", SLOTS_OR_AUTO, check::slots)
        .default("`default_max`")
        .doc("Another name for `max_concurrency`.");
/// `peers[].weight`.
pub(crate) static WEIGHT: OptionDef<Weight> = OptionDef::new(
    "peer",
    "weight",
    Kind::Number(Bounds::above(0.0, 1_000_000.0)),
    check::weight,
)
.default("1")
.doc("Preference between equally loaded peers (`least_busy`, `idle_aware`). It is no share of traffic.");
/// `peers[].role`.
pub(crate) static ROLE: OptionDef<Role> =
    OptionDef::new("peer", "role", Kind::Choice(Role::words), check::choice)
        .default("regular")
        .doc("The part of a request that the peer serves. Requests go to `regular` peers. Peers with the role `prefill` or `decode` are watched but get no requests.");
/// `peers[].draining`.
pub(crate) static DRAINING: OptionDef<bool> =
    OptionDef::new("peer", "draining", Kind::Bool, check::boolean)
        .default("false")
        .doc("When true, the peer keeps its sessions and gets no new ones.");
/// `peers[].engine`.
pub(crate) static ENGINE: OptionDef<Engine> = OptionDef::new(
    "peer",
    "engine",
    Kind::Choice(Engine::words),
    check::choice,
)
.default("auto")
.doc(
    "Whose load page it has; `auto`: the page tells; `ollama` has none; `none`: it is never asked.",
);
/// `peers[].metrics_url`.
pub(crate) static METRICS_URL: OptionDef<Arc<str>> =
    OptionDef::new("peer", "metrics_url", Kind::PageUrl, check::page_url)
        .default("`/metrics` of the peer")
        .doc("The URL of its load page, where an engine has it elsewhere. A query is allowed.");
/// `peers[].probe`.
pub(crate) static PROBE: OptionDef<Arc<str>> =
    OptionDef::new("peer", "probe", Kind::UrlPath, check::url_path)
        .default("`health_probe_path`")
        .doc("The path that health probes request of this peer.");
/// `peers[].api_key`.
pub(crate) static API_KEY: OptionDef<Secret> = OptionDef::new("peer", "api_key", Kind::Secret, check::secret)
    .default("unset")
    .doc("The bearer token that the router sends to this peer, with requests and probes, instead of the client's.")
    .secret();
/// `peers[].enabled`.
pub(crate) static ENABLED: OptionDef<bool> =
    OptionDef::new("peer", "enabled", Kind::Bool, check::boolean)
        .default("true")
        .doc("When false, the peer is never probed and never chosen.");
/// `peers[].gpu`.
pub(crate) static GPU: OptionDef<Arc<str>> = OptionDef::new("peer", "gpu", Kind::Text, check::text)
    .default("unset")
    .doc("A label, shown only.");

impl Choice for Role {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("regular", Self::Regular),
        ("prefill", Self::Prefill),
        ("decode", Self::Decode),
    ];
}

impl Choice for Engine {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("auto", Self::Auto),
        ("llamacpp", Self::Known(EngineDialect::LlamaCpp)),
        ("vllm", Self::Known(EngineDialect::Vllm)),
        ("sglang", Self::Known(EngineDialect::Sglang)),
        ("tgi", Self::Known(EngineDialect::Tgi)),
        ("trtllm", Self::Known(EngineDialect::TrtLlm)),
        ("triton", Self::Known(EngineDialect::Triton)),
        ("ollama", Self::Ollama),
        ("none", Self::None),
    ];
}
