//! llm-openresty: a route's `.conf` file with its Lua factory.
//!
//! Options have the same names in both programs, so the factory's table becomes the route file,
//! checked by the router's own check. Only literals are read; no Lua runs.

mod lua;

use std::path::Path;

use self::lua::{Flaw, Kind, Lua, returned, skip_blanks};
use super::Imported;
use super::route_tree::{Origin, RouteTree, map, node, plain, text};
use super::source::NOT_CARRIED_OVER;
use crate::check::{Reader, nearest, short};
use crate::env::Env;
use crate::load::read;
use crate::options::{Kind as OptionKind, PEERS, PEERS_BY_MODEL, ROUTE};
use crate::tree::{Key, Node, Span, Value};

/// The call that registers a route.
const REGISTER: &str = "register_route";

/// The values of a peer by position.
const PEER: [&str; 5] = ["host", "port", "name", "priority", "max_concurrency"];

/// Whether a text registers a route.
pub(super) fn is_route(text: &str) -> bool {
    find_call(text).is_some()
}

/// The name under which a text registers its route.
pub(super) fn registered_name(text: &str) -> Option<String> {
    factory(text).ok().map(|(name, _)| name)
}

/// Converts a route's file.
pub(super) fn openresty(path: &Path, name: &str, env: &Env) -> Imported {
    let source = match read(path) {
        Ok(read) => read.text,
        Err(problem) => return Imported::refused(*problem),
    };
    let mut reader = Reader::new();
    let mut tree = RouteTree::default();
    match factory(&source).and_then(|(_, at)| returned(&source, at)) {
        Ok(table) => route(&mut reader, &table, &mut tree),
        Err(flaw) => {
            // Without a table the places of secrets are unknown.
            reader.error(flaw.at, flaw.message);
            let problems = reader.finish(path, &crate::masking::mask_lines(&source));
            return Imported::with_errors(problems);
        }
    }
    if let Some((size, at)) = directive(&source, "client_max_body_size") {
        tree.put("max_body_size", plain(size, at));
    }
    tree.put_with(
        "session_sources",
        plain("openresty", 0..0),
        "the default list finds more clients' ids",
    );
    let origin = Origin {
        path,
        text: &source,
        what: "a route of llm-openresty",
    };
    tree.finish(reader, &origin, name, env)
}

/// The last call of `register_route` outside of comments.
fn find_call(text: &str) -> Option<usize> {
    let calls = text.match_indices(REGISTER);
    calls
        .filter(|(at, _)| {
            let line = &text[..*at];
            let line = &line[line.rfind('\n').map_or(0, |newline| newline + 1)..];
            !line.contains("--") && !line.trim_start().starts_with('#')
        })
        .map(|(at, _)| at + REGISTER.len())
        .last()
}

/// The registered name, and where the body of the factory begins.
fn factory(text: &str) -> Result<(String, usize), Flaw> {
    let at = find_call(text).ok_or_else(|| Flaw {
        at: 0..0,
        message: format!("no route is registered: `{REGISTER}(\"<name>\", function() return {{…}} end)` is missing"),
    })?;
    let flaw = |at: usize, allowed: &str| Flaw {
        at: at..text.len().min(at + 1),
        message: format!(
            "expected `{REGISTER}(\"<name>\", function() return {{…}} end)`: {allowed} is missing"
        ),
    };
    let mut at = at;
    let mut take = |word: &str| {
        at = skip_blanks(text, at);
        match text[at..].strip_prefix(word) {
            Some(_) => {
                at += word.len();
                Ok(at)
            }
            None => Err(flaw(at, &format!("`{word}`"))),
        }
    };
    let after = take("(")?;
    let start = skip_blanks(text, after);
    let quote = text[start..]
        .chars()
        .next()
        .filter(|c| matches!(c, '"' | '\''));
    let name = quote.and_then(|quote| {
        let rest = &text[start + 1..];
        Some(&rest[..rest.find(quote)?])
    });
    let name = name.ok_or_else(|| flaw(start, "the name in quotes"))?;
    at = start + name.len() + 2;
    let mut take = |word: &str| {
        at = skip_blanks(text, at);
        match text[at..].starts_with(word) {
            true => {
                at += word.len();
                Ok(())
            }
            false => Err(flaw(at, &format!("`{word}`"))),
        }
    };
    for word in [",", "function", "(", ")"] {
        take(word)?;
    }
    Ok((name.to_owned(), at))
}

/// The value of an nginx directive of one line, with its place; the last one counts.
fn directive<'t>(text: &'t str, name: &str) -> Option<(&'t str, Span)> {
    let mut start = 0;
    let mut found = None;
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim_start();
        if let Some(rest) = trimmed.strip_prefix(name)
            && let Some((value, _)) = rest.split_once(';')
            && rest.starts_with([' ', '\t'])
        {
            let value = value.trim();
            let at = start + (value.as_ptr() as usize - line.as_ptr() as usize);
            found = Some((value, at..at + value.len()));
        }
        start += line.len();
    }
    found
}

fn route(reader: &mut Reader, table: &Lua, tree: &mut RouteTree) {
    let Kind::Table { items, fields } = &table.kind else {
        reader.error(table.span.clone(), "the factory returns a table");
        return;
    };
    if let Some(item) = items.first() {
        reader.error(
            item.span.clone(),
            "a value without a name: an option is `name = value`",
        );
    }
    for (name, at, value) in fields {
        if matches!(value.kind, Kind::Nil) {
            continue;
        }
        let known = ROUTE.iter().find(|meta| meta.key == *name);
        let Some(meta) = known else {
            let near = nearest(name, ROUTE.iter().map(|meta| meta.key));
            let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            let why = format!(
                "`{}` is left out: a route has no such option{near}",
                short(name)
            );
            reader.warning(NOT_CARRIED_OVER, at.clone(), why);
            continue;
        };
        let key = meta.key;
        let converted = match key {
            _ if key == PEERS.key => reader.key(key, |reader| peers(reader, value)),
            _ if key == PEERS_BY_MODEL.key => reader.key(key, |reader| pools(reader, value)),
            _ => match truth(&meta.kind, value) {
                Some(word) => Some(plain(word, value.span.clone())),
                None => convert(reader, value, is_mapping(&meta.kind)),
            },
        };
        if let Some(converted) = converted {
            tree.holds_secret |= key == "api_keys" && !is_empty(&converted);
            tree.put(key, converted);
        }
    }
}

