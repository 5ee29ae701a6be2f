//! The keys of `router.yaml`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use super::bodylog::BODYLOG_SECTION;
use super::{Kind, Meta, OptionDef, within};
use crate::check::{self, Choice};
use crate::valid::{AdminRead, Cors, OnMissing, StatusAccess};

/// The top of `router.yaml`.
pub(crate) static MAIN: &[&Meta] = &[
    &SERVER,
    &KEYS,
    &ROUTES.meta,
    &DEFAULTS,
    &BODYLOG_SECTION,
    &OWNERS,
    &STATE.meta,
];

/// `owners:`.
pub(crate) static OWNERS: Meta = Meta {
    key: "owners",
    group: "main",
    kind: Kind::Owners,
    default: "{}",
    doc: "Limits of the holders of keys, over all routes, by the owner's name; `team-*` stands for all that begin so, `default` for all others. See docs/owners.md.",
    secret: false,
    advanced: false,
};

/// The keys of one owner.
pub(crate) static OWNER: &[&Meta] = &[&OWNER_MAX_CONCURRENCY.meta, &OWNER_REQUESTS_PER_MINUTE.meta];

/// `owners.*.max_concurrency`.
pub(crate) static OWNER_MAX_CONCURRENCY: OptionDef<Option<u32>> = OptionDef::new(
    "owner",
    "max_concurrency",
    Kind::WholeOrOff {
        min: 1,
        max: 1_000_000,
    },
    check::whole_or_off,
)
.default("off")
.doc("Requests of the owner that run or wait at once. A further one gets 429 `owner_limit`.");
/// `owners.*.requests_per_minute`.
pub(crate) static OWNER_REQUESTS_PER_MINUTE: OptionDef<Option<u32>> = OptionDef::new(
    "owner",
    "requests_per_minute",
    Kind::WholeOrOff {
        min: 1,
        max: 1_000_000,
    },
    check::whole_or_off,
)
.default("off")
.doc("Requests that may begin in a minute, up to a tenth of them at once. A further one gets 429 `owner_rate_limit`.");

/// `server:`.
static SERVER_KEYS: &[&Meta] = &[
    &LISTEN.meta,
    &ADMIN_LISTEN.meta,
    &ADMIN_READ.meta,
    &CONSOLE.meta,
    &READY_WITHOUT_PEERS.meta,
    &DEFAULT_ROUTE.meta,
    &MAX_CONNECTIONS.meta,
    &MAX_CONNECTIONS_PER_SOURCE.meta,
    &SERVER_MAX_BODY_SIZE.meta,
    &MAX_BUFFERED_BYTES.meta,
    &CONNECT_TIMEOUT.meta,
    &SERVER_REQUEST_TIMEOUT.meta,
    &RESPONSE_TIMEOUT.meta,
    &IDLE_TIMEOUT.meta,
    &DRAIN_DELAY.meta,
    &DRAIN_TIMEOUT.meta,
    &STATUS_ACCESS.meta,
    &ADMIN_TOKEN_FILE.meta,
    &TRUSTED_PROXIES.meta,
    &ACCESS_LOG.meta,
    &FINDINGS,
    &CORS,
];

/// `server.findings:`.
static FINDINGS_KEYS: &[&Meta] = &[&FINDINGS_WINDOW.meta];

/// `server.cors:`.
static CORS_KEYS: &[&Meta] = &[&CORS_ORIGINS.meta];

/// `keys:`.
static KEYS_KEYS: &[&Meta] = &[&KEYS_FILE.meta, &ON_MISSING.meta];

/// The section `server`.
pub(crate) static SERVER: Meta = section(
    "server",
    || SERVER_KEYS,
    "Ports, limits and time-outs of the process.",
);
/// The section `server.findings`.
pub(crate) static FINDINGS: Meta = section(
    "findings",
    || FINDINGS_KEYS,
    "What `/_findings` and `llmctl status` name as wrong.",
);
/// The section `server.cors`.
pub(crate) static CORS: Meta = section(
    "cors",
    || CORS_KEYS,
    "Which web pages may call the public port from a browser ([http.md](http.md#browsers)).",
);
/// The section `keys`.
pub(crate) static KEYS: Meta = section("keys", || KEYS_KEYS, "The shared key file.");
/// The section `defaults`.
pub(crate) static DEFAULTS: Meta = section(
    "defaults",
    || &super::DEFAULTABLE,
    "Route options that hold for every route whose own file does not set them. \
     `name`, `peers`, `peers_by_model` and `peers_from` belong to a route and cannot stand here.",
);

/// A mapping of the main file with its own keys.
pub(super) const fn section(
    key: &'static str,
    keys: fn() -> &'static [&'static Meta],
    doc: &'static str,
) -> Meta {
    Meta {
        key,
        group: "main",
        kind: Kind::Section(keys),
        default: "{}",
        doc,
        secret: false,
        advanced: false,
    }
}

