//! The effects of the transforms, past and possible: `_cch_strip_status` and `_cch_test`.

use serde::{Deserialize, Serialize};

/// `GET /<route>/_cch_strip_status`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CchStripStatus {
    /// The route.
    pub route: String,
    /// Whether billing headers are removed now.
    pub enabled: bool,
    /// The layer that sets the switch: `runtime`, `route`, `global`, `default` or `default
    /// (invalid)`.
    pub source: String,
    /// The value in the files.
    pub default: bool,
    /// Bodies inspected since the start or the last `?reset_counters=1`.
    pub parsed_total: u64,
    /// Bodies from which a header was removed.
    pub stripped_total: u64,
    /// Share of these bodies, from 0 to 1.
    pub strip_ratio: f64,
}

/// `/<route>/_cch_test?path=&full=1`: the result of the transforms for a body.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CchTest {
    /// The route.
    pub route: String,
    /// The API path for which the body is meant.
    pub path: String,
    /// Whether a billing header would be removed.
    pub cch_stripped: bool,
    /// Whether the stream would be asked for its usage.
    pub include_usage_injected: bool,
    /// Number of tool-call ids that would be replaced.
    pub kimi_changes: usize,
    /// Number of system messages that would move.
    pub system_hoisted: usize,
    /// The session as `X-Routed-Session` would show it.
    pub session_id: String,
    /// The source as `X-Routed-Source` would show it.
    pub source: String,
    /// Length of the body that an engine would get, bytes.
    pub body_len: usize,
    /// MD5 of the body that an engine would get, lower-case hexadecimal. It allows a comparison of
    /// two bodies without showing either.
    pub body_md5: String,
    /// Length of the received body, which the body log records, bytes.
    pub bodylog_len: usize,
    /// MD5 of the received body.
    pub bodylog_md5: String,
    /// Whether an engine would get other bytes than were received.
    pub bodylog_differs: bool,
    /// The body that an engine would get, with `full=1`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub body_after: Option<String>,
}
