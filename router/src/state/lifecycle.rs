//! Where the process is between its first and its last request.

use std::sync::Arc;

use tokio::sync::watch;

/// The phases of a process, in order; there is no way back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Ready and accepting.
    Serving,
    /// Not ready, still accepting: load balancers are noticing (`drain_delay`).
    Leaving,
    /// Not accepting; requests in flight finish (`drain_timeout`).
    Draining,
    /// Time is up: what is left is cut.
    Stopped,
}

/// The process's phase, shared by everyone who must know it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Lifecycle {
    phase: Arc<watch::Sender<Phase>>,
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self {
            phase: Arc::new(watch::Sender::new(Phase::Serving)),
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
        self.phase.send_if_modified(|now| {
            let forward = phase > *now;
            if forward {
                *now = phase;
            }
            forward
        });
    }

    /// Waits until the process has reached `phase` or is beyond it. Cancel safe.
    pub async fn reached(&self, phase: Phase) {
        let mut seen = self.phase.subscribe();
        // The sender lives in `self`, so the only error, a closed channel, cannot happen here.
        let _ = seen.wait_for(|now| *now >= phase).await;
    }
}
