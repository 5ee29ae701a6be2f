//! Holds the frames of one epoch from their numbering to their acknowledgement.
//!
//! Frames get consecutive sequences and leave in that order. They wait in memory, or on disk when
//! memory is short or no listener is reachable. While the disk holds frames that were not sent on
//! the current connection, new frames queue up behind them on disk. An acknowledgement covers
//! everything up to its sequence. Nothing here does IO: one writer fills the outbox and writes its
//! segments, and one courier empties it and reads them.

mod state;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use bytes::BytesMut;
use parking_lot::Mutex;
use proto::frame::{HEADER_LEN, Header};
use tokio::sync::Notify;

use self::state::{Queued, Segment, State};
use super::budget::Charge;
use super::counters::RouteCounters;
use super::spool::segment::{SegmentName, Stored};
use super::spool::{Earlier, Progress, Spool};

/// Where there is a spool, a frame that is not acknowledged stays only in memory for this long: it is
/// what a kill costs.
pub(crate) const MEMORY_ONLY_MAX: Duration = Duration::from_millis(75);

/// After this long without a connection, frames go to disk.
pub(crate) const AWAY_AFTER: Duration = Duration::from_secs(1);

/// A frame without a sequence.
#[derive(Debug)]
pub(crate) struct Unnumbered {
    /// The whole frame; its sequence is 0.
    pub bytes: BytesMut,
    /// The memory it uses, bytes.
    pub charge: Charge,
    /// Its origin.
    pub origin: Origin,
}

/// The origin of a frame, for the counters.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// The counters of its route.
    pub route: Arc<RouteCounters>,
    /// Start of its request, milliseconds since the Unix epoch.
    pub unix_ms: u64,
    /// Bodies or headers were left out because room was short.
    pub is_shed: bool,
}

impl Unnumbered {
    /// Writes the sequence into the frame header.
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

/// The location of the next frame.
#[derive(Debug)]
pub(crate) enum Next {
    /// In memory, together with the frames that follow it.
    Memory(Vec<Stored>),
    /// In a segment.
    Disk(OnDisk),
    /// It is lost, and so are all frames up to this sequence.
    Gap(u64),
    /// It does not exist yet.
    Nothing,
    /// The outbox is closed and everything is acknowledged.
    Done,
}

/// A segment to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OnDisk {
    /// Its name.
    pub name: SegmentName,
    /// End offset of its complete frames.
    pub bound: u64,
}

/// A finished segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Removal {
    /// Its name.
    pub name: SegmentName,
    /// Its bytes.
    pub len: u64,
    /// It contains damage.
    pub is_damaged: bool,
}

/// The result of an acknowledgement.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Acked {
    /// Frames that the listener has stored.
    pub frames: u64,
    /// Segments to remove.
    pub removals: Vec<Removal>,
}

/// The end of a segment, as the reader found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentEnd {
    /// The segment.
    pub name: SegmentName,
    /// The offset to which it was to be read.
    pub bound: u64,
    /// The last sequence seen.
    pub last: Option<u64>,
    /// No frame was found this time.
    pub is_empty: bool,
    /// The rest is not readable.
    pub is_damaged: bool,
}

/// The result of a write to a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// The segment.
    pub name: SegmentName,
    /// Its new last sequence.
    pub last: u64,
    /// Its new length, bytes.
    pub len: u64,
    /// Bytes added.
    pub added: u64,
}

/// The outbox of one epoch; see the module.
#[derive(Debug)]
pub(crate) struct Outbox {
    epoch: AtomicU64,
    /// Set once: at the start, or when a spool that could not be opened then can be.
    spool: OnceLock<Arc<Spool>>,
    state: Mutex<State>,
    changed: Notify,
}

impl Outbox {
    /// An empty outbox for a new epoch, not connected since `now`.
    pub(crate) fn new(epoch: u64, spool: Option<Arc<Spool>>, now: Instant) -> Self {
        Self::with(epoch, spool, State::new(Some(now)))
    }

    /// What an earlier process left of one epoch. It takes no more. Frames that it had begun and that
    /// are neither acknowledged nor in a segment are a gap at the end.
    pub(crate) fn left(spool: Arc<Spool>, earlier: &Earlier) -> Self {
        let left = &earlier.segments;
        let mut state = State::new(None);
        state.floor = match (left.first(), earlier.progress) {
            (Some(first), Some(progress)) => first.name.first.min(progress.acked + 1),
            (Some(first), None) => first.name.first,
            (None, progress) => progress.map_or(1, |progress| progress.acked + 1),
        };
        if let Some(progress) = earlier.progress {
            state.next = progress.begun + 1;
        }
        state.is_closed = true;
        state.segments = left
            .iter()
            .map(|left| Segment {
                name: left.name,
                last: None,
                len: left.len,
                since: left.modified,
                is_damaged: false,
                is_corrupt: false,
            })
            .collect();
        Self::with(earlier.epoch, Some(spool), state)
    }

