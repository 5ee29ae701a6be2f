//! Command lines of vllm-router (0.1) and of the SGLang router (0.3), which share their ancestry and
//! most of their flags.
//!
//! Flags that are given are converted, and the policy always is, because its default differs from
//! ours. Other defaults stay ours.

use std::path::Path;

use super::command::{Word, commands};
use super::route_tree::{Origin, RouteTree, map, node, plain, text};
use super::source::NOT_CARRIED_OVER;
use super::{Imported, Router};
use crate::check::Reader;
use crate::env::Env;
use crate::report::{Problem, Severity};
use crate::tree::{Node, Span, Value};

/// Flags without a place in a route file, and why.
const LEFT_OUT: &[(&str, &str)] = &[
    (
        "worker-startup-timeout-secs",
        "a peer joins when its first probe succeeds",
    ),
    (
        "worker-startup-check-interval",
        "a peer joins when its first probe succeeds",
    ),
    (
        "cache-threshold",
        "`affinity_fallback: prefix` takes the longest known prefix",
    ),
    (
        "balance-abs-threshold",
        "see `affinity_max_load_factor`, which compares with the pool's mean",
    ),
    (
        "balance-rel-threshold",
        "see `affinity_max_load_factor`, which compares with the pool's mean",
    ),
    (
        "eviction-interval-secs",
        "the table of prefixes is bounded and needs no sweep",
    ),
    ("max-tree-size", "the table of prefixes has a fixed bound"),
    (
        "assignment-mode",
        "a new session goes to the peer with the fewest sessions",
    ),
    (
        "retry-initial-backoff-ms",
        "a retry goes to another peer at once",
    ),
    (
        "retry-max-backoff-ms",
        "a retry goes to another peer at once",
    ),
    (
        "retry-backoff-multiplier",
        "a retry goes to another peer at once",
    ),
    (
        "retry-jitter-factor",
        "a retry goes to another peer at once",
    ),
    (
        "cb-success-threshold",
        "a returning peer gets one request, then more by `slow_start`",
    ),
    (
        "health-failure-threshold",
        "one refused connection bans, one good probe lifts the ban",
    ),
    (
        "health-success-threshold",
        "one refused connection bans, one good probe lifts the ban",
    ),
    (
        "rate-limit-tokens-per-second",
        "there is no rate limit, only limits of concurrency",
    ),
    ("request-id-headers", "the request id is `X-Request-ID`"),
    ("log-dir", "events go to stderr and access lines to stdout"),
    ("log-level", "start the router with `RUST_LOG=<level>`"),
    (
        "prometheus-port",
        "metrics are at `/metrics` of `server.admin_listen` in router.yaml",
    ),
    (
        "prometheus-host",
        "metrics are at `/metrics` of `server.admin_listen` in router.yaml",
    ),
    (
        "shutdown-grace-period-secs",
        "in router.yaml write `server: {drain_timeout: …}`",
    ),
    (
        "enable-igw",
        "a route serves the models that its peers list",
    ),
    ("selector", "list the workers' addresses as `peers`"),
    (
        "service-discovery",
        "list the workers' addresses as `peers`",
    ),
    (
        "service-discovery-port",
        "list the workers' addresses as `peers`",
    ),
    (
        "service-discovery-namespace",
        "list the workers' addresses as `peers`",
    ),
    (
        "dp-aware",
        "list each data-parallel rank that has a port of its own as a peer",
    ),
    (
        "intra-node-data-parallel-size",
        "list each data-parallel rank that has a port of its own as a peer",
    ),
];

/// Flags of the split of requests into prefill and decode.
const SPLIT: &[&str] = &[
    "prefill",
    "decode",
    "pd-disaggregation",
    "vllm-pd-disaggregation",
    "prefill-selector",
    "decode-selector",
    "vllm-discovery-address",
    "mini-lb",
];

/// One flag with its values.
struct Flag {
    name: String,
    span: Span,
    values: Vec<Word>,
}

/// The router whose program a word names.
fn program(word: &Word) -> Option<Router> {
    match word.text.rsplit(['/', '=']).next()? {
        "vllm-router" | "vllm_router" | "vllm_router.launch_router" => Some(Router::Vllm),
        "sglang-router" | "sglang_router" | "sglang_router.launch_router" | "smg" | "amg" => {
            Some(Router::Sglang)
        }
        _ => None,
    }
}

