//! llm-proxy: one YAML file with `server`, `routing` and `backends`.
//!
//! The settings that its users rely on are written out, defaults included. So the route behaves
//! like their proxy, whatever `defaults:` says. Where our behaviour differs on purpose, the file
//! says so in a comment.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::Imported;
use super::source::{Pair, as_text, as_written, belongs, option, section};
use crate::check::Reader;
use crate::env::{Env, expand_known};
use crate::load::{parse, read};
use crate::options::{
    API_KEY, ENABLED, ENGINE, LOAD, MAX_CONCURRENCY, METRICS_URL, PEER_NAME, ROUTE_OPTIONS, URL,
    WEIGHT,
};
use crate::report::{Problem, Severity};
use crate::tree::{Node, Value};
use crate::units::show_duration;

const TOP: [&str; 3] = ["server", "routing", "backends"];

const SERVER: [&str; 10] = [
    "host",
    "port",
    "log_level",
    "request_timeout",
    "poll_interval",
    "poll_timeout",
    "stale_after",
    "access_log",
    "merge_models",
    "api_keys",
];

const ROUTING: [&str; 9] = [
    "strategy",
    "full_policy",
    "wait_timeout",
    "load_model",
    "stale_policy",
    "hold_max",
    "pin_fallback",
    "unknown_model",
    "normalize",
];

const BACKEND: [&str; 9] = [
    "name",
    "url",
    "slots",
    "weight",
    "api_key",
    "enabled",
    "engine",
    "metrics_url",
    "model",
];

/// Allowed values of `routing.strategy`.
const STRATEGIES: [&str; 3] = ["least_busy", "round_robin", "idle_aware"];

/// Whether a tree is a configuration of llm-proxy.
pub(super) fn is_config(root: &Node) -> bool {
    root.get("backends").is_some()
}

/// Converts an llm-proxy configuration to a route file of this name. `env` completes its variables,
/// but only for the check: in the result they stay variables, set or not. The accepted keys are an
/// exception; their digests are written.
pub(super) fn llm_proxy(path: &Path, name: &str, env: &Env) -> Imported {
    let parsed = read(path).and_then(|read| parse(path, read.text));
    let (text, written) = match parsed {
        Ok(parsed) => parsed,
        Err(problem) => return Imported::refused(*problem),
    };
    let mut reader = Reader::new();
    let mut expanded = written.clone();
    expand_known(&mut expanded, env, &mut reader);
    let root = Pair {
        written: &written,
        node: &expanded,
    };
    if !matches!(root.node.value, Value::Map(_)) || root.get("backends").is_none() {
        let why = "this is no configuration of llm-proxy: it has no `backends`";
        return Imported::refused(Problem::of_file(Severity::Error, path, why));
    }
    section(&mut reader, root, &TOP);
    let peers = reader.key("backends", |reader| backends(reader, root.get("backends")));
    let server = reader.key("server", |reader| server(reader, root.get("server")));
    let routing = reader.key("routing", |reader| routing(reader, root.get("routing")));
    let route = format!(
        "# Route {name}, imported from a configuration of llm-proxy. Clients reach it below /{name}/v1/, and below /v1/
# while it is the only route or `server.default_route`. `llmctl route show {name}` lists every option.

# `auto`: as many as the engine says it has.
default_max: 1
peers:
{}
# Which engine gets a request.
{routing}
# How engines and clients are treated.
{}",
        peers.text, server.text
    );
    let mut problems = reader.finish(path, &text);
    if !server.listens {
        let why =
            "llm-proxy listens on 0.0.0.0:4000 unless told: set `server.listen` in router.yaml";
        problems.push(Problem::of_file(Severity::Warning, path, why));
    }
    Imported::of(route, peers.holds_secret, problems)
}

/// The conversion of `backends`.
struct Peers {
    text: String,
    holds_secret: bool,
}

fn backends(reader: &mut Reader, backends: Option<Pair<'_>>) -> Peers {
    let mut peers = Peers {
        text: String::new(),
        holds_secret: false,
    };
    let Some(list) = backends else { return peers };
    let Some(items) = list.items() else {
        reader.unexpected(list.node, "a list of backends");
        return peers;
    };
    let (mut names, mut enabled) = (BTreeSet::new(), false);
    for (index, item) in items.enumerate() {
        reader.item(index, |reader| {
            enabled |= backend(reader, item, &mut names, &mut peers);
        });
    }
    if !enabled {
        reader.error(list.node.span.clone(), "no backend is enabled");
    }
    peers
}

