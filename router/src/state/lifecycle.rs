//! The phases of the process from its first to its last request.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use tokio::sync::futures::OwnedNotified;
use tokio::sync::{Notify, watch};

use crate::clock::now;

/// The phases of a process, in order. It never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Ready and accepting.
    Serving,
    /// Not ready, still accepting, so that load balancers can notice (`drain_delay`).
    DrainDelay,
    /// Not accepting; requests in flight finish (`drain_timeout`).
    Draining,
    /// Time is up: streams end with an error event, and remaining connections are cut.
    Stopped,
}

/// The process's phase, shared by all tasks that depend on it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Lifecycle {
    phase: Arc<watch::Sender<Phase>>,
    end: Arc<End>,
}

/// The last phase in a cheap form, for callers that check it at every chunk.
#[derive(Debug, Default)]
struct End {
    is_here: AtomicBool,
    /// When draining began.
    drain_began: OnceLock<Instant>,
    told: Arc<Notify>,
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self {
            phase: Arc::new(watch::Sender::new(Phase::Serving)),
            end: Arc::default(),
        }
    }
}

impl Lifecycle {
    /// The current phase.
    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Moves on to `phase`. An earlier phase is ignored.
    pub fn advance(&self, phase: Phase) {
        if phase > Phase::Serving {
            self.end.drain_began.get_or_init(now);
        }
        if phase == Phase::Stopped {
            // Stored before the wake-up, so that every woken task sees it.
            self.end.is_here.store(true, Ordering::Release);
            self.end.told.notify_waiters();
        }
        self.phase.send_if_modified(|now| {
            let forward = phase > *now;
            if forward {
                *now = phase;
            }
            forward
        });
    }

    /// When the process stopped being ready, if it did.
    pub fn drain_began(&self) -> Option<Instant> {
        self.end.drain_began.get().copied()
    }

    /// Whether time is up. Costs one atomic load.
    pub fn is_stopped(&self) -> bool {
        self.end.is_here.load(Ordering::Acquire)
    }

    /// Ready when time runs out after this call. For an end before this call, check
    /// [`is_stopped`](Self::is_stopped).
    pub fn end(&self) -> OwnedNotified {
        Arc::clone(&self.end.told).notified_owned()
    }

    /// Waits until the process has reached `phase` or a later one. Cancel safe.
    pub async fn reached(&self, phase: Phase) {
        let mut seen = self.phase.subscribe();
        // The sender lives in `self`, so the only error, a closed channel, cannot happen here.
        let _ = seen.wait_for(|now| *now >= phase).await;
    }
}
