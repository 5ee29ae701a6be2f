//! What sender and receiver of the body log say to each other besides the data.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The sender's first frame: who it is and where it stands.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Protocol versions the sender speaks.
    pub proto: Vec<u8>,
    /// Names the sender for ever: a UUID kept beside its spool. At most 128 bytes of
    /// `[A-Za-z0-9._-]`.
    pub producer: String,
    /// One more at each start of the sender. A connection carries one epoch.
    pub epoch: u64,
    /// The lowest sequence of this epoch the sender still has, or will give next. Everything below
    /// was acknowledged earlier or is lost, and will not come.
    pub next_seq: u64,
    /// Compressions it can send, best first, by the names of
    /// [`Compression::as_str`](crate::frame::Compression::as_str).
    #[serde(default)]
    pub codecs: Vec<String>,
    /// Largest payload it may send.
    #[serde(default)]
    pub max_frame: u32,
    /// The shared secret, where the receiver asks for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The sender's name, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub router: String,
    /// The sender's version, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
}

/// The token is never shown.
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
    /// Whether the producer's name is one a ledger can hold: 1 to 128 of `[A-Za-z0-9._-]`.
    pub fn has_valid_producer(&self) -> bool {
        (1..=128).contains(&self.producer.len())
            && self
                .producer
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    }
}

/// The receiver's answer to [`Hello`]: how to go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The protocol version both speak.
    pub proto: u8,
    /// The compression to use.
    #[serde(default)]
    pub codec: String,
    /// Largest payload the receiver takes.
    pub max_frame: u32,
    /// Most unacknowledged payload bytes; one frame is always admitted, however large.
    pub window_bytes: u64,
    /// Most unacknowledged frames.
    pub window_frames: u32,
    /// The sender goes on with the sequence after this one. At least `next_seq - 1` of the HELLO.
    pub last_durable_seq: u64,
    /// Higher at each start of the receiver.
    #[serde(default)]
    pub server_epoch: u64,
}

/// Why a frame was not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NackCode {
    /// Its checksum does not match. Send it again.
    Crc,
    /// It exceeds the receiver's limit. Set it aside.
    TooLarge,
    /// Its parts do not add up, or its meta is no JSON object. Set it aside.
    BadMeta,
    /// No room on the disk. Send it again, later.
    DiskFull,
    /// The token is missing or wrong.
    Auth,
    /// Its schema is of a later major version. Set it aside.
    Schema,
    /// A code of a later version.
    Other(u16),
}

impl NackCode {
    /// On the wire.
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

    /// From the wire.
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

    /// Whether sending the same bytes again may succeed. When not, the sender sets the frame aside
    /// (its own dead letter) and goes on; the receiver has counted the sequence as dealt with and
    /// acknowledges past it.
    pub fn is_transient(self) -> bool {
        matches!(self, Self::Crc | Self::DiskFull)
    }
}

/// One frame was not stored.
///
/// After a transient code (see [`NackCode::is_transient`]) the receiver ignores everything of the
/// connection until this sequence comes again: sequences are stored in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nack {
    /// Which.
    pub seq: u64,
    /// Why.
    pub code: NackCode,
    /// For people; at most 32 KiB on the wire, cut at a character.
    pub text: String,
}

/// Why a receiver ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoAwayCode {
    /// A sequence was skipped. Start again from the oldest.
    Gap,
    /// The receiver stops. Connect again.
    Shutdown,
    /// The token is missing or wrong, or the address is not allowed.
    Auth,
    /// Too many connections. Connect again, later.
    Busy,
    /// The sender broke the protocol, or speaks another version.
    Protocol,
    /// Nothing came for too long, or a frame stopped midway.
    Idle,
    /// A code of a later version.
    Other(u16),
}

impl GoAwayCode {
    /// On the wire.
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

    /// From the wire.
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
    /// Why.
    pub code: GoAwayCode,
    /// For people.
    pub text: String,
}
