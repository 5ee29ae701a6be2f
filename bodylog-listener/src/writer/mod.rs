//! One thread per output owns its files: it chooses the hour, appends batches, syncs them and only
//! then tells the streams. Nobody else writes there, so no line is torn by another and no file is
//! reopened behind the hour.
//!
//! A batch goes to disk when the last commit is [`WAIT`] ago, at [`BATCH_BYTES`], or at
//! [`BATCH_ITEMS`]; a batch that fails leaves no trace in the file.

mod append;

use std::io;
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
use crate::clock::WallClock;
use crate::config::Durability;
use crate::ingest::{WINDOW_BYTES, WINDOW_FRAMES};
use crate::ledger::{self, Position};
use crate::metrics::{FrameResult, Metrics};
use crate::segment::Roller;
use crate::storage::Storage;
use crate::stream::{Claim, Output, Streams};
use append::Segment;

/// Longest time a line waits for company.
const WAIT: Duration = Duration::from_millis(50);
/// Bytes of frames that are enough for a commit: half of the window a sender is given, so that its
/// next frames arrive while these are synced.
const BATCH_BYTES: usize = WINDOW_BYTES as usize / 2;
/// Frames that are enough for a commit, likewise.
const BATCH_ITEMS: usize = WINDOW_FRAMES as usize / 2;
/// How often an idle writer looks at the clock.
const TICK: Duration = Duration::from_secs(1);
/// How much may be written before the ledger is saved: what a restart reads again.
const LEDGER_BYTES: u64 = 64 << 20;
/// How long the ledger may lag behind.
const LEDGER_WAIT: Duration = Duration::from_secs(5);

/// Where a line comes from.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// A sender that expects no answer.
    V1 {
        /// Kept until the line is dealt with: whoever has the other end can wait for it.
        #[expect(dead_code, reason = "dropping it is what tells")]
        held: Option<mpsc::Sender<()>>,
    },
    /// A run of a sender.
    V2 {
        /// The run, and the right to bring it.
        claim: Arc<Claim>,
        /// See [`Stream::is_current`](crate::stream::Stream::is_current).
        attempt: u64,
        /// Sequence.
        seq: u64,
    },
}

impl Origin {
    /// Whether both come by the same claim, or both from senders of version 1.
    fn is_of_run(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::V1 { .. }, Self::V1 { .. }) => true,
            (Self::V2 { claim, .. }, Self::V2 { claim: other, .. }) => Arc::ptr_eq(claim, other),
            _ => false,
        }
    }
}

/// One line to be stored.
#[derive(Debug)]
pub(crate) struct Item {
    /// With its end. Empty for a frame that is dealt with without being stored.
    pub(crate) line: Vec<u8>,
    /// Bytes of the frame it was made from. Both outputs count these, so that they commit together:
    /// an acknowledgement needs both.
    pub(crate) weight: usize,
    /// Where it comes from.
    pub(crate) origin: Origin,
    /// The room it takes.
    #[expect(dead_code, reason = "dropping it gives the room back")]
    pub(crate) charge: Arc<Charge>,
}

/// What others may know of a writer.
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
    /// Whether an hour will not be written any more.
    pub(crate) fn is_over(&self, hour: Hour) -> bool {
        self.0.lock().latest.is_some_and(|latest| hour < latest)
    }

    /// The file being written and its length.
    pub(crate) fn position(&self) -> Option<Position> {
        self.0.lock().position.clone()
    }

    /// When a batch last failed, unless one has succeeded since.
    pub(crate) fn failed(&self) -> Option<DateTime<Utc>> {
        self.0.lock().failed
    }

    /// Lines stored since the start.
    pub(crate) fn records(&self) -> u64 {
        self.0.lock().records
    }
}

/// What a writer works with.
pub(crate) struct Parts {
    /// The output.
    pub(crate) output: Output,
    /// Root directory.
    pub(crate) root: PathBuf,
    /// Opens files.
    pub(crate) storage: Box<dyn Storage>,
    /// Tells the hour.
    pub(crate) clock: WallClock,
    /// When to sync.
    pub(crate) durability: Durability,
    /// Where it stood.
    pub(crate) position: Option<Position>,
    /// Every run.
    pub(crate) streams: Arc<Streams>,
    /// Counters.
    pub(crate) metrics: Arc<Metrics>,
    /// What others may know.
    pub(crate) status: Arc<Status>,
}

/// Writes until the inbox is closed and empty.
pub(crate) struct Writer {
    parts: Parts,
    segment: Segment,
    roller: Roller,
    last_commit: Instant,
    /// What the saved ledger does not know.
    unsaved_bytes: u64,
    last_save: Instant,
    is_ledger_failing: bool,
}

#[derive(Default)]
struct Batch {
    items: Vec<Item>,
    bytes: usize,
}

impl Batch {
    fn add(&mut self, items: Vec<Item>) {
        self.bytes += items.iter().map(|item| item.weight).sum::<usize>();
        self.items.extend(items);
    }

    fn is_full(&self, durability: Durability) -> bool {
        self.bytes >= BATCH_BYTES
            || self.items.len() >= BATCH_ITEMS
            || durability == Durability::Always && !self.items.is_empty()
    }
}

impl Writer {
    /// A writer that goes on where it stood. From here on its status says which hours are over.
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

