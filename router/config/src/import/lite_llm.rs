//! LiteLLM's proxy: the deployments of `model_list` that are engines of one's own.
//!
//! Names of models become pools. Where a deployment is asked for under another name than its engine
//! serves, the route gets an alias.

use std::path::Path;

use sha2::{Digest, Sha256};

use super::Imported;
use super::route_tree::{Origin, RouteTree, literal, map, node, plain, text};
use super::source::NOT_CARRIED_OVER;
use crate::check::{Reader, short};
use crate::env::Env;
use crate::load::{parse, read};
use crate::tree::{Key, Node, Span, Style, Value};

/// Providers that stand for an engine with an OpenAI-compatible API at `api_base`.
const SELF_HOSTED: [&str; 9] = [
    "hosted_vllm",
    "vllm",
    "openai",
    "text-completion-openai",
    "openai_like",
    "custom_openai",
    "llamafile",
    "lm_studio",
    "ollama_chat",
];

/// Settings of `router_settings` with a counterpart in a route.
const ROUTER_SETTINGS: [&str; 6] = [
    "routing_strategy",
    "num_retries",
    "timeout",
    "allowed_fails",
    "cooldown_time",
    "model_group_alias",
];

/// Whether a tree is a configuration of LiteLLM.
pub(super) fn is_config(root: &Node) -> bool {
    root.get("model_list").is_some()
}

/// Converts a configuration of LiteLLM's proxy.
pub(super) fn lite_llm(path: &Path, name: &str, env: &Env) -> Imported {
    let parsed = read(path).and_then(|read| parse(path, read.text));
    let (source, root) = match parsed {
        Ok(parsed) => parsed,
        Err(problem) => return Imported::refused(*problem),
    };
    let mut reader = Reader::new();
    let mut tree = RouteTree::default();
    let mut models = Models::default();
    if let Some(list) = root.get("model_list") {
        reader.key("model_list", |reader| models.read(reader, list, &mut tree));
    }
    let settings = root.get("router_settings");
    if let Some(aliases) = settings.and_then(|node| node.get("model_group_alias")) {
        models.alias(&mut reader, aliases);
    }
    models.write(&mut reader, &root, &mut tree);
    balance(&mut reader, settings, &mut tree);
    failures(&mut reader, &root, settings, &mut tree);
    keys(&mut reader, &root, env, &mut tree);
    tree.put_word("default_max", "256", "set what one engine runs at once");
    tree.put_word(
        "full_policy",
        "overflow",
        "LiteLLM has no limit of its own: engines queue",
    );
    leave_out(&mut reader, &root, settings);
    let origin = Origin {
        path,
        text: &source,
        what: "a configuration of LiteLLM",
    };
    tree.finish(reader, &origin, name, env)
}

/// The models that clients ask for.
#[derive(Default)]
struct Models {
    all: Vec<Model>,
    aliases: Vec<(Key, Node)>,
}

struct Model {
    /// The name that engines serve.
    served: String,
    span: Span,
    peers: Vec<Node>,
}

impl Models {
    fn read(&mut self, reader: &mut Reader, list: &Node, tree: &mut RouteTree) {
        let Value::Seq(items) = &list.value else {
            reader.unexpected(list, "a list of deployments");
            return;
        };
        for (index, item) in items.iter().enumerate() {
            reader.item(index, |reader| self.deployment(reader, item, tree));
        }
    }

    fn deployment(&mut self, reader: &mut Reader, item: &Node, tree: &mut RouteTree) {
        let params = item.get("litellm_params");
        let asked = scalar(item.get("model_name"));
        let model = scalar(params.and_then(|params| params.get("model")));
        let (Some(params), Some(asked), Some(model)) = (params, asked, model) else {
            let why = "a deployment has `model_name` and `litellm_params.model`";
            reader.error(item.span.clone(), why);
            return;
        };
        let key = params.get("api_key");
        if let Some(key) = key {
            reader.mask_tree(key);
        }
        let (provider, served) = match model.0.split_once('/') {
            Some((provider, served)) if SELF_HOSTED.contains(&provider) => (Some(provider), served),
            Some((provider, _)) => (Some(provider), model.0),
            None => (None, model.0),
        };
        let base = scalar(params.get("api_base").or_else(|| params.get("base_url")));
        let is_ours = provider.is_none_or(|provider| SELF_HOSTED.contains(&provider));
        let Some(base) = base.filter(|_| is_ours) else {
            let why = format!(
                "the deployment of `{}` is left out: `{}` is no engine of one's own with an `api_base`",
                short(asked.0),
                short(model.0)
            );
            reader.warning(NOT_CARRIED_OVER, model.1, why);
            return;
        };
        if asked.0.contains('*') || served.contains('*') {
            let why = "a deployment with a wildcard is left out: name each model";
            reader.warning(NOT_CARRIED_OVER, asked.1, why);
            return;
        }
        let url = base.0.trim_end_matches('/');
        let url = url.strip_suffix("/v1").unwrap_or(url);
        let mut pairs = vec![("url", text(variables(url), base.1))];
        if let Some(limit) = params.get("max_parallel_requests") {
            pairs.push(("max_concurrency", limit.clone()));
        }
        if let Some((order, at)) = scalar(params.get("order")) {
            match order.parse::<i64>() {
                // The smallest order is tried first; the largest priority is preferred.
                Ok(order) => pairs.push(("priority", plain(&(-order).to_string(), at))),
                Err(_) => {
                    reader.error(at, "`order`: expected a whole number");
                }
            }
        }
        if let Some((key, at)) = scalar(key).filter(|(key, _)| !is_placeholder(key)) {
            tree.holds_secret |= variable(key).is_none();
            pairs.push(("api_key", text(variables(key), at)));
        }
        for unused in ["rpm", "tpm", "weight", "timeout", "stream_timeout"] {
            if let Some(value) = params.get(unused) {
                let why =
                    format!("`{unused}` of a deployment is left out: a peer has no such setting");
                reader.warning(NOT_CARRIED_OVER, value.span.clone(), why);
            }
        }
        let peer = map(pairs, item.span.clone());
        self.add(reader, asked, served, peer);
    }

