//! What the watched files hold, as hashes.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use router_config::keys::file::FILE_MAX;
use router_config::load::{ContentHash, ROUTES_MAX, read_bounded};

use super::Watched;

/// Every watched file with its content, or why it has none. Two that are equal: nothing changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Fingerprint(BTreeMap<PathBuf, Result<ContentHash, io::ErrorKind>>);

impl Fingerprint {
    /// Reads everything that is watched. Blocking; bounded by the bounds of the files.
    pub(super) fn of(what: &Watched) -> Self {
        let mut seen = BTreeMap::new();
        for file in &what.files {
            seen.insert(file.clone(), content(file));
        }
        for directory in &what.directories {
            match listing(directory) {
                Ok(files) => {
                    seen.extend(files.into_iter().map(|file| (file.clone(), content(&file))));
                }
                Err(error) => {
                    seen.insert(directory.clone(), Err(error.kind()));
                }
            }
        }
        Self(seen)
    }
}

/// The files that a loader may read or warn about.
fn listing(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        if matches!(extension, Some("yaml" | "yml")) && files.len() < ROUTES_MAX {
            files.push(path);
        }
    }
    Ok(files)
}

fn content(path: &Path) -> Result<ContentHash, io::ErrorKind> {
    // The largest of our files is the key file.
    read_bounded(path, FILE_MAX)
        .map(|bytes| ContentHash::of(&bytes))
        .map_err(|error| error.kind())
}
