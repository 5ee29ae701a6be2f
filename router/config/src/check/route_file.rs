//! `routes/<name>.yaml` → [`Route`].

use std::path::Path;
use std::sync::Arc;

use router_core::layered::{Setting, Source};

use super::main_file::Base;
use super::names::name_flaw;
use super::peers::pools;
use super::peers_from::peers_from;
use super::reader::Reader;
use super::section::{Layers, keys};
use super::{guard, load};
use crate::options::{NAME, ROUTE, ROUTE_OPTIONS};
use crate::tree::{Node, Span, Value};
use crate::units::show_size;
use crate::valid::{LoadSignal, Route, RouteOptions};

/// A route file's content, best effort. If errors were reported, only its name is used.
pub(crate) struct RouteFile {
    /// The route.
    pub(crate) route: Route,
    /// Where `name` is set.
    pub(crate) name_at: Option<Span>,
    /// Where `fallback` is set.
    pub(crate) fallback_at: Option<Span>,
}

/// Checks one route file.
pub(crate) fn route_file(reader: &mut Reader, path: &Path, root: &Node, base: &Base) -> RouteFile {
    let is_mapping = matches!(root.value, Value::Map(_));
    if !is_mapping {
        let message = if root.is_null() {
            "the file is empty"
        } else {
            "expected a mapping"
        };
        reader
            .error(root.span.clone(), message)
            .help("`peers: []` is the least that a route file holds");
    } else {
        keys(reader, root, &ROUTE, "a mapping");
    }
    let layers = Layers {
        own: root,
        global: Some(&base.defaults),
    };
    let name = name(reader, path, root);
    let mut options = options(reader, &layers, base);
    let peers_from = peers_from(reader, path, root);
    let pools = if is_mapping {
        pools(reader, root, options.default_max.value)
    } else {
        Vec::new()
    };
    guard::whole_route(reader, &layers, &mut options, &pools);
    RouteFile {
        route: Route {
            name,
            path: path.to_owned(),
            pools,
            peers_from,
            options,
        },
        name_at: root.get(NAME.meta.key).map(|node| node.span.clone()),
        fallback_at: root
            .get(ROUTE_OPTIONS.fallback.meta.key)
            .map(|node| node.span.clone()),
    }
}

/// The route name set by the file, or else the file's stem. If `name` is unusable, the stem serves
/// as the name in reports.
fn name(reader: &mut Reader, path: &Path, root: &Node) -> Arc<str> {
    let stem = stem(path);
    if let Some(node) = root.get(NAME.meta.key) {
        return reader
            .key(NAME.meta.key, |reader| NAME.read(reader, node))
            .unwrap_or(stem);
    }
    if let Some(flaw) = name_flaw(&stem) {
        reader
            .error(
                0..0,
                format!("the file's stem `{stem}` names the route, and {flaw}"),
            )
            .help("rename the file, or give the route a `name`");
    }
    stem
}

/// The file name without `.yaml`.
pub(crate) fn stem(path: &Path) -> Arc<str> {
    path.file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .as_ref()
        .into()
}

/// Reads every option of a route except its peers.
pub(super) fn options(reader: &mut Reader, layers: &Layers<'_>, base: &Base) -> RouteOptions {
    let mut options = ROUTE_OPTIONS.read(reader, layers);
    load::implied(reader, layers, &mut options);
    inherit(&mut options, base);
    cap_body(reader, layers, base, &mut options);
    reader.tolerating(|reader| guard::combinations(reader, layers, &mut options));
    options
}

/// Fills in defaults that come from other options or files.
fn inherit(options: &mut RouteOptions, base: &Base) {
    fill(&mut options.session_ttl, base.session_ttl);
    fill(&mut options.request_timeout, base.request_timeout);
    fill(&mut options.adaptive.interval, options.tps.window.value);
    let is_polled = options.load.signal.value == LoadSignal::Engine;
    fill(&mut options.load.pin_model, is_polled);
    let has_rules = !options.reject_rules.value.is_empty();
    fill(&mut options.reject_rules_enabled, has_rules);
    let timeout = &mut options.request_timeout.source;
    if base.request_timeout_set && *timeout == Source::Default {
        *timeout = Source::Global;
    }
}

/// Sets an option for which no file has a usable value.
fn fill<T>(setting: &mut Setting<T>, default: T) {
    if matches!(setting.source, Source::Default | Source::DefaultInvalid) {
        setting.value = default;
    }
}

/// Caps `max_body_size` at the server's limit, and warns a route that asks for more.
fn cap_body(reader: &mut Reader, layers: &Layers<'_>, base: &Base, options: &mut RouteOptions) {
    let key = ROUTE_OPTIONS.max_body_size.meta.key;
    let size = &mut options.max_body_size;
    if size.value <= base.max_body_size {
        return;
    }
    size.value = base.max_body_size;
    if let Some(node) = layers.own.get(key) {
        let ceiling = show_size(base.max_body_size);
        reader.key(key, |reader| {
            reader.warning(
                "capped-by-server",
                node.span.clone(),
                format!("above `server.max_body_size`: {ceiling} is in force"),
            );
        });
    }
}
