//! Route names and configured paths.

use std::path::PathBuf;
use std::sync::Arc;

use router_core::session::{Preset, SessionSource};

use super::net::is_plain_path;
use super::reader::Reader;
use super::scalar::{file, items, refuse, usable};
use crate::options::Meta;
use crate::tree::Node;

/// First path segments that the router itself answers.
pub(crate) const RESERVED: [&str; 9] = [
    "v1",
    "health",
    "healthz",
    "ready",
    "readyz",
    "proxy",
    "metrics",
    "console",
    "finish_session",
];

/// Maximum length of a route name in bytes. The name is a label of every metric and a segment of
/// every path.
pub(crate) const NAME_MAX: usize = 128;

/// Why a text is not a valid route name; `None` when it is valid.
pub(crate) fn name_flaw(name: &str) -> Option<&'static str> {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b);
    let starts = name
        .bytes()
        .next()
        .is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    if RESERVED.contains(&name) {
        Some("is reserved: the router answers that path itself")
    } else if name.len() > NAME_MAX {
        Some("is longer than 128 characters")
    } else if !starts || !name.bytes().all(allowed) {
        Some("is not `[a-z0-9._-]+` starting with a letter or digit")
    } else {
        None
    }
}

/// Reads the name of a route.
pub(crate) fn route_name(reader: &mut Reader, node: &Node, meta: &Meta) -> Option<Arc<str>> {
    let Some(scalar) = usable(node).filter(|s| !(s.text.is_empty() || s.is_null() || s.is_bool()))
    else {
        return refuse(reader, node, meta);
    };
    match name_flaw(&scalar.text) {
        None => Some(scalar.text.as_str().into()),
        Some(flaw) => {
            let found = reader.found(node);
            reader
                .error(node.span.clone(), format!("{found} {flaw}"))
                .help(format!("reserved names: {}", RESERVED.join(", ")));
            None
        }
    }
}

/// Reads the name of a route, or null.
pub(crate) fn optional_route_name(
    reader: &mut Reader,
    node: &Node,
    meta: &Meta,
) -> Option<Option<Arc<str>>> {
    if node.is_null() {
        Some(None)
    } else {
        route_name(reader, node, meta).map(Some)
    }
}

/// Reads a file system path, or null.
pub(crate) fn optional_file(
    reader: &mut Reader,
    node: &Node,
    meta: &Meta,
) -> Option<Option<PathBuf>> {
    if node.is_null() {
        Some(None)
    } else {
        file(reader, node, meta).map(Some)
    }
}

/// Reads a path of an engine, with an optional query.
pub(crate) fn url_path(reader: &mut Reader, node: &Node, meta: &Meta) -> Option<Arc<str>> {
    let text = usable(node).map(|s| s.text.as_str()).unwrap_or_default();
    let (path, query) = text.split_once('?').unwrap_or((text, ""));
    let plain = is_plain_path(path) && query.bytes().all(|b| b.is_ascii_graphic() && b != b'#');
    if plain {
        Some(text.into())
    } else {
        refuse(reader, node, meta)
    }
}

/// Reads path prefixes that are forwarded besides `/v1/`.
pub(crate) fn prefixes(reader: &mut Reader, node: &Node, meta: &Meta) -> Option<Arc<[Box<str>]>> {
    let items = items(reader, node, meta)?;
    let mut prefixes: Vec<Box<str>> = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let text = usable(item).map(|s| s.text.as_str()).unwrap_or_default();
        match prefix_flaw(text) {
            None => prefixes.push(text.strip_suffix('/').unwrap_or(text).into()),
            Some(flaw) => reader.item(index, |reader| {
                reader.unexpected(item, flaw);
            }),
        }
    }
    (prefixes.len() == items.len()).then(|| prefixes.into())
}

/// The expected form of an invalid prefix; `None` for a valid one.
fn prefix_flaw(text: &str) -> Option<&'static str> {
    let first = text.split('/').nth(1).unwrap_or_default();
    if !is_plain_path(text) || first.is_empty() {
        Some("a path such as `/tokenize`")
    } else if first == "v1" {
        Some("a path outside `/v1`, which is forwarded anyway")
    } else if first.starts_with('_') || first == "finish_session" {
        Some("a path that the router does not answer itself")
    } else {
        None
    }
}

/// Reads the places of session ids, in search order.
pub(crate) fn session_sources(
    reader: &mut Reader,
    node: &Node,
    meta: &Meta,
) -> Option<Arc<[SessionSource]>> {
    if let Some(scalar) = usable(node)
        && let Some((_, preset)) = Preset::WORDS.iter().find(|(word, _)| *word == scalar.text)
    {
        return Some(preset.sources().into());
    }
    let items = items(reader, node, meta)?;
    let mut sources: Vec<SessionSource> = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        reader.item(index, |reader| {
            let Some(scalar) = usable(item) else {
                reader.unexpected(item, "`header:<name>` or `body:<dotted.path>`");
                return;
            };
            match scalar.text.parse::<SessionSource>() {
                Ok(source) if sources.contains(&source) => {
                    reader.error(item.span.clone(), "this source is in the list already");
                }
                Ok(source) => sources.push(source),
                Err(error) => {
                    reader.error(item.span.clone(), error.to_string());
                }
            }
        });
    }
    (sources.len() == items.len()).then(|| sources.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_start_with_a_letter_or_digit_and_are_not_reserved() {
        for good in ["chat", "0", "a.b_c-d", "glm-4.7", "v1x", "v2"] {
            assert_eq!(name_flaw(good), None, "{good}");
        }
        for bad in [
            "",
            "Chat",
            "-a",
            ".a",
            "_a",
            "a/b",
            "a b",
            "ä",
            "v1",
            "healthz",
            "finish_session",
        ] {
            assert!(name_flaw(bad).is_some(), "{bad}");
        }
        assert!(name_flaw(&"a".repeat(129)).is_some());
    }

    #[test]
    fn prefixes_stay_clear_of_what_the_router_answers() {
        for good in ["/tokenize", "/abort_request", "/api/generate", "/v1beta"] {
            assert_eq!(prefix_flaw(good), None, "{good}");
        }
        for bad in [
            "",
            "/",
            "//",
            "tokenize",
            "/v1",
            "/v1/",
            "/v1/x",
            "/_x",
            "/a/../b",
            "/a?b",
            "/a b",
            "/finish_session",
        ] {
            assert!(prefix_flaw(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn the_docs_list_the_default_sources_in_order() {
        let docs = include_str!("../../../../docs/sessions.md");
        for (index, source) in Preset::Default.sources().iter().enumerate() {
            let label = format!("| `{}` |", source.label);
            let rows = docs.lines().filter(|row| row.ends_with(&label));
            let number = format!("| {} |", index + 1);
            assert_eq!(
                rows.filter(|row| row.starts_with(&number)).count(),
                1,
                "{label}"
            );
        }
        for (word, preset) in Preset::WORDS {
            let (first, row) = (format!("| `{word}` |"), preset.sources());
            let row_of = docs.lines().find(|line| line.starts_with(&first));
            assert!(row_of.is_some() && !row.is_empty(), "{word}");
        }
    }
}
