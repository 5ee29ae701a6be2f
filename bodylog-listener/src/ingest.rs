//! From a connection to the writers: frames are read, numbered, turned into lines on the CPU pool
//! and handed on in the order they came.

mod first;
mod pool;
mod reader;
mod v1;
mod v2;

use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use proto::codec::{Bad, Fault};
use proto::frame::Protocol;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::budget::Budget;
use crate::buffers::Buffers;
use crate::config::Secret;
use crate::metrics::{FrameResult, Metrics};
use crate::quarantine::Quarantine;
use crate::recent::Recent;
use crate::space::Pressure;
use crate::spill::Spill;
use crate::stream::Streams;
use crate::writer::Bundle;
pub(crate) use pool::Pool;
use service::clock::WallClock;
use service::renewed::Renewed;
pub(crate) use v1::drain_spill;

/// Unacknowledged bytes a sender may have.
pub(crate) const WINDOW_BYTES: u64 = 8 << 20;
/// Unacknowledged frames a sender may have.
pub(crate) const WINDOW_FRAMES: u32 = 1024;

/// What every connection works with.
#[derive(Debug)]
pub(crate) struct Ingest {
    /// Room for frames.
    pub(crate) budget: Budget,
    /// Runs of senders.
    pub(crate) streams: Arc<Streams>,
    /// Where lines go.
    pub(crate) outputs: Outputs,
    /// Where lines are made.
    pub(crate) pool: Pool,
    /// What frames are received and lines are made in.
    pub(crate) buffers: Arc<Buffers>,
    /// Broken frames.
    pub(crate) quarantine: Arc<Quarantine>,
    /// Frames of version 1 that find no room.
    pub(crate) spill: Spill,
    /// Frames of version 1 seen lately.
    pub(crate) recent: Mutex<Recent>,
    /// Room on disk.
    pub(crate) pressure: Arc<Pressure>,
    /// Counters.
    pub(crate) metrics: Arc<Metrics>,
    /// The time.
    pub(crate) clock: WallClock,
    /// What a sender of version 2 must show.
    pub(crate) token: Option<Renewed<Secret>>,
    /// Largest payload.
    pub(crate) max_frame: u32,
    /// Higher at each start.
    pub(crate) server_epoch: u64,
    /// Tasks that outlive their connection.
    pub(crate) tasks: TaskTracker,
}

/// The inboxes of the writers. A closed one means that its thread is gone, and then nothing is
/// stored any more.
#[derive(Clone, Debug)]
pub(crate) struct Outputs {
    /// Full records.
    pub(crate) records: mpsc::Sender<Bundle>,
    /// Slim rows.
    pub(crate) details: mpsc::Sender<Bundle>,
}

/// A connection as the server accepted it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// Its address.
    pub(crate) source: IpAddr,
    /// Whether version 1, which cannot show a token, is taken from there.
    pub(crate) may_speak_v1: bool,
}

impl Ingest {
    /// Serves one connection to its end, or until told to stop: then what was taken is stored and
    /// answered first.
    pub(crate) async fn serve(
        self: Arc<Self>,
        stream: impl AsyncRead + AsyncWrite + Send + 'static,
        peer: Peer,
        stop: CancellationToken,
    ) {
        let (read, write) = tokio::io::split(stream);
        let reader = reader::Reader::new(
            read,
            self.budget.clone(),
            Arc::clone(&self.buffers),
            self.max_frame,
        );
        first::serve(self, reader, write, peer, stop).await;
    }

    /// A frame that cannot be read is counted and kept.
    async fn set_aside(&self, bad: Bad, peer: Peer) {
        self.metrics.fault(bad.fault);
        if bad.is_data() {
            self.metrics.frame(bad.protocol, FrameResult::Bad);
        }
        if !bad.raw.is_empty() {
            let quarantine = Arc::clone(&self.quarantine);
            let keep = move || quarantine.keep(peer.source, bad.fault.as_str(), &bad.raw);
            // Waiting keeps a flood of broken frames from piling up in memory.
            let _ = self.tasks.spawn_blocking(keep).await;
        }
    }

    fn count_end(&self, protocol: Option<Protocol>, end: &reader::End, peer: Peer) {
        let protocol = protocol.map_or("none", Protocol::as_str);
        match end {
            reader::End::Closed | reader::End::Silent => {}
            reader::End::Fault(fault) => {
                self.metrics.fault(*fault);
                tracing::info!(source = %peer.source, protocol, kind = fault.as_str(), "a sender's bytes cannot be read");
            }
            reader::End::Stalled => {
                self.metrics.fault(Fault::Truncated);
                tracing::info!(source = %peer.source, protocol, "a sender stopped inside a frame, or sends it too slowly");
            }
            reader::End::Io(error) => {
                tracing::debug!(source = %peer.source, protocol, %error, "a sender's connection failed");
            }
        }
    }
}

#[cfg(test)]
mod tests;
