//! The phases of one request: arrival → authorised → inspected → placed → answered → settled.
//!
//! Each phase owns everything known at that point and is built from the phase before. [`Live`]
//! holds the current phase of a request. Dropping it for any reason (end of stream, error, client
//! gone, time-out, panic) settles the request exactly once: the slot is released, and the request
//! is counted, logged, remembered and recorded.

mod answered;
mod arrival;
mod authorised;
mod inspected;
mod placed;
mod progress;

use std::ops::{Deref, DerefMut};

pub(super) use answered::{Answered, Observed};
pub(super) use arrival::Arrival;
pub use arrival::Sinks;
pub(super) use authorised::{Authorised, Grant};
pub(super) use inspected::{Asked, Inspected, Queued, Received};
pub(super) use placed::{Placed, Tries};
pub(super) use progress::{LocalAnswer, Progress, Refused};

/// A phase of a request.
pub(super) trait Phase {
    /// Ends the request in this phase.
    fn settle(self);
}

/// The current phase of a request. Dropping it settles the request.
#[derive(Debug)]
pub(super) struct Live<P: Phase>(
    /// Empty only while the next phase is built.
    Option<P>,
);

const TAKEN: &str = "a phase is taken only to make the next one";

impl<P: Phase> Live<P> {
    /// Wraps a phase.
    pub(super) fn new(phase: P) -> Self {
        Self(Some(phase))
    }

    /// Moves on to the next phase.
    pub(super) fn next<Q: Phase>(mut self, next: impl FnOnce(P) -> Q) -> Live<Q> {
        Live::new(next(self.0.take().expect(TAKEN)))
    }
}

impl<P: Phase> Deref for Live<P> {
    type Target = P;

    fn deref(&self) -> &P {
        self.0.as_ref().expect(TAKEN)
    }
}

impl<P: Phase> DerefMut for Live<P> {
    fn deref_mut(&mut self) -> &mut P {
        self.0.as_mut().expect(TAKEN)
    }
}

impl<P: Phase> Drop for Live<P> {
    fn drop(&mut self) {
        if let Some(phase) = self.0.take() {
            phase.settle();
        }
    }
}
