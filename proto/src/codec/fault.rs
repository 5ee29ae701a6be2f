//! What can be wrong with received bytes, and what the codec makes of that.

use std::io;

use bytes::Bytes;

use crate::control::NackCode;
use crate::frame::{Frame, Kind, Protocol};

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
    /// [`MAX_BAD_IN_A_ROW`](super::MAX_BAD_IN_A_ROW).
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
