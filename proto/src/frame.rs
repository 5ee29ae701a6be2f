//! The frame of the body log, byte for byte.
//!
//! Both versions are big-endian. Version 1 has no reply channel:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | `total_len`, the bytes after it, 1 to 64 MiB |
//! | 4 | 2 | `meta_len` |
//! | 6 | m | meta, a JSON object |
//! | 6+m | 4 | `req_len` |
//! | 10+m | q | request body |
//! | 10+m+q | 4 | `resp_len`; the body ends exactly at `total_len` |
//! | 14+m+q | p | response body |
//!
//! Version 2 puts a header of 32 bytes before each payload:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | magic `LBL2` |
//! | 4 | 1 | version, 2 |
//! | 5 | 1 | [`Kind`] |
//! | 6 | 2 | [`Flags`]; bits 0–2 the compression |
//! | 8 | 8 | sequence: DATA 1, 2, 3, … per producer and epoch, else 0 |
//! | 16 | 4 | `payload_len`, as sent |
//! | 20 | 4 | `raw_len`, after decompression |
//! | 24 | 4 | CRC-32 (IEEE) of the payload as sent |
//! | 28 | 4 | CRC-32 (IEEE) of the 28 bytes before |
//!
//! A DATA payload is `u32 meta_len, meta, u32 req_len, request, u32 resp_len, response`. HELLO and
//! WELCOME carry JSON, ACK `u64 cumulative_seq, u64 0`, NACK `u64 seq, u16 code, u16 len, text`,
//! GOAWAY `u16 code, u16 len, text`, PING and PONG nothing.

use bytes::{BufMut, Bytes, BytesMut};

use crate::control::{GoAway, Hello, Nack, Welcome};

/// The first bytes of every version 2 frame.
pub const MAGIC: [u8; 4] = *b"LBL2";
/// The version in its header.
pub const VERSION: u8 = 2;
/// Bytes of a version 2 header.
pub const HEADER_LEN: usize = 32;
/// Maximum payload in bytes, compressed or not, and maximum size of a version 1 frame after its
/// length.
pub const MAX_PAYLOAD: u32 = 64 << 20;
/// Maximum payload of a frame that is not DATA, in bytes.
pub const MAX_CONTROL: u32 = 64 << 10;
/// Maximum size of a version 2 meta object, in bytes.
pub const MAX_META: usize = 1 << 20;
/// Maximum size of a version 1 meta object in bytes: its length field has 16 bits.
pub const MAX_META_V1: usize = 65_535;
/// Maximum factor by which a payload may grow when decompressed.
pub const MAX_RATIO: u64 = 200;

/// The version of a frame on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// No checksum, no acknowledgement.
    V1,
    /// Checked, numbered, acknowledged.
    V2,
}

impl Protocol {
    /// Every version.
    pub const ALL: [Self; 2] = [Self::V1, Self::V2];

    /// The metric label: `v1`, `v2`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
        }
    }
}

/// The kind of a version 2 frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The sender introduces itself.
    Hello,
    /// The receiver's answer.
    Welcome,
    /// One exchange.
    Data,
    /// Everything up to a sequence is stored.
    Ack,
    /// One frame is not stored, with the reason.
    Nack,
    /// Asks whether the other side is alive.
    Ping,
    /// The answer to a ping.
    Pong,
    /// The receiver ends the connection, with the reason.
    GoAway,
}

impl Kind {
    /// The byte on the wire.
    pub fn code(self) -> u8 {
        match self {
            Self::Hello => 1,
            Self::Welcome => 2,
            Self::Data => 3,
            Self::Ack => 4,
            Self::Nack => 5,
            Self::Ping => 6,
            Self::Pong => 7,
            Self::GoAway => 8,
        }
    }

    /// The kind for a byte; `None` for a kind of a later version.
    pub fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Hello,
            2 => Self::Welcome,
            3 => Self::Data,
            4 => Self::Ack,
            5 => Self::Nack,
            6 => Self::Ping,
            7 => Self::Pong,
            8 => Self::GoAway,
            _ => return None,
        })
    }
}

/// The compression of a payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// One gzip member, level 1.
    Gzip,
}

