//! Advice on the peers of a route.

use std::collections::BTreeMap;

use router_core::balance::Normalize;
use router_core::pool::Weight;

use super::place;
use crate::check::Reader;
use crate::tree::{Node, Span, Value};
use crate::valid::{Peer, Role, Route};

/// From this ratio between the sizes of two peers, counts mislead.
const UNEQUAL: u32 = 2;

/// Reports warnings for each pool.
pub(super) fn peers(reader: &mut Reader, root: &Node, route: &Route) {
    if let Some(flat) = root.get("peers") {
        let pool = route.pools.first();
        reader.key("peers", |reader| {
            one_pool(
                reader,
                root,
                flat,
                pool.map_or(&[][..], |pool| &pool.peers),
                route,
            );
        });
        return;
    }
    let Some(Value::Map(models)) = root.get("peers_by_model").map(|node| &node.value) else {
        return;
    };
    for ((model, list), pool) in models.iter().zip(&route.pools) {
        reader.key("peers_by_model", |reader| {
            reader.key(&model.text, |reader| {
                one_pool(reader, root, list, &pool.peers, route);
            });
        });
    }
}

fn one_pool(reader: &mut Reader, root: &Node, list: &Node, peers: &[Peer], route: &Route) {
    let Value::Seq(nodes) = &list.value else {
        return;
    };
    tiers(reader, nodes, peers);
    weights(reader, nodes, peers, route);
    slots(reader, root, list, peers, route);
}

fn takes_requests(peer: &Peer) -> bool {
    peer.enabled && peer.role == Role::Regular
}

fn tiers(reader: &mut Reader, nodes: &[Node], peers: &[Peer]) {
    let mut tiers: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
    for (index, peer) in peers.iter().enumerate() {
        tiers.entry(peer.priority).or_default().push(index);
    }
    let several = tiers.len() > 1;
    for (priority, members) in tiers {
        if members.iter().any(|index| takes_requests(&peers[*index])) {
            continue;
        }
        let first = members[0];
        let Some(node) = nodes.get(first) else {
            continue;
        };
        let message = if several {
            format!("no peer of the tier of priority {priority} takes requests: it is never used")
        } else {
            "no peer of this pool takes requests: it answers 503".to_owned()
        };
        reader.item(first, |reader| {
            reader.warning("unreachable-tier", head(node), message);
        });
    }
}

fn weights(reader: &mut Reader, nodes: &[Node], peers: &[Peer], route: &Route) {
    let weighed = route.options.balance.value.uses_weights();
    let differ = peers
        .windows(2)
        .any(|pair| pair[0].weight != pair[1].weight);
    let why = match (weighed, differ) {
        (true, true) => return,
        (false, _) => "this `balance` does not look at weights; `least_busy` and `idle_aware` do",
        (true, false) => "every peer of the pool has the same weight",
    };
    for (index, (node, peer)) in nodes.iter().zip(peers).enumerate() {
        if let Some(at) = place(node, "weight").filter(|_| peer.weight != Weight::default()) {
            reader.item(index, |reader| {
                reader.key("weight", |reader| {
                    reader.warning("unused-weight", at, why);
                });
            });
            return;
        }
    }
}

fn slots(reader: &mut Reader, root: &Node, list: &Node, peers: &[Peer], route: &Route) {
    let options = &route.options;
    let counts =
        options.balance.value.uses_weights() && options.load.normalize.value == Normalize::Off;
    let slots = || {
        peers
            .iter()
            .filter(|peer| takes_requests(peer))
            .map(|peer| peer.max_concurrency)
    };
    if !counts || peers.iter().any(|peer| peer.learns_slots) {
        return;
    }
    if let (Some(least), Some(most)) = (slots().min(), slots().max())
        && most >= least.saturating_mul(UNEQUAL)
    {
        let at = place(root, "balance").unwrap_or_else(|| list.span.clone());
        reader
            .warning(
                "unequal-slots",
                at,
                format!("peers have {least} to {most} slots, and their loads are compared as counts: the small ones fill first"),
            )
            .help("set `normalize: slots`");
    }
}

/// The place of a peer in reports: its address.
fn head(node: &Node) -> Span {
    place(node, "address")
        .or_else(|| place(node, "url"))
        .unwrap_or_else(|| node.span.clone())
}
