//! Builds the current table from the files on disk, at the start and at every reload.
//!
//! Validity is per file. When a file is broken, its last good version stays in force and the status
//! shows that; at the start, when there is none, its route answers 503. Routes whose file and
//! defaults did not change keep the same snapshot. The main file is the exception: the meaning of a
//! route file depends on it, so while the main file is broken only the keys can change.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use chrono::Utc;
use futures_util::future::join_all;
use router_bodylog::Follower;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::clock::now;
use crate::control::Reloaded;
use crate::discovery;
use crate::proxy::serve;
use crate::state::{Entry, RouteTable, TableBuilder, recording};
use crate::telemetry::events::Events;
use crate::telemetry::metrics::Metrics;
use crate::upstream::ConnectTimeout;
use crate::watch::{Changes, Watched};
use router_config::keys::{self, KeyFileStatus, KeyRead, KeyState, Note};
use router_config::load::{ContentHash, Loaded, RouteLoad, RoutesState, Sources};
use router_config::report::{Problem, Severity};
use router_config::valid::{Main, PeersFrom, Server};
use router_core::layered::Source;
use service::connections::Connections;
use service::supervisor;

/// Owns everything that a reload compares with.
#[derive(Debug)]
pub struct Reloader {
    sources: Sources,
    builder: TableBuilder,
    keys: Option<Arc<KeyState>>,
    events: Arc<Events>,
    main: Main,
    /// The options that stay as they were at the start.
    fixed: Fixed,
    main_hash: Option<ContentHash>,
    routes_dir: Option<PathBuf>,
    entries: Vec<Entry>,
    /// The content of each route's file, and the generation of the peers that its source gave.
    hashes: BTreeMap<Arc<str>, (ContentHash, u64)>,
    /// Signals that a name has other addresses.
    addresses: watch::Sender<u64>,
    generation: watch::Sender<u64>,
    seen: Option<Seen>,
}

/// Values of `server:` that other parts hold and a reload changes.
#[derive(Debug)]
pub struct Shared {
    /// The connect time-out of peers.
    pub connect_timeout: ConnectTimeout,
    /// The connections of the public port.
    pub connections: Connections,
}

impl Shared {
    fn follow(&self, server: &Server) {
        self.connect_timeout.set(server.connect_timeout);
        self.connections.set_limits(serve::limits(server));
    }
}

impl Reloader {
    /// Reads all files for the first time.
    ///
    /// # Errors
    /// The problems of an invalid main file: at the start there is no last good version.
    pub async fn start(
        mut sources: Sources,
        metrics: Arc<Metrics>,
        events: Arc<Events>,
    ) -> Result<(Self, RouteTable), Vec<Problem>> {
        let loaded = read(sources.clone()).await;
        let main = match &loaded.main.result {
            Ok(main) => main.clone(),
            Err(problems) => return Err(problems.clone()),
        };
        // From now on a missing main file counts as unreadable, not as absent: its last content
        // stays in force.
        sources.config = sources.config.or_else(|| loaded.main.path.clone());
        let mut reloader = Self {
            sources,
            builder: TableBuilder::new(metrics),
            keys: None,
            events,
            fixed: Fixed::of(&main.server),
            main,
            main_hash: None,
            routes_dir: None,
            entries: Vec::new(),
            hashes: BTreeMap::new(),
            addresses: watch::Sender::new(0),
            generation: watch::Sender::new(0),
            seen: None,
        };
        let keys = read_keys(reloader.main.keys.file.clone()).await;
        reloader.ask_sources(&loaded).await;
        let (table, _) = reloader.apply(loaded, keys);
        Ok((reloader, table))
    }