/// `routes`.
pub(crate) static ROUTES: OptionDef<PathBuf> = OptionDef::new("main", "routes", Kind::File, check::file)
    .default("routes/")
    .doc("The directory of route files, one `<name>.yaml` a route. Relative paths in this file are relative to its directory.");

/// `state`.
pub(crate) static STATE: OptionDef<()> =
    OptionDef::new("main", "state", Kind::Choice(states), check::state)
        .default("memory")
        .doc("Where counts, sessions and switches are kept: in the process's memory.");

/// The allowed values of `state`.
fn states() -> Vec<&'static str> {
    vec!["memory"]
}

/// `server.listen`.
pub(crate) static LISTEN: OptionDef<SocketAddr> =
    OptionDef::new("server", "listen", Kind::Listen, check::listen)
        .default("0.0.0.0:8080")
        .doc("The public port. A change needs a restart.");
/// `server.admin_listen`.
pub(crate) static ADMIN_LISTEN: OptionDef<SocketAddr> =
    OptionDef::new("server", "admin_listen", Kind::Listen, check::listen)
        .default("0.0.0.0:8090")
        .doc("The admin port. `/healthz`, `/readyz` and `/metrics` are open; the rest is for loopback callers and holders of the admin token. A change needs a restart.");
/// `server.admin_read`.
pub(crate) static ADMIN_READ: OptionDef<AdminRead> =
    OptionDef::new("server", "admin_read", Kind::Choice(AdminRead::words), check::choice)
        .default("token")
        .doc("Who may read the rest of the admin port: `token`: loopback callers and holders of the admin token; `open`: everyone.");
/// `server.console`.
pub(crate) static CONSOLE: OptionDef<bool> =
    OptionDef::new("server", "console", Kind::Bool, check::boolean)
        .default("true")
        .doc("Pages for people at `/console/` on the admin port. Their data is for the callers that `admin_read` admits.");
/// `server.ready_without_peers`.
pub(crate) static READY_WITHOUT_PEERS: OptionDef<bool> =
    OptionDef::new("server", "ready_without_peers", Kind::Bool, check::boolean)
        .default("false")
        .doc("Whether `/readyz` stays 200 while no route has a usable peer. Behind a Service or a load balancer that keeps a router which is not ready out of use, `true` lets clients see the router's 503 and its reason instead of a refused connection.");
/// `server.default_route`.
pub(crate) static DEFAULT_ROUTE: OptionDef<Option<Arc<str>>> =
    OptionDef::new("server", "default_route", Kind::RouteName, check::optional_route_name)
        .default("null")
        .doc("What `/v1/…` without a route prefix means. Unset: the route that serves the body's `model`, else the only route.");
/// `server.max_connections`.
pub(crate) static MAX_CONNECTIONS: OptionDef<Option<u32>> = OptionDef::new(
    "main",
    "max_connections",
    Kind::WholeOrAuto {
        min: 1,
        max: 1_000_000,
    },
    check::whole_or_auto,
)
.default("auto")
.doc("Connections of clients on the public port. A further one gets 503 `overloaded` and is closed. `auto`: half of the process's limit on open files, after a reserve for the admin port, files and engines.");
/// `server.max_connections_per_source`.
pub(crate) static MAX_CONNECTIONS_PER_SOURCE: OptionDef<Option<u32>> = OptionDef::new(
    "main",
    "max_connections_per_source",
    Kind::WholeOrOff {
        min: 1,
        max: 1_000_000,
    },
    check::whole_or_off,
)
.default("off")
.doc("The same for one client address. `off`: no limit of its own.");
/// `server.max_body_size`.
pub(crate) static SERVER_MAX_BODY_SIZE: OptionDef<u64> =
    OptionDef::new("server", "max_body_size", BODY, check::size)
        .default("200m")
        .doc("The ceiling for any route's `max_body_size`.");
/// `server.max_buffered_bytes`.
pub(crate) static MAX_BUFFERED_BYTES: OptionDef<u64> = OptionDef::new(
    "server",
    "max_buffered_bytes",
    Kind::Size {
        min: 1,
        max: 1 << 50,
    },
    check::size,
)
.default("2g")
.doc("Request bodies in memory, all requests together; beyond it requests get 503 `overloaded`. Answers above 64k that are held for `postprocess` count too; without room they pass unchanged.");
/// `server.connect_timeout`.
pub(crate) static CONNECT_TIMEOUT: OptionDef<Duration> =
    OptionDef::new("server", "connect_timeout", within(1, 24), check::duration)
        .default("2s")
        .doc("TCP and TLS connect to a peer; when it passes, the next candidate is tried.");
/// `server.request_timeout`.
pub(crate) static SERVER_REQUEST_TIMEOUT: OptionDef<Option<Duration>> =
    OptionDef::new("server", "request_timeout", REQUEST_TIMEOUT_KIND, check::duration_or_off)
        .default("off")
        .doc("The whole request, first byte to last: 504 before the response's headers, an in-band error after.");