/// Whether a text holds a command that this module converts.
pub(super) fn is_command(text: &str) -> bool {
    commands(text)
        .iter()
        .flatten()
        .any(|word| program(word).is_some())
}

/// Converts the first command of the script that starts one of the two routers.
pub(super) fn gateway(path: &Path, script: &str, name: &str, env: &Env) -> Imported {
    let found = commands(script).into_iter().find_map(|words| {
        let at = words.iter().rposition(|word| program(word).is_some())?;
        Some((
            program(&words[at])?,
            words[at].span.clone(),
            words[at + 1..].to_vec(),
        ))
    });
    let Some((router, at, words)) = found else {
        let why = "no command of vllm-router or of the SGLang router is here";
        return Imported::refused(Problem::of_file(Severity::Error, path, why));
    };
    let mut reader = Reader::new();
    let mut flags = Flags {
        all: flags(&mut reader, words),
        reader: &mut reader,
    };
    let mut tree = RouteTree::default();
    convert(&mut flags, router, &mut tree, at);
    flags.report_rest();
    let origin = Origin {
        path,
        text: script,
        what: match router {
            Router::Vllm => "a command line of vllm-router",
            Router::Sglang => "a command line of the SGLang router",
        },
    };
    tree.finish(reader, &origin, name, env)
}

/// Groups words into flags. A flag's values are the words up to the next flag.
fn flags(reader: &mut Reader, words: Vec<Word>) -> Vec<Flag> {
    let mut all: Vec<Flag> = Vec::new();
    for word in words {
        if let Some(flaw) = word.flaw {
            reader.error(word.span.clone(), flaw);
        }
        let Some(flag) = word.text.strip_prefix("--") else {
            match all.last_mut() {
                Some(flag) => flag.values.push(word),
                None if word.text == "launch" => {}
                None => {
                    reader.error(word.span.clone(), "expected a flag such as `--worker-urls`");
                }
            }
            continue;
        };
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (flag, None),
        };
        all.push(Flag {
            name: name.replace('_', "-"),
            span: word.span.clone(),
            values: value
                .map(|text| Word {
                    text,
                    span: word.span.clone(),
                    flaw: None,
                })
                .into_iter()
                .collect(),
        });
    }
    all
}

struct Flags<'r> {
    all: Vec<Flag>,
    reader: &'r mut Reader,
}

impl Flags<'_> {
    /// Takes a flag; of a repeated one the last, as the other program does.
    fn take(&mut self, name: &str) -> Option<Flag> {
        let at = self.all.iter().rposition(|flag| flag.name == name)?;
        let flag = self.all.remove(at);
        self.all.retain(|other| other.name != name);
        Some(flag)
    }

    /// Takes a switch.
    fn is_set(&mut self, name: &str) -> bool {
        self.take(name).is_some()
    }

    /// Takes the one value of a flag.
    fn value(&mut self, name: &str) -> Option<Word> {
        let flag = self.take(name)?;
        match <[Word; 1]>::try_from(flag.values) {
            Ok([value]) => Some(value),
            Err(values) => {
                let message = format!("`--{name}` takes one value, found {}", values.len());
                self.reader.error(flag.span, message);
                None
            }
        }
    }

    /// Takes a whole number.
    fn number(&mut self, name: &str) -> Option<(i64, Span)> {
        let word = self.value(name)?;
        if let Ok(number) = word.text.parse() {
            return Some((number, word.span));
        }
        let message = format!("`--{name}`: expected a whole number, found `{}`", word.text);
        self.reader.error(word.span, message);
        None
    }

    /// Takes a number of seconds as a value of ours.
    fn seconds(&mut self, name: &str) -> Option<Node> {
        let word = self.value(name)?;
        Some(as_number(word, "s"))
    }

    fn leave_out(&mut self, at: Span, why: &str) {
        self.reader.warning(NOT_CARRIED_OVER, at, why);
    }

    /// Reports the flags that were not taken.
    fn report_rest(&mut self) {
        for flag in std::mem::take(&mut self.all) {
            let known = LEFT_OUT.iter().find(|(name, _)| *name == flag.name);
            let why = match known {
                Some((name, why)) => format!("`--{name}` is left out: {why}"),
                None => format!("`--{}` is left out: a route has no such setting", flag.name),
            };
            self.leave_out(flag.span, &why);
        }
    }
}

