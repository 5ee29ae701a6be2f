//! Warnings about legal but unwise settings, for an explicit check. A running router does not look
//! for these; `check` reports the remarks on values that it accepts.
//!
//! Each warning has a stable code, one sentence in [`CATALOGUE`], and a test.

mod peers;
mod process;
mod route;
mod rules;
#[cfg(test)]
mod tests;

use super::check::Reader;
use super::tree::{Node, Span};

pub(super) use process::process;
pub(super) use route::route;

/// A warning that a check may give.
#[derive(Clone, Copy, Debug)]
pub struct Advice {
    /// The stable code.
    pub code: &'static str,
    /// The meaning and the remedy, in one sentence.
    pub sentence: &'static str,
    /// Whether a router that loads the file reports it too.
    pub also_at_load: bool,
}

/// A warning of the check only.
const fn lint(code: &'static str, sentence: &'static str) -> Advice {
    Advice {
        code,
        sentence,
        also_at_load: false,
    }
}

/// A warning that loading reports as well.
const fn load(code: &'static str, sentence: &'static str) -> Advice {
    Advice {
        code,
        sentence,
        also_at_load: true,
    }
}

/// All warnings, ordered by code.
pub static CATALOGUE: &[Advice] = &[
    load(
        "adaptive-unmoved",
        "`adaptive_cc` is on and no signal that moves the limit has a threshold: the static limit holds.",
    ),
    lint(
        "affinity-unused",
        "`session_sources` is set and affinity is off: session ids are looked for, and place nothing.",
    ),
    lint(
        "ban-lapses",
        "`health_ban_ttl` is shorter than `health_check_interval` + `health_timeout`: the ban of a dead peer ends before the next probe can renew it, and requests try it in between.",
    ),
    load(
        "body-never-accepted",
        "`server.max_buffered_bytes` is below `server.max_body_size`: a body between the two is never accepted.",
    ),
    load(
        "bound-above-peers",
        "An adaptive bound is above what the peers have together: the limit never moves.",
    ),
    load(
        "capped-by-server",
        "The route's `max_body_size` is above the server's, which holds.",
    ),
    load(
        "doubled-v1",
        "A peer's URL ends in `/v1`, to which the request's own `/v1/...` is appended.",
    ),
    lint(
        "drain-cuts",
        "`server.drain_timeout` is shorter than `server.request_timeout`: a drain cuts requests that are within their time.",
    ),
    lint(
        "hold-lapses",
        "`hold_max` is not above `stale_after`: a busy peer is never held, as with `stale_policy: exclude`.",
    ),
    load(
        "ignored-file",
        "A file in the directory of routes ends in `.yml` and is not read.",
    ),
    lint(
        "key-file-open",
        "Every user of the machine may read the key file.",
    ),
    load(
        "limit-of-no-model",
        "A threshold is set for a model that the route does not have.",
    ),
    load(
        "loose-boolean",
        "A boolean is written `yes`, `no`, `on`, `off`, `1` or `0`.",
    ),
    load(
        "no-routes-directory",
        "The directory of route files is not there.",
    ),
    load(
        "polled-anyway",
        "`load_signal: in_flight` beside a `balance` that orders by the engines' load: they are polled all the same.",
    ),
    lint(
        "rule-never-matches",
        "A content rule contradicts itself: no request can match it.",
    ),
    lint(
        "rule-shadowed",
        "A content rule never gets its turn: an earlier one refuses every request that it would.",
    ),
    lint(
        "rules-off",
        "There are content rules, and `reject_rules_enabled` is false: none refuses anything.",
    ),
    lint(
        "session-ttl-short",
        "`session_ttl` is below the time that one request may take, or below a minute: a conversation loses its peer between two turns.",
    ),
    load(
        "split-role",
        "A peer's `role` is `prefill` or `decode`: requests are not split, so it takes none.",
    ),
    load(
        "stale-budget",
        "`stale_after` is below `poll_interval` + `poll_timeout`: one poll that times out makes a peer stale.",
    ),
    load(
        "tls-off",
        "A `tls_..._file` is set under `bodylog` and `tls` is not: records are sent in the clear.",
    ),
    load(
        "ttl-variable",
        "`VLLM_ROUTER_SLL_SESSION_EXPIRATION_IN_S` is not a number of seconds.",
    ),
    lint(
        "unequal-slots",
        "`balance` compares loads as counts, and the peers' slots differ by twice or more: the small ones fill first; set `normalize: slots`.",
    ),
    lint(
        "unreachable-tier",
        "No peer of a tier takes requests: each is disabled, or has a `role` that takes none.",
    ),
    lint(
        "unused-option",
        "An option is set that does nothing beside another one.",
    ),
    lint(
        "unused-weight",
        "A peer's `weight` does nothing: only `least_busy` and `idle_aware` look at it, and only where weights differ.",
    ),
];

/// The place of a key that this file itself sets.
fn place(own: &Node, key: &str) -> Option<Span> {
    own.get(key).map(|node| node.span.clone())
}

/// Reports a warning at a top-level key of the file.
fn warn(reader: &mut Reader, key: &str, at: Span, code: &'static str, message: impl Into<String>) {
    reader.key(key, |reader| {
        reader.warning(code, at, message);
    });
}
