//! What the unit tests share.

use std::time::Instant;

/// Some instant. Tests move on from it by addition, never by waiting.
#[expect(
    clippy::disallowed_methods,
    reason = "there is no other way to obtain a first instant"
)]
pub(crate) fn start() -> Instant {
    Instant::now()
}
