//! State shared between tasks: the committed counts, the routers' answers, the time of the last
//! scrape.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;

use service::connections::Connections;

use crate::aggregate::places::Reading;
use crate::aggregate::{RefusalReading, View};
use crate::now::Now;
use crate::poll::state::Polled;
use crate::resolver::Resolver;
use crate::tail::Positions;

/// The counts of one epoch, already saved on disk.
#[derive(Clone, Debug)]
pub struct Committed {
    /// The counts.
    pub view: View,
    /// The positions up to which these rows were counted.
    pub positions: Positions,
    /// Approximate number of bytes left to read.
    pub lag_bytes: u64,
    /// Whether all rows had been read.
    pub is_caught_up: bool,
    /// When the epoch was committed.
    pub at: Now,
}

/// The shared state; one per process.
#[derive(Debug)]
pub struct Shared {
    committed: Mutex<Option<Arc<Committed>>>,
    polled: Mutex<Arc<Polled>>,
    /// Readings that no epoch has taken yet; the newest per router.
    refusals: Mutex<Vec<(Box<str>, RefusalReading)>>,
    resolver: Mutex<Option<Arc<Resolver>>>,
    /// The reading that no epoch has taken yet.
    places: Mutex<Option<Reading>>,
    scraped_ms: AtomicI64,
    checkpoint_bytes: AtomicU64,
    checkpoint_errors: AtomicU64,
    read_errors: AtomicU64,
    /// Connections of the HTTP port.
    pub(crate) connections: Connections,
}

/// There was no scrape yet.
const NEVER: i64 = i64::MIN;

impl Default for Shared {
    fn default() -> Self {
        Self {
            connections: Connections::new(service::http::CONNECTIONS),
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
    /// Publishes the counts of an epoch.
    pub fn publish(&self, committed: Committed) {
        *self.committed.lock() = Some(Arc::new(committed));
    }

    /// The published counts; `None` before the first epoch.
    pub fn committed(&self) -> Option<Arc<Committed>> {
        self.committed.lock().clone()
    }

    /// Publishes the routers' answers.
    pub fn polled(&self, polled: Polled) {
        *self.polled.lock() = Arc::new(polled);
    }

    /// The last answers of the routers.
    pub fn last_polled(&self) -> Arc<Polled> {
        Arc::clone(&self.polled.lock())
    }

    /// Hands a router's refusal counters to the next epoch. Replaces a reading that was not taken
    /// yet, because counters are absolute.
    pub fn refusals(&self, router: &str, reading: RefusalReading) {
        let mut waiting = self.refusals.lock();
        match waiting.iter_mut().find(|(known, _)| **known == *router) {
            Some(known) => known.1 = reading,
            None => waiting.push((router.into(), reading)),
        }
    }

    /// Takes the refusal readings that no epoch has taken yet.
    pub fn take_refusals(&self) -> Vec<(Box<str>, RefusalReading)> {
        std::mem::take(&mut *self.refusals.lock())
    }

    /// Publishes the state of the cluster. After the first call, [`resolver`](Self::resolver) is no
    /// longer `None`.
    pub fn resolved(&self, resolver: Resolver) {
        *self.resolver.lock() = Some(Arc::new(resolver));
    }

    /// The last state of the cluster; `None` if no cluster is used.
    pub fn resolver(&self) -> Option<Arc<Resolver>> {
        self.resolver.lock().clone()
    }

    /// Hands the cluster's pods to the next epoch. Replaces a reading that was not taken yet.
    pub fn places(&self, reading: Reading) {
        *self.places.lock() = Some(reading);
    }

    /// Takes the reading that no epoch has taken yet.
    pub fn take_places(&self) -> Option<Reading> {
        self.places.lock().take()
    }

    /// Records a scrape.
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

    /// The size of the checkpoint, and the numbers of failed writes and of unreadable hours or
    /// directories since the process started.
    pub fn troubles(&self) -> Troubles {
        Troubles {
            checkpoint_bytes: self.checkpoint_bytes.load(Ordering::Relaxed),
            checkpoint_errors: self.checkpoint_errors.load(Ordering::Relaxed),
            read_errors: self.read_errors.load(Ordering::Relaxed),
        }
    }
}

/// The result of [`Shared::troubles`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Troubles {
    /// Bytes of the last checkpoint.
    pub checkpoint_bytes: u64,
    /// Number of checkpoints that could not be written.
    pub checkpoint_errors: u64,
    /// Number of unreadable hours or directories.
    pub read_errors: u64,
}
