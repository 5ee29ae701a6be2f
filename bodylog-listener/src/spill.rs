//! Frames of version 1 that do not fit into memory wait on disk. Their sender must not wait: it
//! gives up after one second and sends everything again.
//!
//! There is one file per section of a connection, `<dir>/spill/<number>`: a line with the address,
//! then the frames as received. A finished file is renamed to `<number>.frames`. Files from an
//! earlier run count as finished.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

use crate::lines;
use crate::storage;

/// The directory below the root.
pub(crate) const DIR: &str = "spill";
/// Largest size of one file, bytes.
const FILE_MAX: u64 = 64 << 20;
/// Largest size of all files together, bytes.
const TOTAL_MAX: u64 = 4 << 30;
/// Suffix of a finished file's name.
const FINISHED: &str = "frames";

/// The spill files.
#[derive(Debug)]
pub(crate) struct Spill {
    root: PathBuf,
    next: AtomicU64,
    bytes: Arc<AtomicU64>,
    finished: Notify,
}

/// A file that is being filled.
#[derive(Debug)]
pub(crate) struct Filling {
    file: File,
    path: PathBuf,
    len: u64,
    bytes: Arc<AtomicU64>,
}

impl Spill {
    /// Opens the spill below `root`. Files from an earlier run count as finished.
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        let dir = root.join(DIR);
        storage::create_dirs(root, &dir)?;
        let mut next = 0;
        let mut bytes = 0;
        for path in lines::entries(&dir)? {
            let number: Option<u64> = path
                .file_stem()
                .and_then(|name| name.to_str()?.parse().ok());
            let Some(number) = number else { continue };
            next = number.max(next) + 1;
            bytes += fs::metadata(&path)?.len();
            if path.extension().is_none() {
                fs::rename(&path, path.with_extension(FINISHED))?;
            }
        }
        Ok(Self {
            root: root.to_owned(),
            next: AtomicU64::new(next),
            bytes: Arc::new(AtomicU64::new(bytes)),
            finished: Notify::new(),
        })
    }

    /// Bytes that wait on disk.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether `len` more bytes fit.
    pub(crate) fn has_room(&self, len: u64) -> bool {
        self.bytes() + len <= TOTAL_MAX
    }

    /// Creates a file for frames from this address. Blocks on the disk.
    pub(crate) fn begin(&self, source: IpAddr) -> io::Result<Filling> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = self.root.join(DIR).join(number.to_string());
        let file = OpenOptions::new()
            .create_new(true)
            .append(true)
            .mode(storage::FILE_MODE)
            .open(&path)?;
        let mut filling = Filling {
            file,
            path,
            len: 0,
            bytes: Arc::clone(&self.bytes),
        };
        filling.append(format!("{source}\n").as_bytes())?;
        Ok(filling)
    }

    /// Marks a file as finished.
    pub(crate) fn finish(&self, filling: &Filling) {
        let finished = filling.path.with_extension(FINISHED);
        if let Err(error) = fs::rename(&filling.path, finished) {
            tracing::warn!(path = %filling.path.display(), %error, "spilled frames wait for the next start");
        }
        self.finished.notify_one();
    }

    /// The oldest finished file.
    pub(crate) fn oldest(&self) -> io::Result<Option<PathBuf>> {
        let number = |path: &PathBuf| path.file_stem()?.to_str()?.parse::<u64>().ok();
        let files = lines::entries(&self.root.join(DIR))?;
        Ok(files
            .into_iter()
            .filter(|path| {
                path.extension()
                    .is_some_and(|extension| extension == FINISHED)
            })
            .min_by_key(number))
    }

    /// Waits until a file is finished.
    pub(crate) async fn finished(&self) {
        self.finished.notified().await;
    }

    /// Removes a file whose frames have been stored.
    pub(crate) fn remove(&self, path: &Path) -> io::Result<()> {
        let len = fs::metadata(path)?.len();
        fs::remove_file(path)?;
        self.bytes
            .fetch_sub(len.min(self.bytes()), Ordering::Relaxed);
        Ok(())
    }
}

impl Filling {
    /// Appends bytes. Blocks on the disk.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.len += bytes.len() as u64;
        self.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Truncates the file to `len`: a partial frame would hide the frames after it.
    pub(crate) fn cut(&mut self, len: u64) -> io::Result<()> {
        self.file.set_len(len)?;
        self.bytes.fetch_sub(self.len - len, Ordering::Relaxed);
        self.len = len;
        Ok(())
    }

    /// Its length, bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has reached its largest size.
    pub(crate) fn is_full(&self) -> bool {
        self.len >= FILE_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_wait_in_order_and_survive_a_restart() {
        let root = tempfile::tempdir().unwrap();
        let spill = Spill::open(root.path()).unwrap();
        let mut first = spill.begin("10.0.0.7".parse().unwrap()).unwrap();
        first.append(b"frame").unwrap();
        let good = first.len();
        first.append(b"half").unwrap();
        first.cut(good).unwrap();
        let second = spill.begin("10.0.0.8".parse().unwrap()).unwrap();
        spill.finish(&second);
        drop(first);

        let spill = Spill::open(root.path()).unwrap();
        assert_eq!(spill.bytes(), 14 + 9);
        let oldest = spill.oldest().unwrap().unwrap();
        assert_eq!(fs::read(&oldest).unwrap(), b"10.0.0.7\nframe");
        spill.remove(&oldest).unwrap();
        assert_eq!(
            fs::read(spill.oldest().unwrap().unwrap()).unwrap(),
            b"10.0.0.8\n"
        );
        assert_eq!(spill.bytes(), 9);
        let third = spill.begin("10.0.0.9".parse().unwrap()).unwrap();
        assert!(third.path.ends_with("spill/2"));
    }
}
