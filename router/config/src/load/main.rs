//! Finds the main file and reads it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::file::{parse, read};
use super::{ContentHash, MainLoad, Sources};
use crate::check::{self, MainFile, Reader};
use crate::env::{Env, expand_tree};
use crate::lint;
use crate::report::Problem;
use crate::tree::{Node, Span};

/// The variable that names the main file if no flag does.
const CONFIG_VARIABLE: &str = "LLM_ROUTER_CONFIG";

/// The variables that name the bodylog listener; they override the main file.
const LISTENER_HOST: &str = "BODYLOG_LISTENER_HOST";
const LISTENER_PORT: &str = "BODYLOG_LISTENER_PORT";

/// The variable that changes the default of `session_ttl`, in seconds.
const SESSION_TTL_VARIABLE: &str = "VLLM_ROUTER_SLL_SESSION_EXPIRATION_IN_S";

/// Default of `session_ttl` if nothing sets it.
const SESSION_TTL_DEFAULT: Duration = Duration::from_secs(7200);

/// The listener's own default.
const LISTENER_PORT_DEFAULT: u16 = 9999;

/// Default paths of the main file, in search order.
const MAIN_PATHS: [&str; 2] = ["router.yaml", "/etc/llm-router/router.yaml"];

/// The main file with an open report, to which the route files may add problems.
pub(super) struct MainRead {
    /// Its content, best effort; the defaults when it cannot be read.
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
        let ttl = session_ttl(&sources.env);
        let mut file = check::main_file(
            &mut reader,
            path.as_deref(),
            &root,
            ttl.unwrap_or(SESSION_TTL_DEFAULT),
        );
        if sources.advise && reader.errors() == 0 {
            lint::process(&mut reader, &root, &file.main);
        }
        if ttl.is_none() {
            // As in the original program, a bad value does not prevent the start.
            reader.at("defaults.session_ttl", |reader| {
                let message = format!(
                    "the variable `{SESSION_TTL_VARIABLE}` is not a number of seconds: {} s hold",
                    SESSION_TTL_DEFAULT.as_secs()
                );
                reader.warning("ttl-variable", 0..0, message);
            });
        }
        match listener(&sources.env) {
            Ok(None) => {}
            Ok(listener) => file.main.bodylog.listener = listener,
            Err(message) => {
                reader.at("bodylog.listener", |reader| {
                    reader.error(0..0, message);
                });
            }
        }
        Self {
            file,
            path,
            hash,
            text,
            reader,
            broken,
        }
    }

    /// Checks that `server.default_route` names a route, valid or not.
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

    /// Reports an error that shows only together with the other files; `key` is the full key path.
    pub(super) fn error(&mut self, key: &str, at: Span, message: String) {
        self.reader.at(key, |reader| {
            reader.error(at, message);
        });
    }

    /// The result, and every problem of the file.
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

/// The default of `session_ttl`; `None` when its variable is not a number.
fn session_ttl(env: &Env) -> Option<Duration> {
    match env.get(SESSION_TTL_VARIABLE) {
        Ok(None) => Some(SESSION_TTL_DEFAULT),
        Ok(Some(text)) => text.trim().parse().ok().map(Duration::from_secs),
        Err(_) => None,
    }
}

/// The bodylog listener named by the environment: `host:port`, or nothing.
fn listener(env: &Env) -> Result<Option<Arc<str>>, String> {
    let read = |name: &str| match env.get(name) {
        Ok(value) => Ok(value.filter(|value| !value.trim().is_empty())),
        Err(_) => Err(format!("the variable `{name}` is not UTF-8")),
    };
    let Some(host) = read(LISTENER_HOST)? else {
        return Ok(None);
    };
    let port = match read(LISTENER_PORT)? {
        None => LISTENER_PORT_DEFAULT,
        Some(text) => port(&text).ok_or_else(|| {
            format!("the variable `{LISTENER_PORT}` is neither a port nor `tcp://host:port`")
        })?,
    };
    check::host_port_text(&host, port)
        .map(Some)
        .ok_or_else(|| format!("the variable `{LISTENER_HOST}` is neither `host` nor `host:port`"))
}

/// A port, or the port of a value like `tcp://10.96.13.7:9999`, which Kubernetes sets for a Service
/// with the name `bodylog-listener`.
fn port(text: &str) -> Option<u16> {
    let text = text.trim();
    let number = match text.strip_prefix("tcp://") {
        Some(address) => address.rsplit_once(':')?.1,
        None => text,
    };
    number.parse().ok().filter(|port| *port != 0)
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
