//! Reads frames back from a segment, one batch at a time.

use std::io;
use std::path::Path;

use crate::spool::segment::{SegmentName, SegmentReader, Step, Stored};

/// The result of one read.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// The segment.
    pub name: SegmentName,
    /// Consecutive frames, starting with the requested sequence.
    pub frames: Vec<Stored>,
    /// The reader for the next batch; `None` if the segment must be opened again.
    pub reader: Option<SegmentReader>,
    /// Nothing more can be read from this segment. Contains its last sequence, if there is one.
    pub ended: Option<Option<u64>>,
    /// Frames before this sequence are lost, back to the last frame read or the requested sequence.
    pub gap_to: Option<u64>,
    /// The segment contains damage.
    pub is_damaged: bool,
    /// Bytes up to the end that are no frames; 0 where all are.
    pub corrupt_bytes: u64,
    /// Bytes and frames before them, for an estimate.
    sound: (u64, u64),
    /// The last frame is incomplete.
    pub is_torn: bool,
    /// The file cannot be read.
    pub failed: Option<io::Error>,
}

/// Size of a frame where nothing is known of its neighbours.
const USUAL_FRAME: u64 = 8 << 10;

impl Batch {
    /// Frames that were probably in the corrupt bytes; at least one.
    pub(super) fn corrupt_frames(&self) -> u64 {
        let (bytes, frames) = self.sound;
        let usual = bytes.checked_div(frames).unwrap_or(USUAL_FRAME).max(1);
        ((self.corrupt_bytes + usual / 2) / usual).max(1)
    }
}

/// The parameters of a read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// The first sequence.
    pub from: u64,
    /// End offset of the complete frames in the segment.
    pub bound: u64,
    /// Most frames. At least one is read.
    pub frames: usize,
    /// Approximate limit in bytes. At least one frame is read.
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
            // Unreadable frames are lost: a later attempt would have the same result.
            batch.is_damaged = true;
            batch.ended = Some(batch.frames.last().map(|frame| frame.seq));
            batch.failed = Some(error);
        }
    }
    batch
}

/// Fills the batch. Returns whether the reader is positioned after its last frame.
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
                if step == Step::Corrupt {
                    batch.is_damaged = true;
                    batch.sound = reader.passed();
                    batch.corrupt_bytes = wanted.bound.saturating_sub(batch.sound.0);
                }
                let last = reader.last_seen();
                batch.ended = Some(last);
                // The requested frame was there, but damaged.
                let passed = last.filter(|last| *last >= next);
                batch.gap_to = passed.map(|last| last + 1);
                return Ok(step == Step::End);
            }
        }
    }
    Ok(true)
}
