//! The listener and the exporter under test, and what is read from their files and pages.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::Value;
use tokio::process::Command;

use crate::program::{Finished, Program};
use crate::wire::{Reply, call};

/// Listeners come back at the address they had. Nobody connects from this one, so meanwhile no
/// connection can have taken the port.
const ADDRESS: &str = "127.77.0.1:0";

/// A listener that may be ended and started again at the same address.
pub struct Listener {
    /// Where frames come in.
    pub frames: SocketAddr,
    /// Its HTTP.
    pub http: SocketAddr,
    executable: String,
    dir: PathBuf,
    token_file: Option<PathBuf>,
    program: Option<Program>,
}

impl Listener {
    /// Starts the listener at `executable` over `dir`, and waits until it serves.
    pub async fn start(executable: &str, dir: &Path, token_file: Option<&Path>) -> Self {
        let any = ADDRESS.parse().expect("an address");
        let mut listener = Self {
            frames: any,
            http: any,
            executable: executable.to_owned(),
            dir: dir.to_owned(),
            token_file: token_file.map(Path::to_owned),
            program: None,
        };
        listener.restart().await;
        listener
    }

    /// Starts it again where it was.
    ///
    /// # Panics
    ///
    /// While it still runs.
    pub async fn restart(&mut self) {
        assert!(self.program.is_none(), "it runs");
        let mut command = command(&self.executable);
        command
            .arg("--dir")
            .arg(&self.dir)
            .args(["--listen", &self.frames.to_string()])
            .args(["--http-listen", &self.http.to_string()])
            // Whoever runs the tests may have a full disk.
            .args(["--min-free", "0%"]);
        if let Some(file) = &self.token_file {
            command.arg("--token-file").arg(file);
        }
        let program = Program::spawn(command);
        let line = program.line("bodylog-listener ready: ").await;
        self.frames = address(&line, "tcp://");
        self.http = address(&line, "http://");
        self.program = Some(program);
    }

    /// Ends it as a crash would.
    pub async fn kill(&mut self) {
        let mut program = self.program.take().expect("it runs");
        program.signal(Signal::KILL);
        program.exited().await;
    }

    /// Asks it to end, and returns what it printed.
    pub async fn stop(&mut self) -> Finished {
        let program = self.program.take().expect("it runs");
        program.signal(Signal::TERM);
        program.finish().await
    }

    /// Everything it logged so far.
    pub fn log(&self) -> String {
        self.program.as_ref().map(Program::log).unwrap_or_default()
    }

    /// `GET` on its HTTP port.
    pub async fn get(&self, target: &str) -> Reply {
        call(self.http, "GET", target, &[], "").await
    }

    /// The full records on disk.
    pub fn records(&self) -> Vec<Value> {
        lines(&self.dir)
    }

    /// The slim rows on disk.
    pub fn rows(&self) -> Vec<Value> {
        lines(&self.dir.join("details"))
    }
}

/// A running exporter.
pub struct Exporter {
    /// Its HTTP.
    pub http: SocketAddr,
    program: Program,
}

impl Exporter {
    /// Starts the exporter at `executable` over a listener's directory, and waits until it serves.
    /// It counts every row there is.
    pub async fn start(executable: &str, dir: &Path) -> Self {
        let mut command = command(executable);
        command
            .arg("--dir")
            .arg(dir)
            .args(["--listen", "127.0.0.1:0", "--from-start"]);
        let program = Program::spawn(command);
        let line = program.line("bodylog-exporter ready: ").await;
        let http = address(&line, "http://");
        Self { http, program }
    }

    /// Its metrics page.
    pub async fn page(&self) -> String {
        let reply = call(self.http, "GET", "/metrics", &[], "").await;
        assert_eq!(reply.status, 200, "{}", self.program.log());
        reply.text()
    }
}

fn command(executable: &str) -> Command {
    let mut command = Command::new(executable);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("BODYLOG_")) {
        command.env_remove(name);
    }
    command.env("NO_COLOR", "1").env("RUST_LOG", "debug");
    command
}

/// The address behind `scheme` in a ready line.
fn address(line: &str, scheme: &str) -> SocketAddr {
    let rest = line.split_once(scheme).map(|(_, rest)| rest);
    rest.and_then(|rest| rest.split(' ').next()?.parse().ok())
        .unwrap_or_else(|| panic!("no {scheme} address in {line:?}"))
}

/// Every line of the hours below `root` that is a JSON object, in order. What is not whole yet, or
/// was cut by a crash, is not.
fn lines(root: &Path) -> Vec<Value> {
    let listed = |dir: &Path| {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        paths
    };
    let is_day = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.len() == 10 && name.starts_with("20")
    };
    let hours = listed(root).into_iter().filter(is_day);
    let hours = hours.flat_map(|day| listed(&day));
    let hours = hours.filter(|path| path.extension().is_some_and(|end| end == "jsonl"));
    let texts = hours.map(|path| fs::read(path).expect("it was listed"));
    let objects = texts.flat_map(|text| {
        let lines = text.split_inclusive(|byte| *byte == b'\n');
        let whole = lines.filter(|line| line.ends_with(b"\n"));
        let objects = whole.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
        objects.collect::<Vec<_>>()
    });
    objects.filter(Value::is_object).collect()
}

/// The sum of the series of a metrics page whose text begins with `start`.
pub fn sum(page: &str, start: &str) -> u64 {
    let values = page.lines().filter(|line| line.starts_with(start));
    let values = values.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.sum::<f64>() as u64
}
