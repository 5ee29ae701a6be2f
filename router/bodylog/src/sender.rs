//! Delivers records to the listener's disk.
//!
//! | part | does |
//! |---|---|
//! | `press` | takes records off the queue, has them encoded on the blocking pool, gives them to the writer |
//! | `writer` | puts frames into the outbox or into segments |
//! | `delivery` | delivers one outbox; there is one for this process's epoch and one at a time for those of earlier ones |
//!
//! The request path touches none of this: it offers a record to a bounded queue and continues.

mod backoff;
mod compressor;
mod delivery;
mod encode;
mod link;
mod reading;
mod tls;
mod writer;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ::service::buffers::Buffers;
use parking_lot::Mutex;
use proto::frame::MAX_PAYLOAD;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinSet, spawn_blocking};
use tokio_util::sync::CancellationToken;

use self::compressor::Compressor;
use self::delivery::Delivery;
use self::writer::Writer;
use super::budget::MemoryBudget;
use super::clock::now;
use super::counters::Counters;
use super::detail_level::DetailLevel;
use super::outbox::{Outbox, Removal};
use super::record::Record;
use super::settings::Target;
use super::spool::{Earlier, Identity, Opened, Spool};

/// The state shared by the parts of a sender.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(super) counters: Arc<Counters>,
    pub(super) budget: MemoryBudget,
    /// Set once: at the start, or when a spool that could not be opened then can be.
    spool: OnceLock<Arc<Spool>>,
    /// Where request bodies go back to.
    buffers: Buffers,
    identity: Mutex<Identity>,
    /// The host name of this machine, for humans.
    host: String,
    packs: AtomicBool,
    max_frame: AtomicU32,
    /// The earlier epoch that is being delivered.
    earlier: Mutex<Option<Arc<Outbox>>>,
}

impl Shared {
    pub(super) fn new(
        counters: Arc<Counters>,
        budget: MemoryBudget,
        spool: Option<Arc<Spool>>,
        identity: Identity,
        buffers: Buffers,
    ) -> Self {
        let host = rustix::system::uname();
        Self {
            counters,
            budget,
            spool: spool.map_or_else(OnceLock::new, OnceLock::from),
            buffers,
            identity: Mutex::new(identity),
            host: host.nodename().to_string_lossy().into_owned(),
            packs: AtomicBool::new(false),
            max_frame: AtomicU32::new(MAX_PAYLOAD),
            earlier: Mutex::new(None),
        }
    }

    /// The detail level of records for the current free room.
    pub(super) fn grade(&self) -> DetailLevel {
        let spool = self.spool().map(|spool| (spool.used(), spool.max()));
        DetailLevel::of((self.budget.used(), self.budget.limit()), spool)
    }

    /// The outbox of the earlier epoch that is being delivered.
    pub(super) fn earlier(&self) -> Option<Arc<Outbox>> {
        self.earlier.lock().clone()
    }

    /// The spool, once there is one.
    pub(super) fn spool(&self) -> Option<&Arc<Spool>> {
        self.spool.get()
    }

    /// The name and the epoch under which an outbox sends.
    fn identity_of(&self, outbox: &Outbox) -> Identity {
        // The lock keeps both together while a spool is attached.
        let identity = self.identity.lock();
        Identity {
            producer: identity.producer.clone(),
            epoch: outbox.epoch(),
        }
    }

    /// Lets `outbox` go on with a spool and under its identity, unless a frame is in doubt.
    fn attach(&self, outbox: &Outbox, spool: &Arc<Spool>, identity: &Identity) -> bool {
        let mut known = self.identity.lock();
        if !outbox.attach(spool, identity.epoch) {
            return false;
        }
        *known = identity.clone();
        let _ = self.spool.set(Arc::clone(spool));
        true
    }

    fn negotiated(&self, packs: bool, max_frame: u32) {
        self.packs.store(packs, Ordering::Relaxed);
        self.max_frame
            .store(max_frame.min(MAX_PAYLOAD), Ordering::Relaxed);
    }

    /// Switches to another producer name, because another process uses the old one too.
    async fn rename(&self, outbox: &Outbox) {
        let identity = Identity {
            epoch: outbox.epoch(),
            ..Identity::fresh()
        };
        *self.identity.lock() = identity.clone();
        let Some(spool) = self.spool().cloned() else {
            return;
        };
        let kept = spawn_blocking(move || spool.rename_producer(&identity)).await;
        if let Ok(Err(error)) = kept {
            tracing::error!(%error, "the new producer name could not be kept");
        }
    }
}

/// Removes finished segments.
async fn remove(spool: &Arc<Spool>, removals: Vec<Removal>) {
    if removals.is_empty() {
        return;
    }
    let dir = Arc::clone(spool);
    let removed = spawn_blocking(move || {
        for removal in removals {
            match dir.remove(&removal.name.in_dir(dir.dir()), removal.is_damaged) {
                Ok(()) => dir.shrank(removal.len),
                Err(error) => {
                    tracing::error!(%error, segment = removal.name.first, "a spool segment could not be removed");
                }
            }
        }
    });
    // A panic there would be our bug. The segments stay and are delivered again.
    let _ = removed.await;
}

