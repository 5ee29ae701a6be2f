//! The time, read once for each epoch.

use std::time::Instant;

/// One reading of both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// For durations.
    pub instant: Instant,
    /// For what is shown and kept: milliseconds since the Unix epoch.
    pub wall_ms: i64,
}

impl Now {
    /// Reads the clocks.
    pub fn read() -> Self {
        Self {
            instant: Instant::now(),
            wall_ms: chrono::Utc::now().timestamp_millis(),
        }
    }
}
