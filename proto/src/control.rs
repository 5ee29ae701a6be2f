//! The control messages between sender and receiver of the body log.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The sender's first frame: its identity and its position.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Protocol versions the sender speaks.
    pub proto: Vec<u8>,
    /// Permanent identity of the sender: a UUID stored beside its spool. At most 128 bytes of
    /// `[A-Za-z0-9._-]`.
    pub producer: String,
    /// Increases by one at each start of the sender. A connection carries one epoch.
    pub epoch: u64,
    /// The lowest sequence of this epoch that the sender still has, or will assign next. All lower
    /// ones were acknowledged earlier or are lost, and will not come.
    pub next_seq: u64,
    /// Compressions that the sender supports, best first, by the names of
    /// [`Compression::as_str`](crate::frame::Compression::as_str).
    #[serde(default)]
    pub codecs: Vec<String>,
    /// Largest payload that it may send.
    #[serde(default)]
    pub max_frame: u32,
    /// The shared secret, if the receiver requires one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The sender's name, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub router: String,
    /// The sender's version, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
}

/// Never shows the token.
impl fmt::Debug for Hello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hello")
            .field("proto", &self.proto)
            .field("producer", &self.producer)
            .field("epoch", &self.epoch)
            .field("next_seq", &self.next_seq)
            .field("codecs", &self.codecs)
            .field("max_frame", &self.max_frame)
            .field("token", &self.token.as_ref().map(|_| "***"))
            .field("router", &self.router)
            .field("version", &self.version)
            .finish()
    }
}

impl Hello {
    /// Whether the ledger can store the producer's name: 1 to 128 of `[A-Za-z0-9._-]`.
    pub fn has_valid_producer(&self) -> bool {
        (1..=128).contains(&self.producer.len())
            && self
                .producer
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    }
}

/// The receiver's answer to [`Hello`]: how to continue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The protocol version to use.
    pub proto: u8,
    /// The compression to use.
    #[serde(default)]
    pub codec: String,
    /// Largest payload that the receiver accepts.
    pub max_frame: u32,
    /// Maximum of unacknowledged payload bytes. One frame is always admitted, whatever its size.
    pub window_bytes: u64,
    /// Maximum number of unacknowledged frames.
    pub window_frames: u32,
    /// The sender continues with the sequence after this one. At least `next_seq - 1` of the HELLO.
    pub last_durable_seq: u64,
    /// Increases at each start of the receiver.
    #[serde(default)]
    pub server_epoch: u64,
}

/// Why a frame was not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NackCode {
    /// Its checksum does not match. Send it again.
    Crc,
    /// The frame exceeds the receiver's limit. Set it aside.
    TooLarge,
    /// The frame's lengths are inconsistent, or its meta is not a JSON object. Set it aside.
    BadMeta,
    /// The disk is full. Send the frame again later.
    DiskFull,
    /// The token is missing or wrong.
    Auth,
    /// Its schema is of a later major version. Set it aside.
    Schema,
    /// A code of a later version.
    Other(u16),
}

impl NackCode {
    /// The code on the wire.
    pub fn code(self) -> u16 {
        match self {
            Self::Crc => 1,
            Self::TooLarge => 2,
            Self::BadMeta => 3,
            Self::DiskFull => 4,
            Self::Auth => 5,
            Self::Schema => 6,
            Self::Other(code) => code,
        }
    }

    /// The reason for a code on the wire.
    pub fn from_code(code: u16) -> Self {
        match code {
            1 => Self::Crc,
            2 => Self::TooLarge,
            3 => Self::BadMeta,
            4 => Self::DiskFull,
            5 => Self::Auth,
            6 => Self::Schema,
            other => Self::Other(other),
        }
    }

    /// Whether another attempt with the same bytes may succeed. If not, the sender sets the frame
    /// aside (in its own dead letter file) and continues; the receiver counts the sequence as
    /// handled and acknowledges past it.
    pub fn is_transient(self) -> bool {
        matches!(self, Self::Crc | Self::DiskFull)
    }
}

/// Reports that one frame was not stored.
///
/// After a transient code (see [`NackCode::is_transient`]) the receiver ignores all frames of the
/// connection until this sequence comes again, because sequences are stored in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nack {
    /// The sequence of the frame.
    pub seq: u64,
    /// The reason.
    pub code: NackCode,
    /// Text for people; at most 32 KiB on the wire, cut at a character boundary.
    pub text: String,
}

/// Why a receiver ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoAwayCode {
    /// A sequence was skipped. Connect again and start from the oldest.
    Gap,
    /// The receiver stops. Connect again.
    Shutdown,
    /// The token is missing or wrong, or the address is not allowed.
    Auth,
    /// Too many connections. Connect again, later.
    Busy,
    /// The sender broke the protocol, or speaks another version.
    Protocol,
    /// No bytes came for too long, or a frame stopped halfway.
    Idle,
    /// A code of a later version.
    Other(u16),
}

impl GoAwayCode {
    /// The code on the wire.
    pub fn code(self) -> u16 {
        match self {
            Self::Gap => 1,
            Self::Shutdown => 2,
            Self::Auth => 3,
            Self::Busy => 4,
            Self::Protocol => 5,
            Self::Idle => 6,
            Self::Other(code) => code,
        }
    }

    /// The reason for a code on the wire.
    pub fn from_code(code: u16) -> Self {
        match code {
            1 => Self::Gap,
            2 => Self::Shutdown,
            3 => Self::Auth,
            4 => Self::Busy,
            5 => Self::Protocol,
            6 => Self::Idle,
            other => Self::Other(other),
        }
    }
}

/// The receiver's last frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoAway {
    /// The reason.
    pub code: GoAwayCode,
    /// Text for people.
    pub text: String,
}
