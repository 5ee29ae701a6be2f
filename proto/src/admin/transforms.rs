//! What the transforms did, and what they would do: `_cch_strip_status` and `_cch_test`.

use serde::{Deserialize, Serialize};

/// `GET /<route>/_cch_strip_status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CchStripStatus {
    /// The route.
    pub route: String,
    /// Whether billing headers are taken out now.
    pub enabled: bool,
    /// Where that comes from: `runtime`, `route`, `global`, `default` or `default (invalid)`.
    pub source: String,
    /// What the files say.
    pub default: bool,
    /// Bodies looked at since the start or the last `?reset_counters=1`.
    pub parsed_total: u64,
    /// Bodies that lost a header.
    pub stripped_total: u64,
    /// Their share, from 0 to 1.
    pub strip_ratio: f64,
}

/// `/<route>/_cch_test?path=&full=1`: what the transforms would make of a body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CchTest {
    /// The route.
    pub route: String,
    /// The API path that the body would be for.
    pub path: String,
    /// A billing header would be taken out.
    pub cch_stripped: bool,
    /// The stream would be asked for its usage.
    pub include_usage_injected: bool,
    /// Tool-call ids that would be replaced.
    pub kimi_changes: usize,
    /// System messages that would move.
    pub system_hoisted: usize,
    /// As `X-Routed-Session` would show it.
    pub session_id: String,
    /// As `X-Routed-Source` would.
    pub source: String,
    /// Length of what an engine would get, bytes.
    pub body_len: usize,
    /// MD5 of what an engine would get, lower-case hexadecimal: two bodies compared without showing either.
    pub body_md5: String,
    /// Length of the body as it came, which is what the body log records, bytes.
    pub bodylog_len: usize,
    /// MD5 of the body as it came.
    pub bodylog_md5: String,
    /// An engine would get other bytes than came.
    pub bodylog_differs: bool,
    /// What an engine would get, with `full=1`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub body_after: Option<String>,
}
