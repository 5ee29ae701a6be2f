//! Opens files in directories that other programs may write to. A name there may lead to a FIFO, a
//! device, or a link out of the directory. The functions here never wait for one, read one or
//! follow one.

use std::fs::{self, DirEntry, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a regular file for reading.
///
/// # Errors
/// When the system refuses, or the name leads to anything but a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    open_with(OpenOptions::new().read(true), path)
}

/// Opens a regular file with `options`. Replaces the custom flags in the options.
///
/// # Errors
/// When the system refuses, or the name leads to anything but a regular file.
pub fn open_with(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    // Without NONBLOCK, opening a FIFO waits for its other end. Regular files ignore the flag.
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY;
    let flags = i32::try_from(flags.bits()).map_err(io::Error::other)?;
    let opened = options.custom_flags(flags).open(path);
    let file = opened.map_err(|error| match error.raw_os_error() {
        Some(code) if code == rustix::io::Errno::LOOP.raw_os_error() => refused("a symbolic link"),
        // A FIFO without a reader, opened for writing.
        Some(code) if code == rustix::io::Errno::NXIO.raw_os_error() => refused("no regular file"),
        _ => error,
    })?;
    if !file.metadata()?.is_file() {
        return Err(refused("no regular file"));
    }
    Ok(file)
}

fn refused(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("it is {what}; only regular files are used here"),
    )
}

/// Whether a name leads to a directory without passing a link.
pub fn is_dir(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir())
}

/// Whether an entry is a regular file and not a link to one.
pub fn is_regular(entry: &DirEntry) -> bool {
    entry.file_type().is_ok_and(|kind| kind.is_file())
}

/// Whether `path` still leads to this open file, so that it was neither removed nor renamed.
///
/// # Errors
/// When the system cannot tell.
pub fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let open = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (open.dev(), open.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_regular_files_are_opened_and_nothing_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), "x").unwrap();
        fs::create_dir(at("dir")).unwrap();
        symlink(at("file"), at("link")).unwrap();
        symlink("/dev/zero", at("zero")).unwrap();
        let made = std::process::Command::new("mkfifo")
            .arg(at("fifo"))
            .status();
        assert!(made.unwrap().success());
        assert!(open(&at("file")).is_ok());
        for name in ["dir", "link", "zero", "fifo"] {
            let error = open(&at(name)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name}: {error}");
        }
        let writing = open_with(OpenOptions::new().append(true), &at("fifo"));
        assert_eq!(writing.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        symlink(at("dir"), at("dir-link")).unwrap();
        assert!(is_dir(&at("dir")) && !is_dir(&at("dir-link")));
    }

    #[test]
    fn a_file_that_was_moved_or_replaced_is_no_longer_at_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("a"), dir.path().join("b"));
        let file = File::create(&path).unwrap();
        assert!(is_at(&file, &path).unwrap());
        fs::rename(&path, &other).unwrap();
        assert!(!is_at(&file, &path).unwrap());
        fs::write(&path, "").unwrap();
        assert!(!is_at(&file, &path).unwrap());
    }
}
