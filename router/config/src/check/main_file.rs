//! `router.yaml` → [`Main`] and the `defaults:` layer.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::owners::owners;
use super::reader::Reader;
use super::route_file::options;
use super::scalar::usable;
use super::section::{Layers, keys};
use crate::options::{
    ACCESS_LOG, ADMIN_LISTEN, ADMIN_READ, ADMIN_TOKEN_FILE, BODYLOG_LISTENER, BODYLOG_MEMORY,
    BODYLOG_SECTION, BODYLOG_SPOOL, BODYLOG_TLS, BODYLOG_TLS_CA_FILE, BODYLOG_TLS_CERT_FILE,
    BODYLOG_TLS_KEY_FILE, BODYLOG_TOKEN_FILE, CONNECT_TIMEOUT, CONSOLE, CORS, CORS_ORIGINS,
    DEFAULT_ROUTE, DEFAULTS, DRAIN_DELAY, DRAIN_TIMEOUT, FINDINGS, FINDINGS_WINDOW, IDLE_TIMEOUT,
    KEYS, KEYS_FILE, Kind, LISTEN, MAIN, MAX_BUFFERED_BYTES, MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_SOURCE, Meta, ON_MISSING, READY_WITHOUT_PEERS, RESPONSE_TIMEOUT,
    ROUTE_OPTIONS, ROUTES, SERVER, SERVER_MAX_BODY_SIZE, SERVER_REQUEST_TIMEOUT, SPOOL_DIR,
    SPOOL_MAX_BYTES, STATE, STATUS_ACCESS, TRUSTED_PROXIES,
};
use crate::tree::{Node, Span};
use crate::valid::{Bodylog, BodylogTls, Keys, Main, Server, Spool};

/// The values of the main file that route files need.
pub(crate) struct Base {
    /// `defaults:`, expanded; its problems have been reported.
    pub(crate) defaults: Node,
    /// Ceiling of `max_body_size`.
    pub(crate) max_body_size: u64,
    /// The server's `request_timeout`, for routes that set none.
    pub(crate) request_timeout: Option<Duration>,
    /// Whether the main file sets it.
    pub(crate) request_timeout_set: bool,
    /// `session_ttl` for routes where no file sets it.
    pub(crate) session_ttl: Duration,
}

impl Base {
    /// What a route file builds on where there is no main file.
    pub(crate) fn of_no_file() -> Self {
        let ttl = ROUTE_OPTIONS.session_ttl.builtin().unwrap_or_default();
        main_file(&mut Reader::new(), None, &Node::empty(), ttl).base
    }
}

/// The main file's content, best effort. If errors were reported, it serves only to check other
/// files.
pub(crate) struct MainFile {
    /// The configuration.
    pub(crate) main: Main,
    /// The values that route files build on.
    pub(crate) base: Base,
    /// Where `routes` is set.
    pub(crate) routes_at: Option<Span>,
    /// Where `server.default_route` is set.
    pub(crate) default_route_at: Option<Span>,
}