    /// The files and directories to watch, according to the current main file.
    pub fn watched(&self) -> Watched {
        let main = self
            .main
            .path
            .clone()
            .or_else(|| self.sources.config.clone());
        let routes = self.entries.iter().filter_map(Entry::route);
        let of_peers = routes.filter_map(|route| match &route.peers_from {
            Some(PeersFrom::File(path)) => Some(path.clone()),
            Some(PeersFrom::Dns { .. }) | None => None,
        });
        let files = main
            .into_iter()
            .chain([self.main.keys.file.clone()])
            .chain(of_peers)
            .collect();
        Watched {
            files,
            directories: self.routes_dir.clone().into_iter().collect(),
        }
    }

    /// Signals a change whenever a new table is in force.
    pub fn replaced(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    /// Reloads when files change or a caller requests it, until cancelled.
    pub async fn run(
        mut self,
        tables: Arc<ArcSwap<RouteTable>>,
        shared: Shared,
        records: Follower,
        mut changes: Changes,
        mut asked: mpsc::Receiver<oneshot::Sender<Reloaded>>,
        cancelled: CancellationToken,
    ) {
        let mut addresses = self.addresses.subscribe();
        let resolving = discovery::run(
            Arc::clone(&tables),
            self.addresses.clone(),
            cancelled.clone(),
        );
        let mut resolving = std::pin::pin!(resolving);
        loop {
            let reply = tokio::select! {
                () = cancelled.cancelled() => return,
                () = &mut resolving => return,
                Ok(()) = addresses.changed() => None,
                reply = asked.recv() => reply,
                true = changes.changed() => None,
                // The watcher ended with the process, or no caller is left.
                else => return,
            };
            let loaded = read(self.sources.clone()).await;
            let key_file = loaded
                .main
                .result
                .as_ref()
                .map_or(&self.main, |main| main)
                .keys
                .file
                .clone();
            let keys = read_keys(key_file).await;
            self.ask_sources(&loaded).await;
            // Skip the reload when an event changed no content.
            let seen = Seen::of(&loaded, &keys, self.found(&loaded));
            if reply.is_none() && self.seen.as_ref() == Some(&seen) {
                continue;
            }
            supervisor::reloading();
            let (table, mut reloaded) = self.apply(loaded, keys);
            changes.follow(self.watched());
            shared.follow(&table.server);
            // Apply the recording settings before the new table is visible, so that its first
            // request is recorded by them.
            let spool_error = records.follow(recording::settings(&table.bodylog)).await;
            if let Some(error) = spool_error {
                let problem = self.no_spool(&error);
                tracing::warn!(problem = %line(&problem), "configuration problem");
                reloaded.problems.push(problem);
            }
            tables.store(Arc::new(table));
            self.generation.send_modify(|generation| *generation += 1);
            supervisor::ready();
            if let Some(reply) = reply {
                // The caller may have gone.
                let _ = reply.send(reloaded);
            }
        }
    }

    /// Asks the sources of peers: files at every load, names when they are new. A name's later answers
    /// come from its own task.
    async fn ask_sources(&mut self, loaded: &Loaded) {
        let mut asked = Vec::new();
        for route in loaded
            .routes
            .iter()
            .filter_map(|load| load.result.as_ref().ok())
        {
            let Some(source) = &route.peers_from else {
                continue;
            };
            let state = self.builder.state(&route.name);
            let is_due = match source {
                PeersFrom::File(_) => true,
                PeersFrom::Dns { .. } => state.found.is_due(source, Duration::MAX, now()),
            };
            if is_due {
                let default_max = route.options.default_max.value;
                asked.push(async move {
                    let answer = discovery::ask(source, default_max).await;
                    if let Err(error) = &answer {
                        tracing::warn!(route = %state.name, %source, error, "the source of peers fails: its last peers stay");
                    }
                    state.found.take(source, answer, now());
                });
            }
        }
        join_all(asked).await;
    }

    /// The generation of the peers of each route with a source.
    fn found(&mut self, loaded: &Loaded) -> Vec<u64> {
        let routes = loaded
            .routes
            .iter()
            .filter_map(|load| load.result.as_ref().ok());
        let with_source = routes.filter(|route| route.peers_from.is_some());
        with_source
            .map(|route| self.builder.state(&route.name).found.generation())
            .collect()
    }

    /// A warning: requests are served and records go on from memory.
    fn no_spool(&self, error: &str) -> Problem {
        let path = self.main.path.as_deref();
        let message = format!("records wait in memory only, failed to {error}");
        Problem {
            key: "bodylog.spool.dir".to_owned(),
            ..Problem::of_file(
                Severity::Warning,
                path.unwrap_or(Path::new("router.yaml")),
                message,
            )
        }
    }

    fn apply(&mut self, mut loaded: Loaded, keys: KeyRead) -> (RouteTable, Reloaded) {
        self.seen = Some(Seen::of(&loaded, &keys, self.found(&loaded)));
        self.keep_own_keys(&mut loaded);
        let mut problems = loaded.problems.clone();
        let mut of_no_route = Vec::new();
        let keys = self.take_keys(keys, loaded.main.result.as_ref().ok());
        let vanished = loaded.routes.is_empty() && !self.entries.is_empty();
        match loaded.main.result {
            Ok(main) => {
                problems.extend(self.fixed.kept_from(&main));
                // Without a main file both are `None`; a new main file also brings its defaults.
                let same_defaults = self.main_hash == loaded.main.hash;
                let flaws = |problem: &&Problem| {
                    problem.is_error() && Some(problem.path()) == main.path.as_deref()
                };
                of_no_route.extend(problems.iter().filter(flaws).cloned());
                self.main = main;
                self.main_hash = loaded.main.hash;
                self.routes_dir = loaded.routes_dir;
                if vanished {
                    let vanished =
                        vanished_problem(self.routes_dir.as_deref(), loaded.routes_state);
                    problems.push(vanished.clone());
                    of_no_route.push(vanished);
                } else {
                    self.take_routes(loaded.routes, same_defaults);
                }
            }
            Err(of_main) => {
                let problem = of_main.first().map(line);
                tracing::error!(
                    problem,
                    "the main file is not in force: everything stays as it was"
                );
                of_no_route = of_main;
            }
        }
        let refused = problems.iter().any(Problem::is_fatal);
        self.tell(&problems, refused);
        self.builder.limit_owners(&self.main.owners);
        let table = self.builder.build(
            Arc::new(self.main.server.clone()),
            Arc::new(self.main.bodylog.clone()),
            keys,
            self.entries.clone(),
            of_no_route.into(),
        );
        let routes = table.routes().map(|route| route.name.to_string()).collect();
        (
            table,
            Reloaded {
                routes,
                problems,
                refused,
            },
        )
    }

    /// Refuses a file that drops the keys of its route without new access rules: an editor that
    /// writes in place may show only the first half of the file.
    fn keep_own_keys(&self, loaded: &mut Loaded) {
        for load in &mut loaded.routes {
            let before = self.entries.iter().find(|entry| *entry.name() == load.name);
            let had_keys = before
                .and_then(Entry::route)
                .is_some_and(|route| has_own_keys(&route.options.api_keys.value));
            let drops_keys = load
                .result
                .as_ref()
                .is_ok_and(|route| route.options.api_keys.source == Source::Default);
            if had_keys && drops_keys {
                let problem = dropped_keys(&load.path);
                loaded.problems.push(problem.clone());
                load.refuse(problem);
            }
        }
    }

    fn take_routes(&mut self, loads: Vec<RouteLoad>, same_defaults: bool) {
        let before: BTreeMap<Arc<str>, Entry> = self
            .entries
            .drain(..)
            .map(|entry| (Arc::clone(entry.name()), entry))
            .collect();
        let hashes = std::mem::take(&mut self.hashes);
        let mut after: BTreeMap<Arc<str>, Entry> = BTreeMap::new();
        // Valid files first: if two files have the same name, the broken one only adds its
        // problems.
        let (valid, broken): (Vec<_>, Vec<_>) =
            loads.into_iter().partition(|load| load.result.is_ok());
        for load in valid {
            let Ok(route) = load.result else { continue };
            let found = match &route.peers_from {
                Some(_) => self.builder.state(&route.name).found.generation(),
                None => 0,
            };
            let content = load.hash.map(|hash| (hash, found));
            let unchanged =
                same_defaults && content.is_some() && hashes.get(&load.name) == content.as_ref();
            let route = match before.get(&load.name).and_then(Entry::route) {
                Some(same) if unchanged && same.path == load.path => Arc::clone(same),
                _ => self.builder.attach(route),
            };
            route.forget_removed_peers();
            if let Some(content) = content {
                self.hashes.insert(Arc::clone(&load.name), content);
            }
            after.insert(
                load.name,
                Entry::Ready {
                    route,
                    stale: Arc::default(),
                    flaws: load.flaws.into(),
                },
            );
        }
        for load in broken {
            let Err(problems) = load.result else { continue };
            // The file's last good version, under any route name: an unreadable file does not tell
            // its name.
            let own = before.values().find(|entry| {
                let in_force = entry.route();
                in_force.is_some_and(|route| route.path == load.path)
            });
            let name = own.map_or(&load.name, Entry::name);
            let held = after
                .get(name)
                .or(own)
                .or_else(|| before.get(name))
                .cloned();
            let (name, entry) = match held {
                Some(Entry::Ready { route, flaws, .. }) => {
                    let name = Arc::clone(&route.name);
                    let stale = problems.into();
                    let entry = Entry::Ready {
                        route,
                        stale,
                        flaws,
                    };
                    (name, entry)
                }
                _ => {
                    let name = Arc::clone(name);
                    let entry = Entry::Invalid {
                        name: Arc::clone(&name),
                        path: load.path,
                        problems: problems.into(),
                    };
                    (name, entry)
                }
            };
            after.insert(name, entry);
        }
        self.entries = after.into_values().collect();
    }

    /// The keys in force after a read; the main file decides about a missing key file.
    fn take_keys(&mut self, read: KeyRead, main: Option<&Main>) -> Arc<KeyState> {
        let settings = &main.unwrap_or(&self.main).keys;
        let (state, note) = KeyState::next(
            self.keys.as_deref(),
            &settings.file,
            read,
            settings.on_missing,
        );
        if note.is_some() {
            for problem in state.problems.iter() {
                let at = state.path.display();
                tracing::warn!(file = %at, line = problem.line, problem = problem.message, "key file entry skipped");
            }
        }
        let file = &*state.path;
        match note {
            Some(Note::Loaded { keys }) => self.events.keys_changed(file, keys),
            Some(Note::Kept { status }) => {
                self.events
                    .keys_kept(file, status.as_str(), state.keys_len());
            }
            Some(Note::Open { status }) => self.events.keys_absent(file, status.as_str(), true),
            Some(Note::Closed { status }) => self.events.keys_absent(file, status.as_str(), false),
            None => {}
        }
        let state = Arc::new(state);
        self.keys = Some(Arc::clone(&state));
        state
    }

    fn tell(&self, problems: &[Problem], refused: bool) {
        for problem in problems {
            match problem.severity {
                Severity::Error => {}
                Severity::Tolerated => {
                    tracing::error!(problem = %line(problem), "configuration problem tolerated");
                }
                Severity::Warning => {
                    tracing::warn!(problem = %line(problem), "configuration problem");
                }
            }
        }
        let fatal = problems
            .iter()
            .filter(|problem| problem.is_fatal())
            .map(line);
        if refused {
            self.events.reload_refused(self.entries.len(), fatal);
        } else {
            let wall_ms = u64::try_from(Utc::now().timestamp_millis()).unwrap_or_default();
            self.events.reload_applied(self.entries.len(), wall_ms);
        }
    }
}

/// The server options that a running process cannot change.
#[derive(Clone, Copy, Debug)]
struct Fixed {
    listen: SocketAddr,
    admin_listen: SocketAddr,
    access_log: bool,
}

impl Fixed {
    fn of(server: &Server) -> Self {
        Self {
            listen: server.listen,
            admin_listen: server.admin_listen,
            access_log: server.access_log,
        }
    }

