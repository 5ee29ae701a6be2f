//! Reads frames from a connection. Room for each is taken before it is read.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use proto::codec::{Codec, DecodeError, Decoded, Fault};
use proto::frame::{Frame, Protocol};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::Instant;
use tokio_util::codec::Decoder;

use crate::budget::{Budget, Charge};
use crate::buffers::Buffers;

/// A frame of version 2 must deliver [`LEAST`] bytes, or its rest, within this time.
pub(super) const STALL: Duration = Duration::from_secs(30);
/// See [`STALL`]. Room for such a frame is taken before it is read, so a slow sender would keep
/// that room from all others.
const LEAST: usize = 16 << 10;
/// A frame of version 1 may always take this long. Version 1 has no authentication.
const V1_GRACE: Duration = Duration::from_secs(20);
/// Least average bytes per second of such a frame once it has taken longer than [`V1_GRACE`].
const V1_RATE: usize = 16 << 10;
/// Longest time for such a frame, even the largest one.
const V1_FRAME: Duration = Duration::from_secs(300);
/// Initial size of a connection's receive buffer, and the size to which a busy connection's buffer
/// grows. All frames of one read are processed together.
const BUFFER: usize = 16 << 10;
/// See [`BUFFER`].
const BUFFER_MAX: usize = 512 << 10;

/// The reason no more frames arrive.
#[derive(Debug)]
pub(super) enum End {
    /// The sender closed the connection at the end of a frame.
    Closed,
    /// The bytes are not valid frames.
    Fault(Fault),
    /// A frame stopped midway or is too slow: see [`STALL`].
    Stalled,
    /// The pause between two frames exceeded the limit set by [`Reader::expects_signs`].
    Silent,
    /// Reading failed.
    Io(io::Error),
}

/// A frame and the room it holds.
#[derive(Debug)]
pub(super) struct Received {
    /// The frame.
    pub(super) decoded: Decoded,
    /// Its room. `None` for a frame without an exchange.
    pub(super) charge: Option<Charge>,
    /// Its size, bytes.
    pub(super) bytes: usize,
}

/// The reading half of a connection.
#[derive(Debug)]
pub(super) struct Reader<R> {
    read: R,
    buffer: BytesMut,
    /// Size of the next read, between [`BUFFER`] and [`BUFFER_MAX`].
    room: usize,
    /// Takes full buffers and supplies new ones.
    buffers: Arc<Buffers>,
    codec: Codec,
    budget: Budget,
    /// Room for the frame being received.
    charge: Option<Charge>,
    /// Decoded frames that wait for room.
    ready: VecDeque<Decoded>,
    /// Longest pause between two frames.
    silence: Option<Duration>,
    pace: Pace,
}

/// Measures how fast a frame arrives. Time that a frame of version 2 spends waiting for room is not
/// counted.
#[derive(Debug, Default)]
struct Pace {
    since: Option<Instant>,
    bytes: usize,
}

impl Pace {
    /// The time by which more of the frame must have arrived.
    fn deadline(&mut self, protocol: Option<Protocol>, now: Instant) -> Instant {
        let since = *self.since.get_or_insert(now);
        match protocol {
            Some(Protocol::V2) => since + STALL,
            Some(Protocol::V1) | None => {
                let earned = Duration::from_secs((self.bytes / V1_RATE) as u64);
                since + earned.clamp(V1_GRACE, V1_FRAME)
            }
        }
    }

    fn came(&mut self, bytes: usize, protocol: Option<Protocol>) {
        self.bytes += bytes;
        if protocol == Some(Protocol::V2) && self.bytes >= LEAST {
            *self = Self::default();
        }
    }
}

