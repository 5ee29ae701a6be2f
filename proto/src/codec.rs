//! Converts bytes to frames and back, both versions on one port.
//!
//! The first byte distinguishes the versions: a version 1 length is at most `04 00 00 00`, version
//! 2 starts with `4c`. A connection keeps the version of its first frame. Frames are slices of the
//! receive buffer. A frame is taken out of the buffer only when it is complete, so any split of the
//! bytes gives the same frames. The buffer grows with the bytes that have arrived, not with the
//! length that a frame declares: by at most [`STEP`] bytes at a time until a quarter of the frame
//! is there.
//!
//! After a fault inside a frame with a valid length ([`Decoded::Bad`]) the connection stays usable.
//! [`DecodeError`] ends it.

mod encode;
mod fault;
mod payload;

use bytes::{Buf, Bytes, BytesMut};
use tokio_util::codec::{Decoder, Encoder};

use self::payload::{bad_v2, finish_v2, split_v1};
use crate::frame::{
    Compression, Frame, HEADER_LEN, Header, HeaderError, Kind, MAGIC, MAX_CONTROL, MAX_PAYLOAD,
    Protocol, u32_at,
};

pub use self::encode::{EncodeOrIoError, encode};
pub use self::fault::{Bad, DecodeError, Decoded, Fault};

/// Maximum growth of the receive buffer before a quarter of a frame has arrived, bytes.
pub const STEP: usize = 64 << 10;
/// After this many consecutive version 1 frames with inconsistent lengths, the connection is out of
/// sync.
pub const MAX_BAD_IN_A_ROW: u32 = 3;

/// The frame being received.
#[derive(Clone, Copy, Debug)]
enum Pending {
    /// Its length is not known yet.
    Start,
    /// Waits for the bytes after the length.
    V1(u32),
    /// Waits for the payload after this header.
    V2(Header),
    /// Discards a frame that is too large, as it arrives.
    Skip { header: Header, left: u64 },
}

/// Reads frames of both versions and writes frames of version 2.
#[derive(Debug)]
pub struct Codec {
    max_payload: u32,
    compression: Compression,
    protocol: Option<Protocol>,
    pending: Pending,
    bad_in_a_row: u32,
}

impl Default for Codec {
    /// Accepts payloads up to [`MAX_PAYLOAD`] and sends without compression.
    fn default() -> Self {
        Self::new(MAX_PAYLOAD)
    }
}

impl Codec {
    /// Accepts payloads up to `max_payload` bytes, compressed or not. The limit is at most
    /// [`MAX_PAYLOAD`] and at least [`MAX_CONTROL`].
    pub fn new(max_payload: u32) -> Self {
        Self {
            max_payload: max_payload.clamp(MAX_CONTROL, MAX_PAYLOAD),
            compression: Compression::None,
            protocol: None,
            pending: Pending::Start,
            bad_in_a_row: 0,
        }
    }

    /// The same codec, with compression of the DATA frames that it writes.
    #[must_use]
    pub fn with_compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// The version of the connection; `None` before its first frame.
    pub fn protocol(&self) -> Option<Protocol> {
        self.protocol
    }

    /// Memory that the frame being received will take, in bytes: its payload, plus its decompressed
    /// payload if it is compressed. `None` between frames, and while a frame is discarded. Never
    /// above twice the limit given to [`Codec::new`]. A receiver reserves this memory before it
    /// reads on.
    pub fn pending_bytes(&self) -> Option<usize> {
        match self.pending {
            Pending::Start | Pending::Skip { .. } => None,
            Pending::V1(total) => Some(4 + total as usize),
            Pending::V2(header) => Some(memory_of(&header)),
        }
    }

    /// Stops receiving the current version 1 frame and returns its number of bytes, including the
    /// length field. The caller removes them from the buffer and the connection; then the codec
    /// continues with the next frame.
    pub fn give_up(&mut self) -> Option<usize> {
        let Pending::V1(total) = self.pending else {
            return None;
        };
        self.pending = Pending::Start;
        Some(4 + total as usize)
    }

    /// Whether a frame is incomplete, so that silence means a stall.
    pub fn is_mid_frame(&self, buffered: usize) -> bool {
        buffered > 0 || !matches!(self.pending, Pending::Start)
    }

    fn start(&mut self, src: &BytesMut) -> Result<Step, DecodeError> {
        let Some(&first) = src.first() else {
            return Ok(Step::Need(1));
        };
        let protocol = *self.protocol.get_or_insert(if first == MAGIC[0] {
            Protocol::V2
        } else {
            Protocol::V1
        });
        match protocol {
            Protocol::V1 => self.start_v1(src),
            Protocol::V2 => self.start_v2(src),
        }
    }

    fn start_v1(&mut self, src: &BytesMut) -> Result<Step, DecodeError> {
        if src.len() < 4 {
            return Ok(Step::Need(4));
        }
        match u32_at(src, 0) {
            0 => Err(DecodeError::Fault(Fault::ZeroLen)),
            total if total > self.max_payload => Err(DecodeError::Fault(Fault::TooLarge)),
            total => {
                self.pending = Pending::V1(total);
                Ok(Step::Again)
            }
        }
    }

