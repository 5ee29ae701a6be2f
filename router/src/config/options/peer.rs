//! The keys that belong to one route alone: its name and its peers.

use std::sync::Arc;

use super::route::SLOTS;
use super::{Kind, Knob, Meta};
use crate::config::check::{self, Endpoint};
use crate::config::valid::Secret;

/// The keys of one peer.
pub(in crate::config) static PEER: &[&Meta] = &[
    &ADDRESS.meta,
    &URL.meta,
    &PEER_NAME.meta,
    &PRIORITY.meta,
    &MAX_CONCURRENCY.meta,
    &PEER_SLOTS.meta,
    &PROBE.meta,
    &API_KEY.meta,
    &ENABLED.meta,
    &GPU.meta,
];

/// `name` of a route.
pub(in crate::config) static NAME: Knob<Arc<str>> =
    Knob::new("route", "name", Kind::RouteName, check::route_name)
        .default("the file's stem")
        .doc("The route's name: the first segment of its paths.");
/// `peers`.
pub(in crate::config) static PEERS: Meta = Meta {
    key: "peers",
    group: "peers",
    kind: Kind::Peers,
    default: "required, unless `peers_by_model` is there",
    doc: "The engines of the route. The order is part of `hash: crc32`. `[]` is valid: the route answers 503.",
    secret: false,
    advanced: false,
};
/// `peers_by_model`.
pub(in crate::config) static PEERS_BY_MODEL: Meta = Meta {
    key: "peers_by_model",
    group: "peers",
    kind: Kind::PeersByModel,
    default: "unset",
    doc: "One pool of peers a model, instead of `peers`; an unknown model gets 400 with the list.",
    secret: false,
    advanced: false,
};

/// `peers[].address`.
pub(in crate::config) static ADDRESS: Knob<Endpoint> =
    Knob::new("peer", "address", Kind::Address, check::address)
        .default("required, unless `url` is there")
        .doc("`host:port` of an engine that speaks plain HTTP; an IPv6 host in brackets.");
/// `peers[].url`.
pub(in crate::config) static URL: Knob<Endpoint> = Knob::new("peer", "url", Kind::Url, check::url)
    .default("unset")
    .doc("Instead of `address`: an `http` or `https` URL with an optional base path, without credentials and query.");
/// `peers[].name`.
pub(in crate::config) static PEER_NAME: Knob<Arc<str>> =
    Knob::new("peer", "name", Kind::Text, check::text)
        .default("`host:port`")
        .doc("What headers, logs and metrics call it. Unique in its pool.");
/// `peers[].priority`.
pub(in crate::config) static PRIORITY: Knob<i64> =
    Knob::new("peer", "priority", Kind::Integer, check::integer)
        .default("0")
        .doc("Larger is preferred; the peers of one number form a tier.");
/// `peers[].max_concurrency`.
pub(in crate::config) static MAX_CONCURRENCY: Knob<u32> =
    Knob::new("peer", "max_concurrency", SLOTS, check::slots)
        .default("`default_max`")
        .doc("How many requests it runs at once.");
/// `peers[].slots`.
pub(in crate::config) static PEER_SLOTS: Knob<u32> =
    Knob::new("peer", "slots", SLOTS, check::slots)
        .default("`default_max`")
        .doc("Another name for `max_concurrency`.");
/// `peers[].probe`.
pub(in crate::config) static PROBE: Knob<Arc<str>> =
    Knob::new("peer", "probe", Kind::UrlPath, check::url_path)
        .default("`health_probe_path`")
        .doc("What is asked of this peer by the health checks.");
/// `peers[].api_key`.
pub(in crate::config) static API_KEY: Knob<Secret> = Knob::new("peer", "api_key", Kind::Secret, check::secret)
    .default("unset")
    .doc("The bearer token that the router presents to this peer, on requests and probes; it replaces the client's.")
    .secret();
/// `peers[].enabled`.
pub(in crate::config) static ENABLED: Knob<bool> =
    Knob::new("peer", "enabled", Kind::Bool, check::boolean)
        .default("true")
        .doc("False: known, but never probed and never chosen.");
/// `peers[].gpu`.
pub(in crate::config) static GPU: Knob<Arc<str>> =
    Knob::new("peer", "gpu", Kind::Text, check::text)
        .default("unset")
        .doc("A label, shown only.");