    fn add(&mut self, reader: &mut Reader, asked: (&str, Span), served: &str, peer: Node) {
        if asked.0 != served {
            let before = self.aliases.iter().find(|(key, _)| key.text == asked.0);
            match before.map(|(_, node)| scalar(Some(node)).map_or("", |(text, _)| text)) {
                None => self.put_alias(asked.0, served, asked.1.clone()),
                Some(first) if first == literal(served) => {}
                Some(first) => {
                    let why = format!(
                        "the deployment is left out: `{}` stands for `{}` already, and a name stands for one model",
                        short(asked.0),
                        short(first)
                    );
                    reader.warning(NOT_CARRIED_OVER, asked.1, why);
                    return;
                }
            }
        }
        match self.all.iter_mut().find(|model| model.served == served) {
            Some(model) => model.peers.push(peer),
            None => self.all.push(Model {
                served: served.to_owned(),
                span: asked.1,
                peers: vec![peer],
            }),
        }
    }

    fn put_alias(&mut self, asked: &str, served: &str, at: Span) {
        let key = Key {
            text: asked.to_owned(),
            span: at.clone(),
        };
        self.aliases.push((key, text(literal(served), at)));
    }

    /// `model_group_alias`: other names of models.
    fn alias(&mut self, reader: &mut Reader, aliases: &Node) {
        let Value::Map(pairs) = &aliases.value else {
            reader.unexpected(aliases, "a mapping from names to models");
            return;
        };
        for (key, target) in pairs {
            let Some((target, at)) = scalar(Some(target)) else {
                let why = format!(
                    "the alias `{}` is left out: only a plain name is converted",
                    short(&key.text)
                );
                reader.warning(NOT_CARRIED_OVER, target.span.clone(), why);
                continue;
            };
            let known = self.aliases.iter().find(|(key, _)| key.text == target);
            let served =
                known.and_then(|(_, node)| scalar(Some(node)).map(|(text, _)| text.to_owned()));
            let served =
                served.map_or_else(|| target.to_owned(), |served| served.replace("$$", "$"));
            self.put_alias(&key.text, &served, at);
        }
    }

    fn write(self, reader: &mut Reader, root: &Node, tree: &mut RouteTree) {
        if self.all.is_empty() {
            let at = root
                .get("model_list")
                .map_or(0..0, |list| list.span.clone());
            reader.error(
                at,
                "no deployment is an engine of one's own with an `api_base`",
            );
            return;
        }
        let pools = self.all.into_iter().map(|model| {
            let key = Key {
                text: model.served,
                span: model.span.clone(),
            };
            (key, node(Value::Seq(model.peers), model.span))
        });
        tree.put("peers_by_model", node(Value::Map(pools.collect()), 0..0));
        if !self.aliases.is_empty() {
            tree.put_with(
                "models",
                node(Value::Map(self.aliases), 0..0),
                "the name asked for, and the one that engines serve",
            );
        }
    }
}

fn balance(reader: &mut Reader, settings: Option<&Node>, tree: &mut RouteTree) {
    let strategy = settings.and_then(|settings| settings.get("routing_strategy"));
    let (word, at) = scalar(strategy).unwrap_or(("simple-shuffle", 0..0));
    match word {
        "simple-shuffle" => tree.put_word(
            "balance",
            "power_of_two",
            "the less loaded of two drawn at random",
        ),
        "least-busy" => tree.put_word("balance", "least_conn", ""),
        other => {
            tree.put_word("balance", "least_conn", "");
            let why = format!(
                "the strategy `{}` becomes `balance: least_conn`: the smallest load for its slots",
                short(other)
            );
            reader.warning(NOT_CARRIED_OVER, at, why);
        }
    }
    tree.put("session_sources", plain("litellm", 0..0));
}

