//! A file of frames, in the same bytes as on the wire, in ascending sequence.
//!
//! A segment is written once, from its beginning, and deleted as a whole when all its frames are
//! acknowledged. A crash can cut off only frames that were never acknowledged. Every frame carries
//! its own checksums, so a reader can detect damage.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use proto::frame::{HEADER_LEN, Header, MAX_PAYLOAD};

/// A segment of this size in bytes takes no more frames.
pub(crate) const SEGMENT_MAX: u64 = 64 << 20;

/// Size of one read while frames are small.
const READ_AHEAD: usize = 256 << 10;

const SUFFIX: &str = ".seg";

/// `<epoch>-<first sequence>.seg`, both with 20 digits, so that names sort in sending order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SegmentName {
    /// The epoch of its frames.
    pub epoch: u64,
    /// The sequence of its first frame.
    pub first: u64,
}

impl SegmentName {
    /// Parses a file name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (epoch, first) = name.strip_suffix(SUFFIX)?.split_once('-')?;
        let number = |text: &str| {
            let digits = text.len() == 20 && text.bytes().all(|b| b.is_ascii_digit());
            digits.then(|| text.parse().ok()).flatten()
        };
        Some(Self {
            epoch: number(epoch)?,
            first: number(first)?,
        })
    }

    /// The file name.
    pub(crate) fn in_dir(self, dir: &Path) -> PathBuf {
        dir.join(format!("{:020}-{:020}{SUFFIX}", self.epoch, self.first))
    }
}

/// A segment being written. Blocks the thread.
#[derive(Debug)]
pub(crate) struct SegmentWriter {
    file: File,
    len: u64,
    is_synced: bool,
}

impl SegmentWriter {
    /// Creates a segment, readable by its owner and group.
    ///
    /// # Errors
    /// If the file cannot be created, for example because its name is taken.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o640)
            .open(path)?;
        Ok(Self {
            file,
            len: 0,
            is_synced: false,
        })
    }

    /// Bytes of complete frames in it.
    pub(crate) fn bytes(&self) -> u64 {
        self.len
    }

    /// Appends complete frames, all or none.
    ///
    /// # Errors
    /// If the operating system reports an error. The file then has its previous length.
    pub(crate) fn append(&mut self, frames: &[Bytes]) -> io::Result<()> {
        let mut slices: Vec<_> = frames.iter().map(|frame| IoSlice::new(frame)).collect();
        let bytes: u64 = frames.iter().map(|frame| frame.len() as u64).sum();
        if let Err(error) = write_all_vectored(&mut self.file, &mut slices) {
            // A partial frame in the middle would hide all frames after it.
            let back = self.file.set_len(self.len).and_then(|()| {
                io::Seek::seek(&mut self.file, io::SeekFrom::Start(self.len)).map(drop)
            });
            return Err(back.err().unwrap_or(error));
        }
        self.len += bytes;
        self.is_synced = false;
        Ok(())
    }

    /// Syncs the appended frames, so that they survive a machine crash.
    ///
    /// # Errors
    /// If the disk reports an error.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        if !self.is_synced {
            self.file.sync_data()?;
            self.is_synced = true;
        }
        Ok(())
    }
}

fn write_all_vectored(file: &mut File, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        match file.write_vectored(slices) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut slices, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A frame read from a segment.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Stored {
    /// Its sequence.
    pub seq: u64,
    /// The complete frame.
    pub bytes: Bytes,
}

/// Prints only lengths, because frames contain user prompts.
impl std::fmt::Debug for Stored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stored")
            .field("seq", &self.seq)
            .field("len", &self.bytes.len())
            .finish()
    }
}

/// The next item in a segment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A frame.
    Frame(Stored),
    /// A frame with a damaged payload. Reading can continue after it.
    Damaged(u64),
    /// Nothing more before the bound.
    End,
    /// The last frame is incomplete, because its writer was interrupted.
    Torn,
    /// The bytes are not a frame, and the start of the next frame is unknown.
    Corrupt,
}

/// Reads a segment from its beginning up to a bound, which the writer may move forward. Blocks the
/// thread.
#[derive(Debug)]
pub(crate) struct SegmentReader {
    file: File,
    /// The file offset of `buffer`.
    at: u64,
    buffer: Vec<u8>,
    used: usize,
    /// The lowest sequence that may follow.
    least: u64,
    /// Frames passed.
    frames: u64,
}

