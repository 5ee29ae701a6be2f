//! A route file in the making: its options with the places in the foreign file that they come from.
//!
//! The router's own check reads the tree before it becomes text, so that a wrong value is reported
//! where the other program's file has it.

use std::fmt::Write as _;
use std::path::Path;

use super::Imported;
use crate::check::{Base, Reader, route_file};
use crate::env::{Env, expand_known};
use crate::tree::{Key, Node, Scalar, Span, Style, Value};

/// The options of a route in the order of the resulting file.
#[derive(Default)]
pub(super) struct RouteTree {
    entries: Vec<Entry>,
    /// Whether the file will hold a credential in plain form.
    pub(super) holds_secret: bool,
}

struct Entry {
    key: &'static str,
    node: Node,
    comment: &'static str,
}

impl RouteTree {
    /// Adds an option.
    pub(super) fn put(&mut self, key: &'static str, node: Node) {
        self.put_with(key, node, "");
    }

    /// Adds an option with a comment behind it.
    pub(super) fn put_with(&mut self, key: &'static str, node: Node, comment: &'static str) {
        self.entries.push(Entry { key, node, comment });
    }

    /// Adds an option that the other program has as a built-in behaviour.
    pub(super) fn put_word(&mut self, key: &'static str, word: &str, comment: &'static str) {
        self.put_with(key, plain(word, 0..0), comment);
    }

    /// Checks the route as the router would, and writes it. `source` is the text that the places
    /// refer to.
    pub(super) fn finish(
        self,
        mut reader: Reader,
        origin: &Origin<'_>,
        name: &str,
        env: &Env,
    ) -> Imported {
        let pairs = self.entries.iter().map(|entry| {
            let at = entry.node.span.clone();
            let text = entry.key.to_owned();
            (Key { text, span: at }, entry.node.clone())
        });
        let mut root = node(Value::Map(pairs.collect()), 0..0);
        expand_known(&mut root, env, &mut reader);
        let path = Path::new(name).with_extension("yaml");
        route_file(&mut reader, &path, &root, &Base::of_no_file());
        let mut text = format!(
            "# Route {name}, imported from {}. Clients reach it below /{name}/v1/, and below /v1/\n# while it is the only route or `server.default_route`. `llmctl route show {name}` lists every option.\n\n",
            origin.what
        );
        for entry in &self.entries {
            entry.write(&mut text);
        }
        let problems = reader.finish(origin.path, origin.text);
        Imported::of(text, self.holds_secret, problems)
    }
}

/// Where an import comes from.
pub(super) struct Origin<'a> {
    /// The path to name in problems.
    pub(super) path: &'a Path,
    /// The text that the places refer to.
    pub(super) text: &'a str,
    /// Name of the kind of file, with an article.
    pub(super) what: &'static str,
}

impl Entry {
    fn write(&self, text: &mut String) {
        let comment = match self.comment {
            "" => String::new(),
            comment => format!("   # {comment}"),
        };
        match &self.node.value {
            Value::Seq(items) if self.key == "peers" && !items.is_empty() => {
                let _ = writeln!(text, "{}:{comment}", self.key);
                peers(text, items, "  ");
            }
            Value::Map(pairs) if self.key == "peers_by_model" && !pairs.is_empty() => {
                let _ = writeln!(text, "{}:{comment}", self.key);
                for (model, node) in pairs {
                    let model = quoted(&model.text);
                    match &node.value {
                        Value::Seq(items) if !items.is_empty() => {
                            let _ = writeln!(text, "  {model}:");
                            peers(text, items, "    ");
                        }
                        _ => {
                            let _ = writeln!(text, "  {model}: {}", flow(node));
                        }
                    }
                }
            }
            _ => {
                let _ = writeln!(text, "{}: {}{comment}", self.key, flow(&self.node));
            }
        }
    }
}

/// Writes one peer a line.
fn peers(text: &mut String, items: &[Node], indent: &str) {
    for item in items {
        let _ = writeln!(text, "{indent}- {}", flow(item));
    }
}

/// A node in YAML's flow style, on one line.
fn flow(node: &Node) -> String {
    match &node.value {
        Value::Scalar(scalar) if is_bare(scalar) => scalar.text.clone(),
        Value::Scalar(scalar) => quoted(&scalar.text),
        Value::Seq(items) => {
            let items: Vec<_> = items.iter().map(flow).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Map(pairs) => {
            let pairs = pairs.iter().map(|(key, value)| {
                let is_word = key
                    .text
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b == b'_');
                let key = match is_word && !key.text.is_empty() {
                    true => key.text.clone(),
                    false => quoted(&key.text),
                };
                format!("{key}: {}", flow(value))
            });
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
        }
    }
}

/// Whether YAML reads the text without quotes as what it is here.
fn is_bare(scalar: &Scalar) -> bool {
    let is_word = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
    };
    scalar.style == Style::Plain && (scalar.is_number() || is_word(&scalar.text))
}

/// Every JSON string is a YAML string.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A node at a place.
pub(super) fn node(value: Value, span: Span) -> Node {
    Node {
        value,
        defined: span.clone(),
        span,
    }
}

/// A number, a boolean or a word.
pub(super) fn plain(text: &str, span: Span) -> Node {
    scalar(text.to_owned(), Style::Plain, span)
}

/// A text. A `$` in it begins a variable of a route file; see [`literal`].
pub(super) fn text(text: String, span: Span) -> Node {
    scalar(text, Style::Quoted, span)
}

/// A text whose dollar signs are no variables.
pub(super) fn literal(text: &str) -> String {
    text.replace('$', "$$")
}

fn scalar(text: String, style: Style, span: Span) -> Node {
    node(Value::Scalar(Scalar { text, style }), span)
}

/// A mapping from keys of ours to values.
pub(super) fn map(pairs: Vec<(&'static str, Node)>, span: Span) -> Node {
    let pairs = pairs.into_iter().map(|(key, value)| {
        let at = value.span.clone();
        let text = key.to_owned();
        (Key { text, span: at }, value)
    });
    node(Value::Map(pairs.collect()), span)
}
