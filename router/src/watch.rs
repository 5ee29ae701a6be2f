//! Detects that a file may have changed.
//!
//! The watcher watches directories instead of files: an editor renames a new file over the old one,
//! and Kubernetes swaps the symlink `..data` beside it; a watch on the file sees neither. An event
//! only wakes the watcher. It reports changed *content*, which it finds by hashing, so touching a
//! file reports nothing. A poll covers file systems without events. The watcher does not decide
//! what is loaded: it reports a possible change, and the loader compares for itself.

mod file_watcher;
mod fingerprint;

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use self::file_watcher::FileWatcher;
use self::fingerprint::Fingerprint;

/// The paths to watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watched {
    /// Files, whether they exist or not.
    pub files: Vec<PathBuf>,
    /// Directories of route files, whether they exist or not.
    pub directories: Vec<PathBuf>,
}

/// The delays of the watcher.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// A change is reported when nothing more has happened for this long.
    pub debounce: Duration,
    /// A change is reported at the latest this long after its first event, however busy the
    /// directory is.
    pub debounce_max: Duration,
    /// The poll interval without any event.
    pub poll: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            debounce: Duration::from_millis(200),
            debounce_max: Duration::from_secs(2),
            poll: Duration::from_secs(10),
        }
    }
}

/// The watching task, before it runs.
pub struct Watcher {
    timing: Timing,
    eyes: Option<FileWatcher>,
    woken: mpsc::Receiver<()>,
    follow: watch::Receiver<Watched>,
    changes: watch::Sender<u64>,
    last: Fingerprint,
}

/// The receiving side, for the owner of the configuration.
#[derive(Debug)]
pub struct Changes {
    follow: watch::Sender<Watched>,
    changes: watch::Receiver<u64>,
}

/// Creates a watcher of `what`, which the caller must run, and its receiving side.
///
/// Blocking: reads the files once. Create the watcher before loading the files, so that it sees a
/// change in between.
pub fn watch(what: Watched, timing: Timing) -> (Watcher, Changes) {
    // One place is enough: further events add nothing.
    let (wake, woken) = mpsc::channel(1);
    let last = Fingerprint::of(&what);
    let mut eyes = FileWatcher::new(wake);
    if let Some(eyes) = &mut eyes {
        eyes.look_at(&what);
    }
    let (follow, followed) = watch::channel(what);
    let (changes, changed) = watch::channel(0);
    let watcher = Watcher {
        timing,
        eyes,
        woken,
        follow: followed,
        changes,
        last,
    };
    (
        watcher,
        Changes {
            follow,
            changes: changed,
        },
    )
}

impl Changes {
    /// Waits until something may have changed. Changes between two calls are reported by the next
    /// call, once. `false` when the watcher has ended. Cancel safe.
    pub async fn changed(&mut self) -> bool {
        self.changes.changed().await.is_ok()
    }

    /// Watches other paths from now on. If they differ from the current ones, the watcher reports a
    /// change, because the new paths may have changed before.
    pub fn follow(&self, what: Watched) {
        self.follow.send_if_modified(|now| {
            let differs = *now != what;
            *now = what;
            differs
        });
    }
}

impl Watcher {
    /// Watches until `cancel`, or until [`Changes`] is dropped.
    pub async fn run(mut self, cancel: CancellationToken) {
        tokio::select! {
            () = cancel.cancelled() => {}
            () = self.watch() => {}
        }
    }

    async fn watch(&mut self) {
        let mut poll = interval(self.timing.poll);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick comes at once, and the files have just been read.
        poll.tick().await;
        loop {
            let mut moved = false;
            tokio::select! {
                // Without event watches the sender is gone, and `recv` would return at once,
                // forever.
                Some(()) = self.woken.recv() => self.settle().await,
                _ = poll.tick() => {}
                followed = self.follow.changed() => {
                    if followed.is_err() {
                        return;
                    }
                    moved = true;
                }
            }
            let what = self.follow.borrow_and_update().clone();
            let Some(now) = self.look(what).await else {
                return;
            };
            if moved || now != self.last {
                self.last = now;
                self.changes.send_modify(|count| *count += 1);
            }
        }
    }

    /// Waits until nothing has happened for a while.
    async fn settle(&mut self) {
        let end = Instant::now() + self.timing.debounce_max;
        while let Ok(Ok(Some(()))) =
            timeout_at(end, timeout(self.timing.debounce, self.woken.recv())).await
        {}
    }

    /// Watches the existing paths and computes their fingerprint. `None` when the runtime is
    /// shutting down.
    async fn look(&mut self, what: Watched) -> Option<Fingerprint> {
        let mut eyes = self.eyes.take();
        let looked = spawn_blocking(move || {
            if let Some(eyes) = &mut eyes {
                // Start the watches before the fingerprint: a later change then wakes the watcher
                // again.
                eyes.look_at(&what);
            }
            (eyes, Fingerprint::of(&what))
        });
        let (eyes, fingerprint) = looked.await.ok()?;
        self.eyes = eyes;
        Some(fingerprint)
    }
}

#[cfg(test)]
mod tests;
