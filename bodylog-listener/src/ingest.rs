//! The path from a connection to the writers: frames are read, numbered, turned into lines on the
//! CPU pool, and passed on in their order of arrival.

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
use crate::metrics::{FrameResult, Metrics, SetAside};
use crate::quarantine::Quarantine;
use crate::recent::Recent;
use crate::server::now;
use crate::space::Pressure;
use crate::spill::Spill;
use crate::stream::Streams;
use crate::writer::Bundle;
pub(crate) use pool::Pool;
use service::clock::WallClock;
use service::log::Throttle;
use service::renewed::Renewed;
pub(crate) use v1::drain_spill;

/// The state shared by all connections.
#[derive(Debug)]
pub(crate) struct Ingest {
    /// The memory budget for frames.
    pub(crate) budget: Budget,
    /// The runs of all senders.
    pub(crate) streams: Arc<Streams>,
    /// The inboxes of the writers.
    pub(crate) outputs: Outputs,
    /// The CPU pool that makes lines.
    pub(crate) pool: Pool,
    /// Reusable buffers for frames and lines.
    pub(crate) buffers: Arc<Buffers>,
    /// Storage for broken frames.
    pub(crate) quarantine: Arc<Quarantine>,
    /// Storage for frames of version 1 that do not fit into memory.
    pub(crate) spill: Spill,
    /// The frames of version 1 seen recently.
    pub(crate) recent: Mutex<Recent>,
    /// The current level of free disk space.
    pub(crate) pressure: Arc<Pressure>,
    /// Counters.
    pub(crate) metrics: Arc<Metrics>,
    /// The clock.
    pub(crate) clock: WallClock,
    /// The token that senders of version 2 must show.
    pub(crate) token: Option<Renewed<Secret>>,
    /// Largest payload.
    pub(crate) max_frame: u32,
    /// An epoch that increases at each start.
    pub(crate) server_epoch: u64,
    /// Tasks that outlive their connection.
    pub(crate) tasks: TaskTracker,
}

/// The inboxes of the writers. A closed inbox means that its writer thread has ended and nothing
/// can be stored any more.
#[derive(Clone, Debug)]
pub(crate) struct Outputs {
    /// Full records.
    pub(crate) records: mpsc::Sender<Bundle>,
    /// Slim rows.
    pub(crate) details: mpsc::Sender<Bundle>,
}

/// An accepted connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// Its peer address.
    pub(crate) source: IpAddr,
    /// Whether this address may send version 1, which cannot show a token.
    pub(crate) may_speak_v1: bool,
}

impl Ingest {
    /// Serves one connection to its end or until shutdown. On shutdown, frames already taken are
    /// stored and acknowledged first.
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

    /// Counts an unreadable frame and keeps it in the quarantine.
    async fn set_aside(&self, bad: Bad, peer: Peer) {
        self.metrics.fault(bad.fault);
        if bad.is_data() {
            self.metrics.frame(bad.protocol, FrameResult::Bad);
        }
        if !bad.raw.is_empty() {
            let quarantine = Arc::clone(&self.quarantine);
            let keep = move || quarantine.keep(peer.source, SetAside::Fault(bad.fault), &bad.raw);
            // Wait, so that a flood of broken frames cannot pile up in memory.
            let _ = self.tasks.spawn_blocking(keep).await;
        }
    }

    fn count_end(&self, protocol: Option<Protocol>, end: &reader::End, peer: Peer) {
        let protocol = protocol.map_or("none", Protocol::as_str);
        match end {
            reader::End::Closed | reader::End::Silent => {}
            reader::End::Fault(fault) => {
                static LINES: Throttle = Throttle::new();
                self.metrics.fault(*fault);
                if let Some(unsaid) = LINES.pass(now()) {
                    tracing::info!(source = %peer.source, protocol, kind = fault.as_str(), unsaid, "a sender's bytes cannot be read");
                }
            }
            reader::End::Stalled => {
                static LINES: Throttle = Throttle::new();
                self.metrics.fault(Fault::Truncated);
                if let Some(unsaid) = LINES.pass(now()) {
                    tracing::info!(source = %peer.source, protocol, unsaid, "a sender stopped inside a frame, or sends it too slowly");
                }
            }
            reader::End::Io(error) => {
                tracing::debug!(source = %peer.source, protocol, %error, "a sender's connection failed");
            }
        }
    }
}

#[cfg(test)]
mod tests;