    fn with(epoch: u64, spool: Option<Arc<Spool>>, state: State) -> Self {
        Self {
            epoch: AtomicU64::new(epoch),
            spool: spool.map_or_else(OnceLock::new, OnceLock::from),
            state: Mutex::new(state),
            changed: Notify::new(),
        }
    }

    /// The epoch of its sequences.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// The directory of its segments.
    pub(crate) fn spool(&self) -> Option<&Arc<Spool>> {
        self.spool.get()
    }

    /// Sends no further frame until [`Outbox::attach`].
    pub(crate) fn hold(&self) {
        self.state.lock().is_held = true;
    }

    /// How far it has got.
    pub(crate) fn progress(&self) -> Progress {
        let state = self.state.lock();
        Progress {
            epoch: self.epoch(),
            begun: state.next - 1,
            acked: state.floor - 1,
        }
    }

    /// Goes on under another epoch, with a spool. Refused while a frame is in doubt: one that the
    /// receiver may have stored under the old epoch would be stored twice.
    pub(crate) fn attach(&self, spool: &Arc<Spool>, epoch: u64) -> bool {
        let mut state = self.state.lock();
        if state.ever_sent >= state.floor || self.spool.get().is_some() {
            return false;
        }
        // In this order: the writer names segments by the epoch as soon as it sees the spool.
        self.epoch.store(epoch, Ordering::Relaxed);
        let _ = self.spool.set(Arc::clone(spool));
        state.is_held = false;
        drop(state);
        self.changed.notify_one();
        true
    }

    /// Waits for something new to send. Cancel safe; a change before the call is not missed.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}

/// The writer's side.
impl Outbox {
    /// Numbers frames and keeps them in memory until one has to go to disk. Returns that frame and
    /// all after it. If there is a disk, at most `share` bytes stay in memory. Calls `kept` for
    /// each frame kept.
    pub(crate) fn keep(
        &self,
        frames: Vec<Unnumbered>,
        share: u64,
        now: Instant,
        kept: impl FnMut(&Unnumbered),
    ) -> Vec<Unnumbered> {
        self.keep_while(frames, now, kept, |state, bytes| {
            self.spool().is_none()
                || !(state.is_away(now) || state.has_unsent_segments() || bytes > share)
        })
    }

    /// Numbers frames and keeps them in memory up to `share` bytes, whether or not there is a disk.
    /// Returns the first frame that does not fit and all after it.
    pub(crate) fn keep_in_memory(
        &self,
        frames: Vec<Unnumbered>,
        share: u64,
        now: Instant,
        kept: impl FnMut(&Unnumbered),
    ) -> Vec<Unnumbered> {
        self.keep_while(frames, now, kept, |_, bytes| bytes <= share)
    }

    /// `may` gets the number of bytes that memory would then hold.
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

    /// Numbers frames that go to disk, without keeping them. They exist only after
    /// [`Outbox::wrote`]. There is one writer, so nothing else assigns sequences in between.
    pub(crate) fn number(&self, frames: Vec<Unnumbered>) -> Vec<(Stored, Charge)> {
        let next = self.state.lock().next;
        let numbered = frames.into_iter().zip(next..).map(|(mut frame, seq)| {
            frame.number(seq, true);
            let bytes = frame.bytes.freeze();
            (Stored { seq, bytes }, frame.charge)
        });
        numbered.collect()
    }

    /// Since when the oldest frame has been in memory.
    pub(crate) fn oldest_in_memory(&self) -> Option<Instant> {
        let state = self.state.lock();
        state.memory.front().map(|queued| queued.since)
    }