/// A frame of version 1 for which there is no room. The caller reads its bytes from the connection
/// itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoRoom {
    /// Bytes of the frame, including its length prefix.
    pub(super) len: usize,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    pub(super) fn new(read: R, budget: Budget, buffers: Arc<Buffers>, max_frame: u32) -> Self {
        Self {
            read,
            buffer: BytesMut::with_capacity(BUFFER),
            room: BUFFER,
            buffers,
            codec: Codec::new(max_frame),
            budget,
            charge: None,
            ready: VecDeque::new(),
            silence: None,
            pace: Pace::default(),
        }
    }

    /// From now on, the sender must send something at least every `silence`.
    pub(super) fn expects_signs(&mut self, silence: Duration) {
        self.silence = Some(silence);
    }

    /// The protocol version of the sender; `None` before its first byte.
    pub(super) fn protocol(&self) -> Option<Protocol> {
        self.codec.protocol()
    }

    /// Waits for the sender's first byte, which determines the version. Cancel safe.
    pub(super) async fn first_byte(&mut self) -> Result<Protocol, End> {
        while self.buffer.is_empty() {
            self.fill().await?;
        }
        self.decode()?;
        Ok(self.codec.protocol().unwrap_or(Protocol::V1))
    }

    /// Reads the next frame. Cancel safe: bytes already read are kept.
    pub(super) async fn next(&mut self) -> Result<Received, End> {
        loop {
            self.decode()?;
            if let Some(decoded) = self.ready.front() {
                let bytes = size_of(decoded);
                if self.charge.is_none() && is_data(decoded) {
                    self.charge = Some(self.budget.take(bytes).await);
                }
                return Ok(self.pop(bytes));
            }
            if self.charge.is_none()
                && let Some(bytes) = self.codec.pending_bytes()
            {
                self.charge = Some(self.budget.take(bytes).await);
                self.pace = Pace::default();
            }
            self.fill().await?;
        }
    }

    /// The next frame, if it is already in the buffer and there is room for it.
    pub(super) fn buffered(&mut self) -> Result<Option<Received>, End> {
        self.decode()?;
        let Some(decoded) = self.ready.front() else {
            return Ok(None);
        };
        let bytes = size_of(decoded);
        if self.charge.is_none() && is_data(decoded) {
            self.charge = self.budget.try_take(bytes);
            if self.charge.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(self.pop(bytes)))
    }

    /// Reads the next frame of a sender that must not wait. Takes room as bytes arrive, and none
    /// for bytes that are only announced. If there is no room, the caller reads `len` bytes with
    /// [`Reader::take_raw`]. Cancel safe.
    pub(super) async fn next_or_no_room(&mut self) -> Result<Result<Received, NoRoom>, End> {
        loop {
            if !self.codec.is_mid_frame(self.buffer.len()) {
                self.pace = Pace::default();
            }
            self.decode()?;
            if let Some(decoded) = self.ready.front() {
                // The frame is already in memory. Waiting for room would not make it smaller, so it
                // is admitted.
                let bytes = size_of(decoded);
                if is_data(decoded) {
                    let charge = self.charge.get_or_insert_with(|| self.budget.overdraw(0));
                    self.budget.grow_to(charge, bytes);
                }
                return Ok(Ok(self.pop(bytes)));
            }
            if let Some(bytes) = self.codec.pending_bytes()
                && !self.charge_arrived()
            {
                self.charge = None;
                let len = self.codec.give_up().unwrap_or(bytes);
                return Ok(Err(NoRoom { len }));
            }
            self.fill().await?;
        }
    }

    /// Takes room for the part of the current frame that has arrived. Returns whether there was
    /// enough.
    fn charge_arrived(&mut self) -> bool {
        let arrived = self.buffer.len();
        match &mut self.charge {
            Some(charge) => self.budget.try_grow_to(charge, arrived),
            none => {
                *none = self.budget.try_take(arrived);
                none.is_some()
            }
        }
    }

    /// Reads up to `most` raw bytes, at least one. Cancel safe.
    pub(super) async fn take_raw(&mut self, most: usize) -> Result<BytesMut, End> {
        while self.buffer.is_empty() {
            let protocol = self.codec.protocol();
            let until = self.pace.deadline(protocol, Instant::now());
            let read = self.read.read_buf(&mut self.buffer);
            match tokio::time::timeout_at(until, read).await {
                Err(_) => return Err(End::Stalled),
                Ok(Err(error)) => return Err(End::Io(error)),
                Ok(Ok(0)) => return Err(End::Fault(Fault::Truncated)),
                Ok(Ok(read)) => self.pace.came(read, protocol),
            }
        }
        let take = most.min(self.buffer.len());
        let piece = self.buffer.split_to(take);
        self.buffer.reserve(BUFFER);
        Ok(piece)
    }

    fn pop(&mut self, bytes: usize) -> Received {
        let decoded = self.ready.pop_front().expect("the caller has seen it");
        let charge = if is_data(&decoded) {
            self.charge.take()
        } else {
            self.charge = None;
            None
        };
        Received {
            decoded,
            charge,
            bytes,
        }
    }

    fn decode(&mut self) -> Result<(), End> {
        if self.ready.is_empty()
            && let Some(decoded) = self.codec.decode(&mut self.buffer).map_err(end_of)?
        {
            self.ready.push_back(decoded);
            self.pace = Pace::default();
        }
        Ok(())
    }

    /// Makes room for the next read.
    fn make_room(&mut self) {
        if self.room == BUFFER || self.buffer.try_reclaim(self.room) {
            return self.buffer.reserve(self.room);
        }
        let least = self.buffer.len() + self.room / 2;
        let next = self.buffers.reclaim(least);
        // The new buffer takes over a partial frame and still needs free space.
        let mut next = next.unwrap_or_else(|| BytesMut::with_capacity(least + self.room));
        next.extend_from_slice(&self.buffer);
        let full = std::mem::replace(&mut self.buffer, next);
        self.buffers.retire(full);
    }

    async fn fill(&mut self) -> Result<(), End> {
        let free = |buffer: &BytesMut| buffer.capacity() - buffer.len();
        // For a larger frame, the codec itself reserves space for the rest.
        let is_small = self.buffer.len() < self.room;
        if is_small && free(&self.buffer) < self.room / 2 {
            self.make_room();
        }
        self.buffer.reserve(1);
        let free = free(&self.buffer);
        let (protocol, now) = (self.codec.protocol(), Instant::now());
        let limit = match self.codec.is_mid_frame(self.buffer.len()) {
            true => Some((self.pace.deadline(protocol, now), End::Stalled)),
            false => self.silence.map(|silence| (now + silence, End::Silent)),
        };
        let read = self.read.read_buf(&mut self.buffer);
        let read = match limit {
            None => read.await,
            Some((until, end)) => match tokio::time::timeout_at(until, read).await {
                Ok(read) => read,
                Err(_) => return Err(end),
            },
        };
        match read {
            Ok(0) => Err(match self.codec.decode_eof(&mut self.buffer) {
                Ok(_) => End::Closed,
                Err(error) => end_of(error),
            }),
            Ok(read) => {
                self.room = next_room(self.room, free, read);
                self.pace.came(read, protocol);
                Ok(())
            }
            Err(error) => Err(End::Io(error)),
        }
    }
}

