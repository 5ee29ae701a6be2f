//! The harness of the black-box tests. It starts the real programs, acts as their peers and clients
//! byte by byte, and waits for events with a deadline, never for a fixed time.
//!
//! The harness does not judge; the suites in `tests/tests/system` do. Each waiting function panics
//! after [`PATIENCE`] and names what it waited for, so a hung test fails with a reason.

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

/// The longest that any single wait may take before the test fails. It is generous, because it only
/// passes when something is broken, and a loaded two-core machine is slow.
pub const PATIENCE: Duration = Duration::from_secs(30);