    fn start_v2(&mut self, src: &BytesMut) -> Result<Step, DecodeError> {
        let known = src.len().min(MAGIC.len());
        if src[..known] != MAGIC[..known] {
            return Err(DecodeError::Fault(Fault::BadMagic));
        }
        let Some(bytes) = src.first_chunk::<HEADER_LEN>() else {
            return Ok(Step::Need(HEADER_LEN));
        };
        let header = Header::from_bytes(bytes).map_err(|error| {
            DecodeError::Fault(match error {
                HeaderError::Magic => Fault::BadMagic,
                HeaderError::Version => Fault::BadVersion,
                HeaderError::Crc => Fault::HeaderCrc,
            })
        })?;
        let limit = if header.kind == Kind::Data.code() {
            self.max_payload
        } else {
            MAX_CONTROL
        };
        self.pending = if header.payload_len > limit || header.raw_len > limit {
            let left = HEADER_LEN as u64 + u64::from(header.payload_len);
            Pending::Skip { header, left }
        } else {
            Pending::V2(header)
        };
        Ok(Step::Again)
    }

    fn finish_v1(&mut self, raw: &Bytes) -> Decoded {
        match split_v1(raw) {
            Ok(data) => {
                self.bad_in_a_row = 0;
                Decoded::Frame(Frame::Data(data))
            }
            Err(fault) => {
                self.bad_in_a_row += 1;
                Decoded::Bad(Bad {
                    fault,
                    protocol: Protocol::V1,
                    kind: 0,
                    seq: 0,
                    raw: raw.clone(),
                })
            }
        }
    }
}

/// Memory for a frame: as received, plus its decompressed form.
fn memory_of(header: &Header) -> usize {
    let packed = header.flags.compression() != Some(Compression::None);
    let unpacked = if packed { header.raw_len as usize } else { 0 };
    HEADER_LEN + header.payload_len as usize + unpacked
}

enum Step {
    /// Wait until the buffer holds this many bytes.
    Need(usize),
    /// The state has changed; check again.
    Again,
}

impl Decoder for Codec {
    type Item = Decoded;
    type Error = DecodeError;

    fn decode(&mut self, src: &mut BytesMut) -> Result<Option<Decoded>, DecodeError> {
        if self.bad_in_a_row >= MAX_BAD_IN_A_ROW {
            return Err(DecodeError::Fault(Fault::LostSync));
        }
        loop {
            let need = match self.pending {
                Pending::Start => match self.start(src)? {
                    Step::Need(need) => need,
                    Step::Again => continue,
                },
                Pending::V1(total) => 4 + total as usize,
                Pending::V2(header) => HEADER_LEN + header.payload_len as usize,
                Pending::Skip { header, left } => {
                    let now = left.min(src.len() as u64);
                    src.advance(now as usize);
                    if now < left {
                        self.pending = Pending::Skip {
                            header,
                            left: left - now,
                        };
                        src.reserve(STEP);
                        return Ok(None);
                    }
                    self.pending = Pending::Start;
                    return Ok(Some(bad_v2(Fault::TooLarge, &header, Bytes::new())));
                }
            };
            if src.len() < need {
                reserve(src, need);
                return Ok(None);
            }
            match std::mem::replace(&mut self.pending, Pending::Start) {
                Pending::V1(_) => {
                    let raw = src.split_to(need).freeze();
                    return Ok(Some(self.finish_v1(&raw)));
                }
                Pending::V2(header) => {
                    let raw = src.split_to(need).freeze();
                    return Ok(Some(finish_v2(&header, raw, self.max_payload)));
                }
                Pending::Start | Pending::Skip { .. } => {}
            }
        }
    }

    fn decode_eof(&mut self, src: &mut BytesMut) -> Result<Option<Decoded>, DecodeError> {
        if let Some(decoded) = self.decode(src)? {
            return Ok(Some(decoded));
        }
        let (have, need) = match self.pending {
            Pending::Start if src.is_empty() => return Ok(None),
            Pending::Start if self.protocol == Some(Protocol::V2) => (src.len(), HEADER_LEN),
            Pending::Start => (src.len(), 4),
            Pending::V1(total) => (src.len(), 4 + total as usize),
            Pending::V2(header) => (src.len(), HEADER_LEN + header.payload_len as usize),
            Pending::Skip { header, left } => {
                let whole = HEADER_LEN + header.payload_len as usize;
                (whole.saturating_sub(left as usize), whole)
            }
        };
        Err(DecodeError::Truncated { have, need })
    }
}

/// Makes room for more bytes of a frame of `need` bytes: for all of them once a quarter has
/// arrived, for one step before that. Reserves only when there is no room at all, because a buffer
/// grows by doubling.
fn reserve(src: &mut BytesMut, need: usize) {
    let missing = need - src.len();
    if src.len() >= need / 4 {
        src.reserve(missing);
    } else if src.capacity() == src.len() {
        src.reserve(missing.min(STEP));
    }
}

impl Encoder<Frame> for Codec {
    type Error = EncodeOrIoError;

    fn encode(&mut self, frame: Frame, dst: &mut BytesMut) -> Result<(), EncodeOrIoError> {
        self.encode(&frame, dst)
    }
}

impl Encoder<&Frame> for Codec {
    type Error = EncodeOrIoError;

    fn encode(&mut self, frame: &Frame, dst: &mut BytesMut) -> Result<(), EncodeOrIoError> {
        encode(frame, self.compression, dst).map_err(EncodeOrIoError::Encode)
    }
}

#[cfg(test)]
mod tests;
