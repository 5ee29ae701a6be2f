//! Parses the bytes of one complete frame. Nothing here keeps state or waits.

use std::io::Read;

use bytes::{Buf, Bytes};

use super::STEP;
use super::fault::{Bad, Decoded, Fault};
use crate::control::{GoAway, GoAwayCode, Nack, NackCode};
use crate::frame::{
    Compression, Data, Flags, Frame, HEADER_LEN, Header, Kind, MAX_META, MAX_RATIO, Protocol,
};

/// `raw` starts with the four bytes of the total length, which was verified.
pub(super) fn split_v1(raw: &Bytes) -> Result<Data, Fault> {
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

/// Splits the part after the meta length, which is the same in both versions.
fn split_parts(mut rest: Bytes, meta_len: usize) -> Result<(Bytes, Bytes, Bytes), Fault> {
    // After the meta object there are at least the four bytes of the next length.
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

pub(super) fn bad_v2(fault: Fault, header: &Header, raw: Bytes) -> Decoded {
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

pub(super) fn finish_v2(header: &Header, raw: Bytes, max_payload: u32) -> Decoded {
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

/// Decompresses the payload. Memory grows with the output, and the declared length in the header
/// bounds it.
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
            // One byte more than declared reveals a declared length that is too small.
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
    // Bytes after the text are reserved for a later version.
    let text = payload.get(..len).ok_or(Fault::BadControl)?;
    Ok((code, String::from_utf8_lossy(text).into_owned()))
}
