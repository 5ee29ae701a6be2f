//! The metrics and the page they are scraped from. All series exist from the start, with value
//! zero.

use std::fmt;
use std::sync::atomic::AtomicU64;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, NativeHistogramConfig};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use proto::codec::Fault;
use proto::frame::Protocol;
use service::exposition::{self, Format, PageError};

use crate::extract::Shape;
use crate::stream::Output;

/// Lost log lines.
#[derive(Debug)]
struct LogLines;

impl Collector for LogLines {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let lost = ConstCounter::new(service::log::dropped());
        let descriptor = encoder.encode_descriptor(
            "log_lines_dropped",
            "Log lines lost because their reader was too slow or gone.",
            None,
            lost.metric_type(),
        )?;
        lost.encode(descriptor)
    }
}

type One = [(&'static str, &'static str); 1];
type Two = [(&'static str, &'static str); 2];

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

/// All metrics. One instance per listener.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    frames: Family<Two, Counter>,
    bytes: Family<One, Counter>,
    frame_errors: Family<One, Counter>,
    bad_meta: Counter,
    pub(crate) connections: Gauge,
    pub(crate) queue_bytes: Gauge,
    commit_seconds: Family<One, Histogram, fn() -> Histogram>,
    pub(crate) ack_lag_seconds: Histogram,
    pub(crate) duplicates: Counter,
    pub(crate) gaps: Counter,
    write_errors: Family<One, Counter>,
    vanished_files: Family<One, Counter>,
    quarantined: Family<One, Counter>,
    shed: Family<One, Counter>,
    pub(crate) disk_free_bytes: Gauge,
    pub(crate) disk_size_bytes: Gauge,
    files: Family<One, Gauge>,
    oldest_seconds: Family<One, Gauge>,
    pub(crate) archive_seconds: Histogram,
    pub(crate) archive_failures: Counter,
    extract: Family<One, Counter>,
    pub(crate) last_record_seconds: Gauge<f64, AtomicU64>,
    pub(crate) quarantine_dropped: Counter,
    pub(crate) spilled: Counter,
}

/// Buckets for the duration of a sync and for the time until an acknowledgement, seconds.
const SYNC_SECONDS: [f64; 12] = [
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 30.0,
];
/// Most native buckets of a histogram.
const NATIVE_BUCKETS_MAX: usize = 160;
/// Buckets for the duration of packing an hour, seconds.
const ARCHIVE_SECONDS: [f64; 9] = [0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 180.0, 600.0, 1800.0];

fn histogram(bounds: impl IntoIterator<Item = f64>) -> Histogram {
    Histogram::new_classic_and_native(
        bounds,
        NativeHistogramConfig::default().max_buckets(NATIVE_BUCKETS_MAX),
    )
}

