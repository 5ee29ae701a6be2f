//! From records to numbered frames. Encoding runs on the blocking pool, one batch at a time, so that
//! it never takes more than one core and never a thread that serves requests.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::encode::{Allowance, encode};
use super::writer::Writer;
use crate::counters::Reason;
use crate::record::Record;

/// Records encoded at once.
const BATCH: usize = 128;

/// After a batch the next one may gather for so long: under load records wake nobody one by one.
const GATHER: Duration = Duration::from_millis(5);

/// How often is looked whether frames must leave memory.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// See the module.
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

    /// Works until `stop` and the end of the queue; the writer comes back for the end of everything.
    pub(super) async fn run(
        mut self,
        mut records: mpsc::Receiver<Record>,
        stop: CancellationToken,
    ) -> Writer {
        let mut look = interval(LOOK_EVERY);
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
                _ = look.tick() => {
                    self.writer.spill().await;
                    self.writer.sync().await;
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
        // A panic there would be a bug of ours: the batch is lost, and counted as lost.
        let Ok((frames, allowance)) = encoded.await else {
            self.shared.counters.dropped(Reason::Encode, records);
            return;
        };
        self.allowance = allowance;
        self.writer.take(frames).await;
    }
}
