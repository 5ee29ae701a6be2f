//! The directory in which frames wait while the listener is unreachable.
//!
//! | file | what |
//! |---|---|
//! | `lock` | held by the process that uses the directory |
//! | `producer.json` | who sends from here: a UUID that stays, and the epoch, one more at each start |
//! | `progress` | how far the epoch has got: the highest sequence begun and the highest acknowledged, see [`Progress`] |
//! | `<epoch>-<first sequence>.seg` | frames, see [`segment`] |
//! | `*.seg.corrupt` | segments with damage in them, for a person to look at |
//! | `rejected-*.frame` | frames that the listener will not take |

pub(crate) mod segment;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use self::segment::SegmentName;

const LOCK: &str = "lock";
const PRODUCER: &str = "producer.json";
const PROGRESS: &str = "progress";

/// Most damaged segments and rejected frames kept for manual inspection. The oldest is deleted
/// first.
const ASIDE_MAX: usize = 8;

/// Version of `producer.json`.
const VERSION: u32 = 1;

/// The reason a directory cannot be the spool.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpoolError {
    /// Another process uses it.
    #[error(
        "lock the spool {0}: another process uses it; each router needs a directory of its own"
    )]
    Locked(PathBuf),
    /// `producer.json` has a later version.
    #[error("use the spool {path}: it is of version {version}, this router knows {VERSION}")]
    Version {
        /// The directory.
        path: PathBuf,
        /// The version in the file.
        version: u32,
    },
    /// The operating system reported an error.
    #[error("use the spool {path}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The error.
        #[source]
        source: io::Error,
    },
}

/// The identity of the sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// A UUID.
    pub producer: String,
    /// Incremented at each start.
    pub epoch: u64,
}

impl Identity {
    /// A new identity that no other process has.
    pub(crate) fn fresh() -> Self {
        Self {
            producer: uuid::Uuid::now_v7().to_string(),
            epoch: 1,
        }
    }
}

#[derive(Serialize, Deserialize)]
struct ProducerFile {
    v: u32,
    producer: String,
    epoch: u64,
}

/// A segment of an earlier process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    /// Epoch and first sequence.
    pub name: SegmentName,
    /// Its length, bytes.
    pub len: u64,
    /// Its modification time.
    pub modified: SystemTime,
}

/// What opening a spool gives.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    /// The spool.
    pub spool: Arc<Spool>,
    /// Who sends from here on.
    pub identity: Identity,
    /// What earlier epochs left, in the order they are sent.
    pub left: Vec<Left>,
    /// How far the process before this one had got.
    pub progress: Option<Progress>,
}

/// What is left of one earlier epoch: segments, or frames that were lost with their process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Earlier {
    /// The epoch.
    pub epoch: u64,
    /// Its segments, in order.
    pub segments: Vec<Left>,
    /// How far it had got, where that was noted.
    pub progress: Option<Progress>,
}

impl Earlier {
    /// The epochs that something is left of, the oldest first.
    pub(crate) fn of(opened: &Opened) -> Vec<Self> {
        let by_epoch = opened.left.chunk_by(|a, b| a.name.epoch == b.name.epoch);
        let mut earlier: Vec<Self> = by_epoch
            .map(|segments| Self {
                epoch: segments.first().map_or(0, |first| first.name.epoch),
                segments: segments.to_vec(),
                progress: None,
            })
            .collect();
        let unfinished = opened.progress.filter(|progress| {
            progress.acked < progress.begun && progress.epoch < opened.identity.epoch
        });
        if let Some(progress) = unfinished {
            match earlier.iter_mut().find(|e| e.epoch == progress.epoch) {
                Some(epoch) => epoch.progress = Some(progress),
                None => earlier.push(Self {
                    epoch: progress.epoch,
                    segments: Vec::new(),
                    progress: Some(progress),
                }),
            }
            earlier.sort_by_key(|earlier| earlier.epoch);
        }
        earlier
    }
}

