//! Delivers the frames of one outbox to the listener: connects, introduces itself, sends within the
//! receiver's window, handles acknowledgements, and starts again when the connection is lost.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use proto::codec::Decoded;
use proto::control::{GoAwayCode, NackCode};
use proto::frame::Frame;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::backoff::Backoff;
use super::link::{Link, LinkError, control, receive};
use super::reading::{Batch, Wanted, read};
use super::{Shared, remove};
use crate::clock::chain;
use crate::clock::now;
use crate::counters::{ListenerTrouble, Reason};
use crate::outbox::{Next, OnDisk, Outbox, SegmentEnd};
use crate::settings::Target;
use crate::spool::segment::{SegmentName, SegmentReader, Stored};

/// Most unacknowledged bytes and frames, even if the receiver offers more.
const WINDOW_BYTES: u64 = 8 << 20;
const WINDOW_FRAMES: usize = 1024;

/// Bytes combined into one write.
const WRITE_AT_ONCE: usize = 256 << 10;

/// After this much silence, the sender pings the receiver; after the second limit, the connection
/// counts as dead.
const PING_AFTER: Duration = Duration::from_secs(15);
const DEAD_AFTER: Duration = Duration::from_secs(45);

/// Pause before a receiver with a full disk is tried again.
const DISK_FULL_PAUSE: Duration = Duration::from_secs(1);

/// A frame that arrives damaged this many times in a row is damaged on this side.
const CRC_TRIES: u32 = 5;

/// Pauses are reset once a connection has lasted this long.
const IS_STABLE_AFTER: Duration = Duration::from_secs(10);

/// The courier of one outbox.
#[derive(Debug)]
pub(super) struct Delivery {
    outbox: Arc<Outbox>,
    shared: Arc<Shared>,
    target: watch::Receiver<Option<Target>>,
    /// Whether this is the epoch of this process. The status shows its connection.
    is_live: bool,
    backoff: Backoff,
    rng: StdRng,
    /// The sequence that last arrived damaged, and how many times.
    damaged: (u64, u32),
    /// The last failure logged since the last connection.
    said: Option<String>,
}

/// The reason a connection ended.
#[derive(Debug)]
enum End {
    /// Everything is delivered and the outbox is closed.
    Done,
    /// A lost range was skipped. The next connection announces it.
    Skipped,
    /// The listener's address changed.
    Retargeted,
    /// The connection failed.
    Lost(LinkError),
}

/// A frame that was sent but not acknowledged.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    seq: u64,
    len: u64,
    at: Instant,
}

impl Delivery {
    /// Creates the courier of an outbox. An outbox has only one.
    pub(super) fn new(
        outbox: Arc<Outbox>,
        shared: Arc<Shared>,
        target: watch::Receiver<Option<Target>>,
        is_live: bool,
    ) -> Self {
        let mut seed = [0; 32];
        // The seed only spreads the pauses; a fixed seed would also be correct.
        let _ = rand::TryRng::try_fill_bytes(&mut rand::rngs::SysRng, &mut seed);
        Self {
            outbox,
            shared,
            target,
            is_live,
            backoff: Backoff::default(),
            rng: StdRng::from_seed(seed),
            damaged: (0, 0),
            said: None,
        }
    }

