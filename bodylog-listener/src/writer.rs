//! Each output has one thread that owns its files. The thread chooses the hour, appends batches,
//! syncs them, and only then informs the streams. No other thread writes there, so no line is torn
//! by another and no file is reopened after its hour.
//!
//! A batch goes to disk [`WAIT`] after the last commit, at [`BATCH_BYTES`], or at [`BATCH_ITEMS`].
//! A failed batch leaves no trace in the file.

mod append;

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use parking_lot::Mutex;
use proto::control::NackCode;
use proto::frame::Protocol;
use proto::layout::Hour;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::budget::Charge;
use crate::buffers::Buffers;
use crate::config::Durability;
use crate::ledger::{self, Position};
use crate::metrics::{FrameResult, Metrics};
use crate::segment::Roller;
use crate::storage::Storage;
use crate::stream::{Claim, Output, Streams, WINDOW_BYTES, WINDOW_FRAMES};
use append::Segment;
use service::clock::WallClock;

/// Longest time a line waits for others to share its commit.
const WAIT: Duration = Duration::from_millis(50);
/// Bytes of frames that trigger a commit: half of a sender's window, so that its next frames arrive
/// during the sync.
const BATCH_BYTES: usize = WINDOW_BYTES as usize / 2;
/// Frames that trigger a commit, for the same reason.
const BATCH_ITEMS: usize = WINDOW_FRAMES as usize / 2;
/// How often an idle writer checks the clock.
const TICK: Duration = Duration::from_secs(1);
/// Bytes written before the ledger is saved. A restart reads this much again.
const LEDGER_BYTES: u64 = 64 << 20;
/// Longest delay before the ledger is saved.
const LEDGER_WAIT: Duration = Duration::from_secs(5);

/// The origin of a line.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// A sender of version 1, which expects no answer.
    V1 {
        /// Dropped when the line is finished, so that the receiver can wait for that.
        #[expect(dead_code, reason = "dropping it is what tells")]
        held: Option<mpsc::Sender<()>>,
    },
    /// A run of a sender.
    V2 {
        /// The run and the right to deliver it.
        claim: Arc<Claim>,
    },
}

/// The position of a frame in its run. All zero for version 1.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mark {
    /// See [`Standing::attempt`](crate::stream::Standing::attempt).
    pub(crate) attempt: u64,
    /// Its sequence.
    pub(crate) seq: u64,
}

/// The lines of several frames, in order.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// The lines, each with its line end.
    pub(crate) text: Vec<u8>,
    /// The end offset of each frame's line. A frame that is finished without being stored has an
    /// empty range.
    ends: Vec<(Mark, usize)>,
}

impl Lines {
    /// Starts without lines, in an empty buffer.
    pub(crate) fn in_buffer(text: Vec<u8>, frames: usize) -> Self {
        Self {
            text,
            ends: Vec::with_capacity(frames),
        }
    }

    /// Marks the frame as finished. Its line, if any, is already appended.
    pub(crate) fn end(&mut self, mark: Mark) {
        self.ends.push((mark, self.text.len()));
    }

    /// Each frame and its line.
    fn each(&self) -> impl Iterator<Item = (Mark, Range<usize>)> {
        let mut start = 0;
        self.ends.iter().map(move |(mark, end)| {
            let line = start..*end;
            start = *end;
            (*mark, line)
        })
    }
}

/// Frames of one sender that arrived together.
#[derive(Debug)]
pub(crate) struct Bundle {
    /// Their lines for this output.
    pub(crate) lines: Lines,
    /// Bytes of the frames. Both outputs count these, so that they commit together: an
    /// acknowledgement needs both.
    pub(crate) weight: usize,
    /// Their origin.
    pub(crate) origin: Origin,
    /// The room they hold.
    #[expect(dead_code, reason = "dropping it gives the room back")]
    pub(crate) charge: Arc<Charge>,
}

/// Adjacent lines to write.
#[derive(Debug)]
struct Piece<'b> {
    bundle: &'b Bundle,
    range: Range<usize>,
    /// Sequence of its last frame.
    seq: u64,
    /// Number of lines.
    lines: u64,
}

