//! Packs closed hours into `.jsonl.gz`. A source is deleted only after its replacement has been
//! read back and has the same length and checksum. An existing file with the target's name proves
//! nothing.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

use flate2::Compression;
use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;

use crate::storage;

/// A trade-off between speed and size. Compared with level 1, level 3 costs about a third of the
/// slowdown of level 6 for JSON.
const LEVEL: u32 = 3;

/// The reason an hour stays unpacked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PackError {
    /// Reading or writing failed.
    #[error("pack the file")]
    Io(#[from] io::Error),
    /// The packed file differs from the source.
    #[error("verify the packed file: it does not say the same")]
    Differs,
    /// The source grew in the meantime.
    #[error("pack the file: it is still being written")]
    Grew,
}

/// The length and checksum of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    len: u64,
    crc: u32,
}

/// Packs `source` to `target` and deletes it. If `target` exists, there are two cases. Either the
/// source begins with the target's content, because a crash happened before the source was deleted.
/// Or it has other lines, because the clock went back between two runs: these are appended to the
/// target's.
pub(crate) fn pack(source: &Path, target: &Path) -> Result<(), PackError> {
    let mut expected = Hasher::default();
    let dir = target.parent().unwrap_or(Path::new("."));
    let mut temp = storage::temporary(dir)?;
    let mut gzip = GzEncoder::new(&mut temp, Compression::new(LEVEL));
    let mut before = Sum::default();
    if target.exists() {
        let held = sum_of(unpack(target)?)?;
        let is_held = sum_of(File::open(source)?.take(held.len))? == held;
        match (is_held, fs::metadata(source)?.len() == held.len) {
            (true, true) => {
                drop(gzip);
                return Ok(remove(source, dir)?);
            }
            (true, false) => {}
            (false, _) => before = copy(unpack(target)?, &mut gzip, &mut expected)?,
        }
    }
    let whole = copy(File::open(source)?, &mut gzip, &mut expected)?;
    gzip.finish()?;
    temp.as_file().sync_all()?;
    if sum_of(unpack(temp.path())?)? != whole {
        return Err(PackError::Differs);
    }
    if fs::metadata(source)?.len() != whole.len - before.len {
        return Err(PackError::Grew);
    }
    storage::keep(temp, target)?;
    Ok(remove(source, dir)?)
}

fn remove(source: &Path, dir: &Path) -> io::Result<()> {
    fs::remove_file(source)?;
    storage::sync_dir(dir)
}

fn unpack(path: &Path) -> io::Result<impl Read> {
    Ok(MultiGzDecoder::new(BufReader::new(File::open(path)?)))
}

#[derive(Default)]
struct Hasher {
    crc: crc32fast::Hasher,
    len: u64,
}

impl Hasher {
    fn update(&mut self, bytes: &[u8]) {
        self.crc.update(bytes);
        self.len += bytes.len() as u64;
    }

    fn sum(&self) -> Sum {
        Sum {
            len: self.len,
            crc: self.crc.clone().finalize(),
        }
    }
}

/// Copies, and returns the sum of everything the hasher has seen.
fn copy(mut from: impl Read, to: &mut impl Write, hasher: &mut Hasher) -> io::Result<Sum> {
    let mut buffer = vec![0; 256 << 10];
    loop {
        let n = match from.read(&mut buffer) {
            Ok(0) => return Ok(hasher.sum()),
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hasher.update(&buffer[..n]);
        to.write_all(&buffer[..n])?;
    }
}

fn sum_of(from: impl Read) -> io::Result<Sum> {
    copy(from, &mut io::sink(), &mut Hasher::default())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    struct Hour {
        _dir: tempfile::TempDir,
        source: PathBuf,
        target: PathBuf,
    }

    fn hour(text: &[u8]) -> Hour {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("10.jsonl");
        let target = dir.path().join("10.jsonl.gz");
        fs::write(&source, text).unwrap();
        Hour {
            source,
            target,
            _dir: dir,
        }
    }

    fn text_of(path: &Path) -> String {
        let mut out = String::new();
        unpack(path).unwrap().read_to_string(&mut out).unwrap();
        out
    }

    #[test]
    fn a_packed_hour_says_the_same_and_its_source_is_gone() {
        let text = "{\"a\":1}\n".repeat(100_000);
        let hour = hour(text.as_bytes());
        pack(&hour.source, &hour.target).unwrap();
        assert_eq!(text_of(&hour.target), text);
        assert!(!hour.source.exists());
        assert!(fs::metadata(&hour.target).unwrap().len() < text.len() as u64 / 10);
        assert_eq!(
            fs::read_dir(hour.source.parent().unwrap()).unwrap().count(),
            1
        );
    }

    #[test]
    fn a_target_with_the_same_lines_is_kept() {
        let hour = hour(b"one\n");
        pack(&hour.source, &hour.target).unwrap();
        let before = fs::read(&hour.target).unwrap();
        fs::write(&hour.source, "one\n").unwrap();
        pack(&hour.source, &hour.target).unwrap();
        assert_eq!(fs::read(&hour.target).unwrap(), before);
        assert!(!hour.source.exists());
    }

    #[test]
    fn a_target_with_other_lines_gets_the_sources_behind_its_own() {
        let hour = hour(b"one\n");
        pack(&hour.source, &hour.target).unwrap();
        fs::write(&hour.source, "two\n").unwrap();
        pack(&hour.source, &hour.target).unwrap();
        assert_eq!(text_of(&hour.target), "one\ntwo\n");
        assert!(!hour.source.exists());
    }

    #[test]
    fn lines_that_a_target_holds_already_are_not_packed_twice() {
        let hour = hour(b"one\n");
        pack(&hour.source, &hour.target).unwrap();
        fs::write(&hour.source, "one\ntwo\n").unwrap();
        pack(&hour.source, &hour.target).unwrap();
        assert_eq!(text_of(&hour.target), "one\ntwo\n");
        assert!(!hour.source.exists());
    }

    #[test]
    fn a_target_that_is_damaged_leaves_both_files_alone() {
        let hour = hour(b"one\n");
        fs::write(&hour.target, b"no gzip").unwrap();
        pack(&hour.source, &hour.target).unwrap_err();
        assert_eq!(fs::read(&hour.source).unwrap(), b"one\n");
        assert_eq!(fs::read(&hour.target).unwrap(), b"no gzip");
        assert_eq!(
            fs::read_dir(hour.source.parent().unwrap()).unwrap().count(),
            2
        );
    }
}
