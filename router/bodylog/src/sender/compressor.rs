//! Turns records into numbered frames. Encoding runs on the blocking pool, one batch at a time, so
//! it never uses more than one core and never a thread that serves requests.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::encode::{Allowance, encode};
use super::writer::Writer;
use crate::counters::Reason;
use crate::record::Record;

/// Most records encoded in one batch.
const BATCH: usize = 128;

/// After a batch, the next one may collect records for this long. Under load, this avoids a wake-up
/// per record.
const GATHER: Duration = Duration::from_millis(5);

/// Interval between two syncs of the segment being written.
const SYNC_EVERY: Duration = Duration::from_millis(250);

/// The compressor; see the module.
pub(super) struct Compressor {
    shared: Arc<Shared>,
    writer: Writer,
    allowance: Allowance,
}

impl Compressor {
    pub(super) fn new(shared: Arc<Shared>, writer: Writer) -> Self {
        Self {
            shared,
            writer,
            allowance: Allowance::new(Instant::now().into_std()),
        }
    }

    /// Runs until `stop` and until the queue is empty. Returns the writer, which shutdown needs.
    pub(super) async fn run(
        mut self,
        mut records: mpsc::Receiver<Record>,
        stop: CancellationToken,
    ) -> Writer {
        let mut look = interval(SYNC_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            tokio::select! {
                () = stop.cancelled(), if !records.is_closed() => records.close(),
                received = records.recv_many(&mut batch, BATCH) => {
                    if received == 0 {
                        return self.writer;
                    }
                    let is_full = batch.len() == BATCH;
                    self.press(std::mem::replace(&mut batch, Vec::with_capacity(BATCH))).await;
                    if !is_full && !records.is_closed() {
                        sleep(GATHER).await;
                    }
                }
                () = sleep_until(self.writer.spill_at().into()) => {
                    self.writer.spill().await;
                }
                _ = look.tick() => {
                    self.writer.sync().await;
                    self.writer.note().await;
                }
            }
        }
    }

    async fn press(&mut self, batch: Vec<Record>) {
        let (shared, mut allowance) = (Arc::clone(&self.shared), self.allowance);
        let records = batch.len() as u64;
        let encoded = spawn_blocking(move || {
            let frames = encode(batch, &shared, &mut allowance);
            (frames, allowance)
        });
        // A panic there would be our bug. The batch is lost and counted as lost.
        let Ok((frames, allowance)) = encoded.await else {
            self.shared.counters.dropped(Reason::Encode, records);
            return;
        };
        self.allowance = allowance;
        self.writer.take(frames).await;
        self.writer.note().await;
    }
}
