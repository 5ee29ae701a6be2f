//! Finds the files, reads them, and checks them all: one call, every problem of every file.
//!
//! Blocking: call it off the runtime. It decides nothing about what is in force; that is for whoever
//! holds the previous set, with [`Loaded`] saying per file what is valid, and what the directory
//! looked like.

mod file;
mod listing;
mod main;
mod routes;

use std::path::PathBuf;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use self::listing::Listing;
use self::main::MainRead;
use self::routes::{RouteRead, same_names};
use super::env::Env;
use super::report::Problem;
use super::valid::{Main, Route};

pub use file::read_bounded;
pub(super) use file::{parse, read};

/// Largest configuration file, bytes. Thousands of peers are a few hundred KiB.
pub const FILE_MAX: u64 = 4 << 20;

/// Most route files that are read from the directory.
pub const ROUTES_MAX: usize = 4096;

/// Where the configuration is.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The main file; it must exist. `None`: `$LLM_ROUTER_CONFIG`, `./router.yaml`,
    /// `/etc/llm-router/router.yaml`; none is fine.
    pub config: Option<PathBuf>,
    /// Where route files are, in place of what the main file says.
    pub routes: RoutesAt,
    /// The variables that values may name.
    pub env: Env,
    /// Whether what is legal and unwise is warned of too ([`lint`](super::lint)): for a check, not for
    /// a router.
    pub advise: bool,
}

/// Where route files are.
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

/// SHA-256 of a file's bytes: equal hashes, equal content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContentHash([u8; 32]);

impl ContentHash {
    /// The hash of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

/// Everything that was read.
#[derive(Debug)]
pub struct Loaded {
    /// The main file.
    pub main: MainLoad,
    /// Every route file, by path. Two files of one name are both here, and the later is invalid.
    pub routes: Vec<RouteLoad>,
    /// The directory that was read; `None` when files were named one by one.
    pub routes_dir: Option<PathBuf>,
    /// How the directory was found.
    pub routes_state: RoutesState,
    /// Every problem of every file, the main file's first, then by path and place.
    pub problems: Vec<Problem>,
}

/// The main file as it was found.
#[derive(Debug)]
pub struct MainLoad {
    /// Its path; `None` when there is none and every option has its default.
    pub path: Option<PathBuf>,
    /// Its content; `None` when it could not be read, or there is none.
    pub hash: Option<ContentHash>,
    /// The configuration, or why it is invalid.
    pub result: Result<Main, Vec<Problem>>,
}

/// A route file as it was found.
#[derive(Debug)]
pub struct RouteLoad {
    /// The route's name; of a file that does not say, its stem.
    pub name: Arc<str>,
    /// The file.
    pub path: PathBuf,
    /// Its content; `None` when it could not be read.
    pub hash: Option<ContentHash>,
    /// The route, or why it is invalid.
    pub result: Result<Route, Vec<Problem>>,
    /// What a valid file says and is not in force: a boolean that is none, a rule that cannot be
    /// read.
    pub flaws: Vec<Problem>,
}

impl RouteLoad {
    /// Refuses the file for what only a running router can know.
    pub fn refuse(&mut self, problem: Problem) {
        self.result = Err(vec![problem]);
        self.flaws.clear();
    }
}

/// How the directory of route files was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoutesState {
    /// Read; it may hold no route file.
    Read,
    /// It does not exist.
    Missing,
    /// It could not be read.
    Unreadable,
}

impl Loaded {
    /// True when a check must fail: an error of any kind in any file.
    pub fn has_errors(&self) -> bool {
        self.problems.iter().any(Problem::is_error)
    }

    /// True when no route file was found at all, for whatever reason. A router that has routes
    /// keeps them then.
    pub fn has_no_route_files(&self) -> bool {
        self.routes.is_empty()
    }
}

/// Reads and checks everything.
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
