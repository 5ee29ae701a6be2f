//! What is recorded of a route: `_bodylog_status` and `_bodylog_toggle`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Changed, Toggle, Toggled};

/// `GET /<route>/_bodylog_toggle`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BodylogToggle {
    /// The switch.
    #[serde(flatten)]
    pub toggle: Toggle,
    /// How much the switch records.
    #[serde(flatten)]
    pub recording: Recording,
}

/// How much of a route's requests is recorded while its switch `bodylog` is on.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    /// Share of recorded requests, percent.
    pub sample_pct: f64,
    /// The layer that sets it.
    pub sample_pct_source: String,
    /// `full`, `none` or `truncate(<size>)`.
    pub bodies: String,
    /// The layer that sets it.
    pub bodies_source: String,
    /// Seconds since either value was last changed on the running router; absent unless one was set
    /// there.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub age_s: Option<u64>,
}

/// `POST /<route>/_bodylog_toggle`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BodylogToggled {
    /// The switch.
    #[serde(flatten)]
    pub toggled: Toggled,
    /// Share of recorded requests, percent.
    pub sample_pct: Changed<f64>,
    /// `full`, `none` or `truncate(<size>)`.
    pub bodies: Changed<String>,
}

/// `GET /<route>/_bodylog_status`. Counts since the start of the process. `write_count`,
/// `drop_count` and `last_log_ts` count the route, the other counts cover all routes together.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BodylogStatus {
    /// The route.
    pub route: String,
    /// Whether a listener is configured. Without a listener nothing is recorded.
    pub listener_configured: bool,
    /// Whether the route's exchanges are recorded.
    pub enabled: bool,
    /// Share of recorded requests, percent.
    pub sample_pct: f64,
    /// `full`, `none` or `truncate(<size>)`.
    pub bodies: String,
    /// Whether the listener is connected.
    pub connected: bool,
    /// Records of the route that were queued for delivery.
    pub write_count: u64,
    /// Records of the route that were lost before they were queued.
    pub drop_count: u64,
    /// Start time of the last queued request, Unix seconds.
    pub last_log_ts: Option<f64>,
    /// Bytes on disk that wait for the listener.
    pub spool_bytes: u64,
    /// Age of the oldest record on disk, seconds.
    pub spool_oldest_s: f64,
    /// Why the configured spool is not in use.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub spool_error: Option<String>,
    /// Records of this run that are queued and not acknowledged.
    pub unacked: u64,
    /// Bytes of records in memory.
    pub inflight_bytes: u64,
    /// Number of queued records.
    pub queued_total: u64,
    /// Number of records that the listener has stored.
    pub acked_total: u64,
    /// Lost records, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Records that were queued without bodies or headers, for lack of space.
    pub shed_total: u64,
    /// The time of this answer, Unix seconds.
    pub now: f64,
}
