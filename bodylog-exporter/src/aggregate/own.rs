//! The exporter's counters of its own work.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Why a line was not counted as a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BadLine {
    /// It is not the JSON of a row.
    Json,
    /// It has a later major version of the schema.
    Version,
    /// It is longer than a line may be.
    TooLong,
    /// A closed file ends in the middle of it.
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

/// Why reading could not continue where it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reset {
    /// Another file has its name.
    Replaced,
    /// It is shorter than the part that was read.
    Truncated,
    /// It is gone, and there is no compressed file in its place.
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
    /// Lines read, bad ones included.
    pub lines: u64,
    /// Lines that were not counted as rows.
    pub bad_lines: BTreeMap<BadLine, u64>,
    /// Rows that had been counted before.
    pub duplicates: u64,
    /// Files that had to be opened again.
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