impl SegmentReader {
    /// Opens a segment.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            file: File::open(path)?,
            at: 0,
            buffer: Vec::new(),
            used: 0,
            least: 0,
            frames: 0,
        })
    }

    /// The sequence of the last frame passed, whether complete, damaged or skipped.
    pub(crate) fn last_seen(&self) -> Option<u64> {
        self.least.checked_sub(1)
    }

    /// Bytes and frames passed.
    pub(crate) fn passed(&self) -> (u64, u64) {
        (self.position(), self.frames)
    }

    /// Returns the next frame whose sequence is at least `from`. Earlier frames are skipped unread.
    /// `bound` is the end offset of the complete frames.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(crate) fn next(&mut self, from: u64, bound: u64) -> io::Result<Step> {
        loop {
            if !self.fill(HEADER_LEN, bound)? {
                let rest = bound.saturating_sub(self.position());
                return Ok(if rest == 0 { Step::End } else { Step::Torn });
            }
            let mut raw = [0; HEADER_LEN];
            raw.copy_from_slice(&self.buffer[self.used..self.used + HEADER_LEN]);
            let header = match Header::from_bytes(&raw) {
                Ok(header) if header.payload_len <= MAX_PAYLOAD && header.seq >= self.least => {
                    header
                }
                _ => return Ok(Step::Corrupt),
            };
            let len = HEADER_LEN + header.payload_len as usize;
            if self.position() + len as u64 > bound {
                return Ok(Step::Torn);
            }
            self.least = header.seq + 1;
            self.frames += 1;
            if header.seq < from {
                self.skip(len);
                continue;
            }
            if !self.fill(len, bound)? {
                return Ok(Step::Torn);
            }
            let frame = &self.buffer[self.used..self.used + len];
            let is_whole = crc32fast::hash(&frame[HEADER_LEN..]) == header.payload_crc;
            let bytes = Bytes::copy_from_slice(frame);
            self.skip(len);
            return Ok(match is_whole {
                true => Step::Frame(Stored {
                    seq: header.seq,
                    bytes,
                }),
                false => Step::Damaged(header.seq),
            });
        }
    }

    fn position(&self) -> u64 {
        self.at + self.used as u64
    }

    fn skip(&mut self, bytes: usize) {
        self.used += bytes;
        if self.used >= self.buffer.len() {
            self.at += self.used as u64;
            self.buffer.clear();
            self.used = 0;
        }
    }

    /// Reads on up to `bound` if needed. Returns whether the buffer then holds the next `need`
    /// bytes.
    fn fill(&mut self, need: usize, bound: u64) -> io::Result<bool> {
        let have = self.buffer.len() - self.used;
        if have >= need {
            return Ok(true);
        }
        let left = bound.saturating_sub(self.position());
        if left < need as u64 {
            return Ok(false);
        }
        self.buffer.drain(..self.used);
        self.at += self.used as u64;
        self.used = 0;
        // After a frame of many megabytes, shrink the buffer to its usual size.
        self.buffer.shrink_to(READ_AHEAD.max(need));
        let want = need
            .max(READ_AHEAD)
            .min(usize::try_from(left).unwrap_or(need));
        self.buffer.resize(want, 0);
        let read = read_at_most(&self.file, &mut self.buffer[have..], self.at + have as u64);
        let read = read.inspect_err(|_| self.buffer.truncate(have))?;
        self.buffer.truncate(have + read);
        Ok(have + read >= need)
    }
}

