//! The frames of one epoch between their number and their acknowledgement.
//!
//! Frames get consecutive sequences and leave in that order. They wait in memory, or on disk once
//! memory is short or nobody is listening; while the disk has frames that were not sent on the
//! present connection, new ones queue up behind them there. An acknowledgement covers everything
//! up to its sequence. Nothing here does IO: one writer fills the outbox and writes its segments,
//! one courier empties it and reads them.

mod state;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::BytesMut;
use parking_lot::Mutex;
use proto::frame::{HEADER_LEN, Header};
use tokio::sync::Notify;

use self::state::{Queued, Segment, State};
use super::budget::Charge;
use super::counters::RouteCounters;
use super::spool::segment::{SegmentName, Stored};
use super::spool::{Left, Spool};

/// Without a connection for this long, frames go to the disk.
pub(crate) const AWAY_AFTER: Duration = Duration::from_secs(1);

/// A frame that has no number yet.
#[derive(Debug)]
pub(crate) struct Unnumbered {
    /// The whole frame; its sequence is 0.
    pub bytes: BytesMut,
    /// What it costs in memory.
    pub charge: Charge,
    /// Whose it is.
    pub origin: Origin,
}

/// Where a frame came from, for the counts.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// Its route's counts.
    pub route: Arc<RouteCounters>,
    /// When its request began, milliseconds since the Unix epoch.
    pub unix_ms: u64,
    /// Bodies or headers were left out for want of room.
    pub is_shed: bool,
}

impl Unnumbered {
    /// Writes the sequence into the header.
    fn number(&mut self, seq: u64, replay: bool) {
        let mut raw = [0; HEADER_LEN];
        raw.copy_from_slice(&self.bytes[..HEADER_LEN]);
        let mut header = Header::from_bytes(&raw).expect("the encoder made this header");
        header.seq = seq;
        if replay {
            header.flags = header.flags.with_replay();
        }
        self.bytes[..HEADER_LEN].copy_from_slice(&header.to_bytes());
    }
}

/// Where the next frame is.
#[derive(Debug)]
pub(crate) enum Next {
    /// Here, with those that follow it.
    Memory(Vec<Stored>),
    /// In a segment.
    Disk(OnDisk),
    /// Nowhere: it and those up to this sequence are lost.
    Gap(u64),
    /// It does not exist yet.
    Nothing,
    /// There will be no more, and everything is acknowledged.
    Done,
}

/// A segment to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OnDisk {
    /// Its name.
    pub name: SegmentName,
    /// Where its whole frames end.
    pub bound: u64,
}

/// A segment that is done with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Removal {
    /// Its name.
    pub name: SegmentName,
    /// Its bytes.
    pub len: u64,
    /// There is damage in it.
    pub is_damaged: bool,
}

/// What an acknowledgement did.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Acked {
    /// Frames that were stored.
    pub frames: u64,
    /// Segments to remove.
    pub removals: Vec<Removal>,
}

/// The end of a segment, as a reader found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentEnd {
    /// Which.
    pub name: SegmentName,
    /// How far it was to be read.
    pub bound: u64,
    /// The last sequence seen.
    pub last: Option<u64>,
    /// This time no frame was found.
    pub is_empty: bool,
    /// What follows is not readable.
    pub is_damaged: bool,
}

/// What was written to a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// Which.
    pub name: SegmentName,
    /// Its last sequence now.
    pub last: u64,
    /// Its bytes now.
    pub len: u64,
    /// Bytes that were added.
    pub added: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Outbox {
    epoch: u64,
    spool: Option<Arc<Spool>>,
    state: Mutex<State>,
    changed: Notify,
}

impl Outbox {
    /// The empty outbox of a new epoch, not connected since `now`.
    pub(crate) fn new(epoch: u64, spool: Option<Arc<Spool>>, now: Instant) -> Self {
        Self::with(epoch, spool, State::new(Some(now)))
    }

    /// What an earlier process left of one epoch: `left` in ascending order. It takes no more.
    pub(crate) fn left(epoch: u64, spool: Arc<Spool>, left: &[Left]) -> Self {
        let mut state = State::new(None);
        state.floor = left.first().map_or(1, |segment| segment.name.first);
        state.is_closed = true;
        state.segments = left
            .iter()
            .map(|left| Segment {
                name: left.name,
                last: None,
                len: left.len,
                since: left.modified,
                is_damaged: false,
            })
            .collect();
        Self::with(epoch, Some(spool), state)
    }

    fn with(epoch: u64, spool: Option<Arc<Spool>>, state: State) -> Self {
        Self {
            epoch,
            spool,
            state: Mutex::new(state),
            changed: Notify::new(),
        }
    }

    /// The epoch of its sequences.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Where its segments are.
    pub(crate) fn spool(&self) -> Option<&Arc<Spool>> {
        self.spool.as_ref()
    }