impl<'b> Piece<'b> {
    fn text(&self) -> &'b [u8] {
        &self.bundle.lines.text[self.range.clone()]
    }
}

/// The state of a writer that other threads may read.
#[derive(Debug, Default)]
pub(crate) struct Status(Mutex<State>);

#[derive(Clone, Debug, Default)]
struct State {
    position: Option<Position>,
    latest: Option<Hour>,
    failed: Option<DateTime<Utc>>,
    records: u64,
}

impl Status {
    /// Whether an hour is closed: it will not be written any more.
    pub(crate) fn is_over(&self, hour: Hour) -> bool {
        self.0.lock().latest.is_some_and(|latest| hour < latest)
    }

    /// The current file and its length.
    pub(crate) fn position(&self) -> Option<Position> {
        self.0.lock().position.clone()
    }

    /// The time of the last failed batch, unless a batch has succeeded since.
    pub(crate) fn failed(&self) -> Option<DateTime<Utc>> {
        self.0.lock().failed
    }

    /// Lines stored since the start.
    pub(crate) fn records(&self) -> u64 {
        self.0.lock().records
    }
}

/// The dependencies of a writer.
pub(crate) struct Parts {
    /// The output.
    pub(crate) output: Output,
    /// Root directory.
    pub(crate) root: PathBuf,
    /// Opens files.
    pub(crate) storage: Box<dyn Storage>,
    /// The clock that determines the hour.
    pub(crate) clock: WallClock,
    /// When to sync.
    pub(crate) durability: Durability,
    /// The position to continue from.
    pub(crate) position: Option<Position>,
    /// All runs.
    pub(crate) streams: Arc<Streams>,
    /// Takes line buffers back.
    pub(crate) buffers: Arc<Buffers>,
    /// Counters.
    pub(crate) metrics: Arc<Metrics>,
    /// The state shown to other threads.
    pub(crate) status: Arc<Status>,
}

/// Writes until the inbox is closed and empty.
pub(crate) struct Writer {
    parts: Parts,
    segment: Segment,
    roller: Roller,
    last_commit: Instant,
    /// Changes since the ledger was last saved.
    unsaved_bytes: u64,
    last_save: Instant,
    is_ledger_failing: bool,
}

#[derive(Default)]
struct Batch {
    bundles: Vec<Bundle>,
    bytes: usize,
    frames: usize,
}

impl Batch {
    fn add(&mut self, bundle: Bundle) {
        self.bytes += bundle.weight;
        self.frames += bundle.lines.ends.len();
        self.bundles.push(bundle);
    }

    fn is_empty(&self) -> bool {
        self.bundles.is_empty()
    }

    fn is_full(&self, durability: Durability) -> bool {
        self.bytes >= BATCH_BYTES
            || self.frames >= BATCH_ITEMS
            || durability == Durability::Always && !self.is_empty()
    }
}

impl Writer {
    /// Creates a writer that continues from its position. From now on, its status tells which hours
    /// are closed.
    pub(crate) fn new(parts: Parts) -> Self {
        let now = Instant::now();
        let last = parts.position.as_ref().map(|position| position.hour);
        let mut writer = Self {
            segment: Segment::new(
                parts.root.clone(),
                ledger::dir_of(&parts.root, parts.output),
                parts.durability != Durability::None,
            ),
            roller: Roller::resume(last, parts.clock.now()),
            last_commit: now,
            unsaved_bytes: 0,
            last_save: now,
            is_ledger_failing: false,
            parts,
        };
        writer.publish();
        writer
    }

    /// Runs on its own thread, because every step that touches the disk blocks.
    pub(crate) async fn run(mut self, mut inbox: mpsc::Receiver<Bundle>) {
        self.tick();
        let mut batch = Batch::default();
        loop {
            let due = if batch.is_empty() {
                Instant::now() + TICK
            } else {
                self.last_commit + WAIT
            };
            match tokio::time::timeout_at(due, inbox.recv()).await {
                Ok(Some(bundle)) => {
                    batch.add(bundle);
                    while !batch.is_full(self.parts.durability)
                        && let Ok(bundle) = inbox.try_recv()
                    {
                        batch.add(bundle);
                    }
                    if batch.is_full(self.parts.durability) {
                        self.commit(std::mem::take(&mut batch));
                    }
                }
                Ok(None) => break,
                Err(_) if batch.is_empty() => self.tick(),
                Err(_) => self.commit(std::mem::take(&mut batch)),
            }
        }
        self.commit(batch);
        self.save_ledger();
    }

