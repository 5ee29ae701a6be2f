//! Values from files that may change while the program runs: certificates and tokens.
//!
//! A connection reads the value when it begins. The files are read again only when one of them has
//! changed. If the new content is unusable, the last good value stays in force.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

/// Identifies a version of a file: device, inode, length, and time of the last change.
type Mark = Vec<Option<(u64, u64, u64, i64, i64)>>;

/// Reads the files.
type Read<T> = Box<dyn Fn() -> Result<T, String> + Send + Sync>;

/// A value from files. Cheap to clone.
pub struct Renewed<T>(Arc<Inner<T>>);

struct Inner<T> {
    what: &'static str,
    files: Vec<PathBuf>,
    read: Read<T>,
    held: Mutex<(Mark, T)>,
}

impl<T> Clone for Renewed<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// Never prints the value, because it may be secret.
impl<T> std::fmt::Debug for Renewed<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Renewed")
            .field("what", &self.0.what)
            .field("files", &self.0.files)
            .finish_non_exhaustive()
    }
}

impl<T: Clone> Renewed<T> {
    /// A value that never changes.
    pub fn fixed(value: T) -> Self
    where
        T: Send + Sync + 'static,
    {
        let same = value.clone();
        Self(Arc::new(Inner {
            what: "",
            files: Vec::new(),
            read: Box::new(move || Ok(same.clone())),
            held: Mutex::new((Mark::new(), value)),
        }))
    }

    /// The value that `read` makes from `files`. `what` names it in the log.
    ///
    /// # Errors
    /// Those of `read` at the first reading.
    pub fn new(
        what: &'static str,
        files: Vec<PathBuf>,
        read: impl Fn() -> Result<T, String> + Send + Sync + 'static,
    ) -> Result<Self, String> {
        // Taken before reading, so that a change during it causes another reading.
        let mark = mark(&files);
        let value = read()?;
        Ok(Self(Arc::new(Inner {
            what,
            files,
            read: Box::new(read),
            held: Mutex::new((mark, value)),
        })))
    }

    /// The current value. Blocks on the disk, for as long as reading a few small files takes.
    pub fn now(&self) -> T {
        let inner = &*self.0;
        if inner.files.is_empty() {
            return inner.held.lock().1.clone();
        }
        let mark = mark(&inner.files);
        let mut held = inner.held.lock();
        if held.0 == mark {
            return held.1.clone();
        }
        match (inner.read)() {
            Ok(value) => {
                tracing::info!(what = inner.what, "read again, it was renewed");
                *held = (mark, value);
            }
            Err(error) => {
                // The files may be half replaced. The next connection checks again.
                tracing::warn!(
                    what = inner.what,
                    error,
                    "what was renewed cannot be used, the last one stays in force"
                );
            }
        }
        held.1.clone()
    }
}

fn mark(files: &[PathBuf]) -> Mark {
    let mark = |path: &PathBuf| {
        let meta = fs::metadata(path).ok()?;
        Some((
            meta.dev(),
            meta.ino(),
            meta.len(),
            meta.mtime(),
            meta.mtime_nsec(),
        ))
    };
    files.iter().map(mark).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn a_file_is_read_again_when_it_is_another_and_a_bad_one_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        fs::write(&path, "one").unwrap();
        let reads = Arc::new(AtomicU32::new(0));
        let (from, counted) = (path.clone(), Arc::clone(&reads));
        let renewed = Renewed::new("token", vec![path.clone()], move || {
            counted.fetch_add(1, Ordering::Relaxed);
            let text = fs::read_to_string(&from).map_err(|error| error.to_string())?;
            if text.is_empty() {
                return Err("empty".to_owned());
            }
            Ok(text)
        })
        .unwrap();
        assert_eq!((renewed.now(), renewed.now()), ("one".into(), "one".into()));
        assert_eq!(reads.load(Ordering::Relaxed), 1);
        // Replaced as in a mounted volume: a new file under the same name.
        let put = |text: &str| {
            let new = dir.path().join("new");
            fs::write(&new, text).unwrap();
            fs::rename(&new, &path).unwrap();
        };
        put("two");
        assert_eq!(renewed.clone().now(), "two");
        put("");
        assert_eq!(renewed.now(), "two");
        fs::remove_file(&path).unwrap();
        assert_eq!(renewed.now(), "two");
        put("three");
        assert_eq!(renewed.now(), "three");
        assert!(Renewed::<()>::new("", vec![], || Err("no".into())).is_err());
    }
}
