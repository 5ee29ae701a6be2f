//! A key file on disk: finds it, reads it, and replaces it as a whole.
//!
//! The new text goes to a file in the same directory. That file is synced, gets the owner and the
//! mode of the old file, and is renamed over it; then the directory is synced. One part of the mode
//! is not kept: permissions for all users of the machine, when the file holds keys in plain text. A
//! reader sees either the old or the new file. Concurrent edits by this program take turns with a
//! lock file. Edits by other programs are noticed, because the file is read again before it is
//! replaced.

use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use router_config::keys::file::FILE_MAX;
use tokio::time::{Instant, sleep};

use super::mount::{self, Mounted};
use super::text::KeyText;
use crate::exit::Failure;

/// Mode of a new file, and of a file that was open to everybody: keys are secret.
const NEW_MODE: u32 = 0o600;

/// The permission bits for all other users of the machine.
pub(super) const OTHERS: u32 = 0o007;

/// Time to wait for the lock of another editor.
const LOCK_WAIT: Duration = Duration::from_secs(10);
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Number of attempts when another program changes the file in between.
const TRIES: usize = 8;

/// The location of a key file.
#[derive(Clone, Debug)]
pub(super) struct KeyFile {
    /// The path as the operator gave it.
    path: PathBuf,
    /// The file itself, after following links.
    target: PathBuf,
}

/// A problem of the file as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flaw {
    /// A stable identifier of the problem.
    pub(super) code: &'static str,
    /// The problem and its remedy.
    pub(super) message: String,
}

impl Flaw {
    fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }
}

impl KeyFile {
    /// Finds the file behind a path.
    ///
    /// # Errors
    /// When the path is a directory or a broken link, or its directory does not exist.
    pub(super) fn find(path: &Path) -> Result<Self, Flaw> {
        let target = match fs::canonicalize(path) {
            Ok(target) => target,
            Err(error) if error.kind() == ErrorKind::NotFound => Self::place(path)?,
            Err(error) => return Err(Flaw::new("unreadable", error.to_string())),
        };
        if target.is_dir() {
            return Err(Flaw::new(
                "directory",
                "it is a directory; keys.file names a file, for a volume the one in it",
            ));
        }
        Ok(Self {
            path: path.to_owned(),
            target,
        })
    }

    /// The location of a file that does not exist yet.
    fn place(path: &Path) -> Result<PathBuf, Flaw> {
        if path.is_symlink() {
            return Err(Flaw::new("missing", "it is a symbolic link to nowhere"));
        }
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let parent = fs::canonicalize(parent)
            .map_err(|error| Flaw::new("missing", format!("{}: {error}", parent.display())))?;
        let name = path
            .file_name()
            .ok_or_else(|| Flaw::new("directory", "it names no file"))?;
        Ok(parent.join(name))
    }

    /// The path as the operator gave it.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The mount that prevents replacing the file, if there is one.
    pub(super) fn mounted(&self) -> Option<Mounted> {
        mount::of(&self.target)
    }

    /// The permission bits of the file.
    pub(super) fn mode(&self) -> Option<u32> {
        fs::metadata(&self.target)
            .ok()
            .map(|found| found.permissions().mode() & 0o7777)
    }

    /// Reads the text; `None` when the file does not exist.
    ///
    /// # Errors
    /// When the file cannot be read, or a router could not read it.
    pub(super) fn read(&self) -> Result<Option<KeyText>, Flaw> {
        let unreadable = |why: &str| Flaw::new("unreadable", why);
        match fs::metadata(&self.target) {
            Ok(found) if !found.is_file() => return Err(unreadable("it is not a file")),
            Ok(found) if found.len() > FILE_MAX => {
                return Err(unreadable(&format!("it is larger than {FILE_MAX} bytes")));
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(&error.to_string())),
        }
        let bytes = fs::read(&self.target).map_err(|error| unreadable(&error.to_string()))?;
        KeyText::of(bytes).map(Some).map_err(unreadable)
    }

