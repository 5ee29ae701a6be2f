//! Decides what is in force after each read of the key file. Pure: from a read and the previous
//! state it computes the next state, and what to log.
//!
//! Once a set was loaded, a bad read keeps it. Before that, `on_missing` decides with its value
//! from the start: a reload may close a gateway, and only a restart can open one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::file::{KeyFileStatus, KeyProblem, KeyRead};
use super::{Cuts, KeySet};
use crate::load::ContentHash;
use crate::valid::OnMissing;

/// The access rule in force.
#[derive(Clone, Debug)]
pub enum InForce {
    /// Only holders of a key may pass.
    Keys(Arc<KeySet>),
    /// All requests may pass: no set was ever loaded, and `on_missing` is `allow`.
    Open,
    /// No request may pass: no set was ever loaded, and `on_missing` is `deny`.
    Closed,
}

/// The result for one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// There are no keys to check.
    Open,
    /// The key is in the set; the value is its owner.
    Granted(Arc<str>),
    /// There is no key, or it is not in the set.
    Denied,
}

/// The shared keys in force, and the last state of the file.
#[derive(Clone, Debug)]
pub struct KeyState {
    /// The file.
    pub path: PathBuf,
    /// The status of the last read.
    pub status: KeyFileStatus,
    /// The reason, if the file was unreadable.
    pub detail: Option<String>,
    /// The access rule in force.
    pub in_force: InForce,
    /// Entries of the last read that were skipped or duplicate.
    pub problems: Arc<[KeyProblem]>,
    /// Hash of the content of the last read.
    pub hash: Option<ContentHash>,
    /// Prefixes of the file from which the set in force came.
    cuts: Cuts,
}

/// A change caused by a read, to be logged once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A set came into force.
    Loaded {
        /// Number of keys.
        keys: usize,
    },
    /// The read was bad and the last good set stays.
    Kept {
        /// Status of the file.
        status: KeyFileStatus,
    },
    /// There is no set: all requests pass. An error.
    Open {
        /// Status of the file.
        status: KeyFileStatus,
    },
    /// There is no set: no request passes. An error.
    Closed {
        /// Status of the file.
        status: KeyFileStatus,
    },
}

impl KeyState {
    /// The state after a read. `previous` is `None` at start. The note is `None` when the file did
    /// not change.
    pub fn next(
        previous: Option<&KeyState>,
        path: &Path,
        read: KeyRead,
        on_missing: OnMissing,
    ) -> (KeyState, Option<Note>) {
        let held = previous.and_then(|state| match &state.in_force {
            InForce::Keys(keys) => Some(Arc::clone(keys)),
            InForce::Open | InForce::Closed => None,
        });
        let (mut status, mut detail) = (read.status, read.detail);
        let is_cut =
            previous.is_some_and(|state| read.truncated || read.cuts.is_cut_from(&state.cuts));
        if is_cut && held.is_some() {
            (status, detail) = (
                KeyFileStatus::Unreadable,
                Some("it breaks off in the middle of an entry".to_owned()),
            );
        }
        let cuts = match status {
            KeyFileStatus::Ok => read.cuts,
            _ => previous.map_or_else(Cuts::default, |state| state.cuts.clone()),
        };
        let was_closed = previous.is_some_and(|state| matches!(state.in_force, InForce::Closed));
        let (in_force, note) = match (status, held) {
            (KeyFileStatus::Ok, _) => {
                let note = Note::Loaded {
                    keys: read.keys.len(),
                };
                (InForce::Keys(Arc::new(read.keys)), note)
            }
            (_, Some(held)) => (InForce::Keys(held), Note::Kept { status }),
            (_, None) if was_closed || on_missing == OnMissing::Deny => {
                (InForce::Closed, Note::Closed { status })
            }
            (_, None) => (InForce::Open, Note::Open { status }),
        };
        let state = KeyState {
            path: path.to_owned(),
            status,
            detail,
            in_force,
            problems: read.problems.into(),
            hash: read.hash,
            cuts,
        };
        let news = previous.is_none_or(|previous| !previous.is_like(&state));
        (state, news.then_some(note))
    }

    /// Whether a presented key gives access where the shared keys are required.
    pub fn access(&self, presented: Option<&[u8]>) -> Access {
        match &self.in_force {
            InForce::Open => Access::Open,
            InForce::Closed => Access::Denied,
            InForce::Keys(keys) => presented
                .and_then(|key| keys.owner(key))
                .map_or(Access::Denied, Access::Granted),
        }
    }

    /// Number of keys in force.
    pub fn keys_len(&self) -> usize {
        match &self.in_force {
            InForce::Keys(keys) => keys.len(),
            InForce::Open | InForce::Closed => 0,
        }
    }

    /// Whether all requests pass.
    pub fn is_open(&self) -> bool {
        matches!(self.in_force, InForce::Open)
    }

