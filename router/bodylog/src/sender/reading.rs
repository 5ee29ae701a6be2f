//! Reading frames back from a segment, a batch at a time.

use std::io;
use std::path::Path;

use crate::spool::segment::{SegmentName, SegmentReader, Step, Stored};

/// What one read found.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// The segment.
    pub name: SegmentName,
    /// Consecutive frames from the sequence asked for.
    pub frames: Vec<Stored>,
    /// To go on with; `None` when the segment must be opened again.
    pub reader: Option<SegmentReader>,
    /// Nothing more can be read from this segment. Inside: its last sequence, where it has one.
    pub ended: Option<Option<u64>>,
    /// What is between the last frame, or the sequence asked for, and this one is lost.
    pub gap_to: Option<u64>,
    /// There is damage in the segment.
    pub is_damaged: bool,
    /// The last frame is not whole.
    pub is_torn: bool,
    /// The file cannot be read.
    pub failed: Option<io::Error>,
}

/// How much is wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// The first sequence.
    pub from: u64,
    /// Where whole frames end in the segment.
    pub bound: u64,
    /// Most frames; one in any case.
    pub frames: usize,
    /// About as many bytes; one frame in any case.
    pub bytes: usize,
}

/// Reads consecutive frames. Blocks the thread.
pub(super) fn read(
    open: Option<SegmentReader>,
    name: SegmentName,
    path: &Path,
    wanted: Wanted,
) -> Batch {
    let mut batch = Batch {
        name,
        ..Batch::default()
    };
    let opened = open.map_or_else(|| SegmentReader::open(path), Ok);
    let outcome = opened.and_then(|mut reader| {
        let goes_on = collect(&mut reader, &mut batch, wanted)?;
        Ok(goes_on.then_some(reader))
    });
    match outcome {
        Ok(reader) => batch.reader = reader,
        Err(error) => {
            // What cannot be read is lost; a later attempt would find the same.
            batch.is_damaged = true;
            batch.ended = Some(batch.frames.last().map(|frame| frame.seq));
            batch.failed = Some(error);
        }
    }
    batch
}

/// Fills the batch; whether the reader stands behind its last frame.
fn collect(reader: &mut SegmentReader, batch: &mut Batch, wanted: Wanted) -> io::Result<bool> {
    let (mut next, mut left) = (wanted.from, wanted.bytes);
    while batch.frames.len() < wanted.frames.max(1) {
        match reader.next(next, wanted.bound)? {
            Step::Frame(stored) if stored.seq == next => {
                next += 1;
                let len = stored.bytes.len();
                batch.frames.push(stored);
                if len >= left {
                    return Ok(true);
                }
                left -= len;
            }
            Step::Frame(stored) => {
                batch.gap_to = Some(stored.seq);
                return Ok(false);
            }
            Step::Damaged(_) => batch.is_damaged = true,
            step @ (Step::End | Step::Torn | Step::Corrupt) => {
                batch.is_torn = step == Step::Torn;
                batch.is_damaged |= step == Step::Corrupt;
                let last = reader.last_seen();
                batch.ended = Some(last);
                // The frame asked for was there, and damaged.
                let passed = last.filter(|last| *last >= next);
                batch.gap_to = passed.map(|last| last + 1);
                return Ok(step == Step::End);
            }
        }
    }
    Ok(true)
}