    /// Waits for something new to send. Cancel safe; a change before the call counts.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}

/// The writer's side.
impl Outbox {
    /// Numbers frames and keeps them in memory, up to the first that has to go to the disk:
    /// that one and all behind it come back. At most `share` bytes stay in memory where there is a
    /// disk. `kept` is told of each that is kept.
    pub(crate) fn keep(
        &self,
        frames: Vec<Unnumbered>,
        share: u64,
        now: Instant,
        kept: impl FnMut(&Unnumbered),
    ) -> Vec<Unnumbered> {
        self.keep_while(frames, now, kept, |state, bytes| {
            self.spool.is_none()
                || !(state.is_away(now) || state.has_unsent_segments() || bytes > share)
        })
    }

    /// Numbers frames and keeps them in memory while it has not more than `share` bytes, disk or
    /// not: that one and all behind it come back.
    pub(crate) fn keep_in_memory(
        &self,
        frames: Vec<Unnumbered>,
        share: u64,
        now: Instant,
        kept: impl FnMut(&Unnumbered),
    ) -> Vec<Unnumbered> {
        self.keep_while(frames, now, kept, |_, bytes| bytes <= share)
    }

    /// `may` is asked with the bytes that memory would have.
    fn keep_while(
        &self,
        frames: Vec<Unnumbered>,
        now: Instant,
        mut kept: impl FnMut(&Unnumbered),
        may: impl Fn(&State, u64) -> bool,
    ) -> Vec<Unnumbered> {
        let mut state = self.state.lock();
        let mut frames = frames.into_iter().peekable();
        while let Some(mut frame) =
            frames.next_if(|frame| may(&state, state.memory_bytes + frame.bytes.len() as u64))
        {
            kept(&frame);
            let seq = state.next;
            state.next += 1;
            frame.number(seq, false);
            state.memory_bytes += frame.bytes.len() as u64;
            state.memory.push_back(Queued {
                seq,
                bytes: frame.bytes.freeze(),
                since: now,
                _charge: frame.charge,
            });
        }
        drop(state);
        self.changed.notify_one();
        frames.collect()
    }

    /// Numbers frames that go to the disk without keeping them: they exist once
    /// [`Outbox::wrote`] says so. The writer is one, so nobody numbers in between.
    pub(crate) fn number(&self, frames: Vec<Unnumbered>) -> Vec<(Stored, Charge)> {
        let next = self.state.lock().next;
        let numbered = frames.into_iter().zip(next..).map(|(mut frame, seq)| {
            frame.number(seq, true);
            let bytes = frame.bytes.freeze();
            (Stored { seq, bytes }, frame.charge)
        });
        numbered.collect()
    }

    /// Frames in memory that should be on disk: all of them while nobody is listening.
    pub(crate) fn to_spill(&self, now: Instant) -> Vec<Stored> {
        let state = self.state.lock();
        if self.spool.is_none() || !state.is_away(now) {
            return Vec::new();
        }
        state.memory.iter().map(Queued::stored).collect()
    }

    /// All frames in memory.
    pub(crate) fn in_memory(&self) -> Vec<Stored> {
        self.state
            .lock()
            .memory
            .iter()
            .map(Queued::stored)
            .collect()
    }

    /// A write begins. False when `current` is gone or complete, so that another segment must be
    /// begun.
    pub(crate) fn begin_write(&self, current: Option<SegmentName>) -> bool {
        let mut state = self.state.lock();
        let is_good = |s: &Segment, name| s.name == name && !s.is_damaged;
        let listed = current.filter(|name| state.segments.iter().any(|s| is_good(s, *name)));
        state.writing = listed;
        state.writing.is_some()
    }

    /// A write has ended with this. Frames of it that are in memory are let go there. Answers the
    /// segments that turned out to be done with meanwhile.
    pub(crate) fn wrote(&self, written: &[Written]) -> Vec<Removal> {
        let mut state = self.state.lock();
        state.writing = None;
        for done in written {
            if let Some(spool) = &self.spool {
                spool.grew(done.added);
            }
            let first = state.note(done);
            state.next = state.next.max(done.last + 1);
            state.release(first..=done.last);
        }
        let removals = state.removals();
        drop(state);
        self.changed.notify_one();
        removals
    }

    /// No more frames will come.
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_one();
    }
}

/// The courier's side.
impl Outbox {
    /// The lowest sequence that still matters.
    pub(crate) fn floor(&self) -> u64 {
        self.state.lock().floor
    }

    /// Whether the receiver says it has sequences that were never given: somebody else sends under
    /// the same name.
    pub(crate) fn is_ahead(&self, last_durable: u64) -> bool {
        let state = self.state.lock();
        !state.is_closed && last_durable >= state.next
    }

    /// A connection stands and the receiver has everything up to `last_durable`.
    pub(crate) fn connected(&self, last_durable: u64) -> Acked {
        let mut state = self.state.lock();
        state.away_since = None;
        let acked = state.ack(last_durable);
        state.sent = state.floor - 1;
        acked
    }

