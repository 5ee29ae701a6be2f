//! Finds, reads and checks all files: one call reports every problem of every file.
//!
//! Blocking: call it outside the runtime. It does not decide which configuration is in force. The
//! holder of the previous one decides that: [`Loaded`] says for each file whether it is valid, and
//! how the directory was found.

mod file;
mod listing;
mod main;
mod routes;

use std::path::PathBuf;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use self::listing::Listing;
use self::main::MainRead;
use self::routes::{RouteRead, known_fallbacks, same_names};
use super::env::Env;
use super::report::Problem;
use super::valid::{Main, Route};

pub use file::read_bounded;
pub(super) use file::{parse, read};

/// Maximum size of a configuration file, bytes. Thousands of peers take a few hundred KiB.
pub const FILE_MAX: u64 = 4 << 20;

/// Maximum number of route files that are read from the directory.
pub const ROUTES_MAX: usize = 4096;

/// The places of the configuration.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The main file; it must exist. `None`: `$LLM_ROUTER_CONFIG`, `./router.yaml`,
    /// `/etc/llm-router/router.yaml`; it is fine if none of them exists.
    pub config: Option<PathBuf>,
    /// The place of the route files; overrides the main file.
    pub routes: RoutesAt,
    /// The variables available to values.
    pub env: Env,
    /// Whether to warn about legal but unwise settings too ([`lint`](super::lint)): for a check,
    /// not for a router.
    pub advise: bool,
}

/// The place of the route files.
#[derive(Clone, Debug, Default)]
pub enum RoutesAt {
    /// The directory that the main file names, `routes/` by default.
    #[default]
    Main,
    /// This directory.
    Directory(PathBuf),
    /// These files.
    Files(Vec<PathBuf>),
}

/// SHA-256 of a file's bytes. Equal hashes mean equal content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContentHash([u8; 32]);

impl ContentHash {
    /// The hash of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

/// The result of reading all files.
#[derive(Debug)]
pub struct Loaded {
    /// The main file.
    pub main: MainLoad,
    /// Every route file, ordered by path. If two files have the same name, both are here and the
    /// later one is invalid.
    pub routes: Vec<RouteLoad>,
    /// The directory that was read; `None` when files were named individually.
    pub routes_dir: Option<PathBuf>,
    /// How the directory was found.
    pub routes_state: RoutesState,
    /// Every problem of every file: first the main file's, then by path and place.
    pub problems: Vec<Problem>,
}

/// The main file as it was read.
#[derive(Debug)]
pub struct MainLoad {
    /// Its path; `None` when there is no main file and every option has its default.
    pub path: Option<PathBuf>,
    /// Hash of its content; `None` when it could not be read, or there is none.
    pub hash: Option<ContentHash>,
    /// The configuration, or the reasons why it is invalid.
    pub result: Result<Main, Vec<Problem>>,
}

/// A route file as it was read.
#[derive(Debug)]
pub struct RouteLoad {
    /// The route's name; the file's stem if the file sets no name.
    pub name: Arc<str>,
    /// The file.
    pub path: PathBuf,
    /// Hash of its content; `None` when it could not be read.
    pub hash: Option<ContentHash>,
    /// The route, or the reasons why it is invalid.
    pub result: Result<Route, Vec<Problem>>,
    /// Parts of a valid file that are not in force: an invalid boolean, a rule that cannot be read.
    pub flaws: Vec<Problem>,
}

impl RouteLoad {
    /// Rejects the file for a reason that only a running router can know.
    pub fn refuse(&mut self, problem: Problem) {
        self.result = Err(vec![problem]);
        self.flaws.clear();
    }
}

/// How the directory of route files was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoutesState {
    /// The directory was read; it may have no route file.
    Read,
    /// The directory does not exist.
    Missing,
    /// The directory could not be read.
    Unreadable,
}

impl Loaded {
    /// Whether a check must fail: an error of any kind in any file.
    pub fn has_errors(&self) -> bool {
        self.problems.iter().any(Problem::is_error)
    }

    /// Whether no route file was found at all, for any reason. A router that has routes keeps them
    /// in this case.
    pub fn has_no_route_files(&self) -> bool {
        self.routes.is_empty()
    }
}

/// Reads and checks all files.
pub fn load(sources: &Sources) -> Loaded {
    let mut main = MainRead::of(sources);
    let mut elsewhere = Vec::new();
    let listing = Listing::of(sources, &mut main, &mut elsewhere);
    let mut routes: Vec<_> = listing
        .files
        .iter()
        .map(|path| RouteRead::of(path, &main.file.base, sources))
        .collect();
    same_names(&mut routes);
    if listing.state == RoutesState::Read {
        known_fallbacks(&mut routes);
        main.check_default_route(routes.iter().map(|route| &*route.name));
    }
    let (main, mut problems) = main.finish();
    problems.extend(elsewhere);
    let routes = routes
        .into_iter()
        .map(|route| {
            let (load, own) = route.finish();
            problems.extend(own);
            load
        })
        .collect();
    Loaded {
        main,
        routes,
        routes_dir: listing.directory,
        routes_state: listing.state,
        problems,
    }
}

#[cfg(test)]
mod tests;