/// Writes one peer. Returns whether it is enabled.
fn backend<'t>(
    reader: &mut Reader,
    backend: Pair<'t>,
    names: &mut BTreeSet<&'t str>,
    peers: &mut Peers,
) -> bool {
    section(reader, backend, &BACKEND);
    let at = Some(backend);
    for required in ["name", "url"] {
        if backend.get(required).is_none() {
            reader.error(
                backend.node.span.clone(),
                format!("`{required}` is missing"),
            );
        }
    }
    if let Some(name) = backend.get("name")
        && !names.insert(name.text())
    {
        let span = name.node.span.clone();
        reader.key("name", |reader| {
            reader.error(span, "another backend has this name");
        });
    }
    let lines = [
        ("name", option(reader, at, "name", &PEER_NAME, as_text)),
        ("url", option(reader, at, "url", &URL, as_text)),
        (
            "max_concurrency",
            option(reader, at, "slots", &MAX_CONCURRENCY, as_written)
                .or_else(|| Some("auto".to_owned())),
        ),
        ("weight", option(reader, at, "weight", &WEIGHT, as_written)),
        ("api_key", credential(reader, backend, peers)),
        (
            "enabled",
            option(reader, at, "enabled", &ENABLED, as_written),
        ),
        ("engine", option(reader, at, "engine", &ENGINE, as_written)),
        (
            "metrics_url",
            option(reader, at, "metrics_url", &METRICS_URL, as_text),
        ),
    ];
    let mut dash = "  - ";
    for (key, value) in lines {
        if let Some(value) = value {
            peers.text += &format!("{dash}{key}: {value}\n");
            dash = "    ";
        }
    }
    if let Some(model) = backend.get("model") {
        let why = "a llama.cpp in router mode is not polled by model: the peer's load is the router's own requests";
        belongs(reader, "model", model, why);
    }
    backend
        .get("enabled")
        .is_none_or(|enabled| !enabled.text().eq_ignore_ascii_case("false"))
}

fn credential(reader: &mut Reader, backend: Pair<'_>, peers: &mut Peers) -> Option<String> {
    let key = backend.get("api_key")?;
    reader.mask_tree(key.node);
    peers.holds_secret |= !key.is_variable();
    option(reader, Some(backend), "api_key", &API_KEY, as_text)
}

/// The conversion of `server`.
struct Server {
    text: String,
    /// Whether it sets a listen address, which was reported in that case.
    listens: bool,
}

fn server(reader: &mut Reader, server: Option<Pair<'_>>) -> Server {
    if let Some(server) = server {
        section(reader, server, &SERVER);
    }
    let get = |key| server.and_then(|server| server.get(key));
    let (host, port) = (get("host"), get("port"));
    if let Some((key, at)) = port.map(|at| ("port", at)).or(host.map(|at| ("host", at))) {
        let host = host.map_or("0.0.0.0", Pair::text);
        let host = match host.contains(':') {
            true => format!("[{host}]"),
            false => host.to_owned(),
        };
        let port = port.map_or("4000", Pair::text);
        let why = format!("in router.yaml write `server: {{listen: \"{host}:{port}\"}}`");
        belongs(reader, key, at, &why);
    }
    if let Some(level) = get("log_level") {
        let word = if level.text() == "warning" {
            "warn"
        } else {
            level.text()
        };
        belongs(
            reader,
            "log_level",
            level,
            &format!("start the router with `RUST_LOG={word}`"),
        );
    }
    if let Some(log) = get("access_log").filter(|log| log.text().eq_ignore_ascii_case("false")) {
        let why = "in router.yaml write `server: {access_log: false}`";
        belongs(reader, "access_log", log, why);
    }
    let time = |time: Duration, _: Pair<'_>| show_duration(time);
    let timeout =
        |time: Option<Duration>, _: Pair<'_>| time.map_or("off".to_owned(), show_duration);
    let or = |value: Option<String>, default: &str| value.unwrap_or_else(|| default.to_owned());
    let text = format!(
        "request_timeout: {}
poll_interval: {}
poll_timeout: {}
stale_after: {}
merge_models: {}
max_more_tries: 0           # llm-proxy tries one engine
transparent: true           # bodies pass byte for byte; without it usage is asked for and counted
{}",
        or(
            option(
                reader,
                server,
                "request_timeout",
                &ROUTE_OPTIONS.request_timeout,
                timeout
            ),
            "600s"
        ),
        or(
            option(reader, server, "poll_interval", &LOAD.poll_interval, time),
            "1s"
        ),
        or(
            option(reader, server, "poll_timeout", &LOAD.poll_timeout, time),
            "2s"
        ),
        or(
            option(reader, server, "stale_after", &LOAD.stale_after, time),
            "3s"
        ),
        or(
            option(
                reader,
                server,
                "merge_models",
                &ROUTE_OPTIONS.merge_models,
                as_written
            ),
            "true"
        ),
        keys(reader, get("api_keys")),
    );
    Server {
        text,
        listens: host.is_some() || port.is_some(),
    }
}