    /// Changes the text. `change` gets the current text, or an empty one when there is no file. It
    /// runs again when another program changed the file in between.
    ///
    /// # Errors
    /// The error of `change`; also when the file cannot be read, locked or replaced.
    ///
    /// # Cancel safety
    /// Dropped while waiting for the lock, it has changed nothing. There is no other wait.
    pub(super) async fn edit<T>(
        &self,
        mut change: impl FnMut(&mut KeyText) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        if let Some(mounted) = self.mounted() {
            return Err(self.wrong(mounted.advice()));
        }
        let _lock = self.lock().await?;
        for _ in 0..TRIES {
            let before = self.read().map_err(|flaw| self.wrong(&flaw.message))?;
            let mut after = before.clone().unwrap_or_default();
            let done = change(&mut after)?;
            let staged = self.stage(&after)?;
            let now = self.read().map_err(|flaw| self.wrong(&flaw.message))?;
            if now == before {
                self.replace(staged)?;
                return Ok(done);
            }
        }
        Err(self.wrong("somebody else keeps changing it; nothing was changed"))
    }

    /// Takes the lock, which is held as long as the returned file is open. The lock file is never
    /// removed: another process may be waiting for it.
    async fn lock(&self) -> Result<File, Failure> {
        let path = self.beside(".lock");
        let failed = |error: &io::Error| Failure::file("lock", &path, error);
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(NEW_MODE)
            .open(&path)
            .map_err(|error| failed(&error))?;
        let until = Instant::now() + LOCK_WAIT;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if Instant::now() < until => {
                    sleep(LOCK_PAUSE).await;
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(self.wrong("somebody else is editing it; try again"));
                }
                Err(TryLockError::Error(error)) => return Err(failed(&error)),
            }
        }
    }

    /// Writes the text to a file in the same directory, with the final mode and owner.
    fn stage(&self, text: &KeyText) -> Result<tempfile::NamedTempFile, Failure> {
        let failed = |error: io::Error| Failure::file("write beside", &self.path, &error);
        let mut staged = tempfile::Builder::new()
            .prefix(".keys-")
            .permissions(Permissions::from_mode(NEW_MODE))
            .tempfile_in(self.directory())
            .map_err(failed)?;
        staged.write_all(text.as_bytes()).map_err(failed)?;
        match fs::metadata(&self.target) {
            Ok(old) => self.take_over(&old, staged.as_file(), text)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        staged.as_file().sync_all().map_err(failed)?;
        Ok(staged)
    }

    fn take_over(&self, old: &fs::Metadata, new: &File, text: &KeyText) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::file("keep mode and owner of", &self.path, &error);
        let mode = old.permissions().mode();
        let mode = if mode & OTHERS != 0 && text.holds_secrets() {
            NEW_MODE
        } else {
            mode
        };
        let now = new.metadata().map_err(failed)?;
        if (now.uid(), now.gid()) != (old.uid(), old.gid()) {
            fchown(new, Some(old.uid()), Some(old.gid())).map_err(failed)?;
        }
        // Set the mode after the owner, because a change of owner may clear mode bits.
        new.set_permissions(Permissions::from_mode(mode))
            .map_err(failed)
    }

    fn replace(&self, staged: tempfile::NamedTempFile) -> Result<(), Failure> {
        staged
            .persist(&self.target)
            .map_err(|error| match error.error.kind() {
                ErrorKind::ResourceBusy => self.wrong(Mounted::Alone.advice()),
                _ => Failure::file("replace", &self.path, &error.error),
            })?;
        let directory = self.directory();
        File::open(directory)
            .and_then(|open| open.sync_all())
            .map_err(|error| Failure::file("sync", directory, &error))
    }

    fn directory(&self) -> &Path {
        self.target.parent().unwrap_or(Path::new("/"))
    }

    /// A hidden file in the same directory, named after this one.
    fn beside(&self, suffix: &str) -> PathBuf {
        let name = self.target.file_name().unwrap_or_default();
        let mut beside = std::ffi::OsString::from(".");
        beside.push(name);
        beside.push(suffix);
        self.directory().join(beside)
    }

    /// A failure that concerns this file.
    pub(super) fn wrong(&self, why: &str) -> Failure {
        Failure::Wrong(format!("{}: {why}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    async fn add(file: &KeyFile, entry: &str) -> Result<(), Failure> {
        file.edit(|text| {
            text.push(entry);
            Ok(())
        })
        .await
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[tokio::test]
    async fn a_new_file_is_private_and_an_old_one_keeps_its_mode_unless_keys_are_open_to_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys");
        let hashed = format!("sha256:{}:x", "0".repeat(64));
        add(&KeyFile::find(&path).unwrap(), &hashed).await.unwrap();
        assert_eq!(mode(&path), 0o600);
        for (entry, old, new) in [
            (&*hashed, 0o644, 0o644),
            ("sk-a:y", 0o640, 0o640),
            ("sk-b:y", 0o400, 0o400),
            ("sk-c:y", 0o644, 0o600),
            ("sk-d:y", 0o666, 0o600),
            (&hashed, 0o644, 0o600),
        ] {
            fs::set_permissions(&path, Permissions::from_mode(old)).unwrap();
            add(&KeyFile::find(&path).unwrap(), entry).await.unwrap();
            assert_eq!(mode(&path), new, "{entry} into {old:o}");
        }
        let left: Vec<_> = fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .filter(|name| name != "keys" && name != ".keys.lock")
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }

    #[tokio::test]
    async fn a_symbolic_link_stays_and_its_target_changes() {
        let directory = tempfile::tempdir().unwrap();
        let (real, link) = (directory.path().join("real"), directory.path().join("keys"));
        fs::write(&real, "sk-a:x\n").unwrap();
        symlink("real", &link).unwrap();
        add(&KeyFile::find(&link).unwrap(), "sk-b:y").await.unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(&real).unwrap(), "sk-a:x\nsk-b:y\n");
    }

    #[tokio::test]
    async fn what_is_no_file_is_told_apart() {
        let directory = tempfile::tempdir().unwrap();
        let code = |path: &Path| KeyFile::find(path).unwrap_err().code;
        assert_eq!(code(directory.path()), "directory");
        assert_eq!(code(&directory.path().join("none/keys")), "missing");
        symlink("nowhere", directory.path().join("dangling")).unwrap();
        assert_eq!(code(&directory.path().join("dangling")), "missing");
        fs::write(directory.path().join("bad"), b"sk-a:x\n\xff").unwrap();
        let bad = KeyFile::find(&directory.path().join("bad")).unwrap();
        assert_eq!(bad.read().err().unwrap().code, "unreadable");
        assert!(add(&bad, "sk-b:y").await.is_err());
    }

    #[tokio::test]
    async fn a_volume_of_kubernetes_is_not_edited() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("..2026")).unwrap();
        fs::write(directory.path().join("..2026/keys"), "sk-a:x\n").unwrap();
        symlink("..2026/keys", directory.path().join("keys")).unwrap();
        let file = KeyFile::find(&directory.path().join("keys")).unwrap();
        let refused = add(&file, "sk-b:y").await.unwrap_err().to_string();
        assert!(refused.contains("change the Secret"), "{refused}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn two_editors_lose_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys");
        let mut editors = tokio::task::JoinSet::new();
        for editor in 0..8 {
            let path = path.clone();
            editors.spawn(async move {
                let file = KeyFile::find(&path).unwrap();
                for turn in 0..5 {
                    let entry = format!("sk-{editor}-{turn}:e{editor}");
                    add(&file, &entry).await.unwrap();
                }
            });
        }
        editors.join_all().await;
        let text = KeyFile::find(&path).unwrap().read().unwrap().unwrap();
        assert_eq!(text.keys().len(), 40);
    }

    #[tokio::test]
    async fn a_change_by_other_means_is_not_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys");
        fs::write(&path, "sk-a:x\n").unwrap();
        let mut calls = 0;
        KeyFile::find(&path)
            .unwrap()
            .edit(|text| {
                calls += 1;
                if calls == 1 {
                    fs::write(&path, "sk-a:x\nsk-vim:y\n").unwrap();
                }
                text.push("sk-b:z");
                Ok(())
            })
            .await
            .unwrap();
        assert_eq!(calls, 2);
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            "sk-a:x\nsk-vim:y\nsk-b:z\n"
        );
    }
}