    /// Frames in memory that should be on disk: those that have waited for long, and all of them
    /// while nobody is listening.
    pub(crate) fn to_spill(&self, now: Instant) -> Vec<Stored> {
        let state = self.state.lock();
        if self.spool().is_none() {
            return Vec::new();
        }
        let is_away = state.is_away(now);
        let must_leave = |queued: &&Queued| {
            is_away || now.saturating_duration_since(queued.since) >= MEMORY_ONLY_MAX
        };
        let leaving = state.memory.iter().take_while(must_leave);
        leaving.map(Queued::stored).collect()
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

    /// Begins a write. Returns false if `current` is removed or complete, so that the writer must
    /// begin another segment.
    pub(crate) fn begin_write(&self, current: Option<SegmentName>) -> bool {
        let mut state = self.state.lock();
        let is_good = |s: &Segment, name| s.name == name && !s.is_damaged;
        let listed = current.filter(|name| state.segments.iter().any(|s| is_good(s, *name)));
        state.writing = listed;
        state.writing.is_some()
    }

    /// Ends a write. Its frames that are still in memory are dropped there. Returns the segments
    /// that became finished in the meantime.
    pub(crate) fn wrote(&self, written: &[Written]) -> Vec<Removal> {
        let mut state = self.state.lock();
        state.writing = None;
        for done in written {
            if let Some(spool) = self.spool() {
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

    /// Closes the outbox for new frames.
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_one();
    }
}

/// The courier's side.
impl Outbox {
    /// The lowest sequence that is not acknowledged or lost.
    pub(crate) fn floor(&self) -> u64 {
        self.state.lock().floor
    }

    /// Whether the receiver claims sequences that were never assigned: then another process sends
    /// under the same name.
    pub(crate) fn is_ahead(&self, last_durable: u64) -> bool {
        let state = self.state.lock();
        !state.is_closed && last_durable >= state.next
    }

    /// Records that a connection is up and the receiver has everything up to `last_durable`.
    pub(crate) fn connected(&self, last_durable: u64) -> Acked {
        let mut state = self.state.lock();
        state.away_since = None;
        let acked = state.ack(last_durable);
        state.sent = state.floor - 1;
        // The receiver has dealt with everything that former connections brought.
        state.ever_sent = state.sent;
        acked
    }

    /// Records that the connection is lost.
    pub(crate) fn disconnected(&self, now: Instant) {
        let mut state = self.state.lock();
        state.away_since.get_or_insert(now);
        state.sent = state.floor - 1;
    }

    /// Records that the receiver has no room. It then counts as unreachable, although it is
    /// connected.
    pub(crate) fn stalled(&self, now: Instant) {
        let since = now.checked_sub(AWAY_AFTER).unwrap_or(now);
        self.state.lock().away_since.get_or_insert(since);
    }

    /// Records that the receiver accepts frames again.
    pub(crate) fn resumed(&self) {
        self.state.lock().away_since = None;
    }

    /// The location of the frame `seq`. From memory, returns at most `frames` frames and `bytes`
    /// bytes, but at least one frame.
    pub(crate) fn next(&self, seq: u64, frames: usize, bytes: usize) -> Next {
        let mut state = self.state.lock();
        if state.is_held {
            return Next::Nothing;
        }
        let at = state.memory.partition_point(|queued| queued.seq < seq);
        let in_memory = state.memory.get(at).map(|queued| queued.seq);
        if in_memory == Some(seq) {
            let run = state.run(at, frames, bytes);
            // Here and not once they are sent: nobody may attach a spool in between.
            let last = run.last().map_or(0, |last| last.seq);
            state.ever_sent = state.ever_sent.max(last);
            return Next::Memory(run);
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

    /// Records that frames up to `seq` were passed to the connection.
    pub(crate) fn sent(&self, seq: u64) {
        let mut state = self.state.lock();
        state.sent = state.sent.max(seq);
    }

    /// Requests that frames from `seq` on are sent again.
    pub(crate) fn rewind(&self, seq: u64) {
        let mut state = self.state.lock();
        state.sent = state.sent.min(seq.saturating_sub(1));
    }

    /// Records that the receiver has stored everything up to `seq`.
    pub(crate) fn acked(&self, seq: u64) -> Acked {
        self.state.lock().ack(seq)
    }

    /// Records that the receiver refuses `seq` permanently and will acknowledge past it. Returns
    /// false if the refusal is already known, for example because earlier frames had to be sent
    /// again.
    pub(crate) fn reject(&self, seq: u64) -> bool {
        let mut state = self.state.lock();
        let is_new = !state.rejected.contains(&seq);
        if is_new {
            state.rejected.push(seq);
        }
        is_new
    }

    /// Records that everything below `seq` is lost or finished.
    pub(crate) fn skip_to(&self, seq: u64) -> Vec<Removal> {
        let mut state = self.state.lock();
        state.floor = state.floor.max(seq);
        state.sent = state.sent.max(state.floor - 1);
        state.settle()
    }

    /// Records that a segment has been read to its end, or as far as possible. `last` is the last
    /// sequence in its first `bound` bytes. If the segment has grown since, or its frames are
    /// known, it ends where its writer said, unless it is damaged or no frame was found.
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

    /// Bytes of a segment are no frames. True the first time: it may be read again.
    pub(crate) fn is_first_corruption(&self, name: SegmentName) -> bool {
        let mut state = self.state.lock();
        let segment = state.segments.iter_mut().find(|s| s.name == name);
        segment.is_some_and(|segment| !std::mem::replace(&mut segment.is_corrupt, true))
    }

    /// Records that a frame of a segment is damaged.
    pub(crate) fn segment_is_damaged(&self, name: SegmentName) {
        let mut state = self.state.lock();
        if let Some(segment) = state.segments.iter_mut().find(|s| s.name == name) {
            segment.is_damaged = true;
        }
    }
}

/// The status values.
impl Outbox {
    /// Number of assigned but unacknowledged sequences.
    pub(crate) fn unacked(&self) -> u64 {
        let state = self.state.lock();
        state.next.saturating_sub(state.floor)
    }

    /// Whether an earlier epoch has no segment for `seq` and what follows it.
    pub(crate) fn is_over(&self, seq: u64) -> bool {
        let state = self.state.lock();
        let is_left = |segment: &Segment| segment.last.is_none_or(|last| last >= seq);
        state.is_closed && !state.segments.iter().any(is_left)
    }

    /// Whether it is known which sequence follows a segment's last one.
    pub(crate) fn knows_end_of(&self, name: SegmentName) -> bool {
        let state = self.state.lock();
        let follows = state.segments.iter().any(|segment| segment.name > name);
        follows || state.next > name.first
    }

    /// How long the oldest frame has been waiting.
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
