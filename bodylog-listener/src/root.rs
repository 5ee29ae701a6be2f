//! The root directory: creates it, checks that it is writable, and locks it for one listener.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::lines;
use crate::storage;

/// The lock file. A locked file means that a listener is running.
const LOCK: &str = ".lock";

/// The reason the directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    /// The directory cannot be created or written to.
    #[error("use {} for records: {source}", dir.display())]
    Unusable {
        /// The directory.
        dir: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Another listener holds the lock.
    #[error("use {} for records: another bodylog-listener is at work there{holder}", dir.display())]
    Taken {
        /// The directory.
        dir: PathBuf,
        /// ` (process N)`, if the process id is known.
        holder: String,
    },
}

/// The right to write below the root. Released on drop.
#[derive(Debug)]
pub(crate) struct Root {
    _lock: File,
}

impl Root {
    /// Creates the directory if it is missing, locks it, checks that it is writable, and removes
    /// unfinished files of a killed listener.
    ///
    /// # Errors
    /// If the directory cannot be used.
    pub(crate) fn take(dir: &Path) -> Result<Self, RootError> {
        let unusable = |source| RootError::Unusable {
            dir: dir.to_owned(),
            source,
        };
        fs::DirBuilder::new()
            .recursive(true)
            .mode(storage::DIR_MODE)
            .create(dir)
            .map_err(unusable)?;
        let path = dir.join(LOCK);
        let mut lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(storage::FILE_MODE)
            .open(&path)
            .map_err(unusable)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let holder = fs::read_to_string(&path).unwrap_or_default();
                let holder = match holder.trim().parse::<u32>() {
                    Ok(pid) => format!(" (process {pid})"),
                    Err(_) => String::new(),
                };
                return Err(RootError::Taken {
                    dir: dir.to_owned(),
                    holder,
                });
            }
            Err(TryLockError::Error(source)) => return Err(unusable(source)),
        }
        // A full disk does not prevent the start, because deletion makes room. A read-only disk
        // does.
        match lock
            .set_len(0)
            .and_then(|()| write!(lock, "{}", std::process::id()))
        {
            Err(error) if error.kind() != io::ErrorKind::StorageFull => {
                return Err(unusable(error));
            }
            _ => {}
        }
        remove_unfinished(dir).map_err(unusable)?;
        Ok(Self { _lock: lock })
    }
}

/// The lock is held, so the process that created these files has ended.
fn remove_unfinished(root: &Path) -> io::Result<()> {
    for dir in [
        root.to_owned(),
        root.join(proto::layout::DETAILS),
        root.join("ledger"),
    ] {
        for path in lines::entries(&dir)? {
            if is_unfinished(&path) {
                fs::remove_file(&path)?;
            } else if service::files::is_dir(&path) {
                for path in lines::entries(&path)?
                    .iter()
                    .filter(|path| is_unfinished(path))
                {
                    fs::remove_file(path)?;
                }
            }
        }
    }
    Ok(())
}

fn is_unfinished(path: &Path) -> bool {
    path.file_name()
        .and_then(|name| name.to_str())
        .is_some_and(|name| name.starts_with(storage::TEMP_PREFIX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_listener_is_told_that_there_is_a_first() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::take(dir.path()).unwrap();
        let error = Root::take(dir.path()).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "use {} for records: another bodylog-listener is at work there (process {})",
                dir.path().display(),
                std::process::id()
            )
        );
        drop(root);
        Root::take(dir.path()).unwrap();
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let error = Root::take(&file.join("below")).unwrap_err().to_string();
        assert!(
            error.contains("file/below for records: Not a directory"),
            "{error}"
        );
    }

    #[test]
    fn what_a_killed_listener_left_half_done_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "2026-01-02/.tmp-1-x",
            "details/2026-01-02/.tmp-2-y",
            "ledger/.tmp-3-z",
            "2026-01-02/10.jsonl",
        ] {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let _root = Root::take(dir.path()).unwrap();
        assert!(dir.path().join("2026-01-02/10.jsonl").exists());
        for name in [
            "2026-01-02/.tmp-1-x",
            "details/2026-01-02/.tmp-2-y",
            "ledger/.tmp-3-z",
        ] {
            assert!(!dir.path().join(name).exists(), "{name}");
        }
    }
}
