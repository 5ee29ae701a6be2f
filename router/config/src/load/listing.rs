//! Lists the route files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::main::MainRead;
use super::{ROUTES_MAX, RoutesAt, RoutesState, Sources};
use crate::report::{Problem, Severity};

/// The route files to read.
pub(super) struct Listing {
    /// Ordered by path.
    pub(super) files: Vec<PathBuf>,
    /// The directory that was read.
    pub(super) directory: Option<PathBuf>,
    /// How it was found.
    pub(super) state: RoutesState,
}

impl Listing {
    /// Lists the files that `sources`, or else the main file, names. A directory that is named
    /// explicitly must exist; the default directory need not.
    pub(super) fn of(sources: &Sources, main: &mut MainRead, problems: &mut Vec<Problem>) -> Self {
        let directory = match &sources.routes {
            RoutesAt::Files(files) => return Self::named(files.clone()),
            RoutesAt::Directory(directory) => directory.clone(),
            RoutesAt::Main => main.file.main.routes_dir.clone(),
        };
        let (files, state) = match entries(&directory, problems) {
            Ok(files) => (files, RoutesState::Read),
            Err(error) => {
                let missing = error.kind() == io::ErrorKind::NotFound;
                let message = format!("the directory of route files cannot be read: {error}");
                match (&sources.routes, main.file.routes_at.clone()) {
                    (RoutesAt::Main, Some(at)) => main.error("routes", at, message),
                    (RoutesAt::Main, None) if missing => {
                        problems.push(
                            Problem::of_file(Severity::Warning, &directory, message)
                                .with_code("no-routes-directory"),
                        );
                    }
                    _ => problems.push(Problem::of_file(Severity::Error, &directory, message)),
                }
                let state = if missing {
                    RoutesState::Missing
                } else {
                    RoutesState::Unreadable
                };
                (Vec::new(), state)
            }
        };
        Self {
            files,
            directory: Some(directory),
            state,
        }
    }

    fn named(mut files: Vec<PathBuf>) -> Self {
        files.sort();
        files.dedup();
        Self {
            files,
            directory: None,
            state: RoutesState::Read,
        }
    }
}

/// The `*.yaml` files of a directory, ordered by name. Hidden files are skipped: they belong to
/// editors and Kubernetes.
fn entries(directory: &Path, problems: &mut Vec<Problem>) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let hidden = path
            .file_name()
            .is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        match path.extension().and_then(|extension| extension.to_str()) {
            _ if hidden || path.is_dir() => {}
            Some("yaml") => files.push(path),
            Some("yml") => problems.push(
                Problem::of_file(
                    Severity::Warning,
                    &path,
                    "this file is not read: a route file ends in `.yaml`",
                )
                .with_code("ignored-file")
                .with_help("rename it"),
            ),
            _ => {}
        }
    }
    files.sort();
    if files.len() > ROUTES_MAX {
        let message = format!(
            "there are {} route files here, of which the first {ROUTES_MAX} are read",
            files.len()
        );
        problems.push(Problem::of_file(Severity::Error, directory, message));
        files.truncate(ROUTES_MAX);
    }
    Ok(files)
}
