//! Peers: one engine each, unique in their pool.

use router_core::pool::Weight;

use super::net::Endpoint;
use super::reader::{Reader, short};
use super::scalar::{items, number, whole_or_auto};
use super::section::{Layers, keys};
use crate::options::{
    ADDRESS, API_KEY, DRAINING, ENABLED, ENGINE, GPU, MAX_CONCURRENCY, METRICS_URL, Meta,
    OptionDef, PEER, PEER_NAME, PEER_SLOTS, PEERS, PEERS_BY_MODEL, PEERS_FROM, PRIORITY, PROBE,
    ROLE, URL, WEIGHT,
};
use crate::tree::{Key, Node, Scalar, Span, Style, Value};
use crate::valid::{Peer, Pool, Role};

/// The number of requests that a peer runs at once. `Some(None)`: the engine reports it.
pub(crate) fn slots(reader: &mut Reader, node: &Node, meta: &Meta) -> Option<Option<u32>> {
    if node.as_scalar().is_some_and(|s| s.text == "0") {
        reader
            .error(
                node.span.clone(),
                format!("expected {}, found the number `0`", meta.kind.allowed()),
            )
            .help("to take a peer out of service write `enabled: false`");
        return None;
    }
    whole_or_auto(reader, node, meta)
}

/// Reads a preference between equally loaded peers.
pub(crate) fn weight(reader: &mut Reader, node: &Node, meta: &Meta) -> Option<Weight> {
    Weight::new(number(reader, node, meta)?)
}

/// Reads the pools of a route file: `peers` or `peers_by_model`.
pub(super) fn pools(reader: &mut Reader, root: &Node, default_max: u32) -> Vec<Pool> {
    let (flat, by_model) = (root.get(PEERS.key), root.get(PEERS_BY_MODEL.key));
    match (flat, by_model) {
        (None, None) if root.get(PEERS_FROM.key).is_some() => vec![Pool {
            model: None,
            peers: Vec::new(),
        }],
        (None, None) => {
            reader
                .error(first_key(root), "`peers` is missing")
                .help("`peers: []` is valid: the route answers 503");
            Vec::new()
        }
        (Some(flat), Some(by_model)) => {
            let label = flat.span.clone();
            reader
                .error(
                    by_model.span.clone(),
                    "a route has `peers` or `peers_by_model`, not both",
                )
                .label(label, "the other one");
            reader.key(PEERS.key, |reader| pool(reader, flat, default_max));
            models(reader, by_model, default_max)
        }
        (Some(flat), None) => {
            let peers = reader.key(PEERS.key, |reader| pool(reader, flat, default_max));
            vec![Pool { model: None, peers }]
        }
        (None, Some(by_model)) => models(reader, by_model, default_max),
    }
}

fn models(reader: &mut Reader, node: &Node, default_max: u32) -> Vec<Pool> {
    reader.key(PEERS_BY_MODEL.key, |reader| {
        let pairs = match &node.value {
            Value::Map(pairs) if !pairs.is_empty() => pairs,
            _ => {
                if let Some(draft) = reader.unexpected(node, &PEERS_BY_MODEL.kind.allowed()) {
                    draft.help("a route without peers is `peers: []`");
                }
                return Vec::new();
            }
        };
        let mut pools: Vec<Pool> = Vec::with_capacity(pairs.len());
        for (index, (model, peers)) in pairs.iter().enumerate() {
            if model.text.trim().is_empty() {
                reader.error(model.span.clone(), "a model's name is empty");
            }
            if let Some((first, _)) = pairs[..index]
                .iter()
                .find(|(other, _)| other.text == model.text)
            {
                reader
                    .error(
                        model.span.clone(),
                        format!("the model `{}` is here twice", short(&model.text)),
                    )
                    .label(first.span.clone(), "first here");
            }
            let peers = reader.key(&model.text, |reader| pool(reader, peers, default_max));
            shared(reader, &model.span, &pools, &peers);
            pools.push(Pool {
                model: Some(model.text.as_str().into()),
                peers,
            });
        }
        pools
    })
}

