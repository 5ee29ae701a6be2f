//! The process as a whole: readiness, reload, drain.

use serde::{Deserialize, Serialize};

use super::Problem;

/// The phase of the process, on the way from its first to its last request.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessPhase {
    /// It takes requests.
    Serving,
    /// It is going to end: readiness is off. Older routers say `leaving` while they still accept.
    #[serde(alias = "leaving")]
    Draining,
    /// Its time is up: streams end with an error event.
    Stopped,
    /// A phase that a newer router knows.
    #[serde(other)]
    Unknown,
}

impl ProcessPhase {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Draining => "draining",
            Self::Stopped => "stopped",
            Self::Unknown => "unknown",
        }
    }
}

/// Whether the process wants new requests.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadyStatus {
    /// It does.
    Ready,
    /// No route has a usable peer.
    Unready,
    /// It is going to end.
    Draining,
    /// A status that a newer router knows.
    #[serde(other)]
    Unknown,
}

/// `GET /readyz`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readiness {
    /// 200 only for `ready`, else 503.
    pub status: ReadyStatus,
    /// Routes with at least one usable peer.
    pub usable_routes: usize,
    /// Number of routes, including invalid ones.
    pub routes: usize,
}

/// `POST /_reload`: 200, or 422 when a file was rejected.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reload {
    /// Whether the full content of all files is in force now.
    pub ok: bool,
    /// Names of the routes in force, ascending.
    pub routes: Vec<String>,
    /// Why files, or some of their values, are not in force. Everything else is in force.
    pub errors: Vec<Problem>,
    /// Warnings about accepted values.
    pub warnings: Vec<Problem>,
}

/// `POST /_drain`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    /// Always true: readiness is off and the process will end.
    pub draining: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_other_versions_are_read() {
        let read = |word: &str| serde_json::from_value::<ProcessPhase>(word.into()).unwrap();
        assert_eq!(read("leaving"), ProcessPhase::Draining);
        assert_eq!(read("hibernating"), ProcessPhase::Unknown);
        for phase in ["serving", "draining", "stopped"] {
            assert_eq!(read(phase).as_str(), phase);
            assert_eq!(serde_json::to_value(read(phase)).unwrap(), phase);
        }
        let page = r#"{"status":"warming","usable_routes":1,"routes":1}"#;
        let readiness: Readiness = serde_json::from_str(page).unwrap();
        assert_eq!(readiness.status, ReadyStatus::Unknown);
    }
}
