//! Remembers across restarts how far each sender's run is stored.
//!
//! Each output has one file, `<dir>/ledger/<output>`: a checksum, then JSON with an hour file, an
//! offset in it, and the highest sequence of each run up to that offset. The file is replaced as a
//! whole from time to time, after the lines it covers are on disk. On start, the lines after the
//! offset are read again, since each line contains sender, run and sequence. So the listener knows
//! exactly what is on disk even if the last replacement did not happen, and a resent frame is not
//! stored twice. If a ledger is missing or damaged, every hour that is not packed must be read.

use std::io;
use std::path::{Path, PathBuf};

use proto::layout::Hour;
use serde::{Deserialize, Serialize};
use service::files;

use crate::lines::{self, Continue};
use crate::storage;
use crate::stream::{Output, Streams};

/// The format version of the file.
const VERSION: u32 = 1;
/// The directory below the root.
const DIR: &str = "ledger";

/// The position of an output in its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// The hour file last written.
    pub(crate) hour: Hour,
    /// Bytes of it that the ledger covers.
    pub(crate) offset: u64,
}

#[derive(Serialize, Deserialize)]
struct Snapshot {
    v: u32,
    /// The hour in the form of [`Hour::plain`]; absent before the first record.
    file: Option<PathBuf>,
    offset: u64,
    streams: Vec<Run>,
}

#[derive(Serialize, Deserialize)]
struct Run {
    producer: String,
    epoch: u64,
    seq: u64,
    /// Last contact, seconds since the Unix epoch.
    heard: i64,
}

/// The reason the stored state cannot be determined.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The ledger was written by a later version of the listener.
    #[error("read {}: it is of version {found}, and this program knows {VERSION}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// Reading failed.
    #[error("read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

fn path_of(root: &Path, output: Output) -> PathBuf {
    root.join(DIR).join(output.as_str())
}

/// The directory of an output's hour files.
pub(crate) fn dir_of(root: &Path, output: Output) -> PathBuf {
    match output {
        Output::Records => root.to_owned(),
        Output::Details => root.join(proto::layout::DETAILS),
    }
}