    /// Checks the clock when there is no line to write: an hour also ends without traffic.
    fn tick(&mut self) {
        let hour = self.roller.hour(self.parts.clock.now());
        self.roll(hour);
        match self.segment.let_go_if_vanished() {
            Ok(true) => self.vanished(),
            Ok(false) => {}
            Err(error) => tracing::debug!(%error, "the open file cannot be looked at"),
        }
        self.publish();
        let is_due = Instant::now().duration_since(self.last_save) >= LEDGER_WAIT;
        if self.unsaved_bytes > 0 && is_due {
            self.save_ledger();
        }
    }

    /// Handles a current file that another process removed or renamed.
    fn vanished(&self) {
        self.parts.metrics.vanished(self.parts.output);
        tracing::error!(
            output = self.parts.output.as_str(),
            "the file being written was removed or renamed; a new one takes the records from here on"
        );
    }

    fn roll(&mut self, hour: Hour) {
        if self.segment.close_unless(hour) {
            self.save_ledger();
        }
    }

    fn commit(&mut self, batch: Batch) {
        let pieces = self.wanted(&batch.bundles);
        let began = Instant::now();
        let written = if self.parts.durability == Durability::Always {
            pieces.chunks(1).try_for_each(|piece| {
                self.append(piece)?;
                self.settle(piece);
                Ok(())
            })
        } else {
            self.append(&pieces).inspect(|()| self.settle(&pieces))
        };
        let now = Instant::now();
        self.last_commit = now;
        match written {
            Ok(()) => {
                let seconds = now.duration_since(began).as_secs_f64();
                self.parts.metrics.committed(self.parts.output, seconds);
            }
            Err(error) => self.fail(&batch.bundles, &error),
        }
        let is_due = now.duration_since(self.last_save) >= LEDGER_WAIT;
        if self.unsaved_bytes >= LEDGER_BYTES || self.unsaved_bytes > 0 && is_due {
            self.save_ledger();
        }
        for bundle in batch.bundles {
            self.parts.buffers.give(bundle.lines.text);
        }
    }

