//! Reads stored lines back, from plain or packed files.

use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use proto::layout::{self, Hour};
use service::files;

/// Longest line that is read. The largest record is several times as large as the largest frame,
/// because of JSON escapes and base64.
pub(crate) const LINE_MAX: usize = 512 << 20;

/// Opens a file of stored lines. Decompresses it if its name says that it is packed.
pub(crate) fn open(path: &Path) -> io::Result<Box<dyn BufRead + Send>> {
    let file = BufReader::with_capacity(256 << 10, files::open(path)?);
    if path.extension().is_some_and(|extension| extension == "gz") {
        Ok(Box::new(BufReader::with_capacity(
            256 << 10,
            MultiGzDecoder::new(file),
        )))
    } else {
        Ok(Box::new(file))
    }
}

/// Calls `each` with every complete line from `offset` on, without its line end, until `each`
/// stops. Returns the offset after the last complete line. A last line without a line end is
/// skipped.
pub(crate) fn each_line(
    mut reader: &mut dyn BufRead,
    offset: u64,
    mut each: impl FnMut(&[u8]) -> Continue,
) -> io::Result<u64> {
    let skipped = io::copy(&mut Read::take(&mut reader, offset), &mut io::sink())?;
    let mut at = skipped;
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = Read::take(&mut reader, LINE_MAX as u64).read_until(b'\n', &mut line)?;
        if line.pop_if(|last| *last == b'\n').is_none() {
            return Ok(at);
        }
        at += read as u64;
        if each(&line) == Continue::Stop {
            return Ok(at);
        }
    }
}

/// Whether to continue reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Continue {
    /// Read the next line.
    Yes,
    /// Stop reading.
    Stop,
}

/// A file of one hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HourFile {
    /// Its hour.
    pub(crate) hour: Hour,
    /// Whether it is packed.
    pub(crate) packed: bool,
    /// Its path.
    pub(crate) path: PathBuf,
}

/// The hour files below `dir`, oldest first. An hour that is being packed has two. A missing
/// directory has no files.
pub(crate) fn hour_files(dir: &Path) -> io::Result<Vec<HourFile>> {
    let mut files = Vec::new();
    for day in entries(dir)? {
        let is_day = day
            .file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| layout::date_of_name(name).is_some());
        if !is_day {
            continue;
        }
        for path in entries(&day)? {
            if let Some((hour, packed)) = Hour::of_path(&path) {
                files.push(HourFile { hour, packed, path });
            }
        }
    }
    files.sort_by_key(|file| (file.hour, file.packed));
    Ok(files)
}

/// Keeps one file per hour. Of two, keeps the plain one, which is complete as long as it exists.
pub(crate) fn one_per_hour(mut files: Vec<HourFile>) -> Vec<HourFile> {
    files.dedup_by(|later, earlier| later.hour == earlier.hour);
    files
}

/// The files and directories in a directory, without links and other types. Empty if the directory
/// is missing.
pub(crate) fn entries(dir: &Path) -> io::Result<Vec<PathBuf>> {
    match std::fs::read_dir(dir) {
        Ok(entries) => {
            let is_ours = |entry: &std::fs::DirEntry| {
                let kind = entry.file_type();
                kind.is_ok_and(|kind| kind.is_file() || kind.is_dir())
            };
            entries
                .filter(|entry| entry.as_ref().map_or(true, is_ours))
                .map(|entry| entry.map(|entry| entry.path()))
                .collect()
        }
        Err(error) if is_no_directory(&error) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn is_no_directory(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn lines(path: &Path, offset: u64) -> (Vec<String>, u64) {
        let mut out = Vec::new();
        let end = each_line(&mut *open(path).unwrap(), offset, |line| {
            out.push(String::from_utf8(line.to_vec()).unwrap());
            Continue::Yes
        })
        .unwrap();
        (out, end)
    }

    #[test]
    fn plain_and_packed_files_give_the_same_lines() {
        let dir = tempfile::tempdir().unwrap();
        let text = b"one\ntwo\n\nhalf";
        let plain = dir.path().join("03.jsonl");
        std::fs::write(&plain, text).unwrap();
        let packed = dir.path().join("03.jsonl.gz");
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(text).unwrap();
        std::fs::write(&packed, gzip.finish().unwrap()).unwrap();
        for path in [plain, packed] {
            assert_eq!(
                lines(&path, 0),
                (vec!["one".into(), "two".into(), String::new()], 9)
            );
            assert_eq!(lines(&path, 4), (vec!["two".into(), String::new()], 9));
            assert_eq!(lines(&path, 99), (vec![], 13));
        }
    }

    #[test]
    fn links_and_special_files_are_no_hour_files() {
        use std::os::unix::fs::symlink;
        let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(elsewhere.path().join("10.jsonl"), "").unwrap();
        symlink(elsewhere.path(), dir.path().join("2020-01-01")).unwrap();
        let day = dir.path().join("2020-01-02");
        std::fs::create_dir(&day).unwrap();
        symlink(elsewhere.path().join("10.jsonl"), day.join("10.jsonl")).unwrap();
        symlink("/dev/zero", day.join("11.jsonl")).unwrap();
        let made = std::process::Command::new("mkfifo")
            .arg(day.join("12.jsonl"))
            .status();
        assert!(made.unwrap().success());
        assert_eq!(hour_files(dir.path()).unwrap(), []);
        assert!(open(&day.join("12.jsonl")).is_err());
    }

    #[test]
    fn hour_files_come_in_the_order_of_time_and_foreign_ones_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "2026-01-03/00.jsonl",
            "2026-01-02/23.jsonl.gz",
            "2026-01-02/23.jsonl",
            "2026-01-02/.tmp-1-x",
            "details/00.jsonl",
            "notes.txt",
        ] {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let files = hour_files(dir.path()).unwrap();
        let names: Vec<_> = files
            .iter()
            .map(|file| {
                file.path
                    .strip_prefix(dir.path())
                    .unwrap()
                    .to_str()
                    .unwrap()
            })
            .collect();
        assert_eq!(
            names,
            [
                "2026-01-02/23.jsonl",
                "2026-01-02/23.jsonl.gz",
                "2026-01-03/00.jsonl"
            ]
        );
        let one = one_per_hour(files);
        assert_eq!(
            one.iter().map(|file| file.packed).collect::<Vec<_>>(),
            [false, false]
        );
        assert_eq!(hour_files(&dir.path().join("missing")).unwrap(), []);
    }
}
