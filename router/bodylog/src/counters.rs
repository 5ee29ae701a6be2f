//! Counts what happened to records and frames. Every loss has a reason and is counted once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use prometheus_client::metrics::histogram::Histogram;
use service::families::histogram;

/// Bounds of the acknowledgement histogram, seconds.
const ACK_BOUNDS: [f64; 12] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0,
];

/// The reason a record or a frame was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The byte budget or the queue before the encoder was full.
    Budget,
    /// The spool was full.
    SpoolFull,
    /// The meta object was too large even after parts of it were left out.
    Meta,
    /// The frame was too large.
    Encode,
    /// The process ended before it was delivered and before it was on disk.
    Shutdown,
    /// The disk failed to write it, or returned it damaged.
    Disk,
    /// The listener refused it permanently.
    Rejected,
}

impl Reason {
    /// All reasons, in label order.
    pub const ALL: [Self; 7] = [
        Self::Budget,
        Self::SpoolFull,
        Self::Meta,
        Self::Encode,
        Self::Shutdown,
        Self::Disk,
        Self::Rejected,
    ];

    /// The label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Budget => "budget",
            Self::SpoolFull => "spool_full",
            Self::Meta => "meta",
            Self::Encode => "encode",
            Self::Shutdown => "shutdown",
            Self::Disk => "disk",
            Self::Rejected => "rejected",
        }
    }
}

/// Why the listener stores nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenerTrouble {
    /// There is no connection; the text is the error.
    Away(String),
    /// The listener refuses the token or the address of this router.
    Unauthorized,
    /// The listener's disk is full.
    DiskFull,
}

/// The counters of the process.
#[derive(Debug)]
pub(crate) struct Counters {
    queued: AtomicU64,
    acked: AtomicU64,
    dropped: [AtomicU64; Reason::ALL.len()],
    shed: AtomicU64,
    damaged_bytes: AtomicU64,
    reconnects: AtomicU64,
    is_connected: AtomicBool,
    trouble: ArcSwapOption<ListenerTrouble>,
    ack_seconds: Histogram,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            queued: AtomicU64::new(0),
            acked: AtomicU64::new(0),
            dropped: Default::default(),
            shed: AtomicU64::new(0),
            damaged_bytes: AtomicU64::new(0),
            reconnects: AtomicU64::new(0),
            is_connected: AtomicBool::new(false),
            trouble: ArcSwapOption::empty(),
            ack_seconds: histogram(ACK_BOUNDS),
        }
    }
}

impl Counters {
    /// Counts frames that got a sequence.
    pub(crate) fn queued(&self, frames: u64) {
        self.queued.fetch_add(frames, Ordering::Relaxed);
    }

    /// Counts frames that the listener has stored.
    pub(crate) fn acked(&self, frames: u64) {
        self.acked.fetch_add(frames, Ordering::Relaxed);
    }

    /// Counts lost records or frames.
    pub(crate) fn dropped(&self, reason: Reason, count: u64) {
        self.dropped[reason as usize].fetch_add(count, Ordering::Relaxed);
    }

    /// Counts a record that was queued without some part because room was short.
    pub(crate) fn shed(&self) {
        self.shed.fetch_add(1, Ordering::Relaxed);
    }

    /// Bytes of a segment are no frames.
    pub(crate) fn damaged(&self, bytes: u64) {
        self.damaged_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts an acknowledgement of a frame of the live epoch, with the time since the frame was
    /// sent.
    pub(crate) fn ack_took(&self, time: Duration) {
        self.ack_seconds.observe(time.as_secs_f64());
    }

    /// Sets whether the live connection is up. Returns whether that changed.
    pub(crate) fn connected(&self, now: bool) -> bool {
        self.is_connected.swap(now, Ordering::Relaxed) != now
    }

    /// Notes why nothing is stored.
    pub(crate) fn in_trouble(&self, trouble: ListenerTrouble) {
        self.trouble.store(Some(Arc::new(trouble)));
    }

    /// Forgets the trouble if `is_over` says so.
    pub(crate) fn trouble_over(&self, is_over: impl Fn(&ListenerTrouble) -> bool) {
        if self.trouble.load().as_deref().is_some_and(is_over) {
            self.trouble.store(None);
        }
    }

    /// Counts a new attempt to connect after a connection was lost or refused.
    pub(crate) fn reconnects(&self) {
        self.reconnects.fetch_add(1, Ordering::Relaxed);
    }

    /// A copy of the counts.
    pub(crate) fn read(&self) -> Counts {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counts {
            queued: load(&self.queued),
            acked: load(&self.acked),
            dropped: Reason::ALL.map(|reason| load(&self.dropped[reason as usize])),
            shed: load(&self.shed),
            damaged_bytes: load(&self.damaged_bytes),
            reconnects: load(&self.reconnects),
            is_connected: self.is_connected.load(Ordering::Relaxed),
            trouble: self.trouble.load_full(),
            ack_seconds: self.ack_seconds.clone(),
        }
    }
}

/// A snapshot of the counters.
#[derive(Clone, Debug)]
pub struct Counts {
    /// Frames that got a sequence.
    pub queued: u64,
    /// Frames stored by the listener.
    pub acked: u64,
    /// Losses, in the order of [`Reason::ALL`].
    pub dropped: [u64; Reason::ALL.len()],
    /// Records without bodies or headers because room was short.
    pub shed: u64,
    /// Bytes of segments that could not be read as frames.
    pub damaged_bytes: u64,
    /// Connection attempts after the first.
    pub reconnects: u64,
    /// Whether the live connection is up.
    pub is_connected: bool,
    /// Why the listener stores nothing, if it does not.
    pub trouble: Option<Arc<ListenerTrouble>>,
    /// Time from sending to acknowledgement.
    pub ack_seconds: Histogram,
}

/// The counters of one route.
#[derive(Debug, Default)]
pub struct RouteCounters {
    written: AtomicU64,
    dropped: AtomicU64,
    last_unix_ms: AtomicU64,
}

impl RouteCounters {
    /// Counts a queued record of the route.
    pub fn written(&self, unix_ms: u64) {
        self.written.fetch_add(1, Ordering::Relaxed);
        self.last_unix_ms.fetch_max(unix_ms, Ordering::Relaxed);
    }

    /// Counts a lost record of the route.
    pub fn dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Resets the counters.
    pub fn reset(&self) {
        self.written.store(0, Ordering::Relaxed);
        self.dropped.store(0, Ordering::Relaxed);
    }

    /// Records queued since the start, or the last reset.
    pub fn write_count(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Records lost before they were queued, since the start or the last reset.
    pub fn drop_count(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// When the last record was queued, milliseconds since the Unix epoch.
    pub fn last_unix_ms(&self) -> Option<u64> {
        Some(self.last_unix_ms.load(Ordering::Relaxed)).filter(|at| *at > 0)
    }
}