    /// Delivers until everything is delivered or until `stop`. Frames sent but not acknowledged
    /// stay in the outbox.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let stopped = stop.cancelled();
        tokio::pin!(stopped);
        tokio::select! {
            () = &mut stopped => {}
            () = self.deliver() => {}
        }
        self.outbox.disconnected(now());
        if self.is_live {
            self.shared.counters.connected(false);
        }
    }

    async fn deliver(&mut self) {
        loop {
            let Some(target) = self.wanted().await else {
                return;
            };
            let began = now();
            let identity = self.shared.identity_of(&self.outbox);
            let (epoch, floor) = (identity.epoch, self.outbox.floor());
            let end = match Link::open(&target, identity, floor, &self.shared).await {
                Ok(link) => self.serve(link, epoch, &target).await,
                Err(error) => End::Lost(error),
            };
            self.outbox.disconnected(now());
            match end {
                End::Done => return,
                End::Skipped | End::Retargeted => {}
                End::Lost(error) => self.lost(&target, &error, began).await,
            }
            self.shared.counters.reconnects();
        }
    }

    /// Waits until there is an address and something to send to it.
    async fn wanted(&mut self) -> Option<Target> {
        let wanted = self.target.wait_for(Option::is_some).await.ok()?;
        wanted.clone()
    }

    async fn lost(&mut self, target: &Target, error: &LinkError, began: Instant) {
        if now().saturating_duration_since(began) >= IS_STABLE_AFTER {
            self.backoff.reset();
        }
        if error.is_lasting() {
            self.backoff.last();
        }
        if self.is_live {
            self.shared.counters.connected(false);
        }
        let is_unauthorized = matches!(error, LinkError::Refused(GoAwayCode::Auth, _));
        let (listener, error) = (&*target.address, chain(error));
        if self.is_live {
            self.shared.counters.in_trouble(if is_unauthorized {
                ListenerTrouble::Unauthorized
            } else {
                ListenerTrouble::Away(error.clone())
            });
        }
        // A repeated failure is logged once.
        if self.is_live && self.said.as_ref() != Some(&error) {
            tracing::warn!(listener, error, "body log listener not reached");
            self.said = Some(error);
        } else {
            tracing::debug!(listener, error, "body log listener not reached");
        }
        let pause = self.backoff.next(&mut self.rng);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            changed = self.target.changed() => {
                self.backoff.reset();
                drop(changed);
            }
        }
    }

    async fn serve(&mut self, link: Link, epoch: u64, target: &Target) -> End {
        if self.outbox.is_ahead(link.last_durable) {
            tracing::error!(
                listener = &*target.address,
                "another router sends under this one's name: it takes a new one"
            );
            self.shared.rename(&self.outbox).await;
            return End::Skipped;
        }
        let acked = self.outbox.connected(link.last_durable);
        self.shared.counters.acked(acked.frames);
        if let Some(spool) = self.outbox.spool() {
            remove(spool, acked.removals).await;
        }
        if self.is_live {
            let is_other = |trouble: &_| *trouble != ListenerTrouble::DiskFull;
            self.shared.counters.trouble_over(is_other);
        }
        if self.is_live && self.shared.counters.connected(true) {
            self.said = None;
            tracing::info!(
                listener = &*target.address,
                epoch,
                "body log listener connected"
            );
        }
        let cursor = self.outbox.floor();
        let session = Session {
            window_bytes: link.window_bytes.clamp(1, WINDOW_BYTES),
            window_frames: link.window_frames.clamp(1, WINDOW_FRAMES),
            link,
            epoch,
            cursor,
            in_flight: VecDeque::new(),
            in_flight_bytes: 0,
            out: Bytes::new(),
            is_flushed: true,
            reading: None,
            bound: 0,
            reader: None,
            gap: None,
            heard: now(),
            pinged: false,
            paused: None,
        };
        session.run(self).await
    }
}

/// One connection.
struct Session {
    link: Link,
    /// What its HELLO said.
    epoch: u64,
    /// The next sequence to send.
    cursor: u64,
    in_flight: VecDeque<InFlight>,
    in_flight_bytes: u64,
    window_bytes: u64,
    window_frames: usize,
    /// Bytes not yet written to the socket.
    out: Bytes,
    /// Whether everything written has been flushed to the socket.
    is_flushed: bool,
    reading: Option<JoinHandle<Batch>>,
    /// The offset up to which `reading` reads.
    bound: u64,
    reader: Option<(SegmentName, SegmentReader)>,
    /// Everything from the cursor up to this sequence is lost.
    gap: Option<u64>,
    heard: Instant,
    pinged: bool,
    /// The receiver has no room until this time.
    paused: Option<Instant>,
}

impl Session {
    async fn run(mut self, delivery: &mut Delivery) -> End {
        loop {
            if let Some(end) = self.fill(delivery).await {
                return end;
            }
            let wake = self.wake_at();
            let is_idle = self.reading.is_none() && self.gap.is_none() && self.paused.is_none();
            let may_send = is_idle && self.has_window();
            let has_output = self.out.has_remaining() || !self.is_flushed;
            let step = tokio::select! {
                received = receive(&mut self.link.read) => match received {
                    Ok(frame) => self.received(frame, delivery).await,
                    Err(error) => Some(End::Lost(error)),
                },
                pushed = push(&mut self.link.write, &mut self.out, &mut self.is_flushed), if has_output => {
                    pushed.err().map(|error| End::Lost(LinkError::Io(error)))
                }
                batch = reading(&mut self.reading) => {
                    self.reading = None;
                    self.read(batch, delivery).await
                }
                () = delivery.outbox.changed(), if may_send => None,
                () = tokio::time::sleep_until(wake.into()) => self.woke(),
                // An error means that the service has ended. The next check of the address then
                // ends the connection.
                _ = delivery.target.changed() => Some(End::Retargeted),
            };
            if let Some(end) = step {
                return end;
            }
        }
    }