/// The boolean that a text stands for, where the option is one: `"yes"` and the like are accepted by
/// the other program too.
fn truth(kind: &OptionKind, value: &Lua) -> Option<&'static str> {
    let (OptionKind::Bool, Kind::Text(text) | Kind::Plain(text)) = (kind, &value.kind) else {
        return None;
    };
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Some("true"),
        "false" | "no" | "off" | "0" => Some("false"),
        _ => None,
    }
}

/// Whether an empty table of this option is a mapping; Lua has one empty table.
fn is_mapping(kind: &OptionKind) -> bool {
    matches!(
        kind,
        OptionKind::ApiKeys | OptionKind::Thresholds(_) | OptionKind::PeersByModel
    )
}

fn is_empty(node: &Node) -> bool {
    matches!(&node.value, Value::Map(pairs) if pairs.is_empty())
}

/// A value of an option. A table of nothing but keys is a mapping, one without keys a list.
fn convert(reader: &mut Reader, lua: &Lua, is_mapping: bool) -> Option<Node> {
    let span = lua.span.clone();
    Some(match &lua.kind {
        Kind::Nil => return None,
        Kind::Plain(word) => plain(word, span),
        Kind::Text(word) => text(word.clone(), span),
        Kind::Table { items, fields } if items.is_empty() && (is_mapping || !fields.is_empty()) => {
            let pairs = fields.iter().filter_map(|(key, at, value)| {
                let key = Key {
                    text: key.clone(),
                    span: at.clone(),
                };
                Some((key, convert(reader, value, false)?))
            });
            let pairs = pairs.collect();
            node(Value::Map(pairs), span)
        }
        Kind::Table { items, fields } if fields.is_empty() => {
            let items = items.iter().filter_map(|item| convert(reader, item, false));
            let items = items.collect();
            node(Value::Seq(items), span)
        }
        Kind::Table { .. } => {
            reader.error(
                span,
                "expected a list or a mapping, found a table that is both",
            );
            return None;
        }
    })
}

fn pools(reader: &mut Reader, value: &Lua) -> Option<Node> {
    let Kind::Table { items, fields } = &value.kind else {
        reader.error(value.span.clone(), "expected a table from models to peers");
        return None;
    };
    if let Some(item) = items.first() {
        reader.error(item.span.clone(), "expected `[\"<model>\"] = {…}`");
    }
    let pairs = fields.iter().filter_map(|(model, at, value)| {
        let key = Key {
            text: model.clone(),
            span: at.clone(),
        };
        Some((key, reader.key(model, |reader| peers(reader, value))?))
    });
    let pairs = pairs.collect();
    Some(node(Value::Map(pairs), value.span.clone()))
}

fn peers(reader: &mut Reader, value: &Lua) -> Option<Node> {
    let Kind::Table { items, .. } = &value.kind else {
        reader.error(value.span.clone(), "expected a list of peers");
        return None;
    };
    let mut peers = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        peers.extend(reader.item(index, |reader| peer(reader, item)));
    }
    Some(node(Value::Seq(peers), value.span.clone()))
}

/// `{host, port, name, priority, max_concurrency}`; each may also stand under its name.
fn peer(reader: &mut Reader, value: &Lua) -> Option<Node> {
    let Kind::Table { items, fields } = &value.kind else {
        reader.error(
            value.span.clone(),
            "expected a peer such as `{\"10.0.0.11\", 8000}`",
        );
        return None;
    };
    if let Some(extra) = items.get(PEER.len()) {
        let message = format!("a peer has at most {} values without a name", PEER.len());
        reader.error(extra.span.clone(), message);
    }
    let get = |name: &str| {
        let index = PEER.iter().position(|known| *known == name);
        let named = fields.iter().rev().find(|(key, ..)| key == name);
        let value = named.map(|(.., value)| value);
        value.or_else(|| index.and_then(|index| items.get(index)))
    };
    let word = |name: &str| match get(name).map(|value| (&value.kind, &value.span)) {
        Some((Kind::Plain(word) | Kind::Text(word), span)) => Some((word.clone(), span.clone())),
        _ => None,
    };
    let (Some((host, at)), Some((port, port_at))) = (word("host"), word("port")) else {
        reader.error(value.span.clone(), "a peer has a host and a port");
        return None;
    };
    let host = match host.contains(':') && !host.starts_with(['[', '$']) {
        true => format!("[{host}]"),
        false => host,
    };
    let mut pairs = vec![(
        "address",
        text(format!("{host}:{port}"), at.start..port_at.end),
    )];
    for name in ["name", "priority", "max_concurrency", "probe"] {
        let value = get(name).and_then(|value| convert(reader, value, false));
        pairs.extend(value.map(|value| (name, value)));
    }
    let known = |key: &str| PEER.contains(&key) || key == "probe";
    for (key, at, _) in fields.iter().filter(|(key, ..)| !known(key)) {
        let why = format!("`{}` is left out: a peer has no such setting", short(key));
        reader.warning(NOT_CARRIED_OVER, at.clone(), why);
    }
    Some(map(pairs, value.span.clone()))
}