fn sync_histogram() -> Histogram {
    histogram(SYNC_SECONDS)
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let metrics = Self {
            registry: Registry::with_prefix("bodylog_listener"),
            frames: Family::default(),
            bytes: Family::default(),
            frame_errors: Family::default(),
            bad_meta: Counter::default(),
            connections: Gauge::default(),
            queue_bytes: Gauge::default(),
            commit_seconds: Family::new_with_constructor(sync_histogram),
            ack_lag_seconds: sync_histogram(),
            duplicates: Counter::default(),
            gaps: Counter::default(),
            write_errors: Family::default(),
            vanished_files: Family::default(),
            quarantined: Family::default(),
            shed: Family::default(),
            disk_free_bytes: Gauge::default(),
            disk_size_bytes: Gauge::default(),
            files: Family::default(),
            oldest_seconds: Family::default(),
            archive_seconds: histogram(ARCHIVE_SECONDS),
            archive_failures: Counter::default(),
            extract: Family::default(),
            last_record_seconds: Gauge::default(),
            quarantine_dropped: Counter::default(),
            spilled: Counter::default(),
        };
        metrics.zero().registered()
    }

    fn zero(self) -> Self {
        for protocol in [Protocol::V1, Protocol::V2] {
            for result in FrameResult::ALL {
                self.frames_ended(protocol, result, 0);
            }
            self.received(protocol, 0);
        }
        for fault in Fault::ALL {
            self.frame_errors
                .get_or_create(&[("kind", fault.as_str())])
                .inc_by(0);
        }
        for kind in SetAside::all() {
            self.quarantined
                .get_or_create(&[("kind", kind.as_str())])
                .inc_by(0);
        }
        for output in Output::ALL {
            for family in [&self.write_errors, &self.vanished_files] {
                family
                    .get_or_create(&[("output", output.as_str())])
                    .inc_by(0);
            }
            drop(
                self.commit_seconds
                    .get_or_create(&[("output", output.as_str())]),
            );
        }
        for reason in ShedReason::ALL {
            self.shed
                .get_or_create(&[("reason", reason.as_str())])
                .inc_by(0);
        }
        for class in Class::ALL {
            self.set_files(class, 0, 0);
        }
        for shape in Shape::ALL {
            self.extract
                .get_or_create(&[("shape", shape.as_str())])
                .inc_by(0);
        }
        self
    }

    /// The registry appends a full stop to each help text.
    fn registered(mut self) -> Self {
        let r = &mut self.registry;
        let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        r.register("build", "What is running", build);
        r.register(
            "frames",
            "Frames received, by what became of them",
            self.frames.clone(),
        );
        r.register("bytes", "Bytes of the frames received", self.bytes.clone());
        r.register(
            "frame_errors",
            "Frames that could not be read",
            self.frame_errors.clone(),
        );
        r.register(
            "bad_meta",
            "Frames whose meta is no JSON object or of a later schema",
            self.bad_meta.clone(),
        );
        r.register(
            "connections",
            "Open connections of senders",
            self.connections.clone(),
        );
        r.register(
            "queue_bytes",
            "Bytes of frames in memory",
            self.queue_bytes.clone(),
        );
        r.register(
            "commit_seconds",
            "Writing and syncing one batch",
            self.commit_seconds.clone(),
        );
        r.register(
            "ack_lag_seconds",
            "Arrival of a frame to both files being durable",
            self.ack_lag_seconds.clone(),
        );
        r.register(
            "duplicates",
            "Frames that were stored before",
            self.duplicates.clone(),
        );
        r.register(
            "gaps",
            "Times a sender went on behind sequences that had not come",
            self.gaps.clone(),
        );
        r.register(
            "write_errors",
            "Batches that could not be written",
            self.write_errors.clone(),
        );
        r.register(
            "vanished_files",
            "Files removed or renamed by somebody else while they were written",
            self.vanished_files.clone(),
        );
        r.register(
            "quarantined_frames",
            "Frames set aside because they could not be read or stored",
            self.quarantined.clone(),
        );
        r.register(
            "shed",
            "Frames stored without bodies, or not at all",
            self.shed.clone(),
        );
        r.register(
            "disk_free_bytes",
            "Room on the file system of the root directory",
            self.disk_free_bytes.clone(),
        );
        r.register(
            "disk_size_bytes",
            "Size of the file system of the root directory",
            self.disk_size_bytes.clone(),
        );
        r.register(
            "files",
            "Files below the root directory",
            self.files.clone(),
        );
        r.register(
            "oldest_seconds",
            "Age of the oldest file",
            self.oldest_seconds.clone(),
        );
        r.register(
            "archive_seconds",
            "Packing one closed hour",
            self.archive_seconds.clone(),
        );
        r.register(
            "archive_failures",
            "Closed hours that could not be packed",
            self.archive_failures.clone(),
        );
        r.register(
            "extract",
            "Responses read, by their shape",
            self.extract.clone(),
        );
        r.register(
            "last_record_seconds",
            "When the last record was stored, Unix time",
            self.last_record_seconds.clone(),
        );
        r.register(
            "quarantine_dropped",
            "Broken frames beyond the day's room of the quarantine",
            self.quarantine_dropped.clone(),
        );
        r.register(
            "spilled",
            "Frames of version 1 that waited on disk for memory",
            self.spilled.clone(),
        );
        r.register_collector(Box::new(LogLines));
        self
    }

    /// Counts frames with the same result.
    pub(crate) fn frames_ended(&self, protocol: Protocol, result: FrameResult, n: u64) {
        self.frames
            .get_or_create(&[("proto", protocol.as_str()), ("result", result.as_str())])
            .inc_by(n);
    }

    /// Counts one frame with its result.
    pub(crate) fn frame(&self, protocol: Protocol, result: FrameResult) {
        self.frames_ended(protocol, result, 1);
    }

    /// Counts received bytes of frames.
    pub(crate) fn received(&self, protocol: Protocol, bytes: u64) {
        self.bytes
            .get_or_create(&[("proto", protocol.as_str())])
            .inc_by(bytes);
    }

    /// Counts an unreadable frame.
    pub(crate) fn fault(&self, fault: Fault) {
        self.frame_errors
            .get_or_create(&[("kind", fault.as_str())])
            .inc();
    }

    /// Counts an unreadable meta object.
    pub(crate) fn bad_meta(&self) {
        self.bad_meta.inc();
    }

    /// Counts a durable batch of an output.
    pub(crate) fn committed(&self, output: Output, seconds: f64) {
        self.commit_seconds
            .get_or_create(&[("output", output.as_str())])
            .observe(seconds);
    }

    /// Counts a failed batch of an output.
    pub(crate) fn write_error(&self, output: Output) {
        self.write_errors
            .get_or_create(&[("output", output.as_str())])
            .inc();
    }

    /// Counts a file that another process removed or renamed while it was being written.
    pub(crate) fn vanished(&self, output: Output) {
        self.vanished_files
            .get_or_create(&[("output", output.as_str())])
            .inc();
    }

    /// Counts a frame that was put into the quarantine, or that did not fit there.
    pub(crate) fn quarantined(&self, kind: SetAside) {
        self.quarantined
            .get_or_create(&[("kind", kind.as_str())])
            .inc();
    }

    /// Counts something that was not stored.
    pub(crate) fn shed(&self, reason: ShedReason) {
        self.shed
            .get_or_create(&[("reason", reason.as_str())])
            .inc();
    }

    /// Counts responses of one shape.
    pub(crate) fn extracted(&self, shape: Shape, n: u64) {
        self.extract
            .get_or_create(&[("shape", shape.as_str())])
            .inc_by(n);
    }

    /// Sets the number of files of a class, and the gauge for its oldest file.
    pub(crate) fn set_files(&self, class: Class, files: i64, oldest_seconds: i64) {
        self.files
            .get_or_create(&[("class", class.as_str())])
            .set(files);
        self.oldest_seconds
            .get_or_create(&[("class", class.as_str())])
            .set(oldest_seconds);
    }

    /// Renders the page in one format.
    ///
    /// # Errors
    /// If a family breaks the rules of the format. That is a bug, never the scraper's fault.
    pub(crate) fn page(&self, format: Format) -> Result<Vec<u8>, PageError> {
        exposition::render(&self.registry, format)
    }
}