fn read_at_most(file: &File, mut into: &mut [u8], mut at: u64) -> io::Result<usize> {
    let mut read = 0;
    while !into.is_empty() {
        match file.read_at(into, at) {
            Ok(0) => break,
            Ok(n) => {
                read += n;
                at += n as u64;
                into = &mut into[n..];
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::frame;

    fn written(dir: &Path, seqs: &[(u64, usize)]) -> (PathBuf, SegmentWriter) {
        let path = SegmentName { epoch: 3, first: 1 }.in_dir(dir);
        let mut writer = SegmentWriter::create(&path).unwrap();
        for (seq, len) in seqs {
            writer.append(&[frame(*seq, *len)]).unwrap();
        }
        (path, writer)
    }

    fn read(path: &Path, from: u64) -> (Vec<u64>, Step) {
        let mut reader = SegmentReader::open(path).unwrap();
        let bound = std::fs::metadata(path).unwrap().len();
        let mut seqs = Vec::new();
        loop {
            match reader.next(from, bound).unwrap() {
                Step::Frame(stored) => {
                    assert_eq!(
                        stored.bytes,
                        frame(stored.seq, stored.bytes.len() - HEADER_LEN)
                    );
                    seqs.push(stored.seq);
                }
                step => return (seqs, step),
            }
        }
    }

    #[test]
    fn frames_come_back_as_they_were_written_from_any_sequence_on() {
        let dir = tempfile::tempdir().unwrap();
        let frames = [(1, 10), (2, 0), (3, 700_000), (4, 300_000), (5, 20)];
        let (path, writer) = written(dir.path(), &frames);
        assert_eq!(writer.bytes(), 1_000_030 + 5 * HEADER_LEN as u64);
        for from in 0..7 {
            let expected: Vec<u64> = (1..6).filter(|seq| *seq >= from).collect();
            assert_eq!(read(&path, from), (expected, Step::End), "from {from}");
        }
    }

    #[test]
    fn a_reader_follows_its_writer_no_further_than_it_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let (path, mut writer) = written(dir.path(), &[(1, 100)]);
        let mut reader = SegmentReader::open(&path).unwrap();
        let bound = writer.bytes();
        writer.append(&[frame(2, 50)]).unwrap();
        assert!(matches!(reader.next(1, bound).unwrap(), Step::Frame(f) if f.seq == 1));
        assert_eq!(reader.next(1, bound).unwrap(), Step::End);
        assert!(matches!(reader.next(1, writer.bytes()).unwrap(), Step::Frame(f) if f.seq == 2));
    }

    #[test]
    fn a_segment_cut_anywhere_gives_its_whole_frames() {
        let dir = tempfile::tempdir().unwrap();
        let (path, writer) = written(dir.path(), &[(1, 100), (2, 100)]);
        let whole = std::fs::read(&path).unwrap();
        drop(writer);
        for cut in 0..whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let (seqs, step) = read(&path, 1);
            let frames = cut / 132;
            assert_eq!(seqs.len(), frames, "cut at {cut}");
            assert_eq!(
                step,
                if cut % 132 == 0 {
                    Step::End
                } else {
                    Step::Torn
                }
            );
        }
    }

    #[test]
    fn any_damaged_byte_is_noticed_and_costs_the_least() {
        let dir = tempfile::tempdir().unwrap();
        let (path, writer) = written(dir.path(), &[(1, 40), (2, 40)]);
        let whole = std::fs::read(&path).unwrap();
        drop(writer);
        for at in 0..HEADER_LEN + 40 {
            let mut bad = whole.clone();
            bad[at] ^= 0x20;
            std::fs::write(&path, &bad).unwrap();
            let mut reader = SegmentReader::open(&path).unwrap();
            let bound = bad.len() as u64;
            let first = reader.next(1, bound).unwrap();
            if at < HEADER_LEN {
                assert_eq!(first, Step::Corrupt, "byte {at}");
            } else {
                assert_eq!(first, Step::Damaged(1), "byte {at}");
                assert!(matches!(reader.next(1, bound).unwrap(), Step::Frame(f) if f.seq == 2));
            }
        }
    }

    #[test]
    fn names_sort_as_their_frames_are_sent() {
        let dir = Path::new("/spool");
        let name = SegmentName {
            epoch: 12,
            first: 345,
        };
        let path = name.in_dir(dir);
        let text = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(text, "00000000000000000012-00000000000000000345.seg");
        assert_eq!(SegmentName::parse(text), Some(name));
        for bad in [
            "12-345.seg",
            "x",
            "00000000000000000012-0000000000000000034x.seg",
            "+0000000000000000012-00000000000000000345.seg",
        ] {
            assert_eq!(SegmentName::parse(bad), None, "{bad}");
        }
    }
}