    fn has_window(&self) -> bool {
        self.in_flight.is_empty()
            || (self.in_flight.len() < self.window_frames
                && self.in_flight_bytes < self.window_bytes)
    }

    fn wake_at(&self) -> Instant {
        let silence = if self.pinged { DEAD_AFTER } else { PING_AFTER };
        let silence = self.heard + silence;
        self.paused.map_or(silence, |until| until.min(silence))
    }

    fn woke(&mut self) -> Option<End> {
        let now = now();
        if self.paused.is_some_and(|until| now >= until) {
            self.paused = None;
        }
        let silence = now.saturating_duration_since(self.heard);
        if silence >= DEAD_AFTER {
            return Some(End::Lost(LinkError::Silent));
        }
        if silence >= PING_AFTER && !self.pinged {
            self.pinged = true;
            // In the middle of a frame, a ping would become part of the frame, so no ping is sent.
            // Outgoing data shows that this side is alive, but says nothing about the receiver.
            if !self.out.has_remaining() {
                self.out = control(&Frame::Ping);
            }
        }
        None
    }

    /// Gets the next frames to send, if the window and the socket allow it.
    async fn fill(&mut self, delivery: &mut Delivery) -> Option<End> {
        if delivery.outbox.epoch() != self.epoch {
            // A spool was attached: it sends under another name.
            return Some(End::Skipped);
        }
        if self.gap.is_some() {
            return self.skip(delivery).await;
        }
        if self.out.has_remaining()
            || self.reading.is_some()
            || self.paused.is_some()
            || !self.has_window()
        {
            return None;
        }
        let frames = self.window_frames - self.in_flight.len().min(self.window_frames - 1);
        let bytes = self.window_bytes.saturating_sub(self.in_flight_bytes);
        let bytes = usize::try_from(bytes)
            .unwrap_or(WRITE_AT_ONCE)
            .min(WRITE_AT_ONCE);
        match delivery.outbox.next(self.cursor, frames, bytes) {
            Next::Memory(run) => self.send(run, delivery),
            Next::Disk(at) => self.begin_reading(&at, frames, bytes, delivery),
            Next::Gap(to) => {
                self.gap = Some(to);
                return self.skip(delivery).await;
            }
            Next::Nothing => {}
            Next::Done => return self.in_flight.is_empty().then_some(End::Done),
        }
        None
    }

    /// Gives up a lost range, once everything before it is acknowledged. The receiver accepts no
    /// gap within a connection.
    async fn skip(&mut self, delivery: &mut Delivery) -> Option<End> {
        let to = self.gap?;
        if !self.in_flight.is_empty() {
            return None;
        }
        let lost = to.saturating_sub(self.cursor);
        // Behind its last segment an earlier process had frames in memory alone.
        let (reason, why) = match delivery.outbox.is_over(self.cursor) {
            true => (Reason::Shutdown, "they died with an earlier process"),
            false => (Reason::Disk, "the spool does not have them"),
        };
        delivery.shared.counters.dropped(reason, lost);
        tracing::error!(
            frames = lost,
            from = self.cursor,
            epoch = self.epoch,
            why,
            "body log frames are lost"
        );
        let removals = delivery.outbox.skip_to(to);
        if let Some(spool) = delivery.outbox.spool() {
            remove(spool, removals).await;
        }
        Some(End::Skipped)
    }

    fn begin_reading(&mut self, at: &OnDisk, frames: usize, bytes: usize, delivery: &Delivery) {
        let Some(spool) = delivery.outbox.spool() else {
            return;
        };
        let open = self.reader.take().filter(|(name, _)| *name == at.name);
        let open = open.map(|(_, reader)| reader);
        let (path, name) = (at.name.in_dir(spool.dir()), at.name);
        let wanted = Wanted {
            from: self.cursor,
            bound: at.bound,
            frames,
            bytes,
        };
        self.reading = Some(tokio::task::spawn_blocking(move || {
            read(open, name, &path, wanted)
        }));
        self.bound = at.bound;
    }

