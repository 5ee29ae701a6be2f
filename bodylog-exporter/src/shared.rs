//! What the tasks show each other: the committed counts, what the routers said, who scraped when.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::aggregate::places::Reading;
use crate::aggregate::{RefusalReading, View};
use crate::epoch::Now;
use crate::poll::Polled;
use crate::resolver::Resolver;
use crate::tail::Positions;

/// The counts of one epoch, safe on disk.
#[derive(Clone, Debug)]
pub struct Committed {
    /// The counts.
    pub view: View,
    /// How far the log was read for them.
    pub positions: Positions,
    /// About how many bytes were left to read.
    pub lag_bytes: u64,
    /// Everything there was had been read.
    pub is_caught_up: bool,
    /// When.
    pub at: Now,
}

/// One per process.
#[derive(Debug)]
pub struct Shared {
    committed: Mutex<Option<Arc<Committed>>>,
    polled: Mutex<Arc<Polled>>,
    /// Readings that no epoch took up yet, newest per router.
    refusals: Mutex<Vec<(Box<str>, RefusalReading)>>,
    resolver: Mutex<Option<Arc<Resolver>>>,
    /// What no epoch took up yet.
    places: Mutex<Option<Reading>>,
    scraped_ms: AtomicI64,
    checkpoint_bytes: AtomicU64,
    checkpoint_errors: AtomicU64,
    read_errors: AtomicU64,
}

/// No scrape yet.
const NEVER: i64 = i64::MIN;

impl Default for Shared {
    fn default() -> Self {
        Self {
            committed: Mutex::default(),
            polled: Mutex::default(),
            refusals: Mutex::default(),
            resolver: Mutex::default(),
            places: Mutex::default(),
            scraped_ms: AtomicI64::new(NEVER),
            checkpoint_bytes: AtomicU64::default(),
            checkpoint_errors: AtomicU64::default(),
            read_errors: AtomicU64::default(),
        }
    }
}

impl Shared {
    /// Shows the counts of an epoch.
    pub fn publish(&self, committed: Committed) {
        *self.committed.lock() = Some(Arc::new(committed));
    }

    /// The counts to show; none before the first epoch.
    pub fn committed(&self) -> Option<Arc<Committed>> {
        self.committed.lock().clone()
    }

    /// Shows what the routers said.
    pub fn polled(&self, polled: Polled) {
        *self.polled.lock() = Arc::new(polled);
    }

    /// What the routers said last.
    pub fn last_polled(&self) -> Arc<Polled> {
        Arc::clone(&self.polled.lock())
    }

    /// Hands a router's refusal counters to the next epoch; a reading that was not taken up yet is
    /// replaced, because counters only matter absolutely.
    pub fn refusals(&self, router: &str, reading: RefusalReading) {
        let mut waiting = self.refusals.lock();
        match waiting.iter_mut().find(|(known, _)| **known == *router) {
            Some(known) => known.1 = reading,
            None => waiting.push((router.into(), reading)),
        }
    }

    /// What no epoch took up yet.
    pub fn take_refusals(&self) -> Vec<(Box<str>, RefusalReading)> {
        std::mem::take(&mut *self.refusals.lock())
    }

    /// Shows what the cluster says. From the first time on, a cluster is asked.
    pub fn resolved(&self, resolver: Resolver) {
        *self.resolver.lock() = Some(Arc::new(resolver));
    }

    /// What the cluster said last; none where none is asked.
    pub fn resolver(&self) -> Option<Arc<Resolver>> {
        self.resolver.lock().clone()
    }

    /// Hands what the cluster says of its pods to the next epoch, in the place of what was not
    /// taken up yet.
    pub fn places(&self, reading: Reading) {
        *self.places.lock() = Some(reading);
    }

    /// What no epoch took up yet.
    pub fn take_places(&self) -> Option<Reading> {
        self.places.lock().take()
    }

    /// Notes a scrape.
    pub fn scraped(&self, now_ms: i64) {
        self.scraped_ms.store(now_ms, Ordering::Relaxed);
    }

    /// The last scrape, milliseconds since the Unix epoch.
    pub fn scraped_ms(&self) -> Option<i64> {
        Some(self.scraped_ms.load(Ordering::Relaxed)).filter(|ms| *ms != NEVER)
    }

    pub(crate) fn saved(&self, bytes: u64) {
        self.checkpoint_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn save_failed(&self) {
        self.checkpoint_errors.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read_errors(&self, more: u64) {
        self.read_errors.fetch_add(more, Ordering::Relaxed);
    }

    /// Size of the checkpoint, its failed writes, and hours or directories that could not be read,
    /// since the process started.
    pub fn troubles(&self) -> Troubles {
        Troubles {
            checkpoint_bytes: self.checkpoint_bytes.load(Ordering::Relaxed),
            checkpoint_errors: self.checkpoint_errors.load(Ordering::Relaxed),
            read_errors: self.read_errors.load(Ordering::Relaxed),
        }
    }
}

/// What [`Shared::troubles`] tells.
#[derive(Clone, Copy, Debug, Default)]
pub struct Troubles {
    /// Bytes of the last checkpoint.
    pub checkpoint_bytes: u64,
    /// Checkpoints that could not be written.
    pub checkpoint_errors: u64,
    /// Hours or directories that could not be read.
    pub read_errors: u64,
}