/// `server.response_timeout`.
pub(crate) static RESPONSE_TIMEOUT: OptionDef<Duration> = OptionDef::new(
    "server",
    "response_timeout",
    within(1, 24 * 31),
    check::duration,
)
.default("3600s")
.doc("From the request sent to the response's headers.");
/// `server.idle_timeout`.
pub(crate) static IDLE_TIMEOUT: OptionDef<Duration> = OptionDef::new(
    "server",
    "idle_timeout",
    within(1, 24 * 31),
    check::duration,
)
.default("3600s")
.doc("Between two chunks of a response.");
/// `server.drain_delay`.
pub(crate) static DRAIN_DELAY: OptionDef<Duration> =
    OptionDef::new("server", "drain_delay", within(0, 24), check::duration)
        .default("5s")
        .doc("After a stop signal: readiness is off, requests are still accepted, so that load balancers can notice.");
/// `server.drain_timeout`.
pub(crate) static DRAIN_TIMEOUT: OptionDef<Duration> = OptionDef::new(
    "server",
    "drain_timeout",
    within(0, 24 * 7),
    check::duration,
)
.default("600s")
.doc("Then this long for the requests in flight; what is left is told, a stream by an error event and a request without an answer by 503 `draining`, and cut.");
/// `server.status_access`.
pub(crate) static STATUS_ACCESS: OptionDef<StatusAccess> =
    OptionDef::new("server", "status_access", Kind::Choice(StatusAccess::words), check::choice)
        .default("loopback")
        .doc("Who may ask `/<route>/_…` on the public port: `loopback` callers, holders of a `key` of the route, everyone (`open`), nobody (`off`).");
/// `server.admin_token_file`.
pub(crate) static ADMIN_TOKEN_FILE: OptionDef<Option<PathBuf>> =
    OptionDef::new("server", "admin_token_file", Kind::File, check::optional_file)
        .default("null")
        .doc("The file with the bearer token of admin callers that are not loopback. Unset: loopback callers only.");
/// `server.trusted_proxies`.
pub(crate) static TRUSTED_PROXIES: OptionDef<Vec<IpNet>> =
    OptionDef::new("server", "trusted_proxies", Kind::Cidrs, check::cidrs)
        .default("[]")
        .doc("CIDRs (or single addresses) whose `X-Forwarded-For` and `X-Real-IP` count.");
/// `server.access_log`.
pub(crate) static ACCESS_LOG: OptionDef<bool> =
    OptionDef::new("server", "access_log", Kind::Bool, check::boolean)
        .default("true")
        .doc("One line a request, on stdout. A change needs a restart.");

/// `server.findings.window`.
pub(crate) static FINDINGS_WINDOW: OptionDef<Duration> = OptionDef::new(
    "findings",
    "window",
    within(0, 24),
    check::duration,
)
.default("1m")
.doc("How long a finding stays after its cause has gone. Its text then begins with \"over\".");

/// `server.cors.origins`.
pub(crate) static CORS_ORIGINS: OptionDef<Option<Cors>> =
    OptionDef::new("cors", "origins", Kind::Origins, check::origins)
        .default("[]")
        .doc("Origins as browsers send them, `https://chat.example`; `*` for every page. Empty: CORS is off, and an engine's own headers pass. Keys are asked for all the same.");

/// `keys.file`.
pub(crate) static KEYS_FILE: OptionDef<PathBuf> = OptionDef::new("keys", "file", Kind::File, check::file)
    .default("/etc/llm-router/keys")
    .doc("`key:owner` entries, separated by commas or newlines; `#` begins a comment; `sha256:<hex>:owner` holds a key's SHA-256 instead of the key.");
/// `keys.on_missing`.
pub(crate) static ON_MISSING: OptionDef<OnMissing> =
    OptionDef::new("keys", "on_missing", Kind::Choice(OnMissing::words), check::choice)
        .default("allow")
        .doc("What a missing, unreadable or empty key file means at start: `allow`: requests pass unauthenticated, logged as an error and reported everywhere; `deny`: requests are refused. Once a set was loaded it stays in force whatever happens to the file.");

/// Bounds of a body size.
pub(super) const BODY: Kind = Kind::Size {
    min: 1,
    max: 1 << 40,
};

/// Bounds of the time for a whole request.
pub(super) const REQUEST_TIMEOUT_KIND: Kind = Kind::Duration {
    min: Duration::from_millis(1),
    max: Duration::from_secs(31 * 24 * 3600),
    off: true,
};

impl Choice for AdminRead {
    const WORDS: &'static [(&'static str, Self)] = &[("token", Self::Token), ("open", Self::Open)];
}

impl Choice for StatusAccess {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("loopback", Self::Loopback),
        ("key", Self::Key),
        ("open", Self::Open),
        ("off", Self::Off),
    ];
}

impl Choice for OnMissing {
    const WORDS: &'static [(&'static str, Self)] = &[("allow", Self::Allow), ("deny", Self::Deny)];
}
