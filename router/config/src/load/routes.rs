//! Reads the route files one by one, then checks for files with the same name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::file::{parse, read};
use super::{ContentHash, RouteLoad, Sources};
use crate::check::{self, Base, Reader, RouteFile, peers_in_file};
use crate::env::expand_tree;
use crate::lint;
use crate::report::Problem;
use crate::valid::{PeersFrom, Route};

/// A route file with an open report, to which checks across files may add problems.
pub(super) struct RouteRead {
    path: PathBuf,
    hash: Option<ContentHash>,
    /// The route's name; the file's stem if the file sets no name.
    pub(super) name: Arc<str>,
    content: Result<RouteContent, Box<Problem>>,
    advise: bool,
}

struct RouteContent {
    file: RouteFile,
    reader: Reader,
    text: String,
}

impl RouteRead {
    /// Reads and checks one file.
    pub(super) fn of(path: &Path, base: &Base, sources: &Sources) -> Self {
        let mut hash = None;
        let parsed = read(path).and_then(|read| {
            hash = Some(read.hash);
            parse(path, read.text)
        });
        let content = parsed.map(|(text, mut root)| {
            let mut reader = Reader::new();
            expand_tree(&mut root, &sources.env, &mut reader);
            let file = check::route_file(&mut reader, path, &root, base);
            if sources.advise && reader.errors() == 0 {
                lint::route(&mut reader, &root, &file.route);
            }
            RouteContent { file, reader, text }
        });
        let name = content.as_ref().map_or_else(
            |_| check::stem(path),
            |content| Arc::clone(&content.file.route.name),
        );
        Self {
            path: path.to_owned(),
            hash,
            name,
            content,
            advise: sources.advise,
        }
    }

    /// The result, and every problem of the file.
    pub(super) fn finish(self) -> (RouteLoad, Vec<Problem>) {
        let (route, mut problems) = match self.content {
            Ok(content) => (
                Some(content.file.route),
                content.reader.finish(&self.path, &content.text),
            ),
            Err(problem) => (None, vec![*problem]),
        };
        let result = match route {
            Some(route) if !problems.iter().any(Problem::is_fatal) => Ok(route),
            _ => Err(problems.clone()),
        };
        // A router finds out by itself, and goes on with the last peers.
        if self.advise
            && let Ok(Route {
                peers_from: Some(PeersFrom::File(path)),
                options,
                ..
            }) = &result
            && let Err(of_file) = peers_in_file(path, options.default_max.value)
        {
            problems.extend(of_file);
        }
        let flaws = match &result {
            Ok(_) => problems.iter().filter(|p| p.is_error()).cloned().collect(),
            Err(_) => Vec::new(),
        };
        (
            RouteLoad {
                name: self.name,
                path: self.path,
                hash: self.hash,
                result,
                flaws,
            },
            problems,
        )
    }
}

/// Checks that each `fallback` names other routes, valid or not. A running router leaves out those that
/// are missing.
pub(super) fn known_fallbacks(routes: &mut [RouteRead]) {
    let names: Vec<Arc<str>> = routes.iter().map(|route| Arc::clone(&route.name)).collect();
    for route in routes {
        let Ok(RouteContent { file, reader, .. }) = &mut route.content else {
            continue;
        };
        let Some(at) = file.fallback_at.clone() else {
            continue;
        };
        for name in file.route.options.fallback.value.0.iter() {
            let message = if *name == route.name {
                format!("`{name}` is this route itself")
            } else if names.contains(name) {
                continue;
            } else {
                format!("no route is named `{name}`")
            };
            reader.tolerating(|reader| {
                reader.key("fallback", |reader| {
                    reader.error(at.clone(), message);
                });
            });
        }
    }
}

/// Resolves two files with the same name: the file whose stem is the name keeps it, or else the
/// first by path.
pub(super) fn same_names(routes: &mut [RouteRead]) {
    let mut keeper: BTreeMap<Arc<str>, usize> = BTreeMap::new();
    for (index, route) in routes.iter().enumerate() {
        let holder = keeper.entry(Arc::clone(&route.name)).or_insert(index);
        if check::stem(&route.path) == route.name
            && check::stem(&routes[*holder].path) != route.name
        {
            *holder = index;
        }
    }
    for index in 0..routes.len() {
        let holder = keeper.get(&routes[index].name).copied().unwrap_or(index);
        if holder == index {
            continue;
        }
        let message = format!(
            "the name `{}` is taken by {} already",
            routes[index].name,
            routes[holder].path.display()
        );
        let help = "give one of the two another `name`";
        // A file without content is already invalid, and has no name of its own.
        if let Ok(RouteContent { file, reader, .. }) = &mut routes[index].content {
            reader
                .error(file.name_at.clone().unwrap_or(0..0), message)
                .help(help);
        }
    }
}
