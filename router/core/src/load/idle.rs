//! How long a peer has had nothing to do.

use std::time::{Duration, Instant};

/// How long a peer has had nothing to do, from the least attractive to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Idle {
    /// It has something to do.
    Busy,
    /// Nothing, and its engine has gone to sleep: a request has to wake it.
    Asleep,
    /// Since so long.
    For(Duration),
    /// It has never had anything to do.
    Always,
}

/// Since when a peer has had nothing to do: [`Idle`] without the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdleSince {
    /// It has something to do, or nobody asks.
    Busy,
    Asleep,
    Since(Instant),
    /// It was seen busy, and not when that ended.
    Unknown,
    Always,
}

impl IdleSince {
    #[inline]
    pub(crate) fn idle(self, now: Instant) -> Idle {
        match self {
            Self::Busy => Idle::Busy,
            Self::Asleep => Idle::Asleep,
            Self::Since(since) => Idle::For(now.saturating_duration_since(since)),
            Self::Unknown => Idle::For(Duration::ZERO),
            Self::Always => Idle::Always,
        }
    }
}
