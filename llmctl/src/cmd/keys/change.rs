//! `llmctl keys add`, `rotate` and `revoke`: changes the file and tells the operator about the
//! effects.

use std::path::Path;

use serde::Serialize;

use super::args::{AddArgs, RevokeArgs, RotateArgs};
use super::file::KeyFile;
use super::secret;
use super::text::{Key, KeyText, entry};
use crate::exit::{Ended, Failure};
use crate::render::{Format, Screen};

/// An added key. Its JSON form is stable, and the only one that holds the secret.
#[derive(Debug, Serialize)]
struct Added {
    file: String,
    owner: String,
    secret: String,
    id: String,
    hashed: bool,
    /// IDs of the owner's other keys that still work.
    beside: Vec<String>,
    /// IDs of the removed keys.
    removed: Vec<String>,
}

/// Removed keys; the JSON form is stable.
#[derive(Debug, Serialize)]
struct Removed {
    file: String,
    owner: String,
    removed: Vec<String>,
    /// IDs of the owner's remaining keys.
    left: Vec<String>,
    /// Number of keys that remain in the file.
    keys: usize,
}

/// Adds a key.
///
/// # Errors
/// When the file cannot be changed.
pub(super) async fn add(
    args: &AddArgs,
    path: &Path,
    screen: &mut Screen,
) -> Result<Ended, Failure> {
    let file = find(path)?;
    let key = secret::new()?;
    let beside = edit(&file, screen, |text| {
        let beside = of_owner(text, &args.owner);
        text.push(&entry(&key, &args.owner, args.hashed));
        opens(&file, text, &key, &args.owner)?;
        Ok(ids(&beside))
    })
    .await?;
    let added = Added::new(&file, &args.owner, key, args.hashed, beside, Vec::new());
    let words = match added.beside.len() {
        0 => String::new(),
        1 => ", beside 1 other".to_owned(),
        more => format!(", beside {more} others"),
    };
    let note = format!(
        "added key {} of {} to {}{words}; it is shown this once",
        added.id, added.owner, added.file
    );
    added.show(&note, screen)
}

/// Adds a key behind the owner's last one.
///
/// # Errors
/// When the owner has no key, or the file cannot be changed.
pub(super) async fn rotate(
    args: &RotateArgs,
    path: &Path,
    screen: &mut Screen,
) -> Result<Ended, Failure> {
    let file = find(path)?;
    let key = secret::new()?;
    let (old, hashed) = edit(&file, screen, |text| {
        let old = of_owner(text, &args.owner);
        let last = old.last().ok_or_else(|| nobody(&file, text, &args.owner))?;
        let hashed = args.hashed || last.hashed;
        text.push_below(last, &entry(&key, &args.owner, hashed));
        if args.now {
            text.remove(&old);
        }
        opens(&file, text, &key, &args.owner)?;
        Ok((ids(&old), hashed))
    })
    .await?;
    let (beside, removed) = if args.now {
        (Vec::new(), old)
    } else {
        (old, Vec::new())
    };
    let added = Added::new(&file, &args.owner, key, hashed, beside, removed);
    let note = if args.now {
        format!(
            "{} has the new key {} in {}, shown this once; {} opens nothing any more",
            added.owner,
            added.id,
            added.file,
            added.removed.join(", ")
        )
    } else {
        format!(
            "{owner} has the new key {id} in {file}, shown this once; {old} goes on working\n\
             next: 1. llmctl keys check --live{at}           every router has the new key\n\
             \x20     2. give the new key to {owner}\n\
             \x20     3. llmctl keys revoke {owner} --old{at}    once nobody uses the old one",
            at = args.at.typed(),
            owner = added.owner,
            id = added.id,
            file = added.file,
            old = added.beside.join(", "),
        )
    };
    added.show(&note, screen)
}

