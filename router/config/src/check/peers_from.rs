//! `peers_from`, and the peers that a source gives.

use std::path::Path;

use super::eject::part;
use super::peers::pool;
use super::reader::Reader;
use super::section::keys;
use crate::load;
use crate::options::{
    ADDRESS, DRAINING, ENABLED, ENGINE, MAX_CONCURRENCY, PEER_NAME, PEERS_BY_MODEL, PEERS_FROM,
    PEERS_FROM_DNS, PEERS_FROM_DNS_KEYS, PEERS_FROM_DNS_NAME, PEERS_FROM_DNS_PORT,
    PEERS_FROM_DNS_REFRESH, PEERS_FROM_FILE, PEERS_FROM_KEYS, PRIORITY, WEIGHT,
};
use crate::report::Problem;
use crate::tree::{Key, Node, Scalar, Style, Value};
use crate::valid::{Peer, PeersFrom};

/// Reads `peers_from` of a route file. `None` without it, and after a reported error.
pub(super) fn peers_from(reader: &mut Reader, path: &Path, root: &Node) -> Option<PeersFrom> {
    let node = root.get(PEERS_FROM.key)?;
    if let Some(by_model) = root.get(PEERS_BY_MODEL.key) {
        let label = by_model.span.clone();
        reader
            .error(
                node.span.clone(),
                "`peers_from` fills `peers`, and this route has `peers_by_model`",
            )
            .label(label, "here");
        return None;
    }
    reader.key(PEERS_FROM.key, |reader| source(reader, path, node))
}

fn source(reader: &mut Reader, path: &Path, node: &Node) -> Option<PeersFrom> {
    if !matches!(node.value, Value::Map(_)) {
        reader.unexpected(node, &PEERS_FROM.kind.allowed());
        return None;
    }
    keys(reader, node, PEERS_FROM_KEYS, "a mapping");
    let (file, dns) = (
        node.get(PEERS_FROM_FILE.meta.key),
        node.get(PEERS_FROM_DNS.key),
    );
    match (file, dns) {
        (Some(_), None) => {
            let file = part(reader, node, &PEERS_FROM_FILE)?;
            let beside = path.parent().unwrap_or(Path::new(""));
            Some(PeersFrom::File(beside.join(file)))
        }
        (None, Some(dns)) => reader.key(PEERS_FROM_DNS.key, |reader| name(reader, dns)),
        (None, None) | (Some(_), Some(_)) => {
            let allowed = PEERS_FROM.kind.allowed();
            reader.error(
                node.span.clone(),
                format!("expected exactly one source, {allowed}"),
            );
            None
        }
    }
}

fn name(reader: &mut Reader, node: &Node) -> Option<PeersFrom> {
    if !matches!(node.value, Value::Map(_)) {
        reader.unexpected(node, "`{name: NAME, port: PORT}`");
        return None;
    }
    keys(reader, node, PEERS_FROM_DNS_KEYS, "a mapping");
    for required in [&PEERS_FROM_DNS_NAME.meta, &PEERS_FROM_DNS_PORT.meta] {
        if node.get(required.key).is_none() {
            reader.error(node.span.clone(), format!("`{}` is missing", required.key));
            return None;
        }
    }
    Some(PeersFrom::Dns {
        name: part(reader, node, &PEERS_FROM_DNS_NAME)?,
        port: part(reader, node, &PEERS_FROM_DNS_PORT)?.try_into().ok()?,
        refresh: part(reader, node, &PEERS_FROM_DNS_REFRESH)?,
    })
}

/// The peers that a file lists: peers as under `peers`, addresses, or Prometheus's
/// `{targets, labels}`, of which the labels that are options of a peer count.
///
/// # Errors
/// The problems of the file. A list without entries is one: a file that is being written may look
/// so.
pub fn peers_in_file(path: &Path, default_max: u32) -> Result<Vec<Peer>, Vec<Problem>> {
    let one = |problem: Box<Problem>| vec![*problem];
    let read = load::read(path).map_err(one)?;
    let (text, root) = load::parse(path, read.text).map_err(one)?;
    let mut reader = Reader::new();
    let listed = match &root.value {
        Value::Seq(items) if !items.is_empty() => Node {
            value: Value::Seq(items.iter().flat_map(spread).collect()),
            ..root.clone()
        },
        Value::Seq(_) => {
            reader.error(root.span.clone(), "the list is empty");
            return Err(reader.finish(path, &text));
        }
        _ => root.clone(),
    };
    let peers = pool(&mut reader, &listed, default_max);
    let problems = reader.finish(path, &text);
    match problems.iter().any(Problem::is_error) {
        true => Err(problems),
        false => Ok(peers),
    }
}

/// The peers at these addresses, `host:port` each.
pub fn peers_at(addresses: &[String], default_max: u32) -> Vec<Peer> {
    if addresses.is_empty() {
        return Vec::new();
    }
    let mut reader = Reader::new();
    pool(
        &mut reader,
        &text(&addresses.join(","), &Node::empty()),
        default_max,
    )
}

/// The entries of a list that one item stands for.
fn spread(item: &Node) -> Vec<Node> {
    if let Some(address) = item.as_scalar() {
        return vec![entry(&address.text, None, item)];
    }
    let Some(Value::Seq(targets)) = item.get("targets").map(|targets| &targets.value) else {
        return vec![item.clone()];
    };
    let labels = item.get("labels");
    let targets = targets.iter().map(|target| match target.as_scalar() {
        Some(address) => entry(&address.text, labels, target),
        None => target.clone(),
    });
    targets.collect()
}