    /// Runs on a thread of its own: every step that touches the disk blocks.
    pub(crate) async fn run(mut self, mut inbox: mpsc::Receiver<Vec<Item>>) {
        self.tick();
        let mut batch = Batch::default();
        loop {
            let due = if batch.items.is_empty() {
                Instant::now() + TICK
            } else {
                self.last_commit + WAIT
            };
            match tokio::time::timeout_at(due, inbox.recv()).await {
                Ok(Some(items)) => {
                    batch.add(items);
                    while !batch.is_full(self.parts.durability)
                        && let Ok(items) = inbox.try_recv()
                    {
                        batch.add(items);
                    }
                    if batch.is_full(self.parts.durability) {
                        self.commit(&std::mem::take(&mut batch));
                    }
                }
                Ok(None) => break,
                Err(_) if batch.items.is_empty() => self.tick(),
                Err(_) => self.commit(&std::mem::take(&mut batch)),
            }
        }
        self.commit(&batch);
        drop(batch);
        self.save_ledger();
    }

    /// Looks at the clock without a line to write: an hour ends although nobody writes.
    fn tick(&mut self) {
        let hour = self.roller.hour(self.parts.clock.now());
        self.roll(hour);
        self.publish();
        let is_due = Instant::now().duration_since(self.last_save) >= LEDGER_WAIT;
        if self.unsaved_bytes > 0 && is_due {
            self.save_ledger();
        }
    }

    fn roll(&mut self, hour: Hour) {
        if self.segment.close_unless(hour) {
            self.save_ledger();
        }
    }

    fn commit(&mut self, batch: &Batch) {
        let lines: Vec<&Item> = batch
            .items
            .iter()
            .filter(|item| self.is_wanted(item))
            .collect();
        let began = Instant::now();
        let written = if self.parts.durability == Durability::Always {
            lines.iter().try_for_each(|item| {
                self.append(std::slice::from_ref(item))?;
                self.settle(std::slice::from_ref(item));
                Ok(())
            })
        } else {
            self.append(&lines).inspect(|()| self.settle(&lines))
        };
        let now = Instant::now();
        self.last_commit = now;
        match written {
            Ok(()) => {
                let seconds = now.duration_since(began).as_secs_f64();
                self.parts.metrics.committed(self.parts.output, seconds);
            }
            Err(error) => self.fail(&batch.items, &error),
        }
        let is_due = now.duration_since(self.last_save) >= LEDGER_WAIT;
        if self.unsaved_bytes >= LEDGER_BYTES || self.unsaved_bytes > 0 && is_due {
            self.save_ledger();
        }
    }

    /// Whether a line is to be written: not if its stream has started over, nor if it is here from
    /// before a crash that kept it out of the other output.
    fn is_wanted(&self, item: &Item) -> bool {
        match &item.origin {
            Origin::V1 { .. } => true,
            Origin::V2 {
                claim,
                attempt,
                seq,
            } => {
                let stream = claim.stream();
                stream.is_current(*attempt) && *seq > stream.stored(self.parts.output)
            }
        }
    }

    fn append(&mut self, items: &[&Item]) -> io::Result<()> {
        if items.iter().all(|item| item.line.is_empty()) {
            return Ok(());
        }
        let hour = self.roller.hour(self.parts.clock.now());
        self.roll(hour);
        let lines: Vec<&[u8]> = items.iter().map(|item| &item.line[..]).collect();
        let opened = self.segment.append(&*self.parts.storage, hour, &lines)?;
        if opened.sealed {
            tracing::warn!(
                output = self.parts.output.as_str(),
                "the last line of a file was torn and has been ended"
            );
        }
        self.unsaved_bytes += opened.bytes;
        Ok(())
    }

    /// Tells the streams what is on disk.
    fn settle(&mut self, items: &[&Item]) {
        for run in items.chunk_by(|a, b| a.origin.is_of_run(&b.origin)) {
            let Some(last) = run.last() else { continue };
            let protocol = match &last.origin {
                Origin::V1 { .. } => Protocol::V1,
                Origin::V2 { claim, seq, .. } => {
                    // Once for all of them: each call may wake the connection, and makes it answer.
                    claim.stream().raise(self.parts.output, *seq);
                    Protocol::V2
                }
            };
            if self.parts.output == Output::Records {
                let stored = run.iter().filter(|item| !item.line.is_empty()).count();
                self.parts
                    .metrics
                    .frames_ended(protocol, FrameResult::Stored, stored as u64);
            }
        }
        let stored = items.iter().filter(|item| !item.line.is_empty()).count();
        let now = self.parts.clock.now();
        if stored > 0 && self.parts.output == Output::Records {
            self.parts
                .metrics
                .last_record_seconds
                .set(now.timestamp_millis() as f64 / 1000.0);
        }
        let mut state = self.parts.status.0.lock();
        state.failed = None;
        state.records += stored as u64;
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

    /// Nothing of the batch is in the file: senders are asked to come again.
    fn fail(&mut self, items: &[Item], error: &io::Error) {
        self.parts.metrics.write_error(self.parts.output);
        let now = self.parts.clock.now();
        let before = self.parts.status.0.lock().failed.replace(now);
        if before.is_none() {
            tracing::error!(output = self.parts.output.as_str(), %error, "records cannot be written, senders are told to wait");
        }
        for item in items {
            match &item.origin {
                Origin::V1 { .. } if self.parts.output == Output::Records => {
                    self.parts.metrics.frame(Protocol::V1, FrameResult::Lost);
                }
                Origin::V1 { .. } => {}
                Origin::V2 {
                    claim,
                    attempt,
                    seq,
                } => {
                    self.parts.metrics.frame(Protocol::V2, FrameResult::Refused);
                    // With `always` the first lines of a batch may be on disk.
                    if *seq > claim.stream().stored(self.parts.output) {
                        claim.stream().refuse(
                            *attempt,
                            NackCode::DiskFull,
                            "no record can be written",
                        );
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
