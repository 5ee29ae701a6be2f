//! The watcher over real directories. Every wait has a deadline and ends with the event.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use tempfile::TempDir;
use tokio_util::task::TaskTracker;

use super::*;

/// Longer than any run takes; a test that needs it has failed.
const DEADLINE: Duration = Duration::from_secs(20);

/// Events alone: the poll comes after the deadline.
const EVENTS: Timing = Timing {
    debounce: Duration::from_millis(20),
    debounce_max: Duration::from_millis(200),
    poll: Duration::from_secs(3600),
};

/// A running watcher, stopped and awaited at the end.
struct Running {
    changes: Changes,
    cancel: CancellationToken,
    tasks: TaskTracker,
}

impl Running {
    fn start(what: Watched, timing: Timing, events: bool) -> Self {
        let (mut watcher, changes) = watch(what, timing);
        if !events {
            watcher.eyes = None;
        }
        let (tasks, cancel) = (TaskTracker::new(), CancellationToken::new());
        tasks.spawn(watcher.run(cancel.clone()));
        tasks.close();
        Self {
            changes,
            cancel,
            tasks,
        }
    }

    async fn changed(&mut self) {
        let told = timeout(DEADLINE, self.changes.changed()).await;
        assert!(
            told.expect("a change is told before the deadline"),
            "the watcher runs"
        );
    }

    async fn stop(self) {
        self.cancel.cancel();
        timeout(DEADLINE, self.tasks.wait())
            .await
            .expect("the watcher ends when it is told to");
    }
}

fn directory() -> (TempDir, Watched) {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::create_dir(at("routes")).unwrap();
    fs::write(at("router.yaml"), "a").unwrap();
    let what = Watched {
        files: vec![at("router.yaml"), at("keys")],
        directories: vec![at("routes")],
    };
    (directory, what)
}

#[tokio::test]
async fn writes_renames_new_files_and_removals_are_told() {
    let (directory, what) = directory();
    let at = |name: &str| directory.path().join(name);
    let mut running = Running::start(what, EVENTS, true);
    fs::write(at("router.yaml"), "b").unwrap();
    running.changed().await;
    fs::write(at("new"), "c").unwrap();
    fs::rename(at("new"), at("router.yaml")).unwrap();
    running.changed().await;
    fs::write(at("keys"), "sk-a:x").unwrap();
    running.changed().await;
    fs::write(at("routes/chat.yaml"), "peers: []").unwrap();
    running.changed().await;
    fs::remove_file(at("routes/chat.yaml")).unwrap();
    running.changed().await;
    running.stop().await;
}

#[tokio::test]
async fn a_directory_that_goes_and_comes_back_is_watched_again() {
    let (directory, what) = directory();
    let at = |name: &str| directory.path().join(name);
    let mut running = Running::start(what, EVENTS, true);
    fs::remove_dir(at("routes")).unwrap();
    running.changed().await;
    fs::create_dir(at("routes")).unwrap();
    running.changed().await;
    fs::write(at("routes/chat.yaml"), "peers: []").unwrap();
    running.changed().await;
    running.stop().await;
}

/// What Kubernetes does to a mounted ConfigMap: the files are symlinks through `..data`, and `..data`
/// is replaced by renaming another symlink over it.
#[tokio::test]
async fn a_swap_of_the_data_symlink_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let version = |name: &str, text: &str| {
        fs::create_dir(at(name)).unwrap();
        fs::write(at(name).join("router.yaml"), text).unwrap();
    };
    version("..1", "a");
    version("..2", "b");
    version("..3", "c");
    symlink("..1", at("..data")).unwrap();
    symlink("..data/router.yaml", at("router.yaml")).unwrap();
    let what = Watched {
        files: vec![at("router.yaml")],
        directories: vec![],
    };
    let mut running = Running::start(what, EVENTS, true);
    for next in ["..2", "..3"] {
        symlink(next, at("..data_tmp")).unwrap();
        fs::rename(at("..data_tmp"), at("..data")).unwrap();
        running.changed().await;
    }
    running.stop().await;
}

#[tokio::test]
async fn a_directory_behind_a_swapped_symlink_is_followed() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    for version in ["..1", "..2"] {
        fs::create_dir_all(at(version).join("routes")).unwrap();
    }
    fs::write(at("..2/routes/chat.yaml"), "peers: []").unwrap();
    symlink("..1", at("..data")).unwrap();
    symlink("..data/routes", at("routes")).unwrap();
    let what = Watched {
        files: vec![],
        directories: vec![at("routes")],
    };
    let mut running = Running::start(what, EVENTS, true);
    symlink("..2", at("..data_tmp")).unwrap();
    fs::rename(at("..data_tmp"), at("..data")).unwrap();
    running.changed().await;
    fs::write(at("..2/routes/other.yaml"), "peers: []").unwrap();
    running.changed().await;
    running.stop().await;
}

#[tokio::test]
async fn a_file_behind_a_symlink_elsewhere_is_watched_there() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (link, target) = (here.path().join("keys"), there.path().join("keys"));
    fs::write(&target, "sk-a:x").unwrap();
    symlink(&target, &link).unwrap();
    let what = Watched {
        files: vec![link],
        directories: vec![],
    };
    let mut running = Running::start(what, EVENTS, true);
    fs::write(&target, "sk-b:y").unwrap();
    running.changed().await;
    running.stop().await;
}

#[tokio::test]
async fn without_events_the_poll_sees_it() {
    let (directory, what) = directory();
    let timing = Timing {
        poll: Duration::from_millis(20),
        ..EVENTS
    };
    let mut running = Running::start(what, timing, false);
    fs::write(directory.path().join("router.yaml"), "b").unwrap();
    running.changed().await;
    running.stop().await;
}

#[tokio::test]
async fn following_something_else_is_a_change_and_the_same_is_none() {
    let (directory, what) = directory();
    let other = directory.path().join("other.yaml");
    let mut running = Running::start(what.clone(), EVENTS, true);
    running.changes.follow(what.clone());
    assert!(!running.changes.follow.borrow().files.contains(&other));
    running.changes.follow(Watched {
        files: vec![other.clone()],
        ..what
    });
    running.changed().await;
    assert_eq!(
        *running.changes.changes.borrow(),
        1,
        "only the second was one"
    );
    fs::write(other, "x").unwrap();
    running.changed().await;
    running.stop().await;
}

#[tokio::test]
async fn a_dropped_owner_ends_the_watcher() {
    let (_directory, what) = directory();
    let Running { changes, tasks, .. } = Running::start(what, EVENTS, true);
    drop(changes);
    timeout(DEADLINE, tasks.wait())
        .await
        .expect("the watcher ends");
}

#[test]
fn touching_a_file_is_no_change() {
    let (directory, what) = directory();
    let before = Fingerprint::of(&what);
    fs::write(directory.path().join("router.yaml"), "a").unwrap();
    fs::write(directory.path().join("routes/notes.txt"), "x").unwrap();
    assert_eq!(Fingerprint::of(&what), before);
    fs::write(directory.path().join("router.yaml"), "b").unwrap();
    assert_ne!(Fingerprint::of(&what), before);
    assert_ne!(
        Fingerprint::of(&Watched {
            files: vec![Path::new("/nonexistent").into()],
            ..what
        }),
        before
    );
}