fn failures(reader: &mut Reader, root: &Node, settings: Option<&Node>, tree: &mut RouteTree) {
    let lite = root.get("litellm_settings");
    let either = |key: &str, other: &str| {
        let own = settings.and_then(|settings| settings.get(key));
        own.or_else(|| lite.and_then(|lite| lite.get(other)))
    };
    if let Some(timeout) = either("timeout", "request_timeout") {
        tree.put("request_timeout", timeout.clone());
    }
    if let Some(tries) = either("num_retries", "num_retries") {
        tree.put("max_more_tries", tries.clone());
    }
    let mut parts = Vec::new();
    for (theirs, ours) in [("allowed_fails", "consecutive"), ("cooldown_time", "time")] {
        let value = either(theirs, theirs);
        parts.extend(value.map(|value| (ours, value.clone())));
    }
    if !parts.is_empty() {
        tree.put("eject", map(parts, 0..0));
    }
    if let Some(fallbacks) = either("fallbacks", "fallbacks") {
        let why = "`fallbacks` are left out: `fallback` of a route names other routes";
        reader.warning(NOT_CARRIED_OVER, fallbacks.span.clone(), why);
    }
}

/// The master key as a digest, so that the file holds no secret.
fn keys(reader: &mut Reader, root: &Node, env: &Env, tree: &mut RouteTree) {
    let general = root.get("general_settings");
    let key = general.and_then(|general| general.get("master_key"));
    let Some(written) = key else {
        tree.put_with(
            "api_keys",
            node(Value::Map(Vec::new()), 0..0),
            "no key is asked for",
        );
        return;
    };
    reader.mask_tree(written);
    let (key, at) = scalar(Some(written)).unwrap_or(("", 0..0));
    let value = match variable(key) {
        Some(name) => env.get(name).ok().flatten(),
        None => Some(key.to_owned()),
    };
    let digest = match value.filter(|value| !value.trim().is_empty()) {
        Some(value) => Sha256::digest(value)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect(),
        None => {
            let why = "`master_key` is not set here: put the SHA-256 of its value into `api_keys`; until then no key opens the route";
            reader.warning(NOT_CARRIED_OVER, at.clone(), why);
            format!("{:064}", 1)
        }
    };
    let key = Key {
        text: format!("sha256:{digest}"),
        span: at.clone(),
    };
    let owner = text("litellm-master".to_owned(), at.clone());
    tree.put("api_keys", node(Value::Map(vec![(key, owner)]), at));
}

/// Reports the settings that no route can hold.
fn leave_out(reader: &mut Reader, root: &Node, settings: Option<&Node>) {
    let mut report = |section: Option<&Node>, name: &str, known: &[&str]| {
        let Some(Value::Map(pairs)) = section.map(|section| &section.value) else {
            return;
        };
        for (key, value) in pairs
            .iter()
            .filter(|(key, _)| !known.contains(&key.text.as_str()))
        {
            reader.mask_tree(value);
            let why = format!(
                "`{name}.{}` is left out: a route has no such setting",
                short(&key.text)
            );
            reader.warning(NOT_CARRIED_OVER, key.span.clone(), why);
        }
    };
    report(
        settings,
        "router_settings",
        &[&ROUTER_SETTINGS[..], &["fallbacks"]].concat(),
    );
    let lite = [
        "request_timeout",
        "num_retries",
        "allowed_fails",
        "cooldown_time",
        "fallbacks",
    ];
    report(root.get("litellm_settings"), "litellm_settings", &lite);
    report(
        root.get("general_settings"),
        "general_settings",
        &["master_key"],
    );
}

/// The text of a scalar with its place.
fn scalar(node: Option<&Node>) -> Option<(&str, Span)> {
    let node = node?;
    let scalar = node
        .as_scalar()
        .filter(|scalar| scalar.style != Style::Unusable)?;
    (!scalar.is_null()).then(|| (scalar.text.as_str(), node.span.clone()))
}

/// The variable that LiteLLM reads the value from.
fn variable(value: &str) -> Option<&str> {
    value.strip_prefix("os.environ/")
}

/// A value of LiteLLM as one of a route file.
fn variables(value: &str) -> String {
    match variable(value) {
        Some(name) => format!("${{{name}}}"),
        None => literal(value),
    }
}

/// Keys that people write because the client library asks for one.
fn is_placeholder(key: &str) -> bool {
    [
        "none",
        "empty",
        "dummy",
        "fake",
        "no-key",
        "not-needed",
        "fake-key",
        "sk-none",
    ]
    .contains(&key.to_ascii_lowercase().as_str())
}