/// Updates `streams` to what is on disk in one output. Returns the position of that output.
///
/// # Errors
/// If the ledger has a later version, or a file cannot be read.
pub(crate) fn load(
    root: &Path,
    output: Output,
    streams: &Streams,
    now: i64,
) -> Result<Option<Position>, LedgerError> {
    let path = path_of(root, output);
    let snapshot = match std::fs::read(&path) {
        Ok(bytes) => match parse(&bytes) {
            Parsed::Sound(snapshot) => Some(snapshot),
            Parsed::Later(found) => return Err(LedgerError::Version { path, found }),
            Parsed::Damaged => {
                tracing::warn!(path = %path.display(), "the ledger is damaged, every plain file is read");
                None
            }
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(source) => return Err(LedgerError::Read { path, source }),
    };
    let mut position = None;
    if let Some(snapshot) = snapshot {
        for run in snapshot.streams {
            streams
                .get(&run.producer, run.epoch, run.heard)
                .raise(output, run.seq);
        }
        position = snapshot
            .file
            .and_then(|file| Hour::of_path(&file))
            .map(|(hour, _)| Position {
                hour,
                offset: snapshot.offset,
            });
    }
    rescan(root, output, streams, position.as_ref(), now)
}

enum Parsed {
    Sound(Snapshot),
    Later(u32),
    Damaged,
}

fn parse(bytes: &[u8]) -> Parsed {
    #[derive(Deserialize)]
    struct Version {
        v: u32,
    }
    let sound = || {
        let (crc, json) = bytes.split_at_checked(9)?;
        let crc = u32::from_str_radix(std::str::from_utf8(crc).ok()?.trim_end(), 16).ok()?;
        (crc32fast::hash(json) == crc).then_some(json)
    };
    let Some(json) = sound() else {
        return Parsed::Damaged;
    };
    match serde_json::from_slice::<Version>(json) {
        Ok(Version { v }) if v > VERSION => return Parsed::Later(v),
        Ok(_) => {}
        Err(_) => return Parsed::Damaged,
    }
    serde_json::from_slice(json).map_or(Parsed::Damaged, Parsed::Sound)
}

/// Reads the lines after `from`, or every plain file.
fn rescan(
    root: &Path,
    output: Output,
    streams: &Streams,
    from: Option<&Position>,
    now: i64,
) -> Result<Option<Position>, LedgerError> {
    let dir = dir_of(root, output);
    let files = lines::hour_files(&dir).map_err(|source| LedgerError::Read {
        path: dir.clone(),
        source,
    })?;
    let mut position = from.cloned();
    for file in lines::one_per_hour(files) {
        let offset = match from {
            Some(from) if file.hour < from.hour => continue,
            Some(from) if file.hour == from.hour => from.offset,
            Some(_) => 0,
            None if file.packed => continue,
            None => 0,
        };
        let end =
            scan(&file.path, output, streams, offset, now).map_err(|source| LedgerError::Read {
                path: file.path.clone(),
                source,
            })?;
        position = Some(Position {
            hour: file.hour,
            offset: end,
        });
    }
    Ok(position)
}

/// The origin of a line, from its own fields.
#[derive(Deserialize)]
struct Origin {
    #[serde(default)]
    pid: Option<String>,
    #[serde(default)]
    epoch: u64,
    #[serde(default)]
    seq: u64,
}

fn scan(path: &Path, output: Output, streams: &Streams, offset: u64, now: i64) -> io::Result<u64> {
    if path
        .extension()
        .is_some_and(|extension| extension == "jsonl")
    {
        // Add the missing line end first: a line that lacks only its end is a record and must be
        // counted.
        let mut options = std::fs::OpenOptions::new();
        let mut file = files::open_with(options.read(true).append(true), path)?;
        storage::seal(&mut file)?;
    }
    let mut reader = lines::open(path)?;
    let mut bad = 0_u64;
    let end = lines::each_line(&mut *reader, offset, |line| {
        match serde_json::from_slice(line) {
            Ok(Origin {
                pid: Some(pid),
                epoch,
                seq,
            }) => streams.get(&pid, epoch, now).raise(output, seq),
            Ok(Origin { pid: None, .. }) => {}
            // A torn line belongs to no run: its frame was not acknowledged and will be sent again.
            Err(_) => bad += 1,
        }
        Continue::Yes
    })?;
    if bad > 0 {
        tracing::warn!(path = %path.display(), lines = bad, "lines of a stored file are no JSON, as a crash leaves them");
    }
    Ok(end)
}

/// Replaces the ledger of an output. The lines it covers must be on disk.
pub(crate) fn save(
    root: &Path,
    output: Output,
    streams: &Streams,
    position: Option<&Position>,
) -> io::Result<()> {
    use std::io::Write;
    let path = path_of(root, output);
    let dir = root.join(DIR);
    storage::create_dirs(root, &dir)?;
    let snapshot = Snapshot {
        v: VERSION,
        file: position.map(|position| position.hour.plain()),
        offset: position.map_or(0, |position| position.offset),
        streams: streams
            .all()
            .iter()
            .map(|stream| Run {
                producer: stream.id().producer.to_string(),
                epoch: stream.id().epoch,
                seq: stream.stored(output),
                heard: stream.heard(),
            })
            .collect(),
    };
    let json = serde_json::to_vec(&snapshot)?;
    let mut file = storage::temporary(&dir)?;
    write!(file, "{:08x} ", crc32fast::hash(&json))?;
    file.write_all(&json)?;
    storage::keep(file, &path)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const HOUR: &str = "2026-01-02/10.jsonl";

    fn line(pid: &str, epoch: u64, seq: u64) -> String {
        format!(
            r#"{{"v":2,"req_body":"{{\"pid\":\"forged\"}}","pid":"{pid}","epoch":{epoch},"seq":{seq}}}"#
        ) + "\n"
    }

    fn write(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn loaded(root: &Path) -> (Streams, Option<Position>) {
        let streams = Streams::default();
        let position = load(root, Output::Records, &streams, 0).unwrap();
        (streams, position)
    }

    fn stored(streams: &Streams) -> Vec<(String, u64, u64)> {
        streams
            .all()
            .iter()
            .map(|stream| {
                let id = stream.id();
                (
                    id.producer.to_string(),
                    id.epoch,
                    stream.stored(Output::Records),
                )
            })
            .collect()
    }

    #[test]
    fn what_was_saved_is_known_again() {
        let root = tempfile::tempdir().unwrap();
        let streams = Streams::default();
        streams.get("p", 1, 5).raise(Output::Records, 7);
        streams.get("q", 2, 5).raise(Output::Records, 9);
        let (hour, _) = Hour::of_path(Path::new(HOUR)).unwrap();
        let position = Position { hour, offset: 12 };
        save(root.path(), Output::Records, &streams, Some(&position)).unwrap();
        let (streams, found) = loaded(root.path());
        assert_eq!(stored(&streams), [("p".into(), 1, 7), ("q".into(), 2, 9)]);
        assert_eq!(found, Some(position));
    }

    #[test]
    fn lines_behind_the_ledger_are_read_again() {
        let root = tempfile::tempdir().unwrap();
        let known = line("p", 1, 1);
        write(root.path(), HOUR, &known);
        let (streams, position) = loaded(root.path());
        save(root.path(), Output::Records, &streams, position.as_ref()).unwrap();
        // The file was synced, then the process was killed before it saved the ledger.
        let more = [known, line("p", 1, 2), line("q", 4, 3), "{\"torn".into()].concat();
        write(root.path(), HOUR, &more);
        write(root.path(), "2026-01-02/11.jsonl", &line("p", 1, 3));
        let (streams, position) = loaded(root.path());
        assert_eq!(stored(&streams), [("p".into(), 1, 3), ("q".into(), 4, 3)]);
        let position = position.unwrap();
        assert_eq!(position.hour.plain(), Path::new("2026-01-02/11.jsonl"));
        assert_eq!(position.offset, line("p", 1, 3).len() as u64);
    }

    #[test]
    fn a_record_that_lacks_only_its_line_end_is_known() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), HOUR, line("p", 1, 1).trim_end());
        let (streams, position) = loaded(root.path());
        assert_eq!(stored(&streams), [("p".into(), 1, 1)]);
        assert_eq!(position.unwrap().offset, line("p", 1, 1).len() as u64);
    }

    #[test]
    fn the_file_may_have_been_packed_in_between() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), HOUR, &line("p", 1, 1));
        let (streams, position) = loaded(root.path());
        save(root.path(), Output::Records, &streams, position.as_ref()).unwrap();
        fs::remove_file(root.path().join(HOUR)).unwrap();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        io::Write::write_all(&mut gzip, (line("p", 1, 1) + &line("p", 1, 2)).as_bytes()).unwrap();
        fs::write(
            root.path().join("2026-01-02/10.jsonl.gz"),
            gzip.finish().unwrap(),
        )
        .unwrap();
        let (streams, _) = loaded(root.path());
        assert_eq!(stored(&streams), [("p".into(), 1, 2)]);
    }

    #[test]
    fn without_a_sound_ledger_every_plain_file_is_read() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), HOUR, &(line("p", 1, 4) + &line("p", 1, 5)));
        write(root.path(), "ledger/records", "00000000 {\"v\":1}");
        let (streams, _) = loaded(root.path());
        assert_eq!(stored(&streams), [("p".into(), 1, 5)]);
    }

    #[test]
    fn a_ledger_of_a_later_version_is_an_error_that_says_so() {
        let root = tempfile::tempdir().unwrap();
        let json = br#"{"v":2,"new":true}"#;
        let text = format!(
            "{:08x} {}",
            crc32fast::hash(json),
            std::str::from_utf8(json).unwrap()
        );
        write(root.path(), "ledger/records", &text);
        let error = load(root.path(), Output::Records, &Streams::default(), 0).unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("it is of version 2, and this program knows 1"),
            "{error}"
        );
    }
}
