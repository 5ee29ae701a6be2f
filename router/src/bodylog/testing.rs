//! What tests of several modules need.

use bytes::Bytes;
use proto::frame::{Flags, HEADER_LEN, Header, Kind};

/// A DATA frame whose payload is `len` bytes that tell its sequence's parity apart.
pub(super) fn frame(seq: u64, len: usize) -> Bytes {
    let payload = vec![0xa5; len];
    let header = Header {
        kind: Kind::Data.code(),
        flags: Flags::default(),
        seq,
        payload_len: len as u32,
        raw_len: len as u32,
        payload_crc: crc32fast::hash(&payload),
    };
    let mut bytes = Vec::with_capacity(HEADER_LEN + len);
    bytes.extend_from_slice(&header.to_bytes());
    bytes.extend_from_slice(&payload);
    bytes.into()
}
