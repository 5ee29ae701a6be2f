//! The router under test. It gets its own directory with configuration, routes and keys, and ports
//! from the system; its addresses come from its ready line.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use tempfile::TempDir;
use tokio::process::Command;

use crate::program::{Finished, Program};
use crate::wait::until_answer;
use crate::wire::{Reply, call};

/// A directory in which to start a router.
pub struct Setup {
    program: PathBuf,
    directory: TempDir,
    server: String,
    extra: String,
    environment: Vec<(String, String)>,
    under: Vec<String>,
    named: bool,
    is_unread: bool,
}

impl Setup {
    /// An empty setup for the router at `program`: no routes, no keys, no delay before a drain.
    pub fn new(program: &str) -> Self {
        let directory = tempfile::Builder::new()
            .prefix("router-test-")
            .tempdir()
            .expect("a temporary directory");
        fs::create_dir(directory.path().join("routes")).expect("an empty directory");
        Self {
            program: program.into(),
            directory,
            server: String::new(),
            extra: String::new(),
            environment: Vec::new(),
            under: Vec::new(),
            named: true,
            is_unread: false,
        }
    }

    /// Starts the router without naming its main file, so that it has to find it.
    pub fn unnamed(mut self) -> Self {
        self.named = false;
        self
    }

    /// Connects standard error to a pipe that nobody reads.
    pub fn unread(mut self) -> Self {
        self.is_unread = true;
        self
    }

    /// Adds a line under `server:`.
    pub fn server(mut self, line: &str) -> Self {
        self.server += &format!("  {line}\n");
        self
    }

    /// Adds top-level YAML to `router.yaml`.
    pub fn main(mut self, yaml: &str) -> Self {
        self.extra += yaml;
        self.extra += "\n";
        self
    }

    /// Writes the key file and refers to it in `router.yaml`.
    pub fn keys(self, text: &str) -> Self {
        self.write("keys", text);
        self.main("keys: {file: keys}")
    }

    /// Writes `routes/<name>.yaml`.
    pub fn route(self, name: &str, yaml: &str) -> Self {
        self.write(&format!("routes/{name}.yaml"), yaml);
        self
    }

    /// Sets a variable of the router's environment.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Runs the router through another program, such as `taskset -c 0`, which must replace itself
    /// by it.
    pub fn under(mut self, program: &str, arguments: &[&str]) -> Self {
        self.under = [&[program], arguments]
            .concat()
            .into_iter()
            .map(str::to_owned)
            .collect();
        self
    }

    /// Writes a file into the directory.
    ///
    /// # Panics
    ///
    /// When it cannot be written.
    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path().join(name), text).expect("the directory is ours");
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    fn main_file(&self) -> String {
        let mut server = self.server.clone();
        if !server.contains("drain_delay:") {
            server += "  drain_delay: 0s\n";
        }
        let mut text = format!("server:\n{server}routes: routes/\n{}", self.extra);
        if !self.extra.contains("keys:") {
            text += "keys: {file: keys}\n";
        }
        text
    }

    /// Writes the configuration and returns the command line.
    fn command(&self, arguments: &[&str]) -> Command {
        self.write("router.yaml", &self.main_file());
        let mut command = match self.under.split_first() {
            None => Command::new(&self.program),
            Some((outer, arguments)) => {
                let mut command = Command::new(outer);
                command.args(arguments).arg(&self.program);
                command
            }
        };
        command.current_dir(self.path());
        if self.named {
            command.args(["--config", "router.yaml"]);
        }
        command.args(arguments);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("LLM_ROUTER_")) {
            command.env_remove(name);
        }
        command.env("NO_COLOR", "1").env("RUST_LOG", "debug");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs the router with these arguments until it ends by itself.
    pub async fn run(&self, arguments: &[&str]) -> Finished {
        Program::spawn(self.command(arguments)).finish().await
    }

    /// Starts the router and waits for its ready line, in either log format.
    pub async fn start(self) -> Router {
        let command = self.command(&["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
        let program = match self.is_unread {
            true => Program::spawn_unread(command),
            false => Program::spawn(command),
        };
        let line = program.line_with("router ready").await;
        let address = |after: &str| -> SocketAddr {
            let url = line
                .split_once(after)
                .and_then(|(_, rest)| rest.split_once("http://"));
            let address = url.and_then(|(_, rest)| rest.split([' ', '"']).next());
            address
                .unwrap_or_default()
                .parse()
                .unwrap_or_else(|_| panic!("no address after {after:?} in the ready line {line:?}"))
        };
        let (public, admin) = (address("public"), address("admin"));
        Router {
            public,
            admin,
            program,
            setup: self,
        }
    }
}

/// A running router. It stops when the value is dropped.
pub struct Router {
    /// The public port.
    pub public: SocketAddr,
    /// The admin port.
    pub admin: SocketAddr,
    /// The process.
    pub program: Program,
    setup: Setup,
}

impl Router {
    /// `GET` on the public port.
    pub async fn get(&self, target: &str) -> Reply {
        call(self.public, "GET", target, &[], "").await
    }

    /// `POST` of a JSON body on the public port.
    pub async fn post(&self, target: &str, body: &str) -> Reply {
        self.post_with(target, &[], body).await
    }

    /// `POST` of a JSON body with headers on the public port.
    pub async fn post_with(&self, target: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let headers = [&[("content-type", "application/json")], headers].concat();
        call(self.public, "POST", target, &headers, body).await
    }

    /// `GET` on the admin port.
    pub async fn admin_get(&self, target: &str) -> Reply {
        call(self.admin, "GET", target, &[], "").await
    }

    /// `POST` on the admin port.
    pub async fn admin_post(&self, target: &str) -> Reply {
        call(self.admin, "POST", target, &[], "").await
    }

    /// Replaces a file of the directory as editors do: the whole file, by rename.
    ///
    /// # Panics
    ///
    /// When it cannot be written.
    pub fn replace(&self, name: &str, text: &str) {
        let aside = self.path().join(format!("{name}.new"));
        fs::write(&aside, text)
            .and_then(|()| fs::rename(&aside, self.path().join(name)))
            .expect("the directory is ours");
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        self.setup.path()
    }

    /// Everything that it has logged so far.
    pub fn log(&self) -> String {
        self.program.log()
    }

    /// Polls the admin port until its JSON satisfies `condition`, and returns the JSON.
    pub async fn admin_until(
        &self,
        target: &str,
        what: &str,
        condition: impl Fn(&serde_json::Value) -> bool,
    ) -> serde_json::Value {
        until_answer(what, async || {
            let reply = self.admin_get(target).await;
            let json = if reply.status == 200 {
                reply.json()
            } else {
                serde_json::Value::Null
            };
            condition(&json).then_some(json)
        })
        .await
    }

    /// Kills it, as in a crash. Returns the directory as the router left it.
    pub async fn kill(self) -> Setup {
        let Self {
            mut program, setup, ..
        } = self;
        program.signal(Signal::KILL);
        program.exited().await;
        setup
    }

    /// Asks it to end, waits, and returns its output.
    pub async fn stop(self) -> Finished {
        self.program.signal(Signal::TERM);
        self.program.finish().await
    }
}
