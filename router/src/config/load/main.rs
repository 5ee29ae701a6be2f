//! The main file: which one, and what it says.

use std::path::{Path, PathBuf};

use super::file::{parse, read};
use super::{ContentHash, MainLoad, Sources};
use crate::config::check::{self, MainFile, Reader};
use crate::config::env::{Env, expand_tree};
use crate::config::report::Problem;
use crate::config::tree::{Node, Span};

/// The variable that names the main file where no flag does.
const CONFIG_VARIABLE: &str = "LLM_ROUTER_CONFIG";

/// Where the main file is looked for when nobody names one.
const MAIN_PATHS: [&str; 2] = ["router.yaml", "/etc/llm-router/router.yaml"];

/// The main file with its report still open: the route files may add to it.
pub(super) struct MainRead {
    /// What it says, best effort; the defaults when it cannot be read.
    pub(super) file: MainFile,
    path: Option<PathBuf>,
    hash: Option<ContentHash>,
    text: String,
    reader: Reader,
    broken: Option<Problem>,
}

impl MainRead {
    /// Finds, reads and checks the main file.
    pub(super) fn of(sources: &Sources) -> Self {
        let path = main_path(sources);
        let mut hash = None;
        let (mut text, mut root, mut broken) = (String::new(), Node::empty(), None);
        if let Some(path) = &path {
            let parsed = read(path).and_then(|read| {
                hash = Some(read.hash);
                parse(path, read.text)
            });
            match parsed {
                Ok(parsed) => (text, root) = parsed,
                Err(problem) => broken = Some(*problem),
            }
        }
        let mut reader = Reader::new();
        expand_tree(&mut root, &sources.env, &mut reader);
        let file = check::main_file(&mut reader, path.as_deref(), &root);
        Self {
            file,
            path,
            hash,
            text,
            reader,
            broken,
        }
    }

    /// `server.default_route` names a route, valid or not.
    pub(super) fn check_default_route<'a>(&mut self, names: impl Iterator<Item = &'a str> + Clone) {
        let Some(name) = &self.file.main.server.default_route else {
            return;
        };
        if names.clone().any(|known| known == name) {
            return;
        }
        let hint = check::nearest(name, names)
            .map(|near| format!("; did you mean `{near}`?"))
            .unwrap_or_default();
        let message = format!("no route is named `{name}`{hint}");
        let at = self.file.default_route_at.clone().unwrap_or(0..0);
        self.error("server.default_route", at, message);
    }

    /// An error that only the other files show; `key` is the whole key path.
    pub(super) fn error(&mut self, key: &str, at: Span, message: String) {
        self.reader.at(key, |reader| {
            reader.error(at, message);
        });
    }

    /// The outcome, and every problem of the file.
    pub(super) fn finish(self) -> (MainLoad, Vec<Problem>) {
        let path = self.path.clone().unwrap_or_default();
        let problems = match self.broken {
            Some(problem) => vec![problem],
            None => self.reader.finish(&path, &self.text),
        };
        let result = if problems.iter().any(Problem::is_fatal) {
            Err(problems.clone())
        } else {
            Ok(self.file.main)
        };
        let load = MainLoad {
            path: self.path,
            hash: self.hash,
            result,
        };
        (load, problems)
    }
}

fn main_path(sources: &Sources) -> Option<PathBuf> {
    sources
        .config
        .clone()
        .or_else(|| named(&sources.env))
        .or_else(|| {
            MAIN_PATHS
                .iter()
                .map(PathBuf::from)
                .find(|path| Path::exists(path))
        })
}

fn named(env: &Env) -> Option<PathBuf> {
    let path = env.get(CONFIG_VARIABLE).ok().flatten()?;
    (!path.is_empty()).then(|| PathBuf::from(path))
}