impl Compression {
    /// The name in [`Hello::codecs`] and [`Welcome::codec`].
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
        }
    }

    /// The compression with a name.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "none" => Some(Self::None),
            "gzip" => Some(Self::Gzip),
            _ => None,
        }
    }
}

/// The flag bits of a header. Unknown bits are kept and have no meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u16);

impl Flags {
    const COMPRESSION: u16 = 0b111;
    const BODIES_SHED: u16 = 1 << 3;
    const REPLAY: u16 = 1 << 4;

    /// The compression; `None` for one that is unknown here.
    pub fn compression(self) -> Option<Compression> {
        match self.0 & Self::COMPRESSION {
            0 => Some(Compression::None),
            1 => Some(Compression::Gzip),
            _ => None,
        }
    }

    /// The same flags with another compression.
    #[must_use]
    pub fn with_compression(self, compression: Compression) -> Self {
        let bits = match compression {
            Compression::None => 0,
            Compression::Gzip => 1,
        };
        Self(self.0 & !Self::COMPRESSION | bits)
    }

    /// Whether the sender left out the bodies for lack of space.
    pub fn is_bodies_shed(self) -> bool {
        self.0 & Self::BODIES_SHED != 0
    }

    /// The same flags, with the mark that the bodies were left out.
    #[must_use]
    pub fn with_bodies_shed(self) -> Self {
        Self(self.0 | Self::BODIES_SHED)
    }

    /// Whether the frame comes from the sender's spool.
    pub fn is_replay(self) -> bool {
        self.0 & Self::REPLAY != 0
    }

    /// The same flags, with the mark that the frame comes from the spool. A segment stored without
    /// this bit may be replayed verbatim: the bit is only information, and nothing depends on it.
    #[must_use]
    pub fn with_replay(self) -> Self {
        Self(self.0 | Self::REPLAY)
    }
}

/// A version 2 header with a verified checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The byte of the kind. A later version may have kinds that this one skips.
    pub kind: u8,
    /// Flags.
    pub flags: Flags,
    /// Sequence.
    pub seq: u64,
    /// Payload bytes on the wire.
    pub payload_len: u32,
    /// Payload bytes after decompression.
    pub raw_len: u32,
    /// CRC-32 of the payload on the wire.
    pub payload_crc: u32,
}

/// Why 32 bytes are not a header. None of these can be skipped, because the length cannot be
/// trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// The bytes do not start with [`MAGIC`].
    Magic,
    /// The version is unknown.
    Version,
    /// The checksum does not match.
    Crc,
}

impl Header {
    /// The header on the wire.
    pub fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        out[0..4].copy_from_slice(&MAGIC);
        out[4] = VERSION;
        out[5] = self.kind;
        out[6..8].copy_from_slice(&self.flags.0.to_be_bytes());
        out[8..16].copy_from_slice(&self.seq.to_be_bytes());
        out[16..20].copy_from_slice(&self.payload_len.to_be_bytes());
        out[20..24].copy_from_slice(&self.raw_len.to_be_bytes());
        out[24..28].copy_from_slice(&self.payload_crc.to_be_bytes());
        let crc = crc32fast::hash(&out[..28]);
        out[28..32].copy_from_slice(&crc.to_be_bytes());
        out
    }

    /// Reads a header.
    ///
    /// # Errors
    /// See [`HeaderError`].
    pub fn from_bytes(bytes: &[u8; HEADER_LEN]) -> Result<Self, HeaderError> {
        if bytes[0..4] != MAGIC {
            return Err(HeaderError::Magic);
        }
        if bytes[4] != VERSION {
            return Err(HeaderError::Version);
        }
        if u32_at(bytes, 28) != crc32fast::hash(&bytes[..28]) {
            return Err(HeaderError::Crc);
        }
        Ok(Self {
            kind: bytes[5],
            flags: Flags(u16::from_be_bytes([bytes[6], bytes[7]])),
            seq: u64::from(u32_at(bytes, 8)) << 32 | u64::from(u32_at(bytes, 12)),
            payload_len: u32_at(bytes, 16),
            raw_len: u32_at(bytes, 20),
            payload_crc: u32_at(bytes, 24),
        })
    }
}

/// The big-endian number at an offset. The caller has checked that it is inside.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_be_bytes(word)
}