    /// A warning for each such option that differs in `main`.
    fn kept_from(&self, main: &Main) -> Vec<Problem> {
        let asked = Self::of(&main.server);
        let path = main.path.as_deref().unwrap_or(Path::new("router.yaml"));
        let warning = |key: &str, before: &dyn Display, now: &dyn Display| Problem {
            key: format!("server.{key}"),
            ..Problem::of_file(
                Severity::Warning,
                path,
                format!("a change from {before} to {now} takes effect with the next start"),
            )
        };
        let listen =
            (asked.listen != self.listen).then(|| warning("listen", &self.listen, &asked.listen));
        let admin = (asked.admin_listen != self.admin_listen)
            .then(|| warning("admin_listen", &self.admin_listen, &asked.admin_listen));
        let access = (asked.access_log != self.access_log)
            .then(|| warning("access_log", &self.access_log, &asked.access_log));
        [listen, admin, access].into_iter().flatten().collect()
    }
}

/// The content of all files from the last read.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    main: Option<ContentHash>,
    routes: Vec<(PathBuf, Option<ContentHash>)>,
    state: RoutesState,
    keys: (KeyFileStatus, Option<ContentHash>),
    /// The generations of the peers that sources gave.
    found: Vec<u64>,
}

impl Seen {
    fn of(loaded: &Loaded, keys: &KeyRead, found: Vec<u64>) -> Self {
        Self {
            main: loaded.main.hash,
            routes: loaded
                .routes
                .iter()
                .map(|route| (route.path.clone(), route.hash))
                .collect(),
            state: loaded.routes_state,
            keys: (keys.status, keys.hash),
            found,
        }
    }
}

