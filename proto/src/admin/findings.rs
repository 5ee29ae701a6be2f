//! The current problems: `GET /_findings`.

use serde::{Deserialize, Serialize};

/// `GET /_findings`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Findings {
    /// Worst first; within a severity the oldest first.
    pub findings: Vec<Finding>,
}

/// One cause of trouble, with its numbers and the first place to look at.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The kind of trouble.
    pub code: FindingCode,
    /// The severity.
    pub severity: Severity,
    /// The route; absent when the finding concerns the whole router.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub route: Option<String>,
    /// `host:port` of the peer.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peer: Option<String>,
    /// Owner of the key.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub owner: Option<String>,
    /// File and line, `file:line`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub file: Option<String>,
    /// One sentence with the numbers.
    pub text: String,
    /// Start time, RFC 3339 in UTC.
    pub since: String,
    /// Seconds since it began.
    pub age_s: u64,
    /// Seconds since its last event; 0 for a state that goes on.
    pub last_s: u64,
    /// Events of this kind in the window.
    pub count: u64,
    /// Events of any kind in the same window; 0 where a share makes no sense.
    pub of: u64,
    /// The first place to look at: a command, or a line of a file.
    pub look: String,
}

/// The severity of a finding, in order from the worst.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Clients fail.
    Critical,
    /// Something is broken, but clients hardly notice yet.
    Warning,
    /// Worth knowing.
    Info,
}

impl Severity {
    /// The spelling in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }
}

/// Declares the codes once: variant, text on the wire, meaning.
macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $variant:ident = $text:literal,)+) => {
        /// The kinds of trouble. Texts are stable; new ones may be added.
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum FindingCode {
            $($(#[doc = $doc])+ #[serde(rename = $text)] $variant,)+
            /// A kind that a newer router knows.
            #[serde(other, rename = "other")]
            Other,
        }

        impl FindingCode {
            /// Every kind that this version reports.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// As it is written in JSON and as the metric label `code`.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                    Self::Other => "other",
                }
            }
        }
    };
}

codes! {
    /// No peer of a pool can take a request.
    NoPeer = "no_peer",
    /// A peer refuses connections or cannot be reached.
    PeerUnreachable = "peer_unreachable",
    /// A peer takes requests and sends no first byte.
    PeerHung = "peer_hung",
    /// A peer answers with 5xx.
    PeerFailing = "peer_failing",
    /// A peer closes connections before the first byte of an answer.
    PeerResetting = "peer_resetting",
    /// A peer's streams break off, or end without their terminator.
    PeerCutsStreams = "peer_cuts_streams",
    /// A peer's streams stop between chunks.
    PeerStalls = "peer_stalls",
    /// A peer alone answers 404.
    PeerNotFound = "peer_not_found",
    /// A peer is slow beside its siblings at like prompt length.
    PeerSlow = "peer_slow",
    /// A peer does not answer its health probes.
    PeerProbeSilent = "peer_probe_silent",
    /// A peer's load page is silent: the peer counts as full.
    PeerHeld = "peer_held",
    /// A peer's load page is silent and the peer is left out.
    PeerStale = "peer_stale",
    /// A peer lost its prefix cache.
    CacheCold = "cache_cold",
    /// The concurrency limit refuses requests.
    ConcurrencyLimit = "concurrency_limit",
    /// The gate on time to first token refuses requests.
    TtftLimit = "ttft_limit",
    /// The gate on decode rate refuses requests.
    TpsLimit = "tps_limit",
    /// The queue for a slot is full.
    WaitingFull = "waiting_full",
    /// Request bodies or connections reached their bound.
    Overloaded = "overloaded",
    /// Requests come with a missing or wrong key.
    Unauthorized = "unauthorized",
    /// A content rule refuses many requests.
    RuleRefuses = "rule_refuses",
    /// Requests name a model that nobody serves.
    ModelUnknown = "model_unknown",
    /// Nearly every request brings a new session id.
    SessionsSeenOnce = "sessions_seen_once",
    /// A file is invalid; an older version, or nothing, is in force.
    FileInvalid = "file_invalid",
    /// A file is in force but for some values.
    FilePartly = "file_partly",
    /// The source of a route's peers fails; its last peers stay.
    PeerSourceFails = "peer_source_fails",
    /// The key file is missing, empty or unreadable.
    KeyFileBad = "key_file_bad",
    /// The router cannot reach the body log's listener.
    BodylogListenerAway = "bodylog_listener_away",
    /// The body log's listener refuses the router's token or address.
    BodylogUnauthorized = "bodylog_unauthorized",
    /// The disk of the body log's listener is full.
    BodylogDiskFull = "bodylog_disk_full",
    /// Records wait longer and longer in the spool.
    BodylogSpoolGrowing = "bodylog_spool_growing",
    /// The spool is configured and cannot be used.
    BodylogSpoolOff = "bodylog_spool_off",
    /// Records were lost.
    BodylogDrops = "bodylog_drops",
    /// A switch, limit or held-back unit was set by hand.
    OverrideInForce = "override_in_force",
    /// The router drains.
    Draining = "draining",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_of_a_newer_router_is_read() {
        let code: FindingCode = serde_json::from_str("\"peer_on_fire\"").unwrap();
        assert_eq!(code, FindingCode::Other);
    }

    #[test]
    fn codes_are_written_as_their_text() {
        for code in FindingCode::ALL {
            let json = serde_json::to_string(code).unwrap();
            assert_eq!(json, format!("\"{}\"", code.as_str()));
        }
    }
}