/// A running sender.
#[derive(Debug)]
pub(crate) struct Sender {
    /// The queue to which records are offered.
    pub records: mpsc::Sender<Record>,
    /// The status values.
    pub shared: Arc<Shared>,
    /// The outbox of this epoch.
    pub outbox: Arc<Outbox>,
    target: watch::Receiver<Option<Target>>,
    press: JoinSet<Writer>,
    couriers: JoinSet<()>,
    stop_press: CancellationToken,
    stop_couriers: CancellationToken,
}

/// Most records that wait for the encoder. Each is also charged to the budget.
const RECORDS_WAITING_MAX: usize = 16 << 10;

impl Sender {
    /// Starts sending to `target`. `left` lists the segments that earlier epochs left in the spool.
    pub(crate) fn start(
        shared: Shared,
        left: Vec<Earlier>,
        target: &watch::Receiver<Option<Target>>,
    ) -> Self {
        let shared = Arc::new(shared);
        let epoch = shared.identity.lock().epoch;
        let outbox = Arc::new(Outbox::new(epoch, shared.spool().cloned(), now()));
        let (records, waiting) = mpsc::channel(RECORDS_WAITING_MAX);
        let writer = Writer::new(
            Arc::clone(&outbox),
            shared.budget.clone(),
            Arc::clone(&shared.counters),
        );
        let (stop_press, stop_couriers) = (CancellationToken::new(), CancellationToken::new());
        let mut press = JoinSet::new();
        press.spawn(Compressor::new(Arc::clone(&shared), writer).run(waiting, stop_press.clone()));
        let mut couriers = JoinSet::new();
        let live = Delivery::new(
            Arc::clone(&outbox),
            Arc::clone(&shared),
            target.clone(),
            true,
        );
        couriers.spawn(live.run(stop_couriers.clone()));
        let mut sender = Self {
            records,
            shared,
            outbox,
            target: target.clone(),
            press,
            couriers,
            stop_press,
            stop_couriers,
        };
        sender.deliver_left(left);
        sender
    }

    /// What earlier epochs left is on disk already: nobody waits for it at the end.
    fn deliver_left(&mut self, left: Vec<Earlier>) {
        let Some(spool) = self.shared.spool().cloned().filter(|_| !left.is_empty()) else {
            return;
        };
        let (shared, target) = (Arc::clone(&self.shared), self.target.clone());
        let stop = self.stop_couriers.clone();
        self.couriers
            .spawn(deliver_earlier(spool, left, shared, target, stop));
    }

    /// Goes on with a spool that could not be opened at the start. What waits in memory moves into it
    /// while the listener is away. False while a frame is in doubt; nothing is sent then until its
    /// fate is known, and the caller tries again.
    pub(crate) fn attach(&mut self, opened: &Opened) -> bool {
        self.outbox.hold();
        if !self
            .shared
            .attach(&self.outbox, &opened.spool, &opened.identity)
        {
            return false;
        }
        self.deliver_left(Earlier::of(opened));
        true
    }

    /// Takes no more records and delivers the remaining ones for at most `limit`. Puts the rest on
    /// disk, or counts it as lost if there is no disk.
    pub(crate) async fn stop(mut self, limit: Duration) {
        self.stop_press.cancel();
        let writer = self.press.join_next().await;
        self.outbox.close();
        let delivered = async {
            while self.outbox.unacked() > 0 {
                tokio::time::sleep(END_LOOK).await;
            }
        };
        let _ = tokio::time::timeout(limit, delivered).await;
        self.stop_couriers.cancel();
        while self.couriers.join_next().await.is_some() {}
        if let Some(Ok(mut writer)) = writer {
            writer.finish().await;
        }
    }
}

/// Poll interval at shutdown while waiting for the delivery of all frames.
const END_LOOK: Duration = Duration::from_millis(10);

/// Delivers earlier epochs, the oldest first.
async fn deliver_earlier(
    spool: Arc<Spool>,
    left: Vec<Earlier>,
    shared: Arc<Shared>,
    target: watch::Receiver<Option<Target>>,
    stop: CancellationToken,
) {
    for earlier in left {
        let outbox = Arc::new(Outbox::left(Arc::clone(&spool), &earlier));
        tracing::info!(
            epoch = earlier.epoch,
            segments = earlier.segments.len(),
            "delivering body log frames of an earlier run"
        );
        *shared.earlier.lock() = Some(Arc::clone(&outbox));
        let delivery = Delivery::new(outbox, Arc::clone(&shared), target.clone(), false);
        delivery.run(stop.clone()).await;
        *shared.earlier.lock() = None;
        if stop.is_cancelled() {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
