//! The files to which records are appended, behind a trait so that tests can inject failures.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, IoSlice, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use service::files;

/// File mode. Prompts are private, so only the owner has access.
pub(crate) const FILE_MODE: u32 = 0o640;
/// Directory mode.
pub(crate) const DIR_MODE: u32 = 0o750;

/// A file opened for appending.
pub(crate) trait SegmentFile: Send {
    /// Appends some of the slices. Returns the number of bytes written.
    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize>;
    /// Returns once everything is on disk.
    fn sync(&mut self) -> io::Result<()>;
    /// Truncates the file.
    fn truncate(&mut self, len: u64) -> io::Result<()>;
    /// Whether the path still leads to this file. Data in a removed or renamed file would not be
    /// found again.
    fn is_in_place(&self) -> io::Result<bool>;
}

/// The result of opening a file for appending.
pub(crate) struct Opened {
    /// The file.
    pub(crate) file: Box<dyn SegmentFile>,
    /// Its length.
    pub(crate) len: u64,
    /// Whether the last line was torn. It has a line end now.
    pub(crate) sealed: bool,
}

/// Opens files.
pub(crate) trait Storage: Send {
    /// Opens a file for appending and creates the directories above it up to `root`. All of them
    /// are durable when it returns.
    fn open(&self, root: &Path, path: &Path) -> io::Result<Opened>;
}

/// The file system.
#[derive(Debug, Default)]
pub(crate) struct Disk;

struct DiskFile {
    file: File,
    path: PathBuf,
}

impl SegmentFile for DiskFile {
    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.file.write_vectored(slices)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn is_in_place(&self) -> io::Result<bool> {
        files::is_at(&self.file, &self.path)
    }
}

impl Storage for Disk {
    fn open(&self, root: &Path, path: &Path) -> io::Result<Opened> {
        let parent = path.parent().unwrap_or(root);
        create_dirs(root, parent)?;
        let mut options = OpenOptions::new();
        options.create(true).read(true).append(true).mode(FILE_MODE);
        let mut file = files::open_with(&mut options, path)?;
        let sealed = seal(&mut file)?;
        let len = file.metadata()?.len();
        file.sync_all()?;
        sync_dir(parent)?;
        Ok(Opened {
            file: Box::new(DiskFile {
                file,
                path: path.to_owned(),
            }),
            len,
            sealed,
        })
    }
}

/// Adds a line end if the last line of a file is torn. Returns whether it was. If the file system
/// has no room for one byte, removes the torn line instead.
pub(crate) fn seal(file: &mut File) -> io::Result<bool> {
    let len = file.metadata()?.len();
    if len == 0 {
        return Ok(false);
    }
    let mut last = [0];
    file.seek(SeekFrom::Start(len - 1))?;
    file.read_exact(&mut last)?;
    if last == *b"\n" {
        return Ok(false);
    }
    if file.write_all(b"\n").is_err() {
        let whole = whole_lines(file, len)?;
        file.set_len(whole)?;
    }
    Ok(true)
}

/// The number of bytes up to and including the last line end.
fn whole_lines(file: &mut File, len: u64) -> io::Result<u64> {
    const STEP: u64 = 64 << 10;
    let mut end = len;
    let mut piece = Vec::new();
    while end > 0 {
        let start = end.saturating_sub(STEP);
        piece.resize((end - start) as usize, 0);
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut piece)?;
        if let Some(at) = memchr::memrchr(b'\n', &piece) {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

/// Creates a directory and its parents below `root`, which must exist. Each of them is durable.
pub(crate) fn create_dirs(root: &Path, dir: &Path) -> io::Result<()> {
    if dir == root || files::is_dir(dir) {
        return Ok(());
    }
    let parent = dir.parent().unwrap_or(root);
    create_dirs(root, parent)?;
    match fs::DirBuilder::new().mode(DIR_MODE).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        // A link could lead out of the root.
        Err(_) if !files::is_dir(dir) => Err(io::ErrorKind::NotADirectory.into()),
        _ => sync_dir(parent),
    }
}

/// Makes the entries of a directory durable.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// A new temporary file below `dir`. It is deleted unless [`keep`] gives it a name.
pub(crate) fn temporary(dir: &Path) -> io::Result<tempfile::NamedTempFile> {
    tempfile::Builder::new()
        .prefix(&format!("{TEMP_PREFIX}{}-", std::process::id()))
        .permissions(Permissions::from_mode(FILE_MODE))
        .tempfile_in(dir)
}

/// Prefix of the names of unfinished files.
pub(crate) const TEMP_PREFIX: &str = ".tmp-";

/// Makes a finished temporary file durable under a name, replacing any existing file.
pub(crate) fn keep(file: tempfile::NamedTempFile, path: &Path) -> io::Result<()> {
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    path.parent().map_or(Ok(()), sync_dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(root: &Path, name: &str) -> Opened {
        Disk.open(root, &root.join(name)).unwrap()
    }

    #[test]
    fn a_torn_last_line_is_ended_before_the_next_one() {
        let root = tempfile::tempdir().unwrap();
        let mut opened = open(root.path(), "2026-01-02/23.jsonl");
        assert_eq!((opened.len, opened.sealed), (0, false));
        opened
            .file
            .write_vectored(&[IoSlice::new(b"{}\n{\"a\":")])
            .unwrap();
        drop(opened);
        let mut opened = open(root.path(), "2026-01-02/23.jsonl");
        assert_eq!((opened.len, opened.sealed), (9, true));
        opened
            .file
            .write_vectored(&[IoSlice::new(b"{}\n")])
            .unwrap();
        drop(opened);
        assert_eq!(
            fs::read_to_string(root.path().join("2026-01-02/23.jsonl")).unwrap(),
            "{}\n{\"a\":\n{}\n"
        );
        assert!(!open(root.path(), "2026-01-02/23.jsonl").sealed);
    }

    #[test]
    fn whole_lines_end_at_the_last_line_end() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("lines");
        for (text, whole) in [
            ("".to_owned(), 0),
            ("half".to_owned(), 0),
            ("one\n".to_owned(), 4),
            (format!("one\n{}", "x".repeat(200_000)), 4),
        ] {
            fs::write(&path, &text).unwrap();
            let mut file = File::open(&path).unwrap();
            assert_eq!(whole_lines(&mut file, text.len() as u64).unwrap(), whole);
        }
    }

    #[test]
    fn files_and_directories_are_not_for_everybody() {
        let root = tempfile::tempdir().unwrap();
        open(root.path(), "details/2026-01-02/23.jsonl");
        let mode = |name: &str| {
            fs::metadata(root.path().join(name))
                .unwrap()
                .permissions()
                .mode()
        };
        assert_eq!(mode("details/2026-01-02/23.jsonl") & 0o027, 0);
        assert_eq!(mode("details/2026-01-02") & 0o027, 0);
    }
}