/// `{address, ...labels}`.
fn entry(address: &str, labels: Option<&Node>, at: &Node) -> Node {
    let key = |text: &str| Key {
        text: text.to_owned(),
        span: at.span.clone(),
    };
    let mut pairs = vec![(key(ADDRESS.meta.key), text(address, at))];
    let known = [
        PEER_NAME.meta.key,
        MAX_CONCURRENCY.meta.key,
        PRIORITY.meta.key,
        WEIGHT.meta.key,
        ENGINE.meta.key,
        ENABLED.meta.key,
        DRAINING.meta.key,
    ];
    for name in known {
        if let Some(value) = labels.and_then(|labels| labels.get(name)) {
            // Prometheus's labels are texts; an option that is a number takes one without quotes.
            let plain = match value.as_scalar() {
                Some(scalar) if name != PEER_NAME.meta.key => Node {
                    value: Value::Scalar(Scalar {
                        text: scalar.text.clone(),
                        style: Style::Plain,
                    }),
                    ..value.clone()
                },
                _ => value.clone(),
            };
            pairs.push((key(name), plain));
        }
    }
    Node {
        value: Value::Map(pairs),
        ..at.clone()
    }
}

fn text(text: &str, at: &Node) -> Node {
    Node {
        value: Value::Scalar(Scalar {
            text: text.to_owned(),
            style: Style::Quoted,
        }),
        ..at.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;
    use std::time::Duration;

    use super::*;
    use crate::testing;

    fn refused(text: &str) -> String {
        let (route, problems) = testing::route(text);
        assert_eq!(route.peers_from, None, "{text}");
        let said: Vec<_> = problems.iter().map(Problem::title).collect();
        said.join("; ")
    }

    #[test]
    fn a_route_names_one_source_next_to_or_instead_of_its_peers() {
        let from = |text: &str| {
            let (route, problems) = testing::route(text);
            assert!(problems.is_empty(), "{problems:?}");
            (route.pools[0].peers.len(), route.peers_from)
        };
        let file = Some(PeersFrom::File(PathBuf::from("routes/engines.json")));
        assert_eq!(from("peers_from: {file: engines.json}"), (0, file.clone()));
        assert_eq!(
            from("peers: [{address: 'a:1'}]\npeers_from: {file: engines.json}"),
            (1, file)
        );
        let dns = |refresh| {
            Some(PeersFrom::Dns {
                name: "vllm.inference".into(),
                port: 8000,
                refresh: Duration::from_secs(refresh),
            })
        };
        assert_eq!(
            from("peers_from: {dns: {name: vllm.inference, port: 8000}}"),
            (0, dns(10))
        );
        assert_eq!(
            from("peers_from: {dns: {name: vllm.inference, port: 8000, refresh: 30s}}"),
            (0, dns(30))
        );
    }

    #[test]
    fn a_wrong_source_is_named_with_what_is_allowed() {
        assert_eq!(
            refused("peers_from: {}"),
            "peers_from: expected exactly one source, `{file: PATH}` or `{dns: {name: NAME, port: PORT}}`"
        );
        assert!(refused("peers_from: {file: a, dns: {name: b, port: 1}}").contains("exactly one"));
        assert!(refused("peers_from: {consul: x}").contains("unknown key `consul`"));
        assert!(refused("peers_from: {dns: {port: 1}}").contains("`name` is missing"));
        assert!(refused("peers_from: {dns: {name: a, port: 0}}").contains("from 1 to 65535"));
        assert!(
            refused("peers_by_model: {m: [{address: 'a:1'}]}\npeers_from: {file: a}")
                .contains("peers_by_model")
        );
    }

    fn file(text: &str) -> Result<Vec<Peer>, Vec<Problem>> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("engines.json");
        fs::write(&path, text).unwrap();
        peers_in_file(&path, 20)
    }

    #[test]
    fn a_file_lists_peers_in_any_of_three_forms() {
        let peers = file(
            r#"["10.0.0.1:8000",
                {"targets": ["10.0.0.2:8000", "10.0.0.3:8000"], "labels": {"job": "vllm", "max_concurrency": "64", "weight": "2"}},
                {"address": "10.0.0.4:8000", "name": "d", "max_concurrency": 8}]"#,
        )
        .unwrap();
        let seen: Vec<_> = peers
            .iter()
            .map(|peer| (peer.name.to_string(), peer.max_concurrency))
            .collect();
        let at = |n: u32| format!("10.0.0.{n}:8000");
        assert_eq!(
            seen,
            [(at(1), 20), (at(2), 64), (at(3), 64), ("d".to_owned(), 8)]
        );
        assert_eq!(
            file("- 10.0.0.1:8000\n- address: 10.0.0.2:8000\n")
                .unwrap()
                .len(),
            2
        );
    }

    #[test]
    fn a_file_that_is_cut_or_empty_is_no_list() {
        for text in [
            "",
            "[]",
            "[\"10.0.0.1:8000\", {\"tar",
            "7",
            "[{\"targets\": [\"nonsense\"]}]",
        ] {
            let problems = file(text).unwrap_err();
            assert!(
                problems[0].path().ends_with("engines.json"),
                "{text}: {problems:?}"
            );
        }
    }
}
