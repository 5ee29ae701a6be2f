//! The source of an hour's bytes: the growing file or the compressed one.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use service::files;

use super::position::{PRINT_BYTES, Position, Print, Trail};

/// An open file of an hour.
#[derive(Debug)]
pub(super) enum Source {
    /// The growing file.
    Plain(File),
    /// The final, compressed file. The decoder is at the position where reading continues.
    Gzip(Box<MultiGzDecoder<BufReader<File>>>),
}

/// How a file relates to a position.
#[derive(Debug)]
pub(super) enum Fit {
    /// The file begins with all the bytes read: continue. Carries the last bytes read.
    Same(Trail),
    /// The file holds only the beginning of the bytes read: continue at this line start. Carries
    /// the bytes before it.
    Cut(u64, Print, Trail),
    /// The file is a different one.
    Other,
}

/// Device and inode, which identify a file on this machine.
pub(super) fn file_id(metadata: &std::fs::Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Compares a plain file with the bytes already read. `line_max` bounds the search for a line's
/// start.
pub(super) fn fit_plain(file: &File, position: &Position, line_max: usize) -> io::Result<Fit> {
    let len = file.metadata()?.len();
    let Position {
        offset, head, tail, ..
    } = *position;
    if len < u64::from(head.len) || !head.fits(&bytes_at(file, 0, head.len as usize)?) {
        return Ok(Fit::Other);
    }
    if len >= offset {
        let last = bytes_at(file, offset - u64::from(tail.len), tail.len as usize)?;
        return Ok(match tail.fits(&last) {
            true => Fit::Same(Trail::of(&last)),
            false => Fit::Other,
        });
    }
    let start = line_start(file, len, line_max)?;
    let (head, trail) = prints_before(file, start)?;
    Ok(Fit::Cut(start, head, trail))
}

/// The prints of the bytes before `offset`.
pub(super) fn prints_before(file: &File, offset: u64) -> io::Result<(Print, Trail)> {
    // At most `PRINT_BYTES`.
    let len = offset.min(PRINT_BYTES as u64) as usize;
    let head = Print::of(&bytes_at(file, 0, len)?);
    let trail = Trail::of(&bytes_at(file, offset - len as u64, len)?);
    Ok((head, trail))
}

/// The start of the line that contains byte `end` or would begin there; 0 if none is found within
/// `line_max`.
pub(super) fn line_start(file: &File, end: u64, line_max: usize) -> io::Result<u64> {
    const STEP: u64 = 64 * 1024;
    let lowest = end.saturating_sub(line_max as u64);
    let mut upper = end;
    while upper > lowest {
        let lower = upper.saturating_sub(STEP).max(lowest);
        let bytes = bytes_at(file, lower, (upper - lower) as usize)?;
        if let Some(at) = memchr::memrchr(b'\n', &bytes) {
            return Ok(lower + at as u64 + 1);
        }
        upper = lower;
    }
    Ok(0)
}

fn bytes_at(file: &File, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    match file.read_exact_at(&mut bytes, offset) {
        Ok(()) => Ok(bytes),
        // The file was truncated meanwhile; the missing bytes match no print.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Opens a compressed file at the position and returns the last bytes before it. A different file is
/// opened at its start, with `None`.
pub(super) fn open_gzip(path: &Path, position: &Position) -> io::Result<(Source, Option<Trail>)> {
    let mut decoder = decoder(path)?;
    let mut at = 0;
    let mut head = Vec::new();
    let mut trail = Trail::default();
    let mut buffer = vec![0; 64 * 1024];
    while at < position.offset {
        let want = (position.offset - at).min(buffer.len() as u64) as usize;
        let got = decoder.read(&mut buffer[..want])?;
        if got == 0 {
            break;
        }
        let missing = (position.head.len as usize).saturating_sub(head.len());
        head.extend_from_slice(&buffer[..missing.min(got)]);
        trail.push(&buffer[..got]);
        at += got as u64;
    }
    let is_same =
        at == position.offset && position.head.fits(&head) && position.tail == trail.print();
    if is_same {
        return Ok((Source::Gzip(decoder), Some(trail)));
    }
    Ok((Source::Gzip(self::decoder(path)?), None))
}

fn decoder(path: &Path) -> io::Result<Box<MultiGzDecoder<BufReader<File>>>> {
    let file = BufReader::with_capacity(64 * 1024, files::open(path)?);
    Ok(Box::new(MultiGzDecoder::new(file)))
}

impl Source {
    /// Reads the bytes at `offset`; 0 bytes at the end. A compressed source continues where its
    /// decoder is, which the caller keeps at `offset`.
    pub(super) fn read(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        loop {
            let read = match self {
                Self::Plain(file) => file.read_at(buffer, offset),
                Self::Gzip(decoder) => decoder.read(buffer),
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }
}