    fn is_like(&self, other: &KeyState) -> bool {
        let kind = |state: &KeyState| std::mem::discriminant(&state.in_force);
        (&self.path, self.status, &self.detail, self.hash, kind(self))
            == (
                &other.path,
                other.status,
                &other.detail,
                other.hash,
                kind(other),
            )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::file::parse;
    use crate::keys::read;

    fn step(
        previous: Option<&KeyState>,
        text: &str,
        on_missing: OnMissing,
    ) -> (KeyState, Option<Note>) {
        KeyState::next(
            previous,
            Path::new("keys"),
            parse(text.as_bytes()),
            on_missing,
        )
    }

    fn missing() -> KeyRead {
        read(Path::new("/nonexistent/llm-router/keys"))
    }

    #[test]
    fn without_a_set_on_missing_decides() {
        let (open, note) = KeyState::next(None, Path::new("keys"), missing(), OnMissing::Allow);
        assert_eq!(
            (open.access(None), note),
            (
                Access::Open,
                Some(Note::Open {
                    status: KeyFileStatus::Missing
                })
            )
        );
        let (closed, note) = step(None, "", OnMissing::Deny);
        assert_eq!(closed.access(Some(b"sk-a")), Access::Denied);
        assert_eq!(
            note,
            Some(Note::Closed {
                status: KeyFileStatus::Empty
            })
        );
    }

    #[test]
    fn a_loaded_set_survives_every_bad_read() {
        let (first, _) = step(None, "sk-a:x\n", OnMissing::Allow);
        let unreadable = parse(b"\xff");
        for bad in [
            missing(),
            parse(b""),
            parse(b"# sk-a:x\n"),
            unreadable,
            parse(b"sk-b:y\nsha256:ab"),
        ] {
            let (after, note) =
                KeyState::next(Some(&first), Path::new("keys"), bad, OnMissing::Allow);
            assert_eq!(after.access(Some(b"sk-a")), Access::Granted("x".into()));
            assert_eq!(after.access(Some(b"sk-b")), Access::Denied);
            assert_eq!(after.access(None), Access::Denied);
            assert_ne!(after.status, KeyFileStatus::Ok);
            assert_eq!(
                note,
                Some(Note::Kept {
                    status: after.status
                })
            );
        }
    }

    #[test]
    fn a_cut_copy_is_no_new_set_and_a_shorter_file_is_one() {
        let file = "sk-a:x, sk-b:team\n# two\nsk-cc\n";
        let (first, _) = step(None, file, OnMissing::Allow);
        for cut in [
            "s",
            "sk-a:",
            "sk-a:x, sk-",
            "sk-a:x, sk-b:te",
            &file[..file.len() - 2],
        ] {
            let (after, _) = step(Some(&first), cut, OnMissing::Allow);
            assert_eq!(after.status, KeyFileStatus::Unreadable, "{cut:?}");
            assert_eq!(
                after.access(Some(b"sk-cc")),
                Access::Granted("unnamed".into())
            );
            assert_eq!(after.access(Some(b"sk-")), Access::Denied, "{cut:?}");
            // A truncated copy is still detected against the complete file.
            let (again, _) = step(Some(&after), "sk-a:x, sk-", OnMissing::Allow);
            assert_eq!(again.status, KeyFileStatus::Unreadable);
            let (whole, _) = step(Some(&after), file, OnMissing::Allow);
            assert_eq!(whole.status, KeyFileStatus::Ok);
        }
        for shorter in [
            "sk-a:x",
            "sk-a:x\n",
            "sk-a:x, sk-b:team",
            "sk-a:x, sk-b:te\n",
            "sk-d",
        ] {
            let (after, _) = step(Some(&first), shorter, OnMissing::Allow);
            assert_eq!(after.status, KeyFileStatus::Ok, "{shorter:?}");
            assert_eq!(after.access(Some(b"sk-cc")), Access::Denied, "{shorter:?}");
        }
    }

    #[test]
    fn a_good_read_replaces_the_set_at_once() {
        let (first, _) = step(None, "sk-a:x\n", OnMissing::Allow);
        let (second, note) = step(Some(&first), "sk-b:y\n", OnMissing::Allow);
        assert_eq!(second.access(Some(b"sk-a")), Access::Denied);
        assert_eq!(second.access(Some(b"sk-b")), Access::Granted("y".into()));
        assert_eq!(note, Some(Note::Loaded { keys: 1 }));
    }

    #[test]
    fn only_a_restart_can_open_a_gateway() {
        let (closed, _) = step(None, "", OnMissing::Deny);
        let (after, _) = step(Some(&closed), "", OnMissing::Allow);
        assert_eq!(after.access(None), Access::Denied);
        let (open, _) = step(None, "", OnMissing::Allow);
        let (after, _) = step(Some(&open), "", OnMissing::Deny);
        assert_eq!(after.access(None), Access::Denied);
        let (loaded, _) = step(Some(&after), "sk-a:x\n", OnMissing::Allow);
        assert_eq!(loaded.access(Some(b"sk-a")), Access::Granted("x".into()));
    }

    #[test]
    fn an_unchanged_file_is_no_news() {
        let (first, _) = step(None, "sk-a:x\n", OnMissing::Allow);
        assert_eq!(step(Some(&first), "sk-a:x\n", OnMissing::Allow).1, None);
        let (bad, _) = step(Some(&first), "", OnMissing::Allow);
        assert_eq!(step(Some(&bad), "", OnMissing::Allow).1, None);
    }

    #[test]
    fn a_truncated_file_at_start_gives_the_keys_it_has() {
        let (state, _) = step(None, "sk-a:x\nsha256:ab", OnMissing::Allow);
        assert_eq!(state.access(Some(b"sk-a")), Access::Granted("x".into()));
        assert_eq!(state.access(None), Access::Denied);
    }
}
