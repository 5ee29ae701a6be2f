//! The interface of the body log for the rest of the router: begins captures and reports the
//! status.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwapOption;
use tokio::sync::mpsc;

use super::budget::MemoryBudget;
use super::capture::Capture;
use super::counters::{Counters, Counts};
use super::exchange::Begun;
use super::outbox::Outbox;
use super::record::Record;
use super::sampling::Sampler;
use super::sender::Shared;
use crate::clock::now;

/// The destination of captures.
#[derive(Debug)]
pub(super) struct Pipe {
    pub(super) records: mpsc::Sender<Record>,
    pub(super) shared: Arc<Shared>,
    pub(super) sampler: Sampler,
}

/// A running sender.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) shared: Arc<Shared>,
    pub(super) outbox: Arc<Outbox>,
    /// A spool is configured.
    pub(super) wants_spool: AtomicBool,
    /// Why there is no spool though one is configured.
    pub(super) spool_error: ArcSwapOption<String>,
}

/// The process's body log.
#[derive(Debug)]
pub struct BodyLog {
    /// Present if a listener is configured.
    pub(super) pipe: ArcSwapOption<Pipe>,
    pub(super) running: ArcSwapOption<Running>,
    pub(super) counters: Arc<Counters>,
    pub(super) budget: MemoryBudget,
}

impl BodyLog {
    /// Creates a body log that does not record yet.
    pub fn new(memory: u64) -> Self {
        Self {
            pipe: ArcSwapOption::empty(),
            running: ArcSwapOption::empty(),
            counters: Arc::default(),
            budget: MemoryBudget::new(memory),
        }
    }

    /// Begins to capture an admitted request. `begun` returns what to record of it, or `None` for
    /// nothing. It is not called if no listener is configured.
    pub fn begin<'a>(&self, begun: impl FnOnce() -> Option<Begun<'a>>) -> Option<Box<Capture>> {
        let pipe = self.pipe.load();
        let pipe = pipe.as_ref()?;
        Capture::begin(pipe, &begun()?)
    }

    /// The current status.
    pub fn status(&self) -> Status {
        let running = self.running.load();
        let (now, wall) = (now(), SystemTime::now());
        let outboxes = running.as_ref().map(|running| {
            let earlier = running.shared.earlier();
            (Arc::clone(&running.outbox), earlier)
        });
        let all = || {
            let (live, earlier) = outboxes.as_ref()?;
            Some(std::iter::once(live).chain(earlier))
        };
        let spool = running.as_ref().and_then(|running| running.shared.spool());
        Status {
            is_on: self.pipe.load().is_some(),
            counts: self.counters.read(),
            spool_bytes: spool.map_or(0, |spool| spool.used()),
            spool_limit_bytes: spool.map_or(0, |spool| spool.max()),
            memory_limit_bytes: self.budget.limit(),
            spool_oldest: all()
                .and_then(|all| all.filter_map(|outbox| outbox.oldest_segment(wall)).max())
                .unwrap_or_default(),
            unacked: outboxes.as_ref().map_or(0, |(live, _)| live.unacked()),
            unacked_age: all()
                .and_then(|all| all.map(|outbox| outbox.oldest(now, wall)).max())
                .unwrap_or_default(),
            inflight_bytes: self.budget.used(),
            is_spool_up: running
                .as_ref()
                .filter(|running| running.wants_spool.load(Ordering::Relaxed))
                .map(|running| running.shared.spool().is_some()),
            spool_error: running
                .as_ref()
                .and_then(|running| running.spool_error.load_full())
                .map(|error| error.to_string()),
        }
    }
}

/// The status of the body log.
#[derive(Clone, Debug)]
pub struct Status {
    /// Whether a listener is configured.
    pub is_on: bool,
    /// The counters of records and frames.
    pub counts: Counts,
    /// Bytes of segments.
    pub spool_bytes: u64,
    /// Most bytes of segments; 0 without a spool.
    pub spool_limit_bytes: u64,
    /// Most bytes that records and frames may hold in memory.
    pub memory_limit_bytes: u64,
    /// Age of the oldest segment.
    pub spool_oldest: Duration,
    /// Queued but unacknowledged frames of this run.
    pub unacked: u64,
    /// How long the oldest frame has been waiting.
    pub unacked_age: Duration,
    /// Bytes that records and frames hold in memory.
    pub inflight_bytes: u64,
    /// Whether the spool is open; `None` where none is configured.
    pub is_spool_up: Option<bool>,
    /// The reason there is no spool although one is configured.
    pub spool_error: Option<String>,
}