    /// The connection is gone.
    pub(crate) fn disconnected(&self, now: Instant) {
        let mut state = self.state.lock();
        state.away_since.get_or_insert(now);
        state.sent = state.floor - 1;
    }

    /// The receiver has no room: from here on it counts as away, though connected.
    pub(crate) fn stalled(&self, now: Instant) {
        let since = now.checked_sub(AWAY_AFTER).unwrap_or(now);
        self.state.lock().away_since.get_or_insert(since);
    }

    /// The receiver takes frames again.
    pub(crate) fn resumed(&self) {
        self.state.lock().away_since = None;
    }

    /// Where the frame `seq` is. From memory come at most `frames` and `bytes`, one in any case.
    pub(crate) fn next(&self, seq: u64, frames: usize, bytes: usize) -> Next {
        let state = self.state.lock();
        let at = state.memory.partition_point(|queued| queued.seq < seq);
        let in_memory = state.memory.get(at).map(|queued| queued.seq);
        if in_memory == Some(seq) {
            return Next::Memory(state.run(at, frames, bytes));
        }
        let segment = state
            .segments
            .iter()
            .find(|segment| segment.last.is_none_or(|last| last >= seq));
        if let Some(segment) = segment.filter(|segment| segment.name.first <= seq) {
            return Next::Disk(OnDisk {
                name: segment.name,
                bound: segment.len,
            });
        }
        let on_disk = segment.map(|segment| segment.name.first);
        let after = [in_memory, on_disk].into_iter().flatten().min();
        let given = (seq < state.next).then_some(state.next);
        match after.or(given) {
            Some(to) => Next::Gap(to),
            None if state.is_closed && state.is_empty() => Next::Done,
            None => Next::Nothing,
        }
    }

    /// Frames up to `seq` were handed to the connection.
    pub(crate) fn sent(&self, seq: u64) {
        let mut state = self.state.lock();
        state.sent = state.sent.max(seq);
    }

    /// Frames from `seq` on must be sent again.
    pub(crate) fn rewind(&self, seq: u64) {
        let mut state = self.state.lock();
        state.sent = state.sent.min(seq.saturating_sub(1));
    }

    /// The receiver has stored everything up to `seq`.
    pub(crate) fn acked(&self, seq: u64) -> Acked {
        self.state.lock().ack(seq)
    }

    /// The receiver will not take `seq`, and acknowledges past it. False when it has said so before,
    /// as when frames before it had to come again.
    pub(crate) fn reject(&self, seq: u64) -> bool {
        let mut state = self.state.lock();
        let is_new = !state.rejected.contains(&seq);
        if is_new {
            state.rejected.push(seq);
        }
        is_new
    }

    /// Everything below `seq` is lost or done with.
    pub(crate) fn skip_to(&self, seq: u64) -> Vec<Removal> {
        let mut state = self.state.lock();
        state.floor = state.floor.max(seq);
        state.sent = state.sent.max(state.floor - 1);
        state.settle()
    }

    /// A segment has been read to its end, or as far as it can be: `last` is the last sequence seen
    /// in its first `bound` bytes. A segment that has grown since, or whose frames are known, ends
    /// where its writer said, unless there is damage in it or nothing was found.
    pub(crate) fn segment_ends(&self, end: SegmentEnd) -> Vec<Removal> {
        let mut state = self.state.lock();
        if let Some(segment) = state.segments.iter_mut().find(|s| s.name == end.name) {
            let is_short = end.is_empty && segment.len == end.bound;
            if segment.last.is_none() || end.is_damaged || is_short {
                segment.last = Some(end.last.unwrap_or(end.name.first.saturating_sub(1)));
                segment.is_damaged |= end.is_damaged || end.last.is_none();
            }
        }
        state.settle()
    }

    /// A frame of a segment is damaged.
    pub(crate) fn segment_is_damaged(&self, name: SegmentName) {
        let mut state = self.state.lock();
        if let Some(segment) = state.segments.iter_mut().find(|s| s.name == name) {
            segment.is_damaged = true;
        }
    }
}

/// What is shown.
impl Outbox {
    /// Frames given and not acknowledged.
    pub(crate) fn unacked(&self) -> u64 {
        let state = self.state.lock();
        state.next.saturating_sub(state.floor)
    }

    /// How long the oldest frame has waited.
    pub(crate) fn oldest(&self, now: Instant, wall: SystemTime) -> Duration {
        let state = self.state.lock();
        let memory = state.memory.front();
        let memory = memory.map(|queued| now.saturating_duration_since(queued.since));
        memory.max(state.oldest_segment(wall)).unwrap_or_default()
    }

    /// How long the oldest segment has existed.
    pub(crate) fn oldest_segment(&self, wall: SystemTime) -> Option<Duration> {
        self.state.lock().oldest_segment(wall)
    }
}

#[cfg(test)]
mod tests;