/// Grows the read size if a read fills it, and shrinks it if a read leaves most of it free.
fn next_room(room: usize, free: usize, read: usize) -> usize {
    let next = if read == free {
        room.max(free) * 2
    } else if read < room / 4 {
        room / 2
    } else {
        room
    };
    next.clamp(BUFFER, BUFFER_MAX)
}

fn end_of(error: DecodeError) -> End {
    match error {
        DecodeError::Io(error) => End::Io(error),
        other => End::Fault(other.fault().unwrap_or(Fault::Truncated)),
    }
}

fn is_data(decoded: &Decoded) -> bool {
    match decoded {
        Decoded::Frame(Frame::Data(_)) => true,
        Decoded::Frame(_) => false,
        Decoded::Bad(bad) => bad.is_data(),
    }
}

fn size_of(decoded: &Decoded) -> usize {
    match decoded {
        Decoded::Frame(Frame::Data(data)) => {
            // The decompressed parts and the lengths between them: a good estimate of the memory
            // held.
            14 + data.meta.len() + data.req.len() + data.resp.len()
        }
        Decoded::Frame(_) => 0,
        Decoded::Bad(bad) => bad.raw.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_of_version_1_keeps_a_rate_after_its_grace_and_ends_within_five_minutes() {
        let (v1, now) = (Some(Protocol::V1), Instant::now());
        let mut pace = Pace::default();
        assert_eq!(pace.deadline(v1, now), now + V1_GRACE);
        pace.came(30 * V1_RATE, v1);
        let later = now + Duration::from_secs(15);
        assert_eq!(pace.deadline(v1, later), now + Duration::from_secs(30));
        pace.came(64 << 20, v1);
        assert_eq!(pace.deadline(v1, later), now + V1_FRAME);
    }

    #[test]
    fn who_fills_the_buffer_gets_more_room_and_who_leaves_it_empty_gives_it_back() {
        let mut room = BUFFER;
        for _ in 0..10 {
            room = next_room(room, room, room);
        }
        assert_eq!(room, BUFFER_MAX);
        assert_eq!(next_room(room, room, room / 2), room);
        for _ in 0..10 {
            room = next_room(room, room, 100);
        }
        assert_eq!(room, BUFFER);
    }
}
