//! Makes lines on blocking threads, as many at once as there are processors, and passes them to the
//! writers in the order of the frames. If that would leave no processor free, the lines are made on
//! the current thread instead: the frame is still in that processor's cache, and no thread must be
//! woken.

use std::sync::Arc;

use memchr::memmem;
use proto::control::NackCode;
use proto::frame::{Data, Protocol};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;

use super::{Ingest, Peer};
use crate::budget::Charge;
use crate::extract::{Shape, looks_like_gzip};
use crate::metrics::{FrameResult, SetAside, ShedReason};
use crate::prepare::{self, Sender, Unstorable};
use crate::space::Level;
use crate::writer::{Bundle, Lines, Mark, Origin};

/// Most batches of one connection in the pool.
const IN_FLIGHT: usize = 8;

/// Most bytes of frames that are processed on the current thread.
const LIGHT_BYTES: usize = 1 << 20;

/// Limits the number of batches processed at once.
#[derive(Clone, Debug)]
pub(crate) struct Pool(Arc<Semaphore>);

impl Pool {
    /// A pool for this many processors.
    pub(crate) fn new(processors: usize) -> Self {
        Self(Arc::new(Semaphore::new(processors.max(1))))
    }

    /// Whether at most one processor is left.
    fn is_last(&self) -> bool {
        self.0.available_permits() <= 1
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
    /// The frame. `None` if it is finished without being stored.
    pub(super) data: Option<Data>,
    /// Its position in its run.
    pub(super) mark: Mark,
    /// The room it holds.
    pub(super) charge: Charge,
}

/// The lines of a batch for each output, if it has any.
type Made = Option<[Bundle; 2]>;

/// A batch on its way to the writers.
#[derive(Debug)]
enum Batch {
    /// Its lines are ready.
    Made(Made),
    /// Its lines are still being made.
    Making(JoinHandle<Made>),
}

/// The path of one connection's frames to the writers. Ending the lane delivers the batches that
/// are still on their way.
#[derive(Debug)]
pub(super) struct Lane {
    batches: mpsc::Sender<Batch>,
    from: From,
}

/// The origin of a lane's frames.
#[derive(Clone, Debug)]
struct From {
    sender: Sender,
    peer: Peer,
    origin: Origin,
}

/// The writers have ended.
#[derive(Debug)]
pub(super) struct Broken;

impl Lane {
    /// Creates a lane for the frames of this sender.
    pub(super) fn new(ingest: &Arc<Ingest>, sender: Sender, peer: Peer, origin: Origin) -> Self {
        let (batches, arriving) = mpsc::channel(IN_FLIGHT);
        ingest.tasks.spawn(forward(arriving, Arc::clone(ingest)));
        let from = From {
            sender,
            peer,
            origin,
        };
        Self { batches, from }
    }

    /// Passes frames on, in order, once a processor is free. Not cancel safe: dropping the future
    /// loses the frames.
    pub(super) async fn submit(&self, ingest: &Arc<Ingest>, jobs: Vec<Job>) -> Result<(), Broken> {
        let is_last = ingest.pool.is_last();
        let permit = ingest.pool.enter().await;
        if is_last && is_light(&jobs) {
            let made = ingest.prepare(jobs, &self.from);
            drop(permit);
            let sent = self.batches.send(Batch::Made(made)).await;
            return sent.map_err(|_| Broken);
        }
        let from = self.from.clone();
        let worker = Arc::clone(ingest);
        let batch = ingest.tasks.spawn_blocking(move || {
            let made = worker.prepare(jobs, &from);
            drop(permit);
            made
        });
        self.batches
            .send(Batch::Making(batch))
            .await
            .map_err(|_| Broken)
    }
}

async fn forward(mut arriving: mpsc::Receiver<Batch>, ingest: Arc<Ingest>) {
    while let Some(batch) = arriving.recv().await {
        let made = match batch {
            Batch::Made(made) => made,
            Batch::Making(making) => {
                let Ok(made) = making.await else {
                    // A panic while making the lines: the frames are neither stored nor
                    // acknowledged.
                    return;
                };
                made
            }
        };
        let Some([records, details]) = made else {
            continue;
        };
        let outputs = &ingest.outputs;
        if outputs.records.send(records).await.is_err()
            || outputs.details.send(details).await.is_err()
        {
            return;
        }
    }
}

fn size(data: &Data) -> usize {
    data.meta.len() + data.req.len() + data.resp.len()
}

/// Whether making the lines of these frames takes at most a few milliseconds, because nothing must
/// be decompressed.
fn is_light(jobs: &[Job]) -> bool {
    let frames = || jobs.iter().filter_map(|job| job.data.as_ref());
    let is_packed = |data: &Data| {
        looks_like_gzip(&data.resp) || memmem::find(&data.meta, b"resp_encoding").is_some()
    };
    frames().map(size).sum::<usize>() <= LIGHT_BYTES && !frames().any(is_packed)
}

/// A batch in progress.
struct Making {
    records: Lines,
    details: Lines,
    charge: Option<Charge>,
    /// Bytes of the frames to store.
    held: usize,
    shapes: [u64; Shape::ALL.len()],
}

impl Making {
    /// Marks a frame as finished. Its lines, if any, are already appended.
    fn end(&mut self, mark: Mark, charge: Charge) {
        self.records.end(mark);
        self.details.end(mark);
        match &mut self.charge {
            Some(all) => all.join(charge),
            none => *none = Some(charge),
        }
    }
}

impl Ingest {
    /// Makes the two lines of each frame. `None` if there is nothing for the writers.
    fn prepare(&self, jobs: Vec<Job>, from: &From) -> Made {
        let mut making = Making {
            records: Lines::in_buffer(self.buffers.take(), jobs.len()),
            details: Lines::in_buffer(self.buffers.take(), jobs.len()),
            charge: None,
            held: 0,
            shapes: Default::default(),
        };
        // Reserve all of it at once: a growing buffer is moved.
        let frames: usize = jobs
            .iter()
            .filter_map(|job| job.data.as_ref())
            .map(size)
            .sum();
        making.records.text.reserve(frames + frames / 8);
        for job in jobs {
            self.prepare_one(job, from, &mut making);
        }
        for (shape, n) in Shape::ALL.into_iter().zip(making.shapes) {
            if n > 0 {
                self.metrics.extracted(shape, n);
            }
        }
        let Some(mut charge) = making.charge else {
            self.buffers.give(making.records.text);
            self.buffers.give(making.details.text);
            return None;
        };
        let made = making.records.text.len() + making.details.text.len();
        if made > making.held {
            self.budget.grow(&mut charge, made - making.held);
        }
        let charge = Arc::new(charge);
        Some([making.records, making.details].map(|lines| Bundle {
            lines,
            weight: making.held,
            origin: from.origin.clone(),
            charge: Arc::clone(&charge),
        }))
    }