/// Writes the accepted keys as digests: keys of a route file are never expanded, and no secret is
/// copied. An unknown key gets an entry that opens nothing, because leaving it out could leave the
/// route open.
fn keys(reader: &mut Reader, keys: Option<Pair<'_>>) -> String {
    const OPEN: &str = "api_keys: {}                # no key is asked for\n";
    let Some(list) = keys else {
        return OPEN.to_owned();
    };
    reader.mask_tree(list.node);
    reader.key("api_keys", |reader| {
        let Some(items) = list.items() else {
            reader.unexpected(list.node, "a list of keys");
            return OPEN.to_owned();
        };
        let (mut text, mut seen) = ("api_keys:\n".to_owned(), BTreeSet::new());
        for (index, item) in items.enumerate() {
            reader.item(index, |reader| {
                let key = item.text();
                if item.node.is_unusable() {
                    if item.is_variable() {
                        seen.insert(key);
                        text += &unknown_key(&item.quoted(), index + 1);
                    }
                    return;
                }
                if item.node.as_scalar().is_none() || key.trim().is_empty() {
                    reader.error(item.node.span.clone(), "an accepted key is empty");
                } else if seen.insert(key) {
                    text += &format!("  \"{}\": llm-proxy-{}\n", digest(key), index + 1);
                }
            });
        }
        if seen.is_empty() {
            OPEN.to_owned()
        } else {
            text
        }
    })
}

/// The entry for a key that the import cannot see. No key has this digest.
fn unknown_key(written: &str, number: usize) -> String {
    format!(
        "  # {written} was not set for the import: put the SHA-256 of its value here.\n  \"sha256:{number:064}\": llm-proxy-{number}\n"
    )
}

/// A key in the digest form of key files and route files.
fn digest(key: &str) -> String {
    let hex: String = Sha256::digest(key)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("sha256:{hex}")
}

fn routing(reader: &mut Reader, routing: Option<Pair<'_>>) -> String {
    if let Some(routing) = routing {
        section(reader, routing, &ROUTING);
    }
    let strategy = routing.and_then(|routing| routing.get("strategy"));
    let is_known = strategy.is_none_or(|strategy| {
        strategy.node.is_unusable() || STRATEGIES.contains(&strategy.text())
    });
    if let Some(strategy) = strategy.filter(|_| !is_known) {
        reader.key("strategy", |reader| {
            let allowed = format!("one of {}", STRATEGIES.join(", "));
            reader.unexpected(strategy.node, &allowed);
        });
    }
    let strategy = match is_known {
        true => option(
            reader,
            routing,
            "strategy",
            &ROUTE_OPTIONS.balance,
            as_written,
        ),
        false => None,
    };
    let time = |time: Duration, _: Pair<'_>| show_duration(time);
    let or = |value: Option<String>, default: &str| value.unwrap_or_else(|| default.to_owned());
    let full_policy = or(
        option(
            reader,
            routing,
            "full_policy",
            &ROUTE_OPTIONS.full_policy,
            as_written,
        ),
        "overflow",
    );
    let wait_timeout = or(
        option(
            reader,
            routing,
            "wait_timeout",
            &ROUTE_OPTIONS.wait_timeout,
            time,
        ),
        "10s",
    );
    // Without waiting, this option would have no effect.
    let waits = full_policy == "wait" || full_policy.contains('$');
    let mut text = format!(
        "balance: {}
load_signal: engine         # every engine is polled, whatever the strategy
affinity: none              # llm-proxy keeps no sessions; `sticky_least_loaded` would
full_policy: {full_policy}
full_status: 503            # ours is 429
{}stale_policy: {}       # `hold` keeps an engine that is too busy to be read
load_model: {}        # `corrected` counts own requests once
pin_model: true
pin_fallback: {}
unknown_model: {}
",
        or(strategy, "idle_aware"),
        if waits {
            format!("wait_timeout: {wait_timeout}\n")
        } else {
            String::new()
        },
        or(
            option(
                reader,
                routing,
                "stale_policy",
                &LOAD.stale_policy,
                as_written
            ),
            "exclude"
        ),
        or(
            option(reader, routing, "load_model", &LOAD.model, as_written),
            "additive"
        ),
        or(
            option(
                reader,
                routing,
                "pin_fallback",
                &LOAD.pin_fallback,
                as_written
            ),
            "any"
        ),
        or(
            option(
                reader,
                routing,
                "unknown_model",
                &LOAD.unknown_model,
                as_written
            ),
            "route"
        ),
    );
    if let Some(max) = option(reader, routing, "hold_max", &LOAD.hold_max, time) {
        text += &format!("hold_max: {max}\n");
    }
    if let Some(normalize) = option(reader, routing, "normalize", &LOAD.normalize, as_written) {
        text += &format!("normalize: {normalize}\n");
    }
    text
}
