//! Decides which files to delete: by age, by total size and by free space, in that order, even when
//! no records arrive. Quarantined frames go first, then the oldest records, then slim rows. The
//! pure part is [`plan`].

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use chrono::{DateTime, TimeDelta, Utc};
use service::files;

use crate::config::MinFree;
use crate::ledger::dir_of;
use crate::lines;
use crate::metrics::{Class, Metrics};
use crate::space::Room;
use crate::stream::Output;
use crate::{quarantine, spill};

/// A candidate for deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    /// Its kind.
    pub(crate) class: Class,
    /// The end of its hour, or its modification time.
    pub(crate) until: DateTime<Utc>,
    /// Its length, bytes.
    pub(crate) bytes: u64,
    /// Whether it is still being written. It counts towards the total, but is not deleted.
    pub(crate) is_open: bool,
    /// Its path.
    pub(crate) path: PathBuf,
}

/// The limits for stored files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    /// Longest age of everything except slim rows.
    pub(crate) keep: TimeDelta,
    /// Longest age of slim rows.
    pub(crate) details_keep: TimeDelta,
    /// Largest total size of all files.
    pub(crate) max_bytes: Option<u64>,
    /// Disk space to keep free.
    pub(crate) min_free: MinFree,
}

/// The files to delete, in order.
pub(crate) fn plan(
    mut files: Vec<Stored>,
    policy: &Policy,
    room: Room,
    now: DateTime<Utc>,
) -> Vec<Stored> {
    files.sort_by(|a, b| (a.class, a.until, &a.path).cmp(&(b.class, b.until, &b.path)));
    let mut total: u64 = files.iter().map(|file| file.bytes).sum();
    let mut free = room.free;
    let floor = policy.min_free.bytes_of(room.total);
    let mut gone = Vec::new();
    let mut kept = Vec::new();
    for file in files.into_iter().filter(|file| !file.is_open) {
        let keep = match file.class {
            Class::Details => policy.details_keep,
            _ => policy.keep,
        };
        // Spilled frames are not stored yet, so they have no age limit.
        if file.class != Class::Spill && file.until + keep <= now {
            total -= file.bytes;
            free += file.bytes;
            gone.push(file);
        } else {
            kept.push(file);
        }
    }
    for file in kept {
        let too_much = policy.max_bytes.is_some_and(|max| total > max);
        if (too_much || free < floor) && file.class != Class::Spill {
            total -= file.bytes;
            free += file.bytes;
            gone.push(file);
        }
    }
    gone
}

/// Lists all files below the root that count. `is_open` tells whether an hour of an output is still
/// being written.
pub(crate) fn list(
    root: &Path,
    is_open: impl Fn(Output, proto::layout::Hour) -> bool,
    now: DateTime<Utc>,
) -> io::Result<Vec<Stored>> {
    let mut files = Vec::new();
    for output in Output::ALL {
        for file in lines::hour_files(&dir_of(root, output))? {
            let Some(bytes) = len(&file.path) else {
                continue;
            };
            files.push(Stored {
                class: match output {
                    Output::Records => Class::Records,
                    Output::Details => Class::Details,
                },
                until: file.hour.next().start(),
                bytes,
                is_open: is_open(output, file.hour),
                path: file.path,
            });
        }
    }
    let today = quarantine::path_of(root, now.date_naive());
    for (class, dir) in [
        (Class::Quarantine, quarantine::DIR),
        (Class::Spill, spill::DIR),
    ] {
        let dir = root.join(dir);
        if !files::is_dir(&dir) {
            continue;
        }
        for path in lines::entries(&dir)? {
            let Ok(meta) = fs::symlink_metadata(&path) else {
                continue;
            };
            files.push(Stored {
                class,
                until: meta.modified().unwrap_or(SystemTime::UNIX_EPOCH).into(),
                bytes: meta.len(),
                is_open: class == Class::Spill || path == today,
                path,
            });
        }
    }
    Ok(files)
}

/// A file can vanish between listing and inspection. That is not an error.
fn len(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().map(|meta| meta.len())
}

/// Deletes files, then removes empty day directories.
pub(crate) fn delete(files: &[Stored]) {
    for file in files {
        match fs::remove_file(&file.path) {
            Ok(()) => {
                tracing::info!(path = %file.path.display(), bytes = file.bytes, "an old file was deleted");
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(path = %file.path.display(), %error, "an old file cannot be deleted");
            }
        }
    }
    for file in files {
        let is_hour = matches!(file.class, Class::Records | Class::Details);
        if is_hour && let Some(day) = file.path.parent() {
            // Fails while the directory is not empty.
            let _ = fs::remove_dir(day);
        }
    }
}