/// Removes keys.
///
/// # Errors
/// When no key matches, the operator answers no, or the file cannot be changed.
pub(super) async fn revoke(
    args: &RevokeArgs,
    path: &Path,
    screen: &mut Screen,
) -> Result<Ended, Failure> {
    let file = find(path)?;
    let text = file.read().map_err(|flaw| file.wrong(&flaw.message))?;
    let meant = meant(args, &file, &text.unwrap_or_default())?;
    let question = format!(
        "Remove {} of {} from {}?",
        ids(&meant).join(", "),
        args.owner,
        path.display()
    );
    if !args.yes && !screen.confirm(&question) {
        return Err(Failure::Wrong("nothing was removed".to_owned()));
    }
    let removed = edit(&file, screen, |text| {
        // Look the keys up again: the file may have changed while the operator was answering.
        let gone = self::meant(args, &file, text)?;
        text.remove(&gone);
        Ok(Removed {
            file: file.path().display().to_string(),
            owner: args.owner.clone(),
            removed: ids(&gone),
            left: ids(&of_owner(text, &args.owner)),
            keys: text.read().keys.len(),
        })
    })
    .await?;
    if screen.format() == Format::Json {
        screen.json(&removed)?;
    } else {
        screen.line(&format!(
            "removed {} of {} from {}; {} left",
            removed.removed.join(", "),
            removed.owner,
            removed.file,
            match removed.keys {
                1 => "1 key is".to_owned(),
                keys => format!("{keys} keys are"),
            }
        ));
    }
    if removed.keys == 0 {
        screen.warn(
            "the file holds no key now: routers that are running keep the last keys they loaded until they restart, and after that `keys.on_missing` decides whether everyone or nobody gets in",
        );
    }
    Ok(Ended::Fine)
}

impl Added {
    fn new(
        file: &KeyFile,
        owner: &str,
        secret: String,
        hashed: bool,
        beside: Vec<String>,
        removed: Vec<String>,
    ) -> Self {
        Self {
            file: file.path().display().to_string(),
            owner: owner.to_owned(),
            id: secret::id(&router_config::keys::Digest::of(secret.as_bytes())),
            secret,
            hashed,
            beside,
            removed,
        }
    }

    /// Only the secret goes to stdout, so that it can be piped. The explanation goes to stderr.
    fn show(&self, note: &str, screen: &mut Screen) -> Result<Ended, Failure> {
        if screen.format() == Format::Json {
            screen.json(self)?;
        } else {
            screen.line(&self.secret);
        }
        screen.note(note);
        Ok(Ended::Fine)
    }
}

/// Changes the file. Warns when every user of the machine could read it before.
async fn edit<T>(
    file: &KeyFile,
    screen: &mut Screen,
    change: impl FnMut(&mut KeyText) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let before = file.mode();
    let done = file.edit(change).await?;
    if let Some(mode) = before.filter(|_| before != file.mode()) {
        let path = file.path().display();
        screen.warn(&format!(
            "every user of this machine could read the keys in {path} (mode {mode:04o}); its mode is 0600 now: a router that runs as another user must own it"
        ));
    }
    Ok(done)
}

fn find(path: &Path) -> Result<KeyFile, Failure> {
    KeyFile::find(path)
        .map_err(|flaw| Failure::Wrong(format!("{}: {}", path.display(), flaw.message)))
}

fn of_owner(text: &KeyText, owner: &str) -> Vec<Key> {
    let mut keys = text.keys();
    keys.retain(|key| key.owner == owner);
    keys
}

fn ids(keys: &[Key]) -> Vec<String> {
    keys.iter().map(|key| key.id.clone()).collect()
}

