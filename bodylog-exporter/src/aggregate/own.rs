//! What the exporter counts of its own work.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Why a line was not counted as a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BadLine {
    /// It is not a row's JSON.
    Json,
    /// It is of a later major version of the schema.
    Version,
    /// It is longer than a line may be.
    TooLong,
    /// A closed file ends with it, without its end.
    Torn,
}

impl BadLine {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::Json, Self::Version, Self::TooLong, Self::Torn];

    /// The label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Version => "version",
            Self::TooLong => "too_long",
            Self::Torn => "torn",
        }
    }
}

/// Why reading did not simply go on where it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reset {
    /// Another file stands in its place.
    Replaced,
    /// It is shorter than what was read of it.
    Truncated,
    /// It is gone, and no compressed file stands in for it.
    Deleted,
    /// It cannot be read to its end.
    Unreadable,
}

impl Reset {
    /// Every one.
    pub const ALL: [Self; 4] = [
        Self::Replaced,
        Self::Truncated,
        Self::Deleted,
        Self::Unreadable,
    ];

    /// The label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Replaced => "replaced",
            Self::Truncated => "truncated",
            Self::Deleted => "deleted",
            Self::Unreadable => "unreadable",
        }
    }
}

/// Counters since the first start; they are part of the checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Own {
    /// Lines read, the bad ones included.
    pub lines: u64,
    /// Lines that were not counted as rows.
    pub bad_lines: BTreeMap<BadLine, u64>,
    /// Rows that had been counted before.
    pub duplicates: u64,
    /// Files that had to be taken up anew.
    pub file_resets: BTreeMap<Reset, u64>,
    /// Files that were closed and compressed before they were read to their end.
    pub recoveries: u64,
    /// Starts without a checkpoint.
    pub cold_starts: u64,
    /// Starts from the older generation of the checkpoint.
    pub fallbacks: u64,
    /// End of the newest row, milliseconds since the Unix epoch; 0 before the first.
    pub last_end_ms: i64,
}
