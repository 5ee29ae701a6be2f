//! Shared code of the unit tests.

use std::time::Instant;

/// An arbitrary instant. Tests advance it by addition, never by waiting.
#[expect(
    clippy::disallowed_methods,
    reason = "there is no other way to obtain a first instant"
)]
pub(crate) fn start() -> Instant {
    Instant::now()
}