/// A number with a unit; variables keep their text.
fn as_number(word: Word, unit: &str) -> Node {
    match word.text.contains('$') {
        true => text(word.text, word.span),
        false => plain(&format!("{}{unit}", word.text), word.span),
    }
}

fn convert(flags: &mut Flags<'_>, router: Router, tree: &mut RouteTree, program: Span) {
    for name in SPLIT {
        while let Some(flag) = flags.take(name) {
            let why = format!("`--{name}`: requests cannot be split into prefill and decode");
            flags.reader.error(flag.span, why);
        }
    }
    let limit = flags
        .number("max-concurrent-requests")
        .filter(|(limit, _)| *limit > 0);
    peers(flags, tree, limit.as_ref(), program);
    policy(flags, router, tree);
    capacity(flags, tree, limit.is_some());
    failures(flags, tree);
    if let Some(timeout) = flags.seconds("request-timeout-secs") {
        tree.put("request_timeout", timeout);
    }
    if let Some(size) = flags.value("max-payload-size") {
        tree.put("max_body_size", as_number(size, ""));
    }
    if let Some(flag) = flags.take("cors-allowed-origins") {
        let origins = flag.values.into_iter();
        let origins = origins.map(|word| text(word.text, word.span)).collect();
        let origins = node(Value::Seq(origins), flag.span.clone());
        tree.put("cors", map(vec![("origins", origins)], flag.span));
    }
    listen(flags);
}

/// The workers. The other programs limit all requests together, so each peer gets its share, and
/// the shares add up to the limit.
fn peers(flags: &mut Flags<'_>, tree: &mut RouteTree, limit: Option<&(i64, Span)>, program: Span) {
    let key = flags.value("api-key");
    let urls = flags.take("worker-urls");
    let (values, at) = match urls {
        Some(urls) => (urls.values, urls.span),
        None => (Vec::new(), program),
    };
    if values.is_empty() {
        flags.reader.error(
            at.clone(),
            "no worker is named: `--worker-urls` is missing or empty",
        );
    }
    let count = values.len() as i64;
    let mut items = Vec::new();
    for (index, word) in values.into_iter().enumerate() {
        let span = word.span.clone();
        let mut pairs = vec![("url", text(word.text, word.span))];
        if let Some((limit, at)) = limit {
            let share = limit / count + i64::from((index as i64) < limit % count);
            pairs.push((
                "max_concurrency",
                plain(&share.max(1).to_string(), at.clone()),
            ));
        }
        if let Some(key) = &key {
            flags.reader.mask(&key.span);
            tree.holds_secret |= !key.text.starts_with("${");
            pairs.push(("api_key", text(key.text.clone(), key.span.clone())));
        }
        items.push(map(pairs, span));
    }
    tree.put("peers", node(Value::Seq(items), at));
}

fn policy(flags: &mut Flags<'_>, router: Router, tree: &mut RouteTree) {
    let given = flags.value("policy");
    let word = given
        .as_ref()
        .map_or("cache_aware", |word| word.text.as_str());
    let idle = flags.seconds("max-idle-secs");
    match word {
        "cache_aware" | "kv_aware" => {
            tree.put_word("affinity", "hash", "a session stays on its peer");
            tree.put_word("hash", "rendezvous", "");
            tree.put_word(
                "affinity_fallback",
                "prefix",
                "a request without a session follows its prompt's prefix",
            );
            if let Some(given) = given.as_ref().filter(|given| given.text == "kv_aware") {
                let why = "`kv_aware` reads events of the engines' caches: the route follows sessions and prefixes instead";
                flags.leave_out(given.span.clone(), why);
            }
        }
        "consistent_hash" | "prefix_hash" => {
            tree.put_word("affinity", "hash", "");
            tree.put_word(
                "hash",
                "rendezvous",
                "only a lost peer's sessions move; sessions land on other peers than before",
            );
        }
        "sticky_least_loaded" => tree.put_word("affinity", "sticky_least_loaded", ""),
        "manual" => {
            tree.put_word(
                "affinity",
                "sticky_least_loaded",
                "a new key goes to the peer with the fewest",
            );
            if let Some(idle) = idle {
                tree.put("session_ttl", idle);
            }
        }
        "round_robin" | "power_of_two" => {
            tree.put_word("affinity", "none", "");
            tree.put_word("balance", word, "");
        }
        "random" => {
            tree.put_word("affinity", "none", "");
            tree.put_word(
                "balance",
                "power_of_two",
                "the less loaded of two drawn at random, instead of one",
            );
        }
        other => {
            let at = given.as_ref().map_or(0..0, |word| word.span.clone());
            let message = format!(
                "unknown policy `{other}`; known are cache_aware, kv_aware, consistent_hash, prefix_hash, sticky_least_loaded, manual, round_robin, power_of_two and random"
            );
            flags.reader.error(at, message);
        }
    }
    let sources = match (router, word) {
        (_, "round_robin" | "power_of_two" | "random") => return,
        (Router::Vllm, _) => "vllm-router",
        (Router::Sglang, "manual") => {
            let header = text("header:x-smg-routing-key".to_owned(), 0..0);
            tree.put("session_sources", node(Value::Seq(vec![header]), 0..0));
            return;
        }
        (Router::Sglang, _) => return,
    };
    tree.put("session_sources", plain(sources, 0..0));
}

