//! How far a file was read, and how to recognise the file later.
//!
//! A file counts as the same if the first and the last up to 4 KiB of the bytes already read are
//! unchanged. Device and inode alone are not enough: inodes are reused, a remounted volume may have
//! another device number, and a file may be truncated and rewritten in place.

use serde::{Deserialize, Serialize};

/// Maximum bytes that a [`Print`] covers.
pub(super) const PRINT_BYTES: usize = 4096;

/// The CRC-32 of some bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Print {
    pub(super) len: u32,
    pub(super) crc: u32,
}

impl Print {
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self {
            // At most `PRINT_BYTES`.
            len: bytes.len() as u32,
            crc: crc32fast::hash(bytes),
        }
    }

    /// Whether these bytes match.
    pub(super) fn fits(self, bytes: &[u8]) -> bool {
        self == Self::of(bytes)
    }

    /// Adds the following bytes, up to the bound.
    fn extend(&mut self, bytes: &[u8]) {
        let room = PRINT_BYTES.saturating_sub(self.len as usize);
        let bytes = &bytes[..room.min(bytes.len())];
        if bytes.is_empty() {
            return;
        }
        let mut hasher = crc32fast::Hasher::new_with_initial_len(self.crc, u64::from(self.len));
        hasher.update(bytes);
        self.crc = hasher.finalize();
        self.len += bytes.len() as u32;
    }
}

/// How far an hour was read. `offset` counts uncompressed bytes, so it means the same in the plain
/// and in the compressed file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Position {
    /// Device and inode of the plain file; zero if it was never open.
    pub(super) file: (u64, u64),
    /// Bytes read, without an incomplete line.
    pub(super) offset: u64,
    /// Lines read.
    pub(super) lines: u64,
    /// The first of the bytes read.
    pub(super) head: Print,
    /// The last of the bytes read.
    pub(super) tail: Print,
    /// Inside a line that is too long: skip everything up to its end.
    pub(super) skipping: bool,
    /// The hour is over and read to its end.
    pub(super) done: bool,
    /// The missing file was already reported.
    pub(super) gone: bool,
}

impl Position {
    /// Bytes read.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Lines read.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// Whether the hour is over and read to its end.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Returns to the start, for another file.
    pub(super) fn restart(&mut self) {
        *self = Self {
            lines: self.lines,
            ..Self::default()
        };
    }
}

/// The last bytes read; [`Position::tail`] is their print.
#[derive(Clone, Debug, Default)]
pub(super) struct Trail(Vec<u8>);

impl Trail {
    pub(super) fn of(bytes: &[u8]) -> Self {
        let mut trail = Self::default();
        trail.push(bytes);
        trail
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let last = &bytes[bytes.len().saturating_sub(PRINT_BYTES)..];
        let room = PRINT_BYTES - last.len();
        let surplus = self.0.len().saturating_sub(room);
        self.0.drain(..surplus);
        self.0.extend_from_slice(last);
    }

    pub(super) fn print(&self) -> Print {
        Print::of(&self.0)
    }
}

/// Moves the position past `bytes`.
pub(super) fn consume(position: &mut Position, trail: &mut Trail, bytes: &[u8]) {
    position.head.extend(bytes);
    trail.push(bytes);
    position.tail = trail.print();
    position.offset += bytes.len() as u64;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_are_of_the_first_and_the_last_bytes_read() {
        let bytes: Vec<u8> = (0..10_000_u32).map(|i| (i % 251) as u8).collect();
        for step in [1, 7, 4096, 5000, 10_000] {
            let mut position = Position::default();
            let mut trail = Trail::default();
            for chunk in bytes.chunks(step) {
                consume(&mut position, &mut trail, chunk);
            }
            assert_eq!(position.offset, 10_000);
            assert!(position.head.fits(&bytes[..4096]), "step {step}");
            assert!(position.tail.fits(&bytes[10_000 - 4096..]), "step {step}");
        }
    }

    #[test]
    fn a_short_file_is_its_own_print() {
        let mut position = Position::default();
        let mut trail = Trail::default();
        consume(&mut position, &mut trail, b"abc");
        consume(&mut position, &mut trail, b"def");
        assert!(position.head.fits(b"abcdef"));
        assert!(position.tail.fits(b"abcdef"));
        assert!(!position.tail.fits(b"abcdeg"));
    }
}
