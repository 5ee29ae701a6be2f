//! Bytes to frames and back, both versions on one port.
//!
//! The first byte tells the versions apart: a version 1 length is at most `04 00 00 00`, version 2
//! starts with `4c`. A connection keeps the version it started with. Frames are slices of the
//! receive buffer; a frame is taken out of the buffer only whole, so any split of the bytes gives
//! the same frames. The buffer grows with what has arrived, not with what a length promises:
//! by at most [`STEP`] bytes at a time until a quarter of the frame is there.
//!
//! A fault inside a frame whose length is sound ([`Decoded::Bad`]) leaves the connection usable.
//! [`DecodeError`] ends it.

use std::io::{self, Read};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio_util::codec::{Decoder, Encoder};

use crate::control::{GoAway, GoAwayCode, Nack, NackCode};
use crate::frame::{
    Compression, Data, EncodeError, Flags, Frame, HEADER_LEN, Header, HeaderError, Kind, MAGIC,
    MAX_CONTROL, MAX_META, MAX_PAYLOAD, MAX_RATIO, Outgoing, Protocol, encode_v1, u32_at,
};

/// Most bytes the receive buffer grows by before a quarter of a frame has come.
pub const STEP: usize = 64 << 10;
/// So many version 1 frames in a row whose parts do not add up mean that the bytes have slipped.
pub const MAX_BAD_IN_A_ROW: u32 = 3;

/// What can be wrong with received bytes. [`Fault::as_str`] is its metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A version 1 length of zero.
    ZeroLen,
    /// A length beyond the limit.
    TooLarge,
    /// No room for the frame's own lengths.
    Short,
    /// The meta object ends behind its frame.
    MetaOverrun,
    /// The request body ends behind its frame.
    ReqOverrun,
    /// The response body does not end with its frame.
    RespMismatch,
    /// A version 2 connection goes on with something else.
    BadMagic,
    /// A version above 2.
    BadVersion,
    /// The header's checksum.
    HeaderCrc,
    /// The payload's checksum.
    PayloadCrc,
    /// The payload does not unpack to the length it declares, or to too many times its own.
    Decompress,
    /// A HELLO, WELCOME, ACK, NACK or GOAWAY that does not say what its kind must.
    BadControl,
    /// The connection ended inside a frame.
    Truncated,
    /// [`MAX_BAD_IN_A_ROW`].
    LostSync,
}

impl Fault {
    /// Every fault, in a fixed order.
    pub const ALL: [Self; 14] = [
        Self::ZeroLen,
        Self::TooLarge,
        Self::Short,
        Self::MetaOverrun,
        Self::ReqOverrun,
        Self::RespMismatch,
        Self::BadMagic,
        Self::BadVersion,
        Self::HeaderCrc,
        Self::PayloadCrc,
        Self::Decompress,
        Self::BadControl,
        Self::Truncated,
        Self::LostSync,
    ];

    /// As a metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ZeroLen => "zero_len",
            Self::TooLarge => "too_large",
            Self::Short => "short",
            Self::MetaOverrun => "meta_overrun",
            Self::ReqOverrun => "req_overrun",
            Self::RespMismatch => "resp_mismatch",
            Self::BadMagic => "bad_magic",
            Self::BadVersion => "bad_version",
            Self::HeaderCrc => "header_crc",
            Self::PayloadCrc => "payload_crc",
            Self::Decompress => "decompress",
            Self::BadControl => "bad_control",
            Self::Truncated => "truncated",
            Self::LostSync => "lost_sync",
        }
    }

    /// What to answer the sender of a version 2 frame with this fault.
    pub fn nack_code(self) -> NackCode {
        match self {
            Self::PayloadCrc => NackCode::Crc,
            Self::TooLarge => NackCode::TooLarge,
            _ => NackCode::BadMeta,
        }
    }
}

/// A frame that is not usable, though the next one is.
#[derive(Clone, PartialEq, Eq)]
pub struct Bad {
    /// What is wrong.
    pub fault: Fault,
    /// The version it was sent in.
    pub protocol: Protocol,
    /// Its kind byte in version 2, 0 in version 1.
    pub kind: u8,
    /// Its sequence, if it is a DATA frame of version 2, else 0.
    pub seq: u64,
    /// The whole frame as received; empty for one that was too large to keep.
    pub raw: Bytes,
}

impl Bad {
    /// Whether it would have been an exchange to store.
    pub fn is_data(&self) -> bool {
        self.protocol == Protocol::V1 || self.kind == Kind::Data.code()
    }
}