    fn prepare_one(&self, job: Job, from: &From, making: &mut Making) {
        let Job {
            data,
            mark,
            mut charge,
        } = job;
        let Some(data) = data else {
            charge.forget();
            return making.end(mark, charge);
        };
        let without_bodies = self.pressure.level() >= Level::NoBodies;
        let told = match prepare::told(&data, &from.sender, without_bodies) {
            Ok(told) => told,
            Err(error) => {
                charge.forget();
                self.reject(&data, from, &error);
                if data.protocol == Protocol::V2 {
                    making.end(mark, charge);
                }
                return;
            }
        };
        if data.protocol == Protocol::V1 {
            if self.pressure.level() == Level::Full {
                charge.forget();
                self.metrics.shed(ShedReason::DiskFull);
                self.metrics.frame(Protocol::V1, FrameResult::Lost);
                return;
            }
            if self.is_repeated(told.request(), from.peer) {
                charge.forget();
                self.metrics.duplicates.inc();
                self.metrics.frame(Protocol::V1, FrameResult::Duplicate);
                return;
            }
        }
        if without_bodies {
            self.metrics.shed(ShedReason::Disk);
        }
        let out = [&mut making.records.text, &mut making.details.text];
        let shape = prepare::write(told, &data, &from.sender, without_bodies, out);
        making.shapes[shape as usize] += 1;
        making.held += size(&data);
        making.end(mark, charge);
    }

    fn is_repeated(&self, request: (Option<&str>, Option<&str>), peer: Peer) -> bool {
        let (Some(request_id), start) = request else {
            return false;
        };
        let now = self.clock.now().timestamp();
        // Clients may use one id for many requests. A repeated buffer also has the same start time.
        let key = (request_id, start, peer.source);
        !self.recent.lock().insert(key, now)
    }

    fn reject(&self, data: &Data, from: &From, error: &Unstorable) {
        self.metrics.bad_meta();
        self.metrics.frame(data.protocol, FrameResult::Bad);
        let (code, kind) = match error {
            Unstorable::Meta(_) => (NackCode::BadMeta, SetAside::BadMeta),
            Unstorable::Schema(_) => (NackCode::Schema, SetAside::Schema),
        };
        let mut frame = bytes::BytesMut::new();
        let kept = proto::codec::encode(
            &proto::frame::Frame::Data(data.clone()),
            proto::frame::Compression::None,
            &mut frame,
        );
        if kept.is_ok() {
            self.quarantine.keep(from.peer.source, kind, &frame);
        }
        if let Origin::V2 { claim } = &from.origin {
            claim.stream().reject(data.seq, code, &error.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proto::frame::Flags;

    use super::*;
    use crate::budget::Budget;
    use crate::metrics::Metrics;

    fn job(meta: &'static str, req: usize, resp: &'static [u8]) -> Job {
        let budget = Budget::new(
            1,
            Arc::new(Metrics::new(&service::connections::Connections::new(
                service::http::CONNECTIONS,
            ))),
        );
        Job {
            data: Some(Data {
                protocol: Protocol::V2,
                seq: 1,
                flags: Flags::default(),
                meta: meta.into(),
                req: vec![b'x'; req].into(),
                resp: resp.into(),
            }),
            mark: Mark::default(),
            charge: budget.overdraw(0),
        }
    }

    #[test]
    fn what_takes_long_to_make_is_not_made_on_the_spot() {
        for (job, expected) in [
            (job("{}", 10, b"plain"), true),
            (job("{}", LIGHT_BYTES - 1, b""), false),
            (job("{}", 10, b"\x1f\x8b"), false),
            (job(r#"{"resp_encoding":"deflate"}"#, 10, b"x"), false),
        ] {
            let is = is_light(&[job]);
            assert_eq!(is, expected);
        }
        assert!(!is_light(&[job("{}", 9, b""), job("{}", LIGHT_BYTES, b"")]));
    }

    #[tokio::test]
    async fn the_last_processor_is_known() {
        let pool = Pool::new(2);
        assert!(!pool.is_last());
        let _first = pool.enter().await;
        assert!(pool.is_last());
        assert!(Pool::new(1).is_last());
    }
}
