//! How long a peer has been idle.

use std::time::{Duration, Instant};

/// How long a peer has been idle, from the least attractive to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Idle {
    /// The peer has work.
    Busy,
    /// Idle, but its engine sleeps: a request has to wake it.
    Asleep,
    /// Idle for this long.
    For(Duration),
    /// The peer has never had any work.
    Always,
}

/// Since when a peer has been idle: [`Idle`] without the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdleSince {
    /// The peer has work, or no policy uses the value.
    Busy,
    Asleep,
    Since(Instant),
    /// The peer was seen busy, but the end of its work was not seen.
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
