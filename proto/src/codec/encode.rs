//! Converts frames to bytes.

use std::io;

use bytes::{BufMut, BytesMut};

use crate::frame::{
    Compression, Data, EncodeError, Flags, Frame, HEADER_LEN, Header, Kind, MAX_CONTROL, Outgoing,
    Protocol, encode_v1,
};

/// The error type that tokio-util's framed writers need: an encoder's error that can hold a failed
/// write.
#[derive(Debug, thiserror::Error)]
pub enum EncodeOrIoError {
    /// The frame cannot be sent.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// Writing failed.
    #[error("write to the connection")]
    Io(#[from] io::Error),
}

/// Appends a frame to `dst`, in its own version.
///
/// # Errors
/// When the frame has no form on the wire. In this case nothing is appended.
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

/// Maximum length of the text in bytes: fits into a 16-bit length, and within [`MAX_CONTROL`].
const MAX_TEXT: usize = 32 << 10;

fn put_code_and_text(code: u16, text: &str, dst: &mut BytesMut) {
    let end = text.floor_char_boundary(MAX_TEXT);
    dst.put_u16(code);
    dst.put_u16(end as u16);
    dst.put_slice(&text.as_bytes()[..end]);
}