    async fn read(&mut self, mut batch: Batch, delivery: &mut Delivery) -> Option<End> {
        let outbox = &delivery.outbox;
        self.reader = batch.reader.take().map(|reader| (batch.name, reader));
        if batch.is_damaged {
            outbox.segment_is_damaged(batch.name);
        }
        if batch.corrupt_bytes > 0 && outbox.is_first_corruption(batch.name) {
            let frames = match outbox.knows_end_of(batch.name) {
                // The gap up to the next known sequence is counted exactly.
                true => 0,
                false => batch.corrupt_frames(),
            };
            let counters = &delivery.shared.counters;
            counters.damaged(batch.corrupt_bytes);
            counters.dropped(Reason::Disk, frames);
            tracing::error!(
                segment = %batch.name.first,
                epoch = batch.name.epoch,
                bytes = batch.corrupt_bytes,
                frames_estimated = frames,
                "a spool segment is damaged: what follows in it is lost, and it is kept aside"
            );
        }
        if batch.is_torn {
            delivery.shared.counters.dropped(Reason::Disk, 1);
            tracing::warn!(segment = %batch.name.first, "the last frame of a spool segment is not whole");
        }
        let ended = batch.ended.map(|last| {
            outbox.segment_ends(SegmentEnd {
                name: batch.name,
                bound: self.bound,
                last,
                is_empty: batch.frames.is_empty(),
                is_damaged: batch.is_damaged,
            })
        });
        if let (Some(removals), Some(spool)) = (ended, outbox.spool()) {
            remove(spool, removals).await;
        }
        if let Some(error) = batch.failed {
            tracing::error!(%error, segment = %batch.name.first, "a spool segment cannot be read");
        }
        match (batch.frames.first(), batch.gap_to) {
            (None, Some(to)) => self.gap = Some(to),
            (None, None) => {}
            (Some(_), _) => self.send(batch.frames, delivery),
        }
        None
    }

    /// Passes frames to the socket. They start at the cursor.
    fn send(&mut self, frames: Vec<Stored>, delivery: &Delivery) {
        let now = now();
        for frame in &frames {
            let len = frame.bytes.len() as u64;
            self.in_flight_bytes += len;
            self.in_flight.push_back(InFlight {
                seq: frame.seq,
                len,
                at: now,
            });
        }
        if let Some(last) = frames.last() {
            self.cursor = last.seq + 1;
            delivery.outbox.sent(last.seq);
        }
        self.out = join(frames);
    }

    async fn received(&mut self, received: Decoded, delivery: &mut Delivery) -> Option<End> {
        self.heard = now();
        self.pinged = false;
        let frame = match received {
            Decoded::Frame(frame) => frame,
            Decoded::Bad(bad) => return Some(End::Lost(LinkError::Bad(bad.fault))),
        };
        match frame {
            Frame::Ack(seq) => self.acked(seq, delivery).await,
            Frame::Nack(nack) if nack.code == NackCode::Auth => {
                Some(End::Lost(LinkError::Refused(GoAwayCode::Auth, nack.text)))
            }
            Frame::Nack(nack) if nack.code.is_transient() => {
                self.again(nack.seq, nack.code, delivery).await
            }
            Frame::Nack(nack) => {
                if delivery.outbox.reject(nack.seq) {
                    Self::rejected(nack.seq, &nack.text, delivery).await;
                }
                None
            }
            Frame::Ping => {
                if !self.out.has_remaining() {
                    self.out = control(&Frame::Pong);
                }
                None
            }
            Frame::GoAway(away) => Some(End::Lost(LinkError::Refused(away.code, away.text))),
            Frame::Pong | Frame::Unknown(_) => None,
            Frame::Data(_) | Frame::Hello(_) | Frame::Welcome(_) => {
                Some(End::Lost(LinkError::OutOfPlace))
            }
        }
    }

    async fn acked(&mut self, seq: u64, delivery: &mut Delivery) -> Option<End> {
        let now = now();
        let mut oldest = None;
        while let Some(first) = self.in_flight.front().filter(|first| first.seq <= seq) {
            oldest.get_or_insert(first.at);
            self.in_flight_bytes -= first.len;
            self.in_flight.pop_front();
        }
        // One sample per acknowledgement: the frame that waited longest.
        if let Some(oldest) = oldest {
            delivery.backoff.reset();
            delivery
                .shared
                .counters
                .ack_took(now.saturating_duration_since(oldest));
        }
        if seq >= self.cursor {
            return Some(End::Lost(LinkError::OutOfPlace));
        }
        let acked = delivery.outbox.acked(seq);
        delivery.shared.counters.acked(acked.frames);
        if delivery.is_live && acked.frames > 0 {
            delivery.shared.counters.trouble_over(|_| true);
        }
        delivery.outbox.resumed();
        if let Some(spool) = delivery.outbox.spool() {
            remove(spool, acked.removals).await;
        }
        None
    }