/// Checks the main file. `path` is `None` when there is no main file; `root` is then an empty
/// mapping.
pub(crate) fn main_file(
    reader: &mut Reader,
    path: Option<&Path>,
    root: &Node,
    session_ttl: Duration,
) -> MainFile {
    keys(reader, root, MAIN, "a mapping");
    let directory = path.and_then(Path::parent);
    let (empty, layer) = (Node::empty(), |own| Layers { own, global: None });
    let server_at = section(reader, root, &SERVER).unwrap_or(&empty);
    let server = reader.key(SERVER.key, |reader| {
        let findings_at = section(reader, server_at, &FINDINGS).unwrap_or(&empty);
        let window = reader.key(FINDINGS.key, |reader| {
            layer(findings_at).value(reader, &FINDINGS_WINDOW)
        });
        server(reader, &layer(server_at), directory, window)
    });
    let keys_at = section(reader, root, &KEYS).unwrap_or(&empty);
    let keys = reader.key(KEYS.key, |reader| Keys {
        file: beside(directory, layer(keys_at).value(reader, &KEYS_FILE)),
        on_missing: layer(keys_at).value(reader, &ON_MISSING),
    });
    let bodylog_at = section(reader, root, &BODYLOG_SECTION).unwrap_or(&empty);
    let bodylog = reader.key(BODYLOG_SECTION.key, |reader| {
        bodylog(reader, bodylog_at, directory)
    });
    let routes_dir = beside(directory, layer(root).value(reader, &ROUTES));
    layer(root).value(reader, &STATE);
    let mut base = Base {
        defaults: Node::empty(),
        max_body_size: server.max_body_size,
        request_timeout: server.request_timeout,
        request_timeout_set: server_at.get(SERVER_REQUEST_TIMEOUT.meta.key).is_some(),
        session_ttl,
    };
    if let Some(defaults) = section(reader, root, &DEFAULTS) {
        reader.key(DEFAULTS.key, |reader| {
            options(reader, &layer(defaults), &base)
        });
        base.defaults = defaults.clone();
    }
    MainFile {
        main: Main {
            path: path.map(Path::to_owned),
            server,
            keys,
            routes_dir,
            bodylog,
            owners: Arc::new(owners(reader, root)),
        },
        base,
        routes_at: root.get(ROUTES.meta.key).map(|node| node.span.clone()),
        default_route_at: server_at
            .get(DEFAULT_ROUTE.meta.key)
            .map(|node| node.span.clone()),
    }
}

/// Accepts only `memory`, the one supported state. Any other value may be a URL with a password in
/// it.
pub(crate) fn state(reader: &mut Reader, node: &Node, meta: &Meta) -> Option<()> {
    if usable(node).is_some_and(|scalar| scalar.text == meta.default) {
        return Some(());
    }
    if node.is_unusable() {
        return None;
    }
    reader.mask_tree(node);
    let message = "unknown key `state`: only `state: memory` is known";
    reader.error(node.span.clone(), message);
    None
}

/// Returns a section after a check of its keys.
fn section<'n>(reader: &mut Reader, root: &'n Node, meta: &Meta) -> Option<&'n Node> {
    let node = root.get(meta.key)?;
    let Kind::Section(known) = meta.kind else {
        return None;
    };
    reader
        .key(meta.key, |reader| {
            keys(reader, node, known(), &meta.kind.allowed())
        })
        .then_some(node)
}

fn server(
    reader: &mut Reader,
    layers: &Layers<'_>,
    directory: Option<&Path>,
    findings_window: Duration,
) -> Server {
    let empty = Node::empty();
    let cors = Layers {
        own: section(reader, layers.own, &CORS).unwrap_or(&empty),
        global: None,
    };
    let server = Server {
        listen: layers.value(reader, &LISTEN),
        admin_listen: layers.value(reader, &ADMIN_LISTEN),
        admin_read: layers.value(reader, &ADMIN_READ),
        console: layers.value(reader, &CONSOLE),
        ready_without_peers: layers.value(reader, &READY_WITHOUT_PEERS),
        default_route: layers
            .value(reader, &DEFAULT_ROUTE)
            .map(|name| name.to_string()),
        max_connections: layers.value(reader, &MAX_CONNECTIONS),
        max_connections_per_source: layers.value(reader, &MAX_CONNECTIONS_PER_SOURCE),
        max_body_size: layers.value(reader, &SERVER_MAX_BODY_SIZE),
        max_buffered_bytes: layers.value(reader, &MAX_BUFFERED_BYTES),
        connect_timeout: layers.value(reader, &CONNECT_TIMEOUT),
        request_timeout: layers.value(reader, &SERVER_REQUEST_TIMEOUT),
        response_timeout: layers.value(reader, &RESPONSE_TIMEOUT),
        idle_timeout: layers.value(reader, &IDLE_TIMEOUT),
        drain_delay: layers.value(reader, &DRAIN_DELAY),
        drain_timeout: layers.value(reader, &DRAIN_TIMEOUT),
        status_access: layers.value(reader, &STATUS_ACCESS),
        admin_token_file: layers
            .value(reader, &ADMIN_TOKEN_FILE)
            .map(|file| beside(directory, file)),
        trusted_proxies: layers.value(reader, &TRUSTED_PROXIES),
        access_log: layers.value(reader, &ACCESS_LOG),
        findings_window,
        cors: reader.key(CORS.key, |reader| cors.value(reader, &CORS_ORIGINS)),
    };
    if server.listen == server.admin_listen && server.listen.port() != 0 {
        let at = layers
            .own
            .get(ADMIN_LISTEN.meta.key)
            .or(layers.own.get(LISTEN.meta.key));
        let at = at.map_or(0..0, |node| node.span.clone());
        reader.error(
            at,
            format!("`listen` and `admin_listen` are both {}", server.listen),
        );
    }
    if server.max_buffered_bytes < server.max_body_size
        && let Some(node) = layers.own.get(MAX_BUFFERED_BYTES.meta.key)
    {
        reader.warning(
"body-never-accepted",
            node.span.clone(),
            "`max_buffered_bytes` is below `max_body_size`: a body between the two is never accepted",
        );
    }
    server
}

