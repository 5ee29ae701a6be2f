//! The wall clock, always UTC. Tests replace it.

use std::fmt;
use std::sync::Arc;

use chrono::{DateTime, Utc};

/// Gives the time of day for file names, ages and records. Never use it for durations.
#[derive(Clone)]
pub struct WallClock(Arc<dyn Fn() -> DateTime<Utc> + Send + Sync>);

impl WallClock {
    /// A clock that calls `read` for the time.
    pub fn new(read: impl Fn() -> DateTime<Utc> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// The time.
    pub fn now(&self) -> DateTime<Utc> {
        (self.0)()
    }
}

impl Default for WallClock {
    /// The system's clock.
    fn default() -> Self {
        Self::new(Utc::now)
    }
}

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WallClock")
    }
}
