//! The monotonic clock of the edge.

use std::time::Instant;

/// The current time of tokio's clock: a test that pauses tokio's clock pauses this one.
pub fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