/// What happens when every slot is taken.
fn capacity(flags: &mut Flags<'_>, tree: &mut RouteTree, is_limited: bool) {
    let queue = flags.number("queue-size");
    let wait = flags.seconds("queue-timeout-secs");
    if !is_limited {
        tree.put_word("default_max", "256", "set what one engine runs at once");
        tree.put_word(
            "full_policy",
            "overflow",
            "the other router has no limit: engines queue",
        );
        return;
    }
    if let Some((0, _)) = queue {
        tree.put_word("full_policy", "reject", "");
        return;
    }
    tree.put_word(
        "full_policy",
        "wait",
        "after `wait_timeout` the request is sent all the same",
    );
    let (length, at) = queue.unwrap_or((100, 0..0));
    tree.put("wait_max", plain(&length.to_string(), at));
    tree.put("wait_timeout", wait.unwrap_or_else(|| plain("60s", 0..0)));
}

/// Retries, the circuit breaker and health checks.
fn failures(flags: &mut Flags<'_>, tree: &mut RouteTree) {
    let tries = flags.number("retry-max-retries");
    if flags.is_set("disable-retries") {
        tree.put_word("max_more_tries", "0", "");
    } else if let Some((tries, at)) = tries {
        // Theirs counts the first attempt.
        tree.put("max_more_tries", plain(&(tries - 1).max(0).to_string(), at));
    }
    let (failures, time) = (
        flags.value("cb-failure-threshold"),
        flags.seconds("cb-timeout-duration-secs"),
    );
    let window = flags.seconds("cb-window-duration-secs");
    if flags.is_set("disable-circuit-breaker") {
        tree.put_word("eject", "off", "");
    } else {
        let mut parts = Vec::new();
        parts.extend(failures.map(|word| ("consecutive", as_number(word, ""))));
        parts.extend(window.map(|node| ("window", node)));
        parts.extend(time.map(|node| ("time", node)));
        if !parts.is_empty() {
            tree.put("eject", map(parts, 0..0));
        }
    }
    for (flag, key) in [
        ("health-check-interval-secs", "health_check_interval"),
        ("health-check-timeout-secs", "health_timeout"),
    ] {
        if let Some(value) = flags.seconds(flag) {
            tree.put(key, value);
        }
    }
    if let Some(path) = flags.value("health-check-endpoint") {
        tree.put("health_probe_path", text(path.text, path.span));
    }
}

fn listen(flags: &mut Flags<'_>) {
    let (host, port) = (flags.value("host"), flags.value("port"));
    let Some(at) = port
        .as_ref()
        .or(host.as_ref())
        .map(|word| word.span.clone())
    else {
        return;
    };
    let host = host.map_or_else(|| "0.0.0.0".to_owned(), |word| word.text);
    let host = match host.contains(':') {
        true => format!("[{host}]"),
        false => host,
    };
    let port = port.map_or_else(|| "30000".to_owned(), |word| word.text);
    let why = format!(
        "not part of a route: in router.yaml write `server: {{listen: \"{host}:{port}\"}}`"
    );
    flags.leave_out(at, &why);
}
