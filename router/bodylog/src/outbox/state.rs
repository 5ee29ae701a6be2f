//! The state of the frames of one epoch: which are in memory, which are in segments, and which are
//! acknowledged. Plain data, protected by the outbox's lock.

use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;

use super::{AWAY_AFTER, Acked, Removal, Written};
use crate::budget::Charge;
use crate::spool::segment::{SegmentName, Stored};

/// The state; see the module.
#[derive(Debug)]
pub(super) struct State {
    /// The next sequence to assign.
    pub(super) next: u64,
    /// Everything below this sequence is acknowledged or lost.
    pub(super) floor: u64,
    /// Everything up to this sequence was passed to the current connection.
    pub(super) sent: u64,
    /// Highest sequence handed to any connection whose fate is not known.
    pub(super) ever_sent: u64,
    /// Nothing is sent for now.
    pub(super) is_held: bool,
    pub(super) memory: VecDeque<Queued>,
    pub(super) memory_bytes: u64,
    /// In ascending order.
    pub(super) segments: Vec<Segment>,
    /// The segment that is currently being written.
    pub(super) writing: Option<SegmentName>,
    /// Start of the time without a connection.
    pub(super) away_since: Option<Instant>,
    /// Sequences that the receiver refused permanently and has not yet acknowledged past.
    pub(super) rejected: Vec<u64>,
    pub(super) is_closed: bool,
}

/// A frame in memory.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) seq: u64,
    pub(super) bytes: Bytes,
    pub(super) since: Instant,
    pub(super) _charge: Charge,
}

/// A segment on disk.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) name: SegmentName,
    /// The sequence of its last frame. Unknown for a segment of an earlier process until it has
    /// been read.
    pub(super) last: Option<u64>,
    /// Bytes of complete frames.
    pub(super) len: u64,
    pub(super) since: SystemTime,
    pub(super) is_damaged: bool,
    /// Bytes of it are no frames, and were counted.
    pub(super) is_corrupt: bool,
}

impl Queued {
    pub(super) fn stored(&self) -> Stored {
        Stored {
            seq: self.seq,
            bytes: self.bytes.clone(),
        }
    }
}

impl State {
    pub(super) fn new(away_since: Option<Instant>) -> Self {
        Self {
            next: 1,
            floor: 1,
            sent: 0,
            ever_sent: 0,
            is_held: false,
            memory: VecDeque::new(),
            memory_bytes: 0,
            segments: Vec::new(),
            writing: None,
            away_since,
            rejected: Vec::new(),
            is_closed: false,
        }
    }

    pub(super) fn is_away(&self, now: Instant) -> bool {
        self.away_since
            .is_some_and(|since| now.saturating_duration_since(since) >= AWAY_AFTER)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.memory.is_empty() && self.segments.is_empty() && self.floor >= self.next
    }

    pub(super) fn has_unsent_segments(&self) -> bool {
        let is_unsent = |segment: &Segment| segment.last.is_none_or(|last| last > self.sent);
        self.segments.iter().any(is_unsent)
    }

    pub(super) fn oldest_segment(&self, wall: SystemTime) -> Option<Duration> {
        let since = self.segments.iter().map(|segment| segment.since).min()?;
        // If the clock was set back, ages must not become negative.
        Some(wall.duration_since(since).unwrap_or_default())
    }

    /// Consecutive frames in memory, starting with this one.
    pub(super) fn run(&self, at: usize, frames: usize, bytes: usize) -> Vec<Stored> {
        let mut left = bytes;
        let mut run: Vec<Stored> = Vec::new();
        for queued in self.memory.range(at..).take(frames.max(1)) {
            let follows = run.last().is_none_or(|last| last.seq + 1 == queued.seq);
            if !follows || (queued.bytes.len() > left && !run.is_empty()) {
                break;
            }
            left = left.saturating_sub(queued.bytes.len());
            run.push(queued.stored());
        }
        run
    }

    /// Adds a write to the list. Returns the first sequence that is new in its segment.
    pub(super) fn note(&mut self, done: &Written) -> u64 {
        if let Some(known) = self.segments.iter_mut().find(|s| s.name == done.name) {
            let first = known.last.map_or(done.name.first, |last| last + 1);
            (known.last, known.len) = (Some(done.last), done.len);
            return first;
        }
        let at = self.segments.partition_point(|s| s.name < done.name);
        let segment = Segment {
            name: done.name,
            last: Some(done.last),
            len: done.len,
            since: SystemTime::now(),
            is_damaged: false,
            is_corrupt: false,
        };
        self.segments.insert(at, segment);
        done.name.first
    }

    /// Drops frames from memory.
    pub(super) fn release(&mut self, seqs: std::ops::RangeInclusive<u64>) {
        let from = self.memory.partition_point(|q| q.seq < *seqs.start());
        let to = self.memory.partition_point(|q| q.seq <= *seqs.end());
        for gone in self.memory.drain(from..to.max(from)) {
            self.memory_bytes -= gone.bytes.len() as u64;
        }
    }

    pub(super) fn ack(&mut self, seq: u64) -> Acked {
        let floor = self.floor.max(seq.saturating_add(1));
        let rejected = self.rejected.len();
        self.rejected.retain(|rejected| *rejected >= floor);
        let rejected = (rejected - self.rejected.len()) as u64;
        let frames = (floor - self.floor).saturating_sub(rejected);
        self.floor = floor;
        Acked {
            frames,
            removals: self.settle(),
        }
    }

    /// Drops everything below the floor.
    pub(super) fn settle(&mut self) -> Vec<Removal> {
        if self.floor > 1 {
            self.release(0..=self.floor - 1);
        }
        self.removals()
    }

    pub(super) fn removals(&mut self) -> Vec<Removal> {
        let (floor, writing) = (self.floor, self.writing);
        let is_done = |segment: &mut Segment| {
            segment.last.is_some_and(|last| last < floor) && writing != Some(segment.name)
        };
        let gone = self.segments.extract_if(.., is_done);
        gone.map(|segment| Removal {
            name: segment.name,
            len: segment.len,
            is_damaged: segment.is_damaged,
        })
        .collect()
    }
}