/// The length only: the contents are people's prompts.
impl std::fmt::Debug for Bad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bad")
            .field("fault", &self.fault)
            .field("protocol", &self.protocol)
            .field("kind", &self.kind)
            .field("seq", &self.seq)
            .field("raw_len", &self.raw.len())
            .finish()
    }
}

/// What comes out of the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// A frame.
    Frame(Frame),
    /// Something to answer, count and set aside.
    Bad(Bad),
}

/// Why a connection cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The bytes are no frame and where the next one starts is not known.
    #[error("read a frame: {}", .0.as_str())]
    Fault(Fault),
    /// The connection ended inside a frame.
    #[error("read a frame: the connection ended after {have} of {need} bytes")]
    Truncated {
        /// Bytes of it that came.
        have: usize,
        /// Bytes it has, as far as known: at least the next bytes that were needed.
        need: usize,
    },
    /// Reading failed.
    #[error("read from the connection")]
    Io(#[from] io::Error),
}

impl DecodeError {
    /// The fault to count; `None` for a failed read.
    pub fn fault(&self) -> Option<Fault> {
        match self {
            Self::Fault(fault) => Some(*fault),
            Self::Truncated { .. } => Some(Fault::Truncated),
            Self::Io(_) => None,
        }
    }
}

/// The frame being received.
#[derive(Clone, Copy, Debug)]
enum Pending {
    /// Its length is not known yet.
    Start,
    /// The bytes after the length.
    V1(u32),
    /// The payload after this header.
    V2(Header),
    /// One that is too large is thrown away as it comes.
    Skip { header: Header, left: u64 },
}

/// Reads frames of both versions, writes frames of version 2.
#[derive(Debug)]
pub struct Codec {
    max_payload: u32,
    compression: Compression,
    protocol: Option<Protocol>,
    pending: Pending,
    bad_in_a_row: u32,
}

impl Default for Codec {
    /// Takes payloads up to [`MAX_PAYLOAD`], sends them as they are.
    fn default() -> Self {
        Self::new(MAX_PAYLOAD)
    }
}

impl Codec {
    /// Takes payloads up to `max_payload` bytes, packed or not; at most [`MAX_PAYLOAD`], at least
    /// [`MAX_CONTROL`].
    pub fn new(max_payload: u32) -> Self {
        Self {
            max_payload: max_payload.clamp(MAX_CONTROL, MAX_PAYLOAD),
            compression: Compression::None,
            protocol: None,
            pending: Pending::Start,
            bad_in_a_row: 0,
        }
    }

    /// The same codec, packing the DATA frames it writes.
    #[must_use]
    pub fn with_compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// The version of the connection; `None` before its first frame.
    pub fn protocol(&self) -> Option<Protocol> {
        self.protocol
    }

    /// Bytes the frame being received will take in memory: its payload, and its unpacked payload if
    /// it is packed. `None` between frames, and while one is thrown away. Never above two times the
    /// limit given to [`Codec::new`]. A receiver reserves this before it reads on.
    pub fn pending_bytes(&self) -> Option<usize> {
        match self.pending {
            Pending::Start | Pending::Skip { .. } => None,
            Pending::V1(total) => Some(4 + total as usize),
            Pending::V2(header) => Some(memory_of(&header)),
        }
    }

    /// Stops receiving the version 1 frame under way, and returns its bytes, the length included. The
    /// caller takes them out of the buffer and the connection; then the codec goes on with the next
    /// frame.
    pub fn give_up(&mut self) -> Option<usize> {
        let Pending::V1(total) = self.pending else {
            return None;
        };
        self.pending = Pending::Start;
        Some(4 + total as usize)
    }

