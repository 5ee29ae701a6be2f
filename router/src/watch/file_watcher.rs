//! The system's file events: which directories are watched, and what wakes.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;

use super::Watched;

/// Watches directories and wakes on any event in them.
pub(super) struct FileWatcher {
    watcher: RecommendedWatcher,
    /// Each watched directory with its identity: one that was replaced is watched anew.
    at: BTreeMap<PathBuf, (u64, u64)>,
}

impl FileWatcher {
    /// `None` when the system gives no more watches; the poll has to do then.
    pub(super) fn new(wake: mpsc::Sender<()>) -> Option<Self> {
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if is_news(&event) {
                // A full channel has woken the watcher already.
                let _ = wake.try_send(());
            }
        });
        match watcher {
            Ok(watcher) => Some(Self {
                watcher,
                at: BTreeMap::new(),
            }),
            Err(error) => {
                tracing::warn!(%error, "file events are not available; files are polled");
                None
            }
        }
    }

    /// Watches the directories that `what` needs and that exist, and no others.
    pub(super) fn look_at(&mut self, what: &Watched) {
        let wanted = directories(what);
        let gone: Vec<_> = self
            .at
            .iter()
            .filter(|(path, id)| wanted.get(*path) != Some(id))
            .map(|(path, _)| path.clone())
            .collect();
        for path in gone {
            // Of a directory that was deleted the system has dropped the watch itself.
            let _ = self.watcher.unwatch(&path);
            self.at.remove(&path);
        }
        for (path, id) in wanted {
            if self.at.contains_key(&path) {
                continue;
            }
            match self.watcher.watch(&path, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    self.at.insert(path, id);
                }
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "a directory cannot be watched; it is polled");
                }
            }
        }
    }
}

/// Reading is no news; our own reading would wake us for ever. An error may hide anything.
fn is_news(event: &notify::Result<Event>) -> bool {
    event.as_ref().map_or(true, |event| !event.kind.is_access())
}

/// The directories whose entries decide what the watched paths hold: their parents, as written and
/// as they resolve, and the watched directories themselves.
fn directories(what: &Watched) -> BTreeMap<PathBuf, (u64, u64)> {
    let mut wanted = BTreeMap::new();
    let mut add = |path: &Path| {
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        if let Ok(metadata) = fs::metadata(path)
            && metadata.is_dir()
        {
            wanted.insert(path.to_owned(), (metadata.dev(), metadata.ino()));
        }
    };
    for path in what.files.iter().chain(&what.directories) {
        let resolved = fs::canonicalize(path).ok();
        path.parent()
            .into_iter()
            .chain(resolved.as_deref().and_then(Path::parent))
            .for_each(&mut add);
    }
    what.directories.iter().for_each(|directory| add(directory));
    wanted
}

#[cfg(test)]
mod tests {
    use notify::EventKind;
    use notify::event::{AccessKind, AccessMode, CreateKind};

    use super::*;

    #[test]
    fn reading_does_not_wake() {
        let open = EventKind::Access(AccessKind::Open(AccessMode::Read));
        assert!(!is_news(&Ok(Event::new(open))));
        assert!(is_news(&Ok(Event::new(EventKind::Create(
            CreateKind::File
        )))));
        assert!(is_news(&Ok(Event::new(EventKind::Any))));
        assert!(is_news(&Err(notify::Error::generic("overflow"))));
    }

    #[test]
    fn the_parent_of_a_missing_directory_is_watched() {
        let directory = tempfile::tempdir().unwrap();
        let what = Watched {
            files: vec!["router.yaml".into()],
            directories: vec![directory.path().join("routes")],
        };
        let wanted: Vec<_> = directories(&what).into_keys().collect();
        assert_eq!(wanted, [directory.path(), Path::new(".")]);
    }
}
