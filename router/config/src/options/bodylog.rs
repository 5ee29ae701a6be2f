//! What of a route's exchanges is recorded, and where records are sent.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::define::options;
use super::{Bounds, Kind, Meta, OptionDef, option, server::section, switch};
use crate::check;
use crate::valid::{Bodies, BodyPath};

options! {
    /// `bodylog` and `bodylog_*`.
    pub struct BodylogOptions, declared in BODYLOG: BodylogTable;

    "bodylog" {
        /// The switch behind `/_bodylog_toggle`: whether requests and answers are recorded. Nothing
        /// is recorded while `bodylog.listener` of the main file is unset.
        enabled: bool = switch("bodylog").default("true");

        /// Percentage of requests that is recorded; fractions are allowed. Errors, truncated
        /// answers and requests slower than `bodylog_slow` are always recorded.
        pct: f64 = option("bodylog_pct", Kind::Number(Bounds::within(0.0, 100.0))).default("100");

        /// Requests that took longer are always recorded, whatever `bodylog_pct` says.
        slow: Option<Duration> = option("bodylog_slow", Kind::Duration { min: Duration::from_millis(1), max: Duration::from_secs(24 * 3600), off: true })
            .default("60s");

        /// How much of the two bodies is kept. `full`: 10 MiB of the request, and of the answer the
        /// first 1536 KiB and the last 512 KiB. `truncate(<size>)`: this much of each, with the
        /// answer divided in the same way. `none`: nothing.
        bodies: Bodies = option("bodylog_bodies", Kind::Bodies).default("full");

        /// Values of JSON bodies that are recorded as `[REDACTED]`: paths of names and list indices
        /// joined by dots, with `*` for every member or element.
        redact_paths: Arc<[BodyPath]> = option("bodylog_redact_paths", Kind::BodyPaths).default("[]");
    }
}

/// `bodylog:` of the main file.
static BODYLOG_KEYS: &[&Meta] = &[
    &BODYLOG_LISTENER.meta,
    &BODYLOG_TOKEN_FILE.meta,
    &BODYLOG_TLS.meta,
    &BODYLOG_TLS_CA_FILE.meta,
    &BODYLOG_TLS_CERT_FILE.meta,
    &BODYLOG_TLS_KEY_FILE.meta,
    &BODYLOG_MEMORY.meta,
    &BODYLOG_SPOOL,
];

/// `bodylog.spool:`.
static SPOOL_KEYS: &[&Meta] = &[&SPOOL_DIR.meta, &SPOOL_MAX_BYTES.meta];

/// The section `bodylog`.
pub(crate) static BODYLOG_SECTION: Meta = section(
    "bodylog",
    || BODYLOG_KEYS,
    "Where records of requests and responses are sent. A change of `spool.dir` needs a restart.",
);
/// The section `bodylog.spool`.
pub(crate) static BODYLOG_SPOOL: Meta = section(
    "spool",
    || SPOOL_KEYS,
    "Where records wait on disk while the listener is away.",
);

/// `bodylog.listener`.
pub(crate) static BODYLOG_LISTENER: OptionDef<Option<Arc<str>>> = OptionDef::new(
    "bodylog",
    "listener",
    Kind::Address,
    check::optional_host_port,
)
.default("null")
.doc("`host:port` of the bodylog listener; unset: nothing is recorded. The environment's `BODYLOG_LISTENER_HOST` (`host` or `host:port`) and `BODYLOG_LISTENER_PORT` (9999 where neither says) override it.");
/// `bodylog.token_file`.
pub(crate) static BODYLOG_TOKEN_FILE: OptionDef<Option<PathBuf>> =
    OptionDef::new("bodylog", "token_file", Kind::File, check::optional_file)
        .default("null")
        .doc("The file with the token that the listener asks for.");
/// `bodylog.tls`.
pub(crate) static BODYLOG_TLS: OptionDef<bool> =
    OptionDef::new("bodylog", "tls", Kind::Bool, check::boolean)
        .default("false")
        .doc("The listener is spoken to over TLS; its certificate must name the host of `listener`. Files are read at each connection.");
/// `bodylog.tls_ca_file`.
pub(crate) static BODYLOG_TLS_CA_FILE: OptionDef<Option<PathBuf>> =
    OptionDef::new("bodylog", "tls_ca_file", Kind::File, check::optional_file)
        .default("null")
        .doc("The authorities (PEM) that may sign the listener's certificate; unset: those of the system, or of `SSL_CERT_FILE`.");
/// `bodylog.tls_cert_file`.
pub(crate) static BODYLOG_TLS_CERT_FILE: OptionDef<Option<PathBuf>> =
    OptionDef::new("bodylog", "tls_cert_file", Kind::File, check::optional_file)
        .default("null")
        .doc("The certificate chain (PEM) to show to a listener that asks for one.");
/// `bodylog.tls_key_file`.
pub(crate) static BODYLOG_TLS_KEY_FILE: OptionDef<Option<PathBuf>> =
    OptionDef::new("bodylog", "tls_key_file", Kind::File, check::optional_file)
        .default("null")
        .doc("The key (PEM) of `tls_cert_file`.");
/// `bodylog.memory`.
pub(crate) static BODYLOG_MEMORY: OptionDef<u64> = OptionDef::new(
    "bodylog",
    "memory",
    Kind::Size {
        min: 1 << 20,
        max: 1 << 40,
    },
    check::size,
)
.default("256m")
.doc("Bytes of records in memory, all routes together. Beyond it bodies are dropped first, then whole records, and every loss is counted.");
/// `bodylog.spool.dir`.
pub(crate) static SPOOL_DIR: OptionDef<Option<PathBuf>> =
    OptionDef::new("spool", "dir", Kind::File, check::optional_file)
        .default("null")
        .doc("The directory of the spool; unset: memory only.");
/// `bodylog.spool.max_bytes`.
pub(crate) static SPOOL_MAX_BYTES: OptionDef<u64> = OptionDef::new(
    "spool",
    "max_bytes",
    Kind::Size {
        min: 1 << 20,
        max: 1 << 50,
    },
    check::size,
)
.default("4g")
.doc("How large the spool may grow.");