fn has_own_keys(keys: &Option<Arc<BTreeMap<String, String>>>) -> bool {
    keys.as_ref().is_some_and(|keys| !keys.is_empty())
}

fn dropped_keys(path: &Path) -> Problem {
    let message = "`api_keys` is missing, and the route has keys of its own: they stay in force, with the file as it was";
    Problem {
        key: "api_keys".to_owned(),
        help: Some(
            "write `api_keys: shared` for the keys of the shared file, or `api_keys: {}` to open the route"
                .to_owned(),
        ),
        ..Problem::of_file(Severity::Error, path, message)
    }
}

/// A problem as one log line.
fn line(problem: &Problem) -> String {
    let (line, column) = problem.position();
    format!(
        "{}:{line}:{column}: {}",
        problem.path().display(),
        problem.title()
    )
}

fn vanished_problem(directory: Option<&Path>, state: RoutesState) -> Problem {
    let how = match state {
        RoutesState::Read => "holds no route file any more",
        RoutesState::Missing => "is gone",
        RoutesState::Unreadable => "cannot be read any more",
    };
    Problem::of_file(
        Severity::Error,
        directory.unwrap_or(Path::new("")),
        format!("{how}: the routes stay as they were"),
    )
}

async fn read(sources: Sources) -> Loaded {
    let read = move || {
        let mut loaded = router_config::load(&sources);
        loaded.problems.extend(unreadable_token(&loaded));
        loaded
    };
    tokio::task::spawn_blocking(read)
        .await
        .expect("reading files does not panic")
}

/// A warning when the admin token's file cannot be opened now. It is not part of `--check`, which
/// may run on a machine without the secrets.
fn unreadable_token(loaded: &Loaded) -> Option<Problem> {
    let main = loaded.main.result.as_ref().ok()?;
    let file = main.server.admin_token_file.as_deref()?;
    let error = File::open(file).err()?;
    let message = format!("cannot be read, so no admin token is right: {error}");
    Some(Problem::of_file(Severity::Warning, file, message))
}

async fn read_keys(file: PathBuf) -> KeyRead {
    tokio::task::spawn_blocking(move || keys::read(&file))
        .await
        .expect("reading keys does not panic")
}