    /// Whether bytes of a frame are awaited, so that silence is a stall.
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

/// What a frame takes: received, and unpacked beside it.
fn memory_of(header: &Header) -> usize {
    let packed = header.flags.compression() != Some(Compression::None);
    let unpacked = if packed { header.raw_len as usize } else { 0 };
    HEADER_LEN + header.payload_len as usize + unpacked
}

enum Step {
    /// Wait until the buffer holds this many bytes.
    Need(usize),
    /// The state has changed; look again.
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

/// Makes room for more of a frame of `need` bytes: all of it once a quarter has come, before that
/// a step, and only when there is no room at all, because a buffer grows by doubling.
fn reserve(src: &mut BytesMut, need: usize) {
    let missing = need - src.len();
    if src.len() >= need / 4 {
        src.reserve(missing);
    } else if src.capacity() == src.len() {
        src.reserve(missing.min(STEP));
    }
}

/// `raw` starts with the four bytes of the total length, which matches.
fn split_v1(raw: &Bytes) -> Result<Data, Fault> {
    let mut rest = raw.slice(4..);
    if rest.len() < 2 {
        return Err(Fault::Short);
    }
    let meta_len = usize::from(rest.get_u16());
    let (meta, req, resp) = split_parts(rest, meta_len)?;
    Ok(Data {
        protocol: Protocol::V1,
        seq: 0,
        flags: Flags::default(),
        meta,
        req,
        resp,
    })
}

/// What follows the meta length, in both versions alike.
fn split_parts(mut rest: Bytes, meta_len: usize) -> Result<(Bytes, Bytes, Bytes), Fault> {
    // Behind the meta object there are at least the four bytes of the next length.
    if rest.len() < 4 || meta_len > rest.len() - 4 {
        return Err(Fault::MetaOverrun);
    }
    let meta = rest.split_to(meta_len);
    let req_len = rest.get_u32() as usize;
    if rest.len() < 4 || req_len > rest.len() - 4 {
        return Err(Fault::ReqOverrun);
    }
    let req = rest.split_to(req_len);
    let resp_len = rest.get_u32() as usize;
    if resp_len != rest.len() {
        return Err(Fault::RespMismatch);
    }
    Ok((meta, req, rest))
}

fn bad_v2(fault: Fault, header: &Header, raw: Bytes) -> Decoded {
    Decoded::Bad(Bad {
        fault,
        protocol: Protocol::V2,
        kind: header.kind,
        seq: if header.kind == Kind::Data.code() {
            header.seq
        } else {
            0
        },
        raw,
    })
}

fn finish_v2(header: &Header, raw: Bytes, max_payload: u32) -> Decoded {
    match frame_of(header, raw.slice(HEADER_LEN..), max_payload) {
        Ok(frame) => Decoded::Frame(frame),
        Err(fault) => bad_v2(fault, header, raw),
    }
}

fn frame_of(header: &Header, payload: Bytes, max_payload: u32) -> Result<Frame, Fault> {
    if crc32fast::hash(&payload) != header.payload_crc {
        return Err(Fault::PayloadCrc);
    }
    let Some(kind) = Kind::from_code(header.kind) else {
        return Ok(Frame::Unknown(header.kind));
    };
    let payload = unpack(header, payload, max_payload)?;
    Ok(match kind {
        Kind::Data => Frame::Data(split_v2(header, payload)?),
        Kind::Hello => Frame::Hello(json(&payload)?),
        Kind::Welcome => Frame::Welcome(json(&payload)?),
        Kind::Ack => Frame::Ack(ack(payload)?),
        Kind::Nack => Frame::Nack(nack(payload)?),
        Kind::Ping => Frame::Ping,
        Kind::Pong => Frame::Pong,
        Kind::GoAway => Frame::GoAway(go_away(payload)?),
    })
}

fn split_v2(header: &Header, mut payload: Bytes) -> Result<Data, Fault> {
    if payload.len() < 4 {
        return Err(Fault::Short);
    }
    let meta_len = payload.get_u32() as usize;
    if meta_len > MAX_META {
        return Err(Fault::MetaOverrun);
    }
    let (meta, req, resp) = split_parts(payload, meta_len)?;
    Ok(Data {
        protocol: Protocol::V2,
        seq: header.seq,
        flags: header.flags.with_compression(Compression::None),
        meta,
        req,
        resp,
    })
}

/// The payload as it was before it was packed. Memory grows with what comes out, and the header's
/// claim bounds that.
fn unpack(header: &Header, payload: Bytes, max_payload: u32) -> Result<Bytes, Fault> {
    match header.flags.compression().ok_or(Fault::Decompress)? {
        Compression::None if header.raw_len == header.payload_len => Ok(payload),
        Compression::None => Err(Fault::Decompress),
        Compression::Gzip => {
            let claimed = u64::from(header.raw_len);
            if claimed > MAX_RATIO * u64::from(header.payload_len) {
                return Err(Fault::Decompress);
            }
            debug_assert!(claimed <= u64::from(max_payload));
            let mut out = Vec::with_capacity((header.raw_len as usize).min(STEP));
            // One byte more than claimed shows a claim that is too low.
            flate2::bufread::GzDecoder::new(&payload[..])
                .take(claimed + 1)
                .read_to_end(&mut out)
                .map_err(|_| Fault::Decompress)?;
            if out.len() as u64 != claimed {
                return Err(Fault::Decompress);
            }
            Ok(out.into())
        }
    }
}

fn json<T: serde::de::DeserializeOwned>(payload: &[u8]) -> Result<T, Fault> {
    serde_json::from_slice(payload).map_err(|_| Fault::BadControl)
}

fn ack(mut payload: Bytes) -> Result<u64, Fault> {
    let seq = payload.try_get_u64().map_err(|_| Fault::BadControl)?;
    payload.try_get_u64().map_err(|_| Fault::BadControl)?;
    Ok(seq)
}

fn nack(mut payload: Bytes) -> Result<Nack, Fault> {
    let seq = payload.try_get_u64().map_err(|_| Fault::BadControl)?;
    let (code, text) = code_and_text(payload)?;
    Ok(Nack {
        seq,
        code: NackCode::from_code(code),
        text,
    })
}

fn go_away(payload: Bytes) -> Result<GoAway, Fault> {
    let (code, text) = code_and_text(payload)?;
    Ok(GoAway {
        code: GoAwayCode::from_code(code),
        text,
    })
}

fn code_and_text(mut payload: Bytes) -> Result<(u16, String), Fault> {
    let code = payload.try_get_u16().map_err(|_| Fault::BadControl)?;
    let len = usize::from(payload.try_get_u16().map_err(|_| Fault::BadControl)?);
    // Bytes behind the text are room for a later version.
    let text = payload.get(..len).ok_or(Fault::BadControl)?;
    Ok((code, String::from_utf8_lossy(text).into_owned()))
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

/// What the framed writers of tokio-util want: an encoder's error that a failed write fits into.
#[derive(Debug, thiserror::Error)]
pub enum EncodeOrIoError {
    /// The frame cannot be sent.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// Writing failed.
    #[error("write to the connection")]
    Io(#[from] io::Error),
}

/// Appends a frame to `dst`, in the version it is of.
///
/// # Errors
/// When it has no form on the wire; nothing is appended then.
pub fn encode(
    frame: &Frame,
    compression: Compression,
    dst: &mut BytesMut,
) -> Result<(), EncodeError> {
    let mut payload = BytesMut::new();
    let kind = match frame {
        Frame::Data(data) => return encode_data(data, compression, dst),
        Frame::Unknown(_) => return Err(EncodeError::Unknown),
        Frame::Hello(hello) => {
            put_json(hello, &mut payload);
            Kind::Hello
        }
        Frame::Welcome(welcome) => {
            put_json(welcome, &mut payload);
            Kind::Welcome
        }
        Frame::Ack(seq) => {
            payload.put_u64(*seq);
            payload.put_u64(0);
            Kind::Ack
        }
        Frame::Nack(nack) => {
            payload.put_u64(nack.seq);
            put_code_and_text(nack.code.code(), &nack.text, &mut payload);
            Kind::Nack
        }
        Frame::Ping => Kind::Ping,
        Frame::Pong => Kind::Pong,
        Frame::GoAway(go_away) => {
            put_code_and_text(go_away.code.code(), &go_away.text, &mut payload);
            Kind::GoAway
        }
    };
    if payload.len() > MAX_CONTROL as usize {
        return Err(EncodeError::TooLarge(payload.len()));
    }
    let len = payload.len() as u32;
    let header = Header {
        kind: kind.code(),
        flags: Flags::default(),
        seq: 0,
        payload_len: len,
        raw_len: len,
        payload_crc: crc32fast::hash(&payload),
    };
    dst.reserve(HEADER_LEN + payload.len());
    dst.put_slice(&header.to_bytes());
    dst.put_slice(&payload);
    Ok(())
}

fn encode_data(
    data: &Data,
    compression: Compression,
    dst: &mut BytesMut,
) -> Result<(), EncodeError> {
    match data.protocol {
        Protocol::V1 => encode_v1(&data.meta, &data.req, &data.resp, dst),
        Protocol::V2 => Outgoing {
            seq: data.seq,
            flags: data.flags,
            meta: &data.meta,
            req: std::slice::from_ref(&data.req),
            resp: std::slice::from_ref(&data.resp),
        }
        .encode(compression, dst),
    }
}

fn put_json(value: &impl serde::Serialize, dst: &mut BytesMut) {
    serde_json::to_writer(dst.writer(), value)
        .expect("plain fields serialize, and a buffer takes what is written");
}

/// Most bytes of the text: what a 16-bit length holds, and within [`MAX_CONTROL`].
const MAX_TEXT: usize = 32 << 10;

fn put_code_and_text(code: u16, text: &str, dst: &mut BytesMut) {
    let end = text.floor_char_boundary(MAX_TEXT);
    dst.put_u16(code);
    dst.put_u16(end as u16);
    dst.put_slice(&text.as_bytes()[..end]);
}

#[cfg(test)]
mod tests;