/// How far an epoch has got. What lies between both and is neither at the listener nor in a segment
/// was lost with the process, and can be counted by its successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The epoch.
    pub epoch: u64,
    /// The highest sequence that was given to a frame.
    pub begun: u64,
    /// Everything up to here was acknowledged.
    pub acked: u64,
}

impl Progress {
    const LEN: usize = 28;

    /// Three numbers and their checksum: written at once, a kill leaves the old or the new ones.
    fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        for (at, number) in [self.epoch, self.begun, self.acked].into_iter().enumerate() {
            bytes[at * 8..at * 8 + 8].copy_from_slice(&number.to_be_bytes());
        }
        let crc = crc32fast::hash(&bytes[..24]);
        bytes[24..].copy_from_slice(&crc.to_be_bytes());
        bytes
    }

    /// `None` for bytes that no process has written whole.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = bytes.try_into().ok()?;
        let (numbers, crc) = bytes.split_at(24);
        if crc32fast::hash(numbers).to_be_bytes() != crc {
            return None;
        }
        let mut numbers = numbers.chunks_exact(8).map(|number| {
            let mut word = [0; 8];
            word.copy_from_slice(number);
            u64::from_be_bytes(word)
        });
        Some(Self {
            epoch: numbers.next()?,
            begun: numbers.next()?,
            acked: numbers.next()?,
        })
    }
}

/// An open spool. Holds the lock until it is dropped.
#[derive(Debug)]
pub(crate) struct Spool {
    dir: PathBuf,
    used: AtomicU64,
    max: AtomicU64,
    progress: File,
    _lock: File,
}

impl Spool {
    /// Opens a directory, creating it if it is missing. Takes its lock, begins a new epoch, and
    /// lists the segments of earlier epochs in order. Blocks the thread.
    ///
    /// # Errors
    /// [`SpoolError`].
    pub(crate) fn open(dir: &Path, max: u64) -> Result<Opened, SpoolError> {
        let failed = |path: &Path, source| SpoolError::Io {
            path: path.to_owned(),
            source,
        };
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o750)
            .create(dir)
            .map_err(|error| failed(dir, error))?;
        let lock = lock(&dir.join(LOCK)).map_err(|error| match error {
            TryLockError::WouldBlock => SpoolError::Locked(dir.to_owned()),
            TryLockError::Error(error) => failed(&dir.join(LOCK), error),
        })?;
        let left = list(dir).map_err(|error| failed(dir, error))?;
        let path = dir.join(PROGRESS);
        let progress = fs::read(&path).ok().and_then(|b| Progress::from_bytes(&b));
        let identity = begin_epoch(dir, &left)?;
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o640)
            .open(&path)
            .map_err(|error| failed(&path, error))?;
        let used = left.iter().map(|segment| segment.len).sum();
        let spool = Self {
            dir: dir.to_owned(),
            used: AtomicU64::new(used),
            max: AtomicU64::new(max),
            progress: file,
            _lock: lock,
        };
        Ok(Opened {
            spool: Arc::new(spool),
            identity,
            left,
            progress,
        })
    }

    /// The directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Bytes of segments.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Most bytes of segments.
    pub(crate) fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }

    /// Changes the limit. Existing segments stay.
    pub(crate) fn set_max(&self, max: u64) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// Adds written bytes to the total.
    pub(crate) fn grew(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Subtracts the bytes of a removed segment.
    pub(crate) fn shrank(&self, bytes: u64) {
        // Never below zero: a file may be shorter than its listed length.
        let _ = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                Some(used.saturating_sub(bytes))
            });
    }

    /// Saves another producer name, because another process uses the old one too. Blocks.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn rename_producer(&self, identity: &Identity) -> io::Result<()> {
        write_producer(&self.dir, identity)
    }

    /// Notes how far this epoch has got. Blocks. Not synced: it is for a successor on the same
    /// machine.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn note(&self, progress: Progress) -> io::Result<()> {
        self.progress.write_all_at(&progress.to_bytes(), 0)
    }

    /// Syncs the directory, so that created and deleted files survive a machine crash. Blocks.
    ///
    /// # Errors
    /// If the disk reports an error.
    pub(crate) fn sync(&self) -> io::Result<()> {
        sync_dir(&self.dir)
    }

    /// Removes a segment, or sets it aside if it is damaged. Blocks.
    ///
    /// # Errors
    /// If the operating system reports an error.
    pub(crate) fn remove(&self, path: &Path, is_damaged: bool) -> io::Result<()> {
        if !is_damaged {
            return fs::remove_file(path);
        }
        let mut aside = path.as_os_str().to_owned();
        aside.push(".corrupt");
        fs::rename(path, aside)?;
        self.bound_aside(".corrupt")
    }

    /// Keeps a frame that the listener refuses permanently. Blocks.
    ///
    /// # Errors
    /// If the operating system reports an error.
    pub(crate) fn keep_rejected(&self, epoch: u64, seq: u64, frame: &Bytes) -> io::Result<()> {
        let name = format!("rejected-{epoch:020}-{seq:020}.frame");
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o640)
            .open(self.dir.join(name))?;
        file.write_all(frame)?;
        self.bound_aside(".frame")
    }

    fn bound_aside(&self, suffix: &str) -> io::Result<()> {
        let mut aside: Vec<PathBuf> = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            if path.to_str().is_some_and(|path| path.ends_with(suffix)) {
                aside.push(path);
            }
        }
        aside.sort();
        let excess = aside.len().saturating_sub(ASIDE_MAX);
        aside[..excess].iter().try_for_each(fs::remove_file)
    }
}

