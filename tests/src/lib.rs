//! The harness of the black-box tests: it starts the real programs, plays their peers and their
//! clients byte by byte, and waits for events with a deadline, never for time.
//!
//! It decides nothing about right and wrong; that is the suites' part (`tests/tests/system`).
//! Every function panics with what it waited for when the world does not answer in
//! [`PATIENCE`]: a hung test is a failed test with a reason.

pub mod bodylog;
pub mod clock;
pub mod fault;
pub mod http2;
pub mod peer;
pub mod program;
pub mod router;
pub mod terminal;
pub mod tls;
pub mod tmpfs;
pub mod wait;
pub mod wire;

use std::time::Duration;

/// How long any single wait may take before the test fails. Generous, because nothing waits for
/// it unless something is broken, and a loaded two-core machine is slow.
pub const PATIENCE: Duration = Duration::from_secs(30);
