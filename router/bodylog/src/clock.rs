//! The clock of the body log, and the formatting of its errors.

use std::error::Error;
use std::time::Instant;

/// The monotonic clock. Tests can pause it.
pub(super) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// An error and its causes in one line.
pub(super) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}