/// One exchange as received: slices of the receive buffer.
#[derive(Clone, PartialEq, Eq)]
pub struct Data {
    /// The version in which it came.
    pub protocol: Protocol,
    /// Sequence; 0 in version 1.
    pub seq: u64,
    /// Flags without the compression bits, because the payload is decompressed; none in version 1.
    pub flags: Flags,
    /// A JSON object, if the sender is correct; may contain bytes that are not UTF-8.
    pub meta: Bytes,
    /// Request body.
    pub req: Bytes,
    /// Response body.
    pub resp: Bytes,
}

/// Shows only lengths, because the contents are people's prompts.
impl std::fmt::Debug for Data {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Data")
            .field("protocol", &self.protocol)
            .field("seq", &self.seq)
            .field("flags", &self.flags)
            .field("meta_len", &self.meta.len())
            .field("req_len", &self.req.len())
            .field("resp_len", &self.resp.len())
            .finish()
    }
}

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// One exchange, of either version.
    Data(Data),
    /// The sender introduces itself.
    Hello(Hello),
    /// The receiver's answer.
    Welcome(Welcome),
    /// Everything up to this sequence is stored.
    Ack(u64),
    /// One frame is not stored.
    Nack(Nack),
    /// Asks whether the other side is alive.
    Ping,
    /// The answer to a ping.
    Pong,
    /// The receiver ends the connection.
    GoAway(GoAway),
    /// A kind of a later version; skipped.
    Unknown(u8),
}

/// Why a value cannot be sent as one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The meta object exceeds [`MAX_META`] or [`MAX_META_V1`]; see
    /// [`MetaOf::to_json_within`](crate::meta::MetaOf::to_json_within).
    #[error("send {0} bytes of meta")]
    Meta(usize),
    /// The payload exceeds [`MAX_PAYLOAD`] or the receiver's limit.
    #[error("send a payload of {0} bytes")]
    TooLarge(usize),
    /// [`Frame::Unknown`] has no form on the wire.
    #[error("send a frame of an unknown kind")]
    Unknown,
}

/// One exchange to send, with its bodies in the pieces in which they were captured.
#[derive(Clone, Copy)]
pub struct Outgoing<'a> {
    /// Sequence, from 1.
    pub seq: u64,
    /// Flags; the encoder sets the compression bits.
    pub flags: Flags,
    /// A JSON object.
    pub meta: &'a [u8],
    /// The request body, in order.
    pub req: &'a [Bytes],
    /// The response body, in order.
    pub resp: &'a [Bytes],
}

fn total(pieces: &[Bytes]) -> usize {
    pieces.iter().map(Bytes::len).sum()
}