fn lock(path: &Path) -> Result<File, TryLockError> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o640)
        .open(path)
        .map_err(TryLockError::Error)?;
    file.try_lock()?;
    Ok(file)
}

/// The segments in a directory, in sending order.
fn list(dir: &Path) -> io::Result<Vec<Left>> {
    let mut left = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let Some(name) = entry.file_name().to_str().and_then(SegmentName::parse) else {
            continue;
        };
        let metadata = entry.metadata()?;
        left.push(Left {
            name,
            len: metadata.len(),
            modified: metadata.modified()?,
        });
    }
    left.sort_by_key(|segment| segment.name);
    Ok(left)
}

/// The identity for this start. It is saved to disk before any other party learns of it.
fn begin_epoch(dir: &Path, left: &[Left]) -> Result<Identity, SpoolError> {
    let path = dir.join(PRODUCER);
    let failed = |source| SpoolError::Io {
        path: path.clone(),
        source,
    };
    let known = match fs::read(&path) {
        Ok(text) => match serde_json::from_slice::<ProducerFile>(&text) {
            Ok(file) if file.v > VERSION => {
                return Err(SpoolError::Version {
                    path: dir.to_owned(),
                    version: file.v,
                });
            }
            Ok(file) => Some(file),
            Err(error) => {
                tracing::error!(path = %path.display(), %error, "the spool's producer file is unreadable: a new producer begins");
                None
            }
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed(error)),
    };
    // Also check the names of the segments: after the file is lost, an epoch must not be used
    // again.
    let newest = left.last().map_or(0, |segment| segment.name.epoch);
    let identity = match known {
        Some(file) => Identity {
            producer: file.producer,
            epoch: file.epoch.max(newest) + 1,
        },
        None => Identity {
            epoch: newest + 1,
            ..Identity::fresh()
        },
    };
    write_producer(dir, &identity).map_err(failed)?;
    Ok(identity)
}