    /// The receiver requests `seq` again and accepts nothing else until it arrives.
    async fn again(&mut self, seq: u64, code: NackCode, delivery: &mut Delivery) -> Option<End> {
        if self.in_flight.front().is_none_or(|first| seq < first.seq) || seq >= self.cursor {
            return Some(End::Lost(LinkError::OutOfPlace));
        }
        while let Some(last) = self.in_flight.pop_back_if(|last| last.seq >= seq) {
            self.in_flight_bytes -= last.len;
        }
        self.cursor = seq;
        self.reading = None;
        self.reader = None;
        delivery.outbox.rewind(seq);
        if code == NackCode::DiskFull {
            let now = now();
            self.paused = Some(now + DISK_FULL_PAUSE);
            delivery.outbox.stalled(now);
            if delivery.is_live {
                delivery
                    .shared
                    .counters
                    .in_trouble(ListenerTrouble::DiskFull);
            }
            return None;
        }
        let tries = match delivery.damaged {
            (known, tries) if known == seq => tries + 1,
            _ => 1,
        };
        delivery.damaged = (seq, tries);
        if tries >= CRC_TRIES {
            Self::rejected(seq, "it always arrives damaged", delivery).await;
            self.gap = Some(seq + 1);
        }
        None
    }

    /// Sets aside a frame that the receiver refuses permanently.
    async fn rejected(seq: u64, why: &str, delivery: &Delivery) {
        tracing::error!(seq, why, "a body log frame was rejected by the listener");
        delivery.shared.counters.dropped(Reason::Rejected, 1);
        let Some(spool) = delivery.outbox.spool().cloned() else {
            return;
        };
        let epoch = delivery.outbox.epoch();
        let at = delivery.outbox.next(seq, 1, 0);
        let kept = tokio::task::spawn_blocking(move || {
            let frame = match at {
                Next::Memory(run) => run.into_iter().next(),
                Next::Disk(at) => {
                    let path = at.name.in_dir(spool.dir());
                    let wanted = Wanted {
                        from: seq,
                        bound: at.bound,
                        frames: 1,
                        bytes: 0,
                    };
                    read(None, at.name, &path, wanted).frames.into_iter().next()
                }
                Next::Gap(_) | Next::Nothing | Next::Done => None,
            };
            frame.map_or(Ok(()), |frame| {
                spool.keep_rejected(epoch, seq, &frame.bytes)
            })
        });
        if let Ok(Err(error)) = kept.await {
            tracing::error!(%error, seq, "a rejected body log frame could not be kept");
        }
    }
}

/// Writes as much as the socket accepts. When everything is written, flushes the bytes that TLS
/// holds. Cancel safe.
async fn push(
    write: &mut (impl AsyncWrite + Unpin),
    out: &mut Bytes,
    is_flushed: &mut bool,
) -> io::Result<()> {
    if out.has_remaining() {
        if write.write_buf(out).await? == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        *is_flushed = false;
    } else {
        write.flush().await?;
        *is_flushed = true;
    }
    Ok(())
}

/// Waits for the current read. Never completes if there is none. Cancel safe.
async fn reading(reading: &mut Option<JoinHandle<Batch>>) -> Batch {
    match reading {
        // A panic there would be our bug. Nothing was read, and the read is tried again.
        Some(running) => running.await.unwrap_or_default(),
        None => std::future::pending().await,
    }
}

/// Joins small frames into one write. A single frame is not copied.
fn join(frames: Vec<Stored>) -> Bytes {
    let mut frames = frames.into_iter().map(|frame| frame.bytes).peekable();
    let Some(first) = frames.next() else {
        return Bytes::new();
    };
    if frames.peek().is_none() {
        return first;
    }
    let mut whole = BytesMut::from(&first[..]);
    frames.for_each(|frame| whole.extend_from_slice(&frame));
    whole.freeze()
}

#[cfg(test)]
mod tests;
