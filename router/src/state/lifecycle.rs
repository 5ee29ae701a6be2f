//! Where the process is between its first and its last request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::futures::OwnedNotified;
use tokio::sync::{Notify, watch};

/// The phases of a process, in order; there is no way back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Ready and accepting.
    Serving,
    /// Not ready, still accepting: load balancers are noticing (`drain_delay`).
    Leaving,
    /// Not accepting; requests in flight finish (`drain_timeout`).
    Draining,
    /// Time is up: streams say so and end, and what is left is cut.
    Stopped,
}

/// The process's phase, shared by everyone who must know it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Lifecycle {
    phase: Arc<watch::Sender<Phase>>,
    end: Arc<End>,
}

/// The last phase, for those who ask at every chunk and wait for nothing else.
#[derive(Debug, Default)]
struct End {
    is_here: AtomicBool,
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
    /// The phase now.
    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Moves on to `phase`; going back is ignored.
    pub fn advance(&self, phase: Phase) {
        if phase == Phase::Stopped {
            // Before anybody is woken to look.
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

    /// Whether time is up. As cheap as a load.
    pub fn is_stopped(&self) -> bool {
        self.end.is_here.load(Ordering::Acquire)
    }

    /// Ready when time runs out after it was made; whether it had before, [`is_stopped`](Self::is_stopped)
    /// says.
    pub fn end(&self) -> OwnedNotified {
        Arc::clone(&self.end.told).notified_owned()
    }

    /// Waits until the process has reached `phase` or is beyond it. Cancel safe.
    pub async fn reached(&self, phase: Phase) {
        let mut seen = self.phase.subscribe();
        // The sender lives in `self`, so the only error, a closed channel, cannot happen here.
        let _ = seen.wait_for(|now| *now >= phase).await;
    }
}
