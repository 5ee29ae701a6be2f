//! Lines are made on blocking threads, as many at once as there are processors, and go to the
//! writers in the order their frames came.

use std::sync::Arc;

use proto::control::NackCode;
use proto::frame::{Data, Protocol};
use proto::meta::Meta;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;

use super::{Ingest, Peer};
use crate::budget::Charge;
use crate::metrics::{FrameResult, ShedReason};
use crate::prepare::{self, Sender, Unstorable};
use crate::space::Level;
use crate::writer::{Item, Origin};

/// Batches of one connection on their way through the pool.
const IN_FLIGHT: usize = 8;

/// Bounds how many batches are worked on at once.
#[derive(Clone, Debug)]
pub(crate) struct Pool(Arc<Semaphore>);

impl Pool {
    /// For so many processors.
    pub(crate) fn new(processors: usize) -> Self {
        Self(Arc::new(Semaphore::new(processors.max(1))))
    }

    async fn enter(&self) -> OwnedSemaphorePermit {
        Arc::clone(&self.0)
            .acquire_owned()
            .await
            .expect("the semaphore is never closed")
    }
}

/// A frame to be stored.
#[derive(Debug)]
pub(super) struct Job {
    /// The frame. `None`: a frame that is dealt with without being stored.
    pub(super) data: Option<Data>,
    /// Where it comes from.
    pub(super) origin: Origin,
    /// Its room.
    pub(super) charge: Charge,
}

/// The way of one connection's frames to the writers. Ending it lets what is on its way arrive.
#[derive(Debug)]
pub(super) struct Lane {
    batches: mpsc::Sender<JoinHandle<Vec<[Item; 2]>>>,
    sender: Sender,
}

/// The writers are gone.
#[derive(Debug)]
pub(super) struct Broken;

impl Lane {
    /// A lane for frames of this sender.
    pub(super) fn new(ingest: &Arc<Ingest>, sender: Sender) -> Self {
        let (batches, arriving) = mpsc::channel(IN_FLIGHT);
        ingest.tasks.spawn(forward(arriving, Arc::clone(ingest)));
        Self { batches, sender }
    }

    /// Hands frames on, in order, once there is a processor for them. Dropping this midway loses
    /// the frames.
    pub(super) async fn submit(
        &self,
        ingest: &Arc<Ingest>,
        jobs: Vec<Job>,
        peer: Peer,
    ) -> Result<(), Broken> {
        let permit = ingest.pool.enter().await;
        let sender = self.sender.clone();
        let worker = Arc::clone(ingest);
        let batch = ingest.tasks.spawn_blocking(move || {
            let items = jobs
                .into_iter()
                .filter_map(|job| worker.prepare(job, &sender, peer))
                .collect();
            drop(permit);
            items
        });
        self.batches.send(batch).await.map_err(|_| Broken)
    }
}

async fn forward(mut arriving: mpsc::Receiver<JoinHandle<Vec<[Item; 2]>>>, ingest: Arc<Ingest>) {
    while let Some(batch) = arriving.recv().await {
        let Ok(items) = batch.await else {
            // A panic while making lines: the frames were not stored and are not acknowledged.
            return;
        };
        let (records, details): (Vec<Item>, Vec<Item>) =
            items.into_iter().map(|[record, row]| (record, row)).unzip();
        if records.is_empty() {
            continue;
        }
        let outputs = &ingest.outputs;
        if outputs.records.send(records).await.is_err()
            || outputs.details.send(details).await.is_err()
        {
            return;
        }
    }
}

impl Ingest {
    /// Makes the two lines of a frame. `None` where nothing goes to the writers.
    fn prepare(&self, job: Job, sender: &Sender, peer: Peer) -> Option<[Item; 2]> {
        let Job {
            data,
            origin,
            mut charge,
        } = job;
        let Some(data) = data else {
            charge.forget();
            return Some(items([Vec::new(), Vec::new()], 0, &origin, charge));
        };
        let meta = match prepare::meta_of(&data, sender) {
            Ok(meta) => meta,
            Err(error) => {
                charge.forget();
                self.reject(&data, &origin, &error, peer);
                let is_numbered = matches!(origin, Origin::V2 { .. });
                return is_numbered.then(|| items([Vec::new(), Vec::new()], 0, &origin, charge));
            }
        };
        if data.protocol == Protocol::V1 {
            if self.pressure.level() == Level::Full {
                charge.forget();
                self.metrics.shed(ShedReason::DiskFull);
                self.metrics.frame(Protocol::V1, FrameResult::Lost);
                return None;
            }
            if self.is_repeated(&meta, peer) {
                charge.forget();
                self.metrics.duplicates.inc();
                self.metrics.frame(Protocol::V1, FrameResult::Duplicate);
                return None;
            }
        }
        let without_bodies = self.pressure.level() >= Level::NoBodies;
        if without_bodies {
            self.metrics.shed(ShedReason::Disk);
        }
        let lines = prepare::lines(meta, &data, sender, without_bodies);
        self.metrics.extracted(lines.shape);
        let (held, made) = (
            data.meta.len() + data.req.len() + data.resp.len(),
            lines.record.len() + lines.row.len(),
        );
        if made > held {
            self.budget.grow(&mut charge, made - held);
        }
        Some(items([lines.record, lines.row], held, &origin, charge))
    }

    fn is_repeated(&self, meta: &Meta, peer: Peer) -> bool {
        let Some(request_id) = meta.request_id.as_deref() else {
            return false;
        };
        let now = self.clock.now().timestamp();
        !self.recent.lock().insert((request_id, peer.source), now)
    }

    fn reject(&self, data: &Data, origin: &Origin, error: &Unstorable, peer: Peer) {
        self.metrics.bad_meta();
        self.metrics.frame(data.protocol, FrameResult::Bad);
        let (code, kind) = match error {
            Unstorable::Meta(_) => (NackCode::BadMeta, "bad_meta"),
            Unstorable::Schema(_) => (NackCode::Schema, "schema"),
        };
        let mut frame = bytes::BytesMut::new();
        let kept = proto::codec::encode(
            &proto::frame::Frame::Data(data.clone()),
            proto::frame::Compression::None,
            &mut frame,
        );
        if kept.is_ok() {
            self.quarantine.keep(peer.source, kind, &frame);
        }
        if let Origin::V2 { claim, seq, .. } = origin {
            claim.stream().reject(*seq, code, &error.to_string());
        }
    }
}

fn items(lines: [Vec<u8>; 2], weight: usize, origin: &Origin, charge: Charge) -> [Item; 2] {
    let charge = Arc::new(charge);
    lines.map(|line| Item {
        line,
        weight,
        origin: origin.clone(),
        charge: Arc::clone(&charge),
    })
}