    /// The lines to write. Skips lines of a stream that has restarted, and lines that this output
    /// already holds because a crash kept them out of the other output only. With one sync per
    /// frame, each frame is a separate piece.
    fn wanted<'b>(&self, bundles: &'b [Bundle]) -> Vec<Piece<'b>> {
        let is_one_each = self.parts.durability == Durability::Always;
        let mut pieces: Vec<Piece<'b>> = Vec::with_capacity(bundles.len());
        for bundle in bundles {
            let standing = match &bundle.origin {
                Origin::V1 { .. } => None,
                Origin::V2 { claim } => Some(claim.stream().standing(self.parts.output)),
            };
            let mut goes_on = false;
            for (mark, line) in bundle.lines.each() {
                let is_wanted = standing.is_none_or(|standing| {
                    mark.attempt == standing.attempt && mark.seq > standing.stored
                });
                if !is_wanted {
                    goes_on = false;
                    continue;
                }
                if !goes_on {
                    pieces.push(Piece {
                        bundle,
                        range: line.start..line.start,
                        seq: 0,
                        lines: 0,
                    });
                }
                if let Some(piece) = pieces.last_mut() {
                    piece.lines += u64::from(!line.is_empty());
                    piece.range.end = line.end;
                    piece.seq = mark.seq;
                }
                goes_on = !is_one_each;
            }
        }
        pieces
    }

    fn append(&mut self, pieces: &[Piece<'_>]) -> io::Result<()> {
        if pieces.iter().all(|piece| piece.lines == 0) {
            return Ok(());
        }
        let hour = self.roller.hour(self.parts.clock.now());
        self.roll(hour);
        let lines: Vec<&[u8]> = pieces.iter().map(Piece::text).collect();
        let opened = self.segment.append(&*self.parts.storage, hour, &lines)?;
        if opened.sealed {
            tracing::warn!(
                output = self.parts.output.as_str(),
                "the last line of a file was torn and has been ended"
            );
        }
        if opened.vanished {
            self.vanished();
        }
        self.unsaved_bytes += opened.bytes;
        Ok(())
    }

    /// Informs the streams about what is on disk.
    fn settle(&mut self, pieces: &[Piece<'_>]) {
        let mut stored = [0; 2];
        let mut last: Vec<(&Arc<Claim>, u64)> = Vec::new();
        for piece in pieces {
            match &piece.bundle.origin {
                Origin::V1 { .. } => stored[0] += piece.lines,
                Origin::V2 { claim } => {
                    stored[1] += piece.lines;
                    match last.iter_mut().find(|(known, _)| Arc::ptr_eq(known, claim)) {
                        Some((_, seq)) => *seq = piece.seq,
                        None => last.push((claim, piece.seq)),
                    }
                }
            }
        }
        for (claim, seq) in last {
            // One call for all frames: each call may wake the connection and make it answer.
            claim.stream().raise(self.parts.output, seq);
        }
        let all = stored[0] + stored[1];
        if all > 0 && self.parts.output == Output::Records {
            for (protocol, n) in [Protocol::V1, Protocol::V2].into_iter().zip(stored) {
                self.parts
                    .metrics
                    .frames_ended(protocol, FrameResult::Stored, n);
            }
            let now = self.parts.clock.now();
            self.parts
                .metrics
                .last_record_seconds
                .set(now.timestamp_millis() as f64 / 1000.0);
        }
        let mut state = self.parts.status.0.lock();
        state.failed = None;
        state.records += all;
        drop(state);
        self.publish();
    }

    fn publish(&mut self) {
        let latest = self.roller.hour(self.parts.clock.now());
        let mut state = self.parts.status.0.lock();
        state.latest = Some(latest);
        state.position = self
            .segment
            .position()
            .or_else(|| self.parts.position.clone());
    }

    /// Nothing of the batch is in the file: senders must send it again.
    fn fail(&mut self, bundles: &[Bundle], error: &io::Error) {
        self.parts.metrics.write_error(self.parts.output);
        let now = self.parts.clock.now();
        let before = self.parts.status.0.lock().failed.replace(now);
        if before.is_none() {
            tracing::error!(output = self.parts.output.as_str(), %error, "records cannot be written, senders are told to wait");
        }
        for bundle in bundles {
            let frames = bundle.lines.ends.len() as u64;
            match &bundle.origin {
                Origin::V1 { .. } if self.parts.output == Output::Records => {
                    self.parts
                        .metrics
                        .frames_ended(Protocol::V1, FrameResult::Lost, frames);
                }
                Origin::V1 { .. } => {}
                Origin::V2 { claim } => {
                    self.parts
                        .metrics
                        .frames_ended(Protocol::V2, FrameResult::Refused, frames);
                    // With `always`, the first lines of a batch may already be on disk.
                    let stored = claim.stream().standing(self.parts.output).stored;
                    for (mark, _) in &bundle.lines.ends {
                        if mark.seq > stored {
                            claim.stream().refuse(
                                mark.attempt,
                                NackCode::DiskFull,
                                "no record can be written",
                            );
                        }
                    }
                }
            }
        }
    }

    fn save_ledger(&mut self) {
        self.last_save = Instant::now();
        let parts = &self.parts;
        parts.streams.expire(parts.clock.now().timestamp());
        let position = self.segment.position().or_else(|| parts.position.clone());
        match ledger::save(&parts.root, parts.output, &parts.streams, position.as_ref()) {
            Ok(()) => {
                self.unsaved_bytes = 0;
                self.is_ledger_failing = false;
            }
            Err(error) => {
                if !self.is_ledger_failing {
                    tracing::warn!(output = parts.output.as_str(), %error, "the ledger cannot be saved, a restart reads more");
                }
                self.is_ledger_failing = true;
            }
        }
    }
}
