//! Faults of received bytes, and how the codec reports them.

use std::io;

use bytes::Bytes;

use crate::control::NackCode;
use crate::frame::{Frame, Kind, Protocol};

/// A fault of received bytes. [`Fault::as_str`] is its metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A version 1 length of zero.
    ZeroLen,
    /// A length beyond the limit.
    TooLarge,
    /// The frame is too short for its own length fields.
    Short,
    /// The meta object ends after the end of its frame.
    MetaOverrun,
    /// The request body ends after the end of its frame.
    ReqOverrun,
    /// The response body does not end with its frame.
    RespMismatch,
    /// A version 2 connection continues with bytes that are not a version 2 header.
    BadMagic,
    /// A version above 2.
    BadVersion,
    /// The header's checksum does not match.
    HeaderCrc,
    /// The payload's checksum does not match.
    PayloadCrc,
    /// The payload does not decompress to its declared length, or it grows by too large a factor.
    Decompress,
    /// A HELLO, WELCOME, ACK, NACK or GOAWAY without the content that its kind requires.
    BadControl,
    /// The connection ended inside a frame.
    Truncated,
    /// [`MAX_BAD_IN_A_ROW`](super::MAX_BAD_IN_A_ROW) frames in a row were bad.
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

    /// The metric label.
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

    /// The answer to the sender of a version 2 frame with this fault.
    pub fn nack_code(self) -> NackCode {
        match self {
            Self::PayloadCrc => NackCode::Crc,
            Self::TooLarge => NackCode::TooLarge,
            _ => NackCode::BadMeta,
        }
    }
}

/// An unusable frame. The next frame is usable.
#[derive(Clone, PartialEq, Eq)]
pub struct Bad {
    /// The fault.
    pub fault: Fault,
    /// The version it was sent in.
    pub protocol: Protocol,
    /// Its kind byte in version 2, 0 in version 1.
    pub kind: u8,
    /// The sequence of a version 2 DATA frame, else 0.
    pub seq: u64,
    /// The whole frame as received; empty for a frame that was too large to keep.
    pub raw: Bytes,
}

impl Bad {
    /// Whether the frame was meant as an exchange to store.
    pub fn is_data(&self) -> bool {
        self.protocol == Protocol::V1 || self.kind == Kind::Data.code()
    }
}

/// Shows only the length, because the contents are people's prompts.
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

/// A result of decoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// A frame.
    Frame(Frame),
    /// A bad frame to answer, count and set aside.
    Bad(Bad),
}

/// Why a connection cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The bytes are not a frame, and the start of the next frame is unknown.
    #[error("read a frame: {}", .0.as_str())]
    Fault(Fault),
    /// The connection ended inside a frame.
    #[error("read a frame: the connection ended after {have} of {need} bytes")]
    Truncated {
        /// Number of its bytes that arrived.
        have: usize,
        /// Number of its bytes, as far as known: at least the bytes that were needed next.
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