/// A peer listed under two models is one engine, so both entries must reach it in the same way.
fn shared(reader: &mut Reader, model: &Span, before: &[Pool], peers: &[Peer]) {
    for peer in peers {
        let other = before
            .iter()
            .flat_map(|pool| &pool.peers)
            .find(|other| other.key == peer.key);
        if other.is_some_and(|other| !same_engine(other, peer)) {
            let message = format!(
                "the peer `{}` is under another model too, with another URL, name, probe, key or load page",
                peer.key
            );
            reader
                .error(model.clone(), message)
                .help("in-flight and bans are the engine's: describe it the same way");
        }
    }
}

fn same_engine(a: &Peer, b: &Peer) -> bool {
    (a.tls, &a.base_path, &a.name, &a.probe, &a.api_key)
        == (b.tls, &b.base_path, &b.name, &b.probe, &b.api_key)
        && (a.engine, &a.metrics_url, a.learns_slots) == (b.engine, &b.metrics_url, b.learns_slots)
}

pub(super) fn pool(reader: &mut Reader, node: &Node, default_max: u32) -> Vec<Peer> {
    let written;
    let items = if let Some(listed) = listed(node) {
        written = listed;
        &written
    } else if let Some(items) = items(reader, node, &PEERS) {
        items
    } else {
        return Vec::new();
    };
    let mut seen: Vec<(Peer, Span)> = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        reader.item(index, |reader| {
            let Some((peer, span)) = peer(reader, item, default_max) else {
                return;
            };
            unique(reader, &peer, &span, &seen);
            seen.push((peer, span));
        });
    }
    seen.into_iter().map(|(peer, _)| peer).collect()
}

/// `a:8000, https://b/base`: a list in the form of one environment variable. Each item gets the
/// place of the whole text.
fn listed(node: &Node) -> Option<Vec<Node>> {
    let scalar = node.as_scalar().filter(|scalar| {
        scalar.style != Style::Unusable && !scalar.is_null() && !scalar.text.trim().is_empty()
    })?;
    let at = |value| Node {
        value,
        span: node.span.clone(),
        defined: node.defined.clone(),
    };
    let peer = |text: &str| {
        let knob = if text.contains("://") {
            URL.meta.key
        } else {
            ADDRESS.meta.key
        };
        let key = Key {
            text: knob.to_owned(),
            span: node.span.clone(),
        };
        let text = Value::Scalar(Scalar {
            text: text.to_owned(),
            style: Style::Quoted,
        });
        at(Value::Map(vec![(key, at(text))]))
    };
    Some(scalar.text.split(',').map(str::trim).map(peer).collect())
}

fn unique(reader: &mut Reader, peer: &Peer, span: &Span, seen: &[(Peer, Span)]) {
    if let Some((_, first)) = seen.iter().find(|(other, _)| other.key == peer.key) {
        reader
            .error(
                span.clone(),
                format!("the peer `{}` is in this pool twice", peer.key),
            )
            .label(first.clone(), "first here");
    } else if let Some((_, first)) = seen.iter().find(|(other, _)| other.name == peer.name) {
        reader
            .error(
                span.clone(),
                format!("the name `{}` is in this pool twice", short(&peer.name)),
            )
            .label(first.clone(), "first here");
    }
}

/// One peer and the place of its address. `None` when it has no usable address.
fn peer(reader: &mut Reader, node: &Node, default_max: u32) -> Option<(Peer, Span)> {
    if !matches!(node.value, Value::Map(_)) {
        if let Some(draft) = reader.unexpected(node, "a peer") {
            draft.help("write `{address: \"host:port\"}`");
        }
        return None;
    }
    keys(reader, node, PEER, "a peer");
    let layers = Layers {
        own: node,
        global: None,
    };
    let place = place(reader, node);
    // All keys are read before a missing address ends the function, so that every problem is
    // reported.
    let name = optional(reader, node, &PEER_NAME);
    let priority = layers.value(reader, &PRIORITY);
    let max_concurrency = alias(reader, node);
    let enabled = layers.value(reader, &ENABLED);
    let (weight, draining) = (
        layers.value(reader, &WEIGHT),
        layers.value(reader, &DRAINING),
    );
    let (role, engine) = (layers.value(reader, &ROLE), layers.value(reader, &ENGINE));
    let metrics_url = optional(reader, node, &METRICS_URL);
    if role != Role::Regular
        && let Some(at) = node.get(ROLE.meta.key)
    {
        reader.warning(
            "split-role",
            at.span.clone(),
            "requests are not split yet: this peer takes none",
        );
    }
    let (api_key, probe, gpu) = (
        optional(reader, node, &API_KEY),
        optional(reader, node, &PROBE),
        optional(reader, node, &GPU),
    );
    let (endpoint, span) = place?;
    let name = name.unwrap_or_else(|| endpoint.key.as_str().into());
    let Endpoint {
        key,
        tls,
        base_path,
    } = endpoint;
    Some((
        Peer {
            key,
            name,
            tls,
            base_path,
            priority,
            max_concurrency: max_concurrency.flatten().unwrap_or(default_max),
            learns_slots: max_concurrency == Some(None),
            weight,
            draining,
            role,
            engine,
            metrics_url,
            enabled,
            api_key,
            probe,
            gpu,
        },
        span,
    ))
}