impl Outgoing<'_> {
    /// Size of the frame without compression, in bytes.
    pub fn frame_len(&self) -> usize {
        HEADER_LEN + self.raw_len()
    }

    fn raw_len(&self) -> usize {
        12 + self.meta.len() + total(self.req) + total(self.resp)
    }

    fn checked(&self) -> Result<u32, EncodeError> {
        if self.meta.len() > MAX_META {
            return Err(EncodeError::Meta(self.meta.len()));
        }
        u32::try_from(self.raw_len())
            .ok()
            .filter(|len| *len <= MAX_PAYLOAD)
            .ok_or(EncodeError::TooLarge(self.raw_len()))
    }

    /// The uncompressed frame as pieces for one vectored write, without copies of the bodies.
    ///
    /// # Errors
    /// When the meta object or the whole frame exceeds its limit.
    pub fn pieces(&self) -> Result<Vec<Bytes>, EncodeError> {
        let raw_len = self.checked()?;
        let mut front = BytesMut::with_capacity(8 + self.meta.len());
        put_len(&mut front, self.meta.len());
        front.put_slice(self.meta);
        put_len(&mut front, total(self.req));
        let mut between = BytesMut::with_capacity(4);
        put_len(&mut between, total(self.resp));

        let mut crc = crc32fast::Hasher::new();
        crc.update(&front);
        self.req.iter().for_each(|piece| crc.update(piece));
        crc.update(&between);
        self.resp.iter().for_each(|piece| crc.update(piece));
        let header = self.header(Compression::None, raw_len, raw_len, crc.finalize());

        let mut head = BytesMut::with_capacity(HEADER_LEN + front.len());
        head.put_slice(&header);
        head.put_slice(&front);
        let mut pieces = Vec::with_capacity(2 + self.req.len() + self.resp.len());
        pieces.push(head.freeze());
        pieces.extend(self.req.iter().cloned());
        pieces.push(between.freeze());
        pieces.extend(self.resp.iter().cloned());
        Ok(pieces)
    }

    /// Appends the frame to `dst`. It is compressed if that makes it smaller, it has at least
    /// [`Outgoing::PACK_FROM`] bytes and the receiver's limit [`MAX_RATIO`] allows it.
    ///
    /// # Errors
    /// When the meta object or the whole frame exceeds its limit. Nothing is appended then.
    pub fn encode(&self, compression: Compression, dst: &mut BytesMut) -> Result<(), EncodeError> {
        let raw_len = self.checked()?;
        if compression == Compression::Gzip
            && raw_len as usize >= Self::PACK_FROM
            && let Some(packed) = self.packed(raw_len)
        {
            dst.reserve(HEADER_LEN + packed.len());
            let len = packed.len() as u32;
            dst.put_slice(&self.header(compression, len, raw_len, crc32fast::hash(&packed)));
            dst.put_slice(&packed);
            return Ok(());
        }
        dst.reserve(HEADER_LEN + raw_len as usize);
        for piece in self.pieces()? {
            dst.put_slice(&piece);
        }
        Ok(())
    }

    /// Payloads below this number of bytes are not compressed.
    pub const PACK_FROM: usize = 4 << 10;

    /// The gzip form, unless it saves nothing or is so small that the receiver would reject it.
    fn packed(&self, raw_len: u32) -> Option<Vec<u8>> {
        use std::io::Write;
        let out = Vec::with_capacity(raw_len as usize / 4);
        let mut gzip = flate2::write::GzEncoder::new(out, flate2::Compression::fast());
        let mut put = |bytes: &[u8]| gzip.write_all(bytes).ok();
        put(&(self.meta.len() as u32).to_be_bytes())?;
        put(self.meta)?;
        put(&(total(self.req) as u32).to_be_bytes())?;
        self.req.iter().try_for_each(|piece| put(piece))?;
        put(&(total(self.resp) as u32).to_be_bytes())?;
        self.resp.iter().try_for_each(|piece| put(piece))?;
        let packed = gzip.finish().ok()?;
        let gain = packed.len() < raw_len as usize;
        let passes = u64::from(raw_len) <= MAX_RATIO * packed.len() as u64;
        (gain && passes).then_some(packed)
    }

    fn header(
        &self,
        compression: Compression,
        payload_len: u32,
        raw_len: u32,
        payload_crc: u32,
    ) -> [u8; HEADER_LEN] {
        Header {
            kind: Kind::Data.code(),
            flags: self.flags.with_compression(compression),
            seq: self.seq,
            payload_len,
            raw_len,
            payload_crc,
        }
        .to_bytes()
    }
}

/// Callers have checked that the whole payload fits into 32 bits.
fn put_len(dst: &mut BytesMut, len: usize) {
    dst.put_u32(len as u32);
}

/// Appends a version 1 frame to `dst`.
///
/// # Errors
/// When `meta` exceeds [`MAX_META_V1`] or the whole frame exceeds [`MAX_PAYLOAD`]. A length never
/// wraps.
pub fn encode_v1(
    meta: &[u8],
    req: &[u8],
    resp: &[u8],
    dst: &mut BytesMut,
) -> Result<(), EncodeError> {
    let meta_len = u16::try_from(meta.len()).map_err(|_| EncodeError::Meta(meta.len()))?;
    let whole = 10 + meta.len() + req.len() + resp.len();
    if whole > MAX_PAYLOAD as usize {
        return Err(EncodeError::TooLarge(whole));
    }
    dst.reserve(4 + whole);
    dst.put_u32(whole as u32);
    dst.put_u16(meta_len);
    dst.put_slice(meta);
    put_len(dst, req.len());
    dst.put_slice(req);
    put_len(dst, resp.len());
    dst.put_slice(resp);
    Ok(())
}
