//! Saves positions and counts together, so that a restart neither loses a row nor counts it twice.
//!
//! A checkpoint is written to a temporary file, synced, and renamed into place; then the directory
//! is synced. The previous one is kept as `<file>.old`. [`format`] has the format.

mod format;
#[cfg(test)]
mod tests;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

pub use self::format::{FORMAT, FormatError};

use crate::aggregate::State;
use crate::tail::Positions;
use serde::{Deserialize, Serialize};

/// Largest checkpoint that is read, in bytes: many times what the label caps allow.
const FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// The contents of a checkpoint.
#[derive(Debug, Deserialize)]
pub struct Checkpoint {
    /// How far the log was read.
    pub positions: Positions,
    /// The counts up to there.
    pub state: State,
}

/// The same contents, borrowed for writing.
#[derive(Debug, Serialize)]
pub struct CheckpointRef<'a> {
    /// How far the log was read.
    pub positions: &'a Positions,
    /// The counts up to there.
    pub state: &'a State,
}

/// The checkpoint found at startup.
#[derive(Debug)]
pub enum Found {
    /// The newest checkpoint.
    Newest(Box<Checkpoint>),
    /// The previous checkpoint, because the newest is damaged or missing.
    Older(Box<Checkpoint>),
    /// There is no checkpoint, or none can be read.
    Nothing,
}

/// Why a checkpoint could not be used or saved.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another exporter uses it.
    #[error("use the checkpoint {path}: another exporter is running on it")]
    Locked {
        /// The checkpoint.
        path: PathBuf,
    },
    /// A later version of this program wrote it.
    #[error(
        "use the checkpoint {path}: it has format {found}, and this version knows formats up to {FORMAT}; run the version that wrote it, or move it away to start anew"
    )]
    Newer {
        /// The checkpoint.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// An I/O operation failed.
    #[error("{what} {path}")]
    Io {
        /// The operation.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

impl StoreError {
    /// Whether only room is missing.
    pub fn is_full(&self) -> bool {
        let Self::Io { source, .. } = self else {
            return false;
        };
        matches!(
            source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        )
    }
}

/// Stores checkpoints at one path.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    /// Held as long as this value lives: two exporters would overwrite each other's counts. Not
    /// there yet where the disk was too full for the file; the next save tries again.
    lock: OnceLock<File>,
}

impl Store {
    /// Takes the place, which must be writable. A full disk is no reason not to start: deleting makes
    /// room.
    ///
    /// # Errors
    /// [`StoreError::Locked`] when another exporter has it, [`StoreError::Io`] when the directory
    /// cannot be written for another reason than want of room.
    pub fn open(path: PathBuf) -> Result<Self, StoreError> {
        let store = Self {
            path,
            lock: OnceLock::new(),
        };
        match store.lock() {
            Err(error) if error.is_full() => {
                tracing::error!(path = %store.path.display(), "the disk is too full for the checkpoint; counts are kept once there is room");
            }
            locked => locked?,
        }
        Ok(store)
    }

    fn lock(&self) -> Result<(), StoreError> {
        if self.lock.get().is_some() {
            return Ok(());
        }
        let path = &self.path;
        let lock_path = beside(path, ".lock");
        let failed = |source| StoreError::Io {
            what: "open",
            path: lock_path.clone(),
            source,
        };
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).map_err(failed)?;
        }
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o640)
            .open(&lock_path)
            .map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::Locked { path: path.clone() });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        // One thread at a time saves.
        let _ = self.lock.set(lock);
        Ok(())
    }

    /// The path of the checkpoint.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The newest readable checkpoint. Damaged files are kept as `<file>.damaged`.
    ///
    /// # Errors
    /// [`StoreError::Newer`]: a checkpoint of a later version is never skipped. [`StoreError::Io`]
    /// if a file cannot be read at all.
    pub fn load(&self) -> Result<Found, StoreError> {
        let older = beside(&self.path, ".old");
        match Self::read_or_put_aside(&self.path)? {
            Some(checkpoint) => Ok(Found::Newest(checkpoint)),
            None => Ok(match Self::read_or_put_aside(&older)? {
                Some(checkpoint) => Found::Older(checkpoint),
                None => Found::Nothing,
            }),
        }
    }

    /// Renames a damaged file at once. Otherwise the next save would keep it as the previous
    /// checkpoint, in place of a good one.
    fn read_or_put_aside(path: &Path) -> Result<Option<Box<Checkpoint>>, StoreError> {
        match read(path)? {
            Read::Good(checkpoint) => Ok(Some(checkpoint)),
            Read::Missing => Ok(None),
            Read::Damaged => {
                let aside = beside(path, ".damaged");
                fs::rename(path, &aside).map_err(|source| StoreError::Io {
                    what: "put aside",
                    path: path.to_owned(),
                    source,
                })?;
                tracing::error!(kept = %aside.display(), "a damaged checkpoint was put aside");
                Ok(None)
            }
        }
    }

    /// Writes a checkpoint and returns its size in bytes. Once this returns, the checkpoint
    /// survives a crash. After an error the previous one is still there.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn save(&self, checkpoint: &CheckpointRef<'_>) -> Result<u64, StoreError> {
        self.lock()?;
        let temporary = beside(&self.path, ".tmp");
        let failed = |what, path: &Path| {
            let path = path.to_owned();
            move |source| StoreError::Io { what, path, source }
        };
        let bytes = format::encode(checkpoint).map_err(failed("encode", &self.path))?;
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o640)
            .open(&temporary)
            .map_err(failed("open", &temporary))?;
        file.write_all(&bytes)
            .and_then(|()| file.sync_all())
            .map_err(failed("write", &temporary))?;
        let older = beside(&self.path, ".old");
        match fs::rename(&self.path, &older) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("rename", &self.path)(error));
            }
            _ => {}
        }
        fs::rename(&temporary, &self.path).map_err(failed("rename", &temporary))?;
        sync_directory(&self.path).map_err(failed("sync the directory of", &self.path))?;
        Ok(bytes.len() as u64)
    }
}

enum Read {
    Good(Box<Checkpoint>),
    Damaged,
    Missing,
}

fn read(path: &Path) -> Result<Read, StoreError> {
    let failed = |source| StoreError::Io {
        what: "read",
        path: path.to_owned(),
        source,
    };
    let bytes = match fs::metadata(path).and_then(|metadata| {
        if metadata.len() > FILE_BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        fs::read(path)
    }) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Read::Missing),
        Err(error) => return Err(failed(error)),
    };
    match format::decode(&bytes) {
        Ok(checkpoint) => Ok(Read::Good(Box::new(checkpoint))),
        Err(FormatError::Newer { found }) => Err(StoreError::Newer {
            path: path.to_owned(),
            found,
        }),
        Err(error) => {
            tracing::error!(path = %path.display(), %error, "a checkpoint is damaged");
            Ok(Read::Damaged)
        }
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(directory)?.sync_all()
}