fn bodylog(reader: &mut Reader, node: &Node, directory: Option<&Path>) -> Bodylog {
    let empty = Node::empty();
    let spool_at = section(reader, node, &BODYLOG_SPOOL).unwrap_or(&empty);
    let spool = Layers {
        own: spool_at,
        global: None,
    };
    let (dir, max_bytes) = reader.key(BODYLOG_SPOOL.key, |reader| {
        let dir = spool.value(reader, &SPOOL_DIR);
        (dir, spool.value(reader, &SPOOL_MAX_BYTES))
    });
    let layers = Layers {
        own: node,
        global: None,
    };
    Bodylog {
        listener: layers.value(reader, &BODYLOG_LISTENER),
        token_file: layers
            .value(reader, &BODYLOG_TOKEN_FILE)
            .map(|file| beside(directory, file)),
        tls: bodylog_tls(reader, &layers, directory),
        memory: layers.value(reader, &BODYLOG_MEMORY),
        spool: dir.map(|dir| Spool {
            dir: beside(directory, dir),
            max_bytes,
        }),
    }
}

fn bodylog_tls(
    reader: &mut Reader,
    layers: &Layers<'_>,
    directory: Option<&Path>,
) -> Option<BodylogTls> {
    let is_on = layers.value(reader, &BODYLOG_TLS);
    let files = [
        &BODYLOG_TLS_CA_FILE,
        &BODYLOG_TLS_CERT_FILE,
        &BODYLOG_TLS_KEY_FILE,
    ];
    let [ca_file, cert, key] = files.map(|knob| {
        let file = layers.value(reader, knob)?;
        Some(beside(directory, file))
    });
    let pair = [&BODYLOG_TLS_CERT_FILE, &BODYLOG_TLS_KEY_FILE].map(|knob| knob.meta.key);
    let (given, missing) = match (&cert, &key) {
        (Some(_), None) => (pair[0], pair[1]),
        (None, Some(_)) => (pair[1], pair[0]),
        _ => ("", ""),
    };
    if let Some(node) = layers.own.get(given) {
        let text = format!("`{given}` needs `{missing}` beside it");
        reader.error(node.span.clone(), text);
    }
    let is_set = [ca_file.is_some(), cert.is_some(), key.is_some()];
    let set = files.iter().zip(is_set).find(|(_, is_set)| *is_set);
    if !is_on
        && let Some((knob, _)) = set
        && let Some(node) = layers.own.get(knob.meta.key)
    {
        let text = "`tls` is off: records are sent in the clear";
        reader.key(knob.meta.key, |reader| {
            reader
                .warning("tls-off", node.span.clone(), text)
                .help("write `tls: true` beside it");
        });
    }
    is_on.then_some(BodylogTls {
        ca_file,
        identity: cert.zip(key),
    })
}

/// Relative paths in the main file are relative to its directory.
fn beside(directory: Option<&Path>, path: PathBuf) -> PathBuf {
    match directory {
        Some(directory) if path.is_relative() => directory.join(path),
        _ => path,
    }
}
