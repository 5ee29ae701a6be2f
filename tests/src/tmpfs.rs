//! A small separate disk that a test can fill. It needs the permission to mount.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// A mounted tmpfs. It is unmounted when the value is dropped.
pub struct Tmpfs {
    directory: TempDir,
}

impl Tmpfs {
    /// Mounts a tmpfs of `mib` MiB.
    ///
    /// # Errors
    ///
    /// The reason why it cannot be mounted. Mounting needs root, and not everybody runs the tests
    /// as root.
    ///
    /// # Panics
    ///
    /// When its directory cannot be created.
    pub fn mount(mib: u64) -> Result<Self, String> {
        let directory = tempfile::Builder::new()
            .prefix("small-disk-")
            .tempdir()
            .expect("a temporary directory");
        let size = format!("size={mib}m");
        let mut command = Command::new("mount");
        command
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(directory.path());
        match command.output() {
            Ok(Output { status, .. }) if status.success() => Ok(Self { directory }),
            Ok(Output { stderr, .. }) => Err(String::from_utf8_lossy(&stderr).trim().to_owned()),
            Err(error) => Err(format!("mount: {error}")),
        }
    }

    /// A directory on it.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join("store")
    }

    /// Fills the disk except for `free` bytes.
    ///
    /// # Panics
    ///
    /// When writing fails, or the disk has less room than that.
    pub fn fill_but(&self, free: u64) {
        let room = rustix::fs::statvfs(self.directory.path()).expect("it is mounted");
        let room = room.f_bavail * room.f_frsize;
        let ballast = vec![0; usize::try_from(room - free).expect("it is small")];
        fs::write(self.ballast(), ballast).expect("there is room");
    }

    /// Frees the filled room again.
    ///
    /// # Panics
    ///
    /// When the disk was not filled.
    pub fn empty(&self) {
        fs::remove_file(self.ballast()).expect("it is there");
    }

    /// Makes the disk writable or read-only.
    ///
    /// # Panics
    ///
    /// When the system refuses.
    pub fn set_writable(&self, is_writable: bool) {
        let how = if is_writable {
            "remount,rw"
        } else {
            "remount,ro"
        };
        run("mount", &["-o", how], self.directory.path());
    }

    fn ballast(&self) -> PathBuf {
        self.directory.path().join("ballast")
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // A process with an open file there keeps it until the process ends. All such processes are
        // our children.
        run("umount", &["--lazy"], self.directory.path());
    }
}

fn run(program: &str, arguments: &[&str], path: &Path) {
    let done = Command::new(program).args(arguments).arg(path).status();
    assert!(
        done.is_ok_and(|status| status.success()),
        "{program} {}",
        path.display()
    );
}