/// The keys that a revocation removes.
fn meant(args: &RevokeArgs, file: &KeyFile, text: &KeyText) -> Result<Vec<Key>, Failure> {
    let mut keys = of_owner(text, &args.owner);
    if keys.is_empty() {
        return Err(nobody(file, text, &args.owner));
    }
    if args.old {
        keys.pop();
        if keys.is_empty() {
            return Err(file.wrong(&format!("{} has one key, and no older one", args.owner)));
        }
    }
    if let Some(id) = &args.id {
        keys.retain(|key| key.id == *id);
        if keys.is_empty() {
            let why = format!("{} has no key {id}; see `llmctl keys list`", args.owner);
            return Err(file.wrong(&why));
        }
    }
    Ok(keys)
}

/// The failure for an owner without a key.
fn nobody(file: &KeyFile, text: &KeyText, owner: &str) -> Failure {
    let mut owners: Vec<_> = text.keys().into_iter().map(|key| key.owner).collect();
    owners.sort();
    owners.dedup();
    let known = match owners.as_slice() {
        [] => "it holds no key".to_owned(),
        owners => format!("owners are: {}", owners.join(", ")),
    };
    file.wrong(&format!("{owner} has no key in it; {known}"))
}

/// Checks with the router's own reader that the new key is valid and belongs to its owner.
fn opens(file: &KeyFile, text: &KeyText, key: &str, owner: &str) -> Result<(), Failure> {
    match text.read().keys.owner(key.as_bytes()) {
        Some(found) if *found == *owner => Ok(()),
        _ => Err(file.wrong("a router would not read the new entry; nothing was changed")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use tempfile::TempDir;

    use super::*;
    use crate::cmd::keys::args::FileArgs;
    use crate::render::testing::{capture_async, streams};

    const FILE: &str =
        "# team keys\nsk-a-0123456789abcdef:alice, sk-b:bob # both\n\n# ci\nsk-c:ci\n";

    fn directory() -> (TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys");
        fs::write(&path, FILE).unwrap();
        (directory, path)
    }

    fn at() -> FileArgs {
        FileArgs { file: None }
    }

    async fn added(owner: &str, hashed: bool, path: &Path) -> String {
        let args = AddArgs {
            owner: owner.to_owned(),
            hashed,
            at: at(),
        };
        capture_async(Format::Human, async |screen| {
            add(&args, path, screen).await.unwrap();
        })
        .await
        .0
    }

    fn revoking(owner: &str, old: bool, id: Option<&str>) -> RevokeArgs {
        RevokeArgs {
            owner: owner.to_owned(),
            id: id.map(str::to_owned),
            old,
            yes: false,
            at: at(),
        }
    }

    #[tokio::test]
    async fn the_secret_is_all_of_stdout_and_the_rest_of_the_file_stays() {
        let (_directory, path) = directory();
        let secret = added("dora", false, &path).await;
        let secret = secret.strip_suffix('\n').unwrap();
        let now = fs::read_to_string(&path).unwrap();
        assert_eq!(now, format!("{FILE}{secret}:dora\n"));
    }

    #[tokio::test]
    async fn the_operator_hears_that_a_file_is_no_longer_open_to_all() {
        use std::os::unix::fs::PermissionsExt as _;

        let (_directory, path) = directory();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        for told in [true, false] {
            let (_, errors) = streams(Format::Human, async |screen| {
                revoke(
                    &revoking(if told { "alice" } else { "bob" }, false, None),
                    &path,
                    screen,
                )
                .await
                .unwrap();
            })
            .await;
            assert_eq!(errors.contains("(mode 0644)"), told, "{errors}");
        }
    }

    #[tokio::test]
    async fn a_hashed_key_is_nowhere_in_the_file() {
        let (_directory, path) = directory();
        let secret = added("dora", true, &path).await;
        let now = fs::read_to_string(&path).unwrap();
        assert!(now.contains("sha256:") && !now.contains(secret.trim()));
    }

    #[tokio::test]
    async fn a_rotation_leaves_the_old_key_until_it_is_revoked() {
        let (_directory, path) = directory();
        let args = RotateArgs {
            owner: "alice".to_owned(),
            hashed: false,
            now: false,
            at: at(),
        };
        let secret = capture_async(Format::Human, async |screen| {
            rotate(&args, &path, screen).await.unwrap();
        })
        .await
        .0;
        let secret = secret.trim();
        let now = fs::read_to_string(&path).unwrap();
        let expected = format!(
            "# team keys\nsk-a-0123456789abcdef:alice, sk-b:bob # both\n{secret}:alice\n\n# ci\nsk-c:ci\n"
        );
        assert_eq!(now, expected);
        let shown = capture_async(Format::Human, async |screen| {
            revoke(&revoking("alice", true, None), &path, screen)
                .await
                .unwrap();
        })
        .await
        .0;
        assert!(!shown.contains("sk-"), "{shown}");
        let now = fs::read_to_string(&path).unwrap();
        let expected = format!("# team keys\n sk-b:bob # both\n{secret}:alice\n\n# ci\nsk-c:ci\n");
        assert_eq!(now, expected);
        let refused = capture_async(Format::Human, async |screen| {
            revoke(&revoking("alice", true, None), &path, screen)
                .await
                .unwrap_err();
        })
        .await
        .0;
        assert_eq!(refused, "");
    }

    #[tokio::test]
    async fn a_rotation_at_once_replaces_the_key() {
        let (_directory, path) = directory();
        let args = RotateArgs {
            owner: "ci".to_owned(),
            hashed: true,
            now: true,
            at: at(),
        };
        let secret = capture_async(Format::Human, async |screen| {
            rotate(&args, &path, screen).await.unwrap();
        })
        .await
        .0;
        let now = fs::read_to_string(&path).unwrap();
        assert!(
            !now.contains("sk-c:ci") && now.contains("sha256:") && !now.contains(secret.trim())
        );
    }

    #[tokio::test]
    async fn a_key_is_revoked_by_owner_or_by_id() {
        let (_directory, path) = directory();
        added("bob", false, &path).await;
        let file = KeyFile::find(&path).unwrap();
        let keys = of_owner(&file.read().unwrap().unwrap(), "bob");
        let shown = capture_async(Format::Json, async |screen| {
            revoke(&revoking("bob", false, Some(&keys[1].id)), &path, screen)
                .await
                .unwrap();
        })
        .await
        .0;
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(
            (&shown["keys"], &shown["left"][0]),
            (&3.into(), &keys[0].id.clone().into())
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), FILE);
    }

    #[tokio::test]
    async fn an_owner_without_a_key_is_named_with_those_that_have_one() {
        let (_directory, path) = directory();
        let mut screen = Screen::to(Format::Human, std::io::sink(), std::io::sink());
        let refused = revoke(&revoking("nobody", false, None), &path, &mut screen)
            .await
            .unwrap_err();
        assert!(
            refused.to_string().ends_with("owners are: alice, bob, ci"),
            "{refused}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), FILE);
    }

    #[tokio::test]
    async fn json_shapes_are_pinned() {
        let (_directory, path) = directory();
        let listed = capture_async(Format::Json, async |screen| {
            super::super::list::run(&path, screen).unwrap();
        })
        .await
        .0;
        let plain = |text: &str| text.replace(&path.display().to_string(), "keys");
        insta::assert_snapshot!("keys_list_json", plain(&listed));
        let table = capture_async(Format::Human, async |screen| {
            super::super::list::run(&path, screen).unwrap();
        })
        .await
        .0;
        insta::assert_snapshot!("keys_list", plain(&table));
        let added = Added {
            file: "keys".to_owned(),
            owner: "alice".to_owned(),
            secret: "sk-...".to_owned(),
            id: "3fa94c17".to_owned(),
            hashed: false,
            beside: vec!["80c1ef22".to_owned()],
            removed: Vec::new(),
        };
        insta::assert_snapshot!(
            "keys_add_json",
            serde_json::to_string_pretty(&added).unwrap()
        );
    }
}