fn write_producer(dir: &Path, identity: &Identity) -> io::Result<()> {
    let file = ProducerFile {
        v: VERSION,
        producer: identity.producer.clone(),
        epoch: identity.epoch,
    };
    let text = serde_json::to_vec(&file).map_err(io::Error::other)?;
    let aside = dir.join(format!("{PRODUCER}.new"));
    let mut out = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o640)
        .open(&aside)?;
    out.write_all(&text)?;
    out.sync_all()?;
    fs::rename(&aside, dir.join(PRODUCER))?;
    sync_dir(dir)
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::segment::SegmentWriter;
    use super::*;
    use crate::testing::frame;

    fn segment(dir: &Path, epoch: u64, first: u64) {
        let path = SegmentName { epoch, first }.in_dir(dir);
        let mut writer = SegmentWriter::create(&path).unwrap();
        writer.append(&[frame(first, 10)]).unwrap();
    }

    #[test]
    fn the_producer_stays_and_the_epoch_grows() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("a/spool");
        let Opened {
            spool,
            identity: first,
            left,
            ..
        } = Spool::open(&dir, 1000).unwrap();
        assert_eq!((first.epoch, left.len(), spool.used()), (1, 0, 0));
        segment(&dir, 1, 7);
        segment(&dir, 1, 3);
        drop(spool);
        let Opened {
            spool,
            identity: second,
            left,
            ..
        } = Spool::open(&dir, 1000).unwrap();
        assert_eq!((&second.producer, second.epoch), (&first.producer, 2));
        let firsts: Vec<u64> = left.iter().map(|segment| segment.name.first).collect();
        assert_eq!((firsts, spool.used()), (vec![3, 7], 84));
    }

    #[test]
    fn a_lost_producer_file_brings_no_epoch_back() {
        let dir = tempfile::tempdir().unwrap();
        segment(dir.path(), 9, 1);
        for text in [None, Some("{torn")] {
            if let Some(text) = text {
                fs::write(dir.path().join(PRODUCER), text).unwrap();
            }
            let Opened { identity, .. } = Spool::open(dir.path(), 1000).unwrap();
            assert_eq!(identity.epoch, 10);
            fs::remove_file(dir.path().join(PRODUCER)).unwrap();
        }
    }

    #[test]
    fn one_process_at_a_time_and_no_later_version() {
        let dir = tempfile::tempdir().unwrap();
        let open = Spool::open(dir.path(), 1000).unwrap();
        let second = Spool::open(dir.path(), 1000).unwrap_err();
        assert!(matches!(second, SpoolError::Locked(_)), "{second}");
        drop(open);
        let later = r#"{"v":2,"producer":"x","epoch":1}"#;
        fs::write(dir.path().join(PRODUCER), later).unwrap();
        let later = Spool::open(dir.path(), 1000).unwrap_err();
        assert!(
            matches!(later, SpoolError::Version { version: 2, .. }),
            "{later}"
        );
    }

    #[test]
    fn what_is_put_aside_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let Opened { spool, .. } = Spool::open(dir.path(), 1000).unwrap();
        for seq in 0..20 {
            spool.keep_rejected(1, seq, &frame(seq, 4)).unwrap();
            segment(dir.path(), 1, seq);
            let path = SegmentName {
                epoch: 1,
                first: seq,
            }
            .in_dir(dir.path());
            spool.remove(&path, true).unwrap();
        }
        let names = || {
            fs::read_dir(dir.path())
                .unwrap()
                .map(|e| e.unwrap().file_name())
        };
        let ending = |end: &str| {
            names()
                .filter(|n| n.to_str().unwrap().ends_with(end))
                .count()
        };
        assert_eq!(
            (ending(".frame"), ending(".corrupt"), ending(".seg")),
            (ASIDE_MAX, ASIDE_MAX, 0)
        );
        assert!(names().any(|name| name.to_str().unwrap().contains("00019")));
    }

    #[test]
    fn the_spool_is_for_its_owner_and_group() {
        use std::os::unix::fs::PermissionsExt;
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("spool");
        let Opened { spool, .. } = Spool::open(&dir, 1000).unwrap();
        segment(&dir, 1, 1);
        spool.keep_rejected(1, 2, &frame(2, 4)).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&dir) & 0o027, 0);
        let mut seen = 0;
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            assert_eq!(mode(&path) & 0o137, 0, "{}", path.display());
            seen += 1;
        }
        assert_eq!(seen, 5, "lock, name, progress, segment and frame");
    }
}