/// Updates the metrics of stored files.
pub(crate) fn measure(files: &[Stored], metrics: &Metrics, now: DateTime<Utc>) {
    for class in Class::ALL {
        let of_class = || files.iter().filter(|file| file.class == class);
        let oldest = of_class().map(|file| file.until).min();
        let age = oldest.map_or(0, |oldest| (now - oldest).num_seconds().max(0));
        metrics.set_files(class, of_class().count() as i64, age);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> DateTime<Utc> {
        "2026-01-10T12:00:00Z".parse().unwrap()
    }

    fn file(class: Class, hours_old: i64, bytes: u64) -> Stored {
        Stored {
            class,
            until: now() - TimeDelta::hours(hours_old),
            bytes,
            is_open: false,
            path: format!("{class:?}-{hours_old}").into(),
        }
    }

    fn policy() -> Policy {
        Policy {
            keep: TimeDelta::days(7),
            details_keep: TimeDelta::days(30),
            max_bytes: None,
            min_free: MinFree::Percent(10.0),
        }
    }

    const ROOMY: Room = Room {
        free: 500,
        total: 1000,
    };

    fn planned(files: &[Stored], policy: &Policy, room: Room) -> Vec<String> {
        plan(files.to_vec(), policy, room, now())
            .iter()
            .map(|file| file.path.display().to_string())
            .collect()
    }

    #[test]
    fn files_go_when_their_whole_hour_is_too_old() {
        let files = [
            file(Class::Records, 168, 1),
            file(Class::Records, 167, 1),
            file(Class::Details, 719, 1),
            file(Class::Details, 720, 1),
            file(Class::Quarantine, 200, 1),
        ];
        assert_eq!(
            planned(&files, &policy(), ROOMY),
            ["Quarantine-200", "Records-168", "Details-720"]
        );
    }

    #[test]
    fn too_many_bytes_cost_the_oldest_records_before_any_row() {
        let files = [
            file(Class::Details, 9, 10),
            file(Class::Records, 2, 40),
            file(Class::Records, 5, 40),
            file(Class::Quarantine, 1, 10),
        ];
        let policy = Policy {
            max_bytes: Some(60),
            ..policy()
        };
        assert_eq!(
            planned(&files, &policy, ROOMY),
            ["Quarantine-1", "Records-5"]
        );
        let policy = Policy {
            max_bytes: Some(5),
            ..policy
        };
        assert_eq!(
            planned(&files, &policy, ROOMY),
            ["Quarantine-1", "Records-5", "Records-2", "Details-9"]
        );
    }

    #[test]
    fn too_little_room_costs_as_much_as_is_missing() {
        let files = [
            file(Class::Records, 3, 30),
            file(Class::Records, 2, 30),
            file(Class::Records, 1, 30),
        ];
        let room = Room {
            free: 60,
            total: 1000,
        };
        assert_eq!(planned(&files, &policy(), room), ["Records-3", "Records-2"]);
    }

    #[test]
    fn an_open_file_and_a_spilled_frame_stay_whatever_it_costs() {
        let open = Stored {
            is_open: true,
            ..file(Class::Records, 900, 500)
        };
        let files = [open, file(Class::Spill, 900, 500)];
        let policy = Policy {
            max_bytes: Some(1),
            ..policy()
        };
        assert_eq!(
            planned(
                &files,
                &policy,
                Room {
                    free: 0,
                    total: 1000
                }
            ),
            [""; 0]
        );
    }

    #[test]
    fn a_linked_day_and_a_linked_directory_are_left_alone() {
        use std::os::unix::fs::symlink;
        let (root, archive) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in ["10.jsonl", "2020-01-01.frames"] {
            fs::write(archive.path().join(name), "{}\n").unwrap();
        }
        symlink(archive.path(), root.path().join("2020-01-01")).unwrap();
        symlink(archive.path(), root.path().join(quarantine::DIR)).unwrap();
        assert_eq!(list(root.path(), |_, _| false, now()).unwrap(), []);
    }

    #[test]
    fn deleting_the_last_hour_of_a_day_removes_the_day() {
        let root = tempfile::tempdir().unwrap();
        for name in [
            "2026-01-02/10.jsonl.gz",
            "2026-01-02/11.jsonl",
            "details/2026-01-02/10.jsonl",
        ] {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "{}\n").unwrap();
        }
        let files = list(root.path(), |_, _| false, now()).unwrap();
        assert_eq!(files.len(), 3);
        let records: Vec<_> = files
            .into_iter()
            .filter(|file| file.class == Class::Records)
            .collect();
        delete(&records[..1]);
        assert!(root.path().join("2026-01-02/11.jsonl").exists());
        delete(&records);
        assert!(!root.path().join("2026-01-02").exists());
        assert!(root.path().join("details/2026-01-02/10.jsonl").exists());
    }
}
