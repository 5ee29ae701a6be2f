//! The binary format of a checkpoint.
//!
//! | offset | size | what |
//! |---|---|---|
//! | 0 | 4 | magic `BLCP` |
//! | 4 | 4 | format, big-endian |
//! | 8 | 8 | length of the body, big-endian |
//! | 16 | 4 | CRC-32 (IEEE) of the body, big-endian |
//! | 20 | | body: gzip of the JSON of [`Checkpoint`] |
//!
//! | reader \ file | format 1 | format 2 and later |
//! |---|---|---|
//! | this version | read | refused with its number |
//!
//! Within a format, members with a default may be added; unknown members are skipped. Any other
//! change needs a new format.

use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;

use super::{Checkpoint, CheckpointRef};

/// The format that is written, and the latest one that is read.
pub const FORMAT: u32 = 1;

const MAGIC: [u8; 4] = *b"BLCP";
const HEADER: usize = 20;

/// Largest body after decompression: protects against a decompression bomb.
const INFLATED_MAX: u64 = 2 * 1024 * 1024 * 1024;

/// Why bytes are not a checkpoint that this version can use.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// Too short, or not a checkpoint.
    #[error("it is no checkpoint")]
    NoCheckpoint,
    /// Written by a later version.
    #[error("it has format {found}, the latest known is {FORMAT}")]
    Newer {
        /// Its format.
        found: u32,
    },
    /// Its length or its checksum is wrong.
    #[error("it is not whole")]
    NotWhole,
    /// Its content does not match the format.
    #[error("its content is wrong: {0}")]
    Content(String),
}

/// Encodes a checkpoint.
pub(super) fn encode(checkpoint: &CheckpointRef<'_>) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; HEADER];
    // Level 1: with two checkpoints per second on a busy machine, time matters more than 10 % of
    // the size.
    let gzip = GzEncoder::new(&mut bytes, Compression::fast());
    let mut buffered = io::BufWriter::with_capacity(64 * 1024, gzip);
    serde_json::to_writer(&mut buffered, checkpoint)?;
    buffered
        .into_inner()
        .map_err(io::IntoInnerError::into_error)?
        .finish()?;
    let body = &bytes[HEADER..];
    let (len, crc) = (body.len() as u64, crc32fast::hash(body));
    let mut header = &mut bytes[..HEADER];
    header.write_all(&MAGIC)?;
    header.write_all(&FORMAT.to_be_bytes())?;
    header.write_all(&len.to_be_bytes())?;
    header.write_all(&crc.to_be_bytes())?;
    Ok(bytes)
}

/// Decodes the checkpoint in `bytes`.
pub(super) fn decode(bytes: &[u8]) -> Result<Checkpoint, FormatError> {
    let (magic, rest) = split::<4>(bytes)?;
    let (format, rest) = split::<4>(rest)?;
    if magic != MAGIC {
        return Err(FormatError::NoCheckpoint);
    }
    // Checked before the checksum: a later format may have another header.
    match u32::from_be_bytes(format) {
        FORMAT => {}
        found if found > FORMAT => return Err(FormatError::Newer { found }),
        _ => return Err(FormatError::NoCheckpoint),
    }
    let (len, rest) = split::<8>(rest)?;
    let (crc, body) = split::<4>(rest)?;
    if body.len() as u64 != u64::from_be_bytes(len)
        || crc32fast::hash(body) != u32::from_be_bytes(crc)
    {
        return Err(FormatError::NotWhole);
    }
    let mut text = Vec::new();
    GzDecoder::new(body)
        .take(INFLATED_MAX)
        .read_to_end(&mut text)
        .map_err(|error| FormatError::Content(error.to_string()))?;
    let checkpoint: Checkpoint =
        serde_json::from_slice(&text).map_err(|error| FormatError::Content(error.to_string()))?;
    if !checkpoint.state.is_sound() {
        return Err(FormatError::Content(
            "a histogram contradicts itself".into(),
        ));
    }
    Ok(checkpoint)
}

fn split<const N: usize>(bytes: &[u8]) -> Result<([u8; N], &[u8]), FormatError> {
    let (head, rest) = bytes
        .split_first_chunk::<N>()
        .ok_or(FormatError::NoCheckpoint)?;
    Ok((*head, rest))
}
