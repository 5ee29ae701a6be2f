//! The metrics and the page they are scraped from. All series exist from the start, with value
//! zero. To add a metric, add an entry to `metrics!` and count at the place that knows.

mod declare;

use std::fmt;
use std::sync::atomic::AtomicU64;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use proto::codec::Fault;
use proto::frame::Protocol;
use service::connections::{Connections, Rejected};
use service::exposition::{self, Format, PageError};
use service::families::histogram;

use self::declare::metrics;
use crate::extract::Shape;
use crate::stream::Output;

/// The result of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameResult {
    /// Stored on disk in both files.
    Stored,
    /// Already stored before.
    Duplicate,
    /// Broken and put into the quarantine.
    Bad,
    /// Refused for now. The sender sends it again.
    Refused,
    /// A frame of version 1 that was not stored.
    Lost,
}

impl FrameResult {
    const ALL: [Self; 5] = [
        Self::Stored,
        Self::Duplicate,
        Self::Bad,
        Self::Refused,
        Self::Lost,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::Duplicate => "duplicate",
            Self::Bad => "bad",
            Self::Refused => "refused",
            Self::Lost => "lost",
        }
    }
}

/// The reason a record is incomplete or missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShedReason {
    /// The disk is nearly full: bodies are not stored.
    Disk,
    /// The disk is full: frames are not stored.
    DiskFull,
    /// Neither memory nor the spill files have room.
    Memory,
}

impl ShedReason {
    const ALL: [Self; 3] = [Self::Disk, Self::DiskFull, Self::Memory];

    fn as_str(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::DiskFull => "disk_full",
            Self::Memory => "memory",
        }
    }
}

/// Why a frame is set aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SetAside {
    /// It could not be read.
    Fault(Fault),
    /// Its meta object is no JSON object.
    BadMeta,
    /// Its meta object is of a later schema.
    Schema,
}

impl SetAside {
    fn all() -> impl Iterator<Item = Self> {
        let faults = Fault::ALL.into_iter().map(Self::Fault);
        faults.chain([Self::BadMeta, Self::Schema])
    }

    /// As a label.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Fault(fault) => fault.as_str(),
            Self::BadMeta => "bad_meta",
            Self::Schema => "schema",
        }
    }
}

/// Kinds of stored files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Class {
    /// Frames in the quarantine.
    Quarantine,
    /// Frames of version 1 waiting for memory.
    Spill,
    /// Full records.
    Records,
    /// Slim rows.
    Details,
}

impl Class {
    pub(crate) const ALL: [Self; 4] = [Self::Quarantine, Self::Spill, Self::Records, Self::Details];

    fn as_str(self) -> &'static str {
        match self {
            Self::Quarantine => "quarantine",
            Self::Spill => "spill",
            Self::Records => "records",
            Self::Details => "details",
        }
    }
}

/// Buckets for the duration of a sync and for the time until an acknowledgement, seconds.
const SYNC_SECONDS: [f64; 12] = [
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 30.0,
];
/// Buckets for the duration of packing an hour, seconds.
const ARCHIVE_SECONDS: [f64; 9] = [0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 180.0, 600.0, 1800.0];

fn sync_histogram() -> Histogram {
    histogram(SYNC_SECONDS)
}

fn archive_histogram() -> Histogram {
    histogram(ARCHIVE_SECONDS)
}

service::families! {
    /// Families that nothing counts.
    mod scraped {
        /// What is running.
        BUILD = info "bodylog_listener_build" [version] Flag;
        /// Connections of senders that were not served: beyond the limit, silent for too long, or
        /// without a file descriptor.
        CONNECTIONS_REJECTED = counter "bodylog_listener_connections_rejected" [reason] Count;
        /// Log lines lost because their reader was too slow or gone.
        LOG_LINES_DROPPED = counter "bodylog_listener_log_lines_dropped" [] Count;
    }
}