fn place(reader: &mut Reader, node: &Node) -> Option<(Endpoint, Span)> {
    let (address, url) = (node.get(ADDRESS.meta.key), node.get(URL.meta.key));
    let (knob, at) = match (address, url) {
        (Some(address), Some(url)) => {
            reader
                .error(url.span.clone(), "a peer has `address` or `url`, not both")
                .label(address.span.clone(), "the other one");
            (&ADDRESS, address)
        }
        (Some(address), None) => (&ADDRESS, address),
        (None, Some(url)) => (&URL, url),
        (None, None) => {
            reader
                .error(first_key(node), "`address` is missing")
                .help("write `address: host:port`, or `url:`");
            return None;
        }
    };
    let endpoint = reader.key(knob.meta.key, |reader| knob.read(reader, at))?;
    Some((endpoint, at.span.clone()))
}

/// Reads `max_concurrency` under either of its names.
fn alias(reader: &mut Reader, node: &Node) -> Option<Option<u32>> {
    if let (Some(max), Some(slots)) = (
        node.get(MAX_CONCURRENCY.meta.key),
        node.get(PEER_SLOTS.meta.key),
    ) {
        reader
            .error(
                slots.span.clone(),
                "`slots` is another name for `max_concurrency`: give one",
            )
            .label(max.span.clone(), "the other one");
    }
    let max = optional(reader, node, &MAX_CONCURRENCY);
    optional(reader, node, &PEER_SLOTS).or(max)
}

/// Reads the value of a key that may be missing.
pub(super) fn optional<T>(reader: &mut Reader, node: &Node, knob: &OptionDef<T>) -> Option<T> {
    let value = node.get(knob.meta.key)?;
    reader.key(knob.meta.key, |reader| knob.read(reader, value))
}

/// The place to report a missing key: the mapping's first key.
pub(super) fn first_key(node: &Node) -> Span {
    match &node.value {
        Value::Map(pairs) => pairs
            .first()
            .map_or(node.span.clone(), |(key, _)| key.span.clone()),
        _ => node.span.clone(),
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{lines, route};

    #[test]
    fn one_text_may_list_the_addresses_of_peers() {
        let (route, problems) = route("peers: 'a:1, https://b.example/base,\n  c:${PORT}'\n");
        assert!(problems.is_empty(), "{problems:?}");
        let pool = &route.pools[0];
        let seen: Vec<_> = pool
            .peers
            .iter()
            .map(|peer| (&*peer.name, peer.tls))
            .collect();
        assert_eq!(
            seen,
            [("a:1", false), ("b.example:443", true), ("c:8000", false)]
        );
    }

    #[test]
    fn a_wrong_address_in_the_text_is_named() {
        for (text, expected) in [
            ("'a:1,b'", "expected `host:port`"),
            ("'a:1,,b:2'", "expected `host:port`"),
            ("'a:1,a:1'", "is in this pool twice"),
            ("'ftp://a:1'", "expected an `http://` or `https://` URL"),
            ("''", "expected a list of peers"),
            ("${EMPTY}", "expected a list of peers"),
            ("5", "expected `host:port`"),
        ] {
            let said = lines(&route(&format!("peers: {text}\n")).1).join("\n");
            assert!(said.contains(expected), "{text}: {said}");
        }
    }
}