metrics! {
    /// Frames received, by what became of them.
    frames: Counter = counter "bodylog_listener_frames"
        [proto in Protocol::ALL, result in FrameResult::ALL] Count;
    /// Bytes of the frames received.
    bytes: Counter = counter "bodylog_listener_bytes" [proto in Protocol::ALL] Bytes;
    /// Frames that could not be read.
    frame_errors: Counter = counter "bodylog_listener_frame_errors" [kind in Fault::ALL] Count;
    /// Frames whose meta is no JSON object or of a later schema.
    bad_meta: Counter = counter "bodylog_listener_bad_meta" [] Count;
    /// Open connections of senders.
    connections: Gauge = gauge "bodylog_listener_connections" [] Count;
    /// Bytes of frames in memory.
    queue_bytes: Gauge = gauge "bodylog_listener_queue_bytes" [] Bytes;
    /// Writing and syncing one batch.
    commit_seconds: Histogram = histogram "bodylog_listener_commit_seconds"
        [output in Output::ALL] Seconds, sync_histogram;
    /// Arrival of a frame to both files being durable.
    ack_lag_seconds: Histogram = histogram "bodylog_listener_ack_lag_seconds" [] Seconds,
        sync_histogram;
    /// Frames that were stored before.
    duplicates: Counter = counter "bodylog_listener_duplicates" [] Count;
    /// Times a sender went on behind sequences that had not come.
    gaps: Counter = counter "bodylog_listener_gaps" [] Count;
    /// Batches that could not be written.
    write_errors: Counter = counter "bodylog_listener_write_errors" [output in Output::ALL] Count;
    /// Files removed or renamed by somebody else while they were written.
    vanished_files: Counter = counter "bodylog_listener_vanished_files"
        [output in Output::ALL] Count;
    /// Frames set aside because they could not be read or stored.
    quarantined: Counter = counter "bodylog_listener_quarantined_frames"
        [kind in SetAside::all()] Count;
    /// Frames stored without bodies, or not at all.
    shed: Counter = counter "bodylog_listener_shed" [reason in ShedReason::ALL] Count;
    /// Room on the file system of the root directory.
    disk_free_bytes: Gauge = gauge "bodylog_listener_disk_free_bytes" [] Bytes;
    /// Size of the file system of the root directory.
    disk_size_bytes: Gauge = gauge "bodylog_listener_disk_size_bytes" [] Bytes;
    /// Files below the root directory.
    files: Gauge = gauge "bodylog_listener_files" [class in Class::ALL] Count;
    /// Age of the oldest file.
    oldest_seconds: Gauge = gauge "bodylog_listener_oldest_seconds" [class in Class::ALL] Seconds;
    /// Packing one closed hour.
    archive_seconds: Histogram = histogram "bodylog_listener_archive_seconds" [] Seconds,
        archive_histogram;
    /// Closed hours that could not be packed.
    archive_failures: Counter = counter "bodylog_listener_archive_failures" [] Count;
    /// Responses read, by their shape.
    extract: Counter = counter "bodylog_listener_extract" [shape in Shape::ALL] Count;
    /// When the last record was stored, Unix time.
    last_record_seconds: Gauge<f64, AtomicU64> = gauge "bodylog_listener_last_record_seconds"
        [] UnixSeconds;
    /// Broken frames beyond the day's room of the quarantine.
    quarantine_dropped: Counter = counter "bodylog_listener_quarantine_dropped" [] Count;
    /// Frames of version 1 that waited on disk for memory.
    spilled: Counter = counter "bodylog_listener_spilled" [] Count;
}

/// Reads what others count, at each scrape.
#[derive(Debug)]
struct Scraped {
    senders: Connections,
}

impl Collector for Scraped {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let rejected = Rejected::ALL.map(|reason| {
            let count = ConstCounter::new(self.senders.rejected(reason));
            ([reason.as_str().into()], count)
        });
        scraped::CONNECTIONS_REJECTED.write(&mut encoder, rejected)?;
        scraped::LOG_LINES_DROPPED.counter(&mut encoder, service::log::dropped())
    }
}

impl Metrics {
    pub(crate) fn new(senders: &Connections) -> Self {
        let mut registry = Registry::default();
        let build = Info::new([(scraped::BUILD.labels[0], env!("CARGO_PKG_VERSION"))]);
        declare::register(&mut registry, &scraped::BUILD, build);
        registry.register_collector(Box::new(Scraped {
            senders: senders.clone(),
        }));
        Self::registered(registry)
    }

    /// Counts frames with the same result.
    pub(crate) fn frames_ended(&self, protocol: Protocol, result: FrameResult, n: u64) {
        self.frames
            .of([protocol.as_str(), result.as_str()])
            .inc_by(n);
    }

    /// Counts one frame with its result.
    pub(crate) fn frame(&self, protocol: Protocol, result: FrameResult) {
        self.frames_ended(protocol, result, 1);
    }

    /// Counts received bytes of frames.
    pub(crate) fn received(&self, protocol: Protocol, bytes: u64) {
        self.bytes.of([protocol.as_str()]).inc_by(bytes);
    }

    /// Counts an unreadable frame.
    pub(crate) fn fault(&self, fault: Fault) {
        self.frame_errors.of([fault.as_str()]).inc();
    }

    /// Counts an unreadable meta object.
    pub(crate) fn bad_meta(&self) {
        self.bad_meta.inc();
    }

    /// Counts a durable batch of an output.
    pub(crate) fn committed(&self, output: Output, seconds: f64) {
        self.commit_seconds.of([output.as_str()]).observe(seconds);
    }

    /// Counts a failed batch of an output.
    pub(crate) fn write_error(&self, output: Output) {
        self.write_errors.of([output.as_str()]).inc();
    }

    /// Counts a file that another process removed or renamed while it was being written.
    pub(crate) fn vanished(&self, output: Output) {
        self.vanished_files.of([output.as_str()]).inc();
    }

    /// Counts a frame that was put into the quarantine, or that did not fit there.
    pub(crate) fn quarantined(&self, kind: SetAside) {
        self.quarantined.of([kind.as_str()]).inc();
    }

    /// Counts something that was not stored.
    pub(crate) fn shed(&self, reason: ShedReason) {
        self.shed.of([reason.as_str()]).inc();
    }

    /// Counts responses of one shape.
    pub(crate) fn extracted(&self, shape: Shape, n: u64) {
        self.extract.of([shape.as_str()]).inc_by(n);
    }

    /// Sets the number of files of a class, and the gauge for its oldest file.
    pub(crate) fn set_files(&self, class: Class, files: i64, oldest_seconds: i64) {
        self.files.of([class.as_str()]).set(files);
        self.oldest_seconds.of([class.as_str()]).set(oldest_seconds);
    }

    /// Renders the page in one format.
    ///
    /// # Errors
    /// If a family breaks the rules of the format. That is a bug, never the scraper's fault.
    pub(crate) fn page(&self, format: Format) -> Result<Vec<u8>, PageError> {
        exposition::render(&self.registry, format)
    }
}

#[test]
fn the_docs_hold_the_families() {
    let heading = "bodylog-listener";
    service::families::reference::pin(heading, &[scraped::ALL, families::ALL]).unwrap();
}
