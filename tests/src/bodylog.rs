//! Runs the listener and the exporter under test, and reads their files and pages.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use rustix::process::Signal;
use serde_json::Value;
use tokio::process::Command;

use crate::program::{Finished, Program};
use crate::wire::{Reply, call};

/// Restarted listeners return to their address. No test connects from this address, so no outgoing
/// connection can take the port in the meantime.
const ADDRESS: &str = "127.77.0.1:0";

/// A listener that a test may end and start again at the same address.
pub struct Listener {
    /// The address for frames.
    pub frames: SocketAddr,
    /// The address of its HTTP port.
    pub http: SocketAddr,
    start: Start,
    program: Option<Program>,
}

/// How to start a program of the body log.
#[derive(Clone, Debug)]
pub struct Start {
    under: Vec<String>,
    executable: String,
    dir: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    is_unread: bool,
}

impl Start {
    /// Starts the program at `executable` with the directory `dir`.
    pub fn new(executable: &str, dir: &Path) -> Self {
        Self {
            under: Vec::new(),
            executable: executable.to_owned(),
            dir: dir.to_owned(),
            arguments: Vec::new(),
            environment: Vec::new(),
            is_unread: false,
        }
    }

    /// Starts it through another program, such as `nice`, with these arguments first.
    pub fn under(mut self, program: &str, arguments: &[&str]) -> Self {
        let under = [&[program], arguments].concat();
        self.under = under.into_iter().map(str::to_owned).collect();
        self
    }

    /// Connects standard error to a pipe that nobody reads.
    pub fn unread(mut self) -> Self {
        self.is_unread = true;
        self
    }

    /// Adds an option.
    pub fn option(mut self, name: &str, value: &(impl ToString + ?Sized)) -> Self {
        self.arguments.extend([name.to_owned(), value.to_string()]);
        self
    }

    /// Adds environment variables.
    pub fn environment(mut self, variables: impl IntoIterator<Item = (String, String)>) -> Self {
        self.environment.extend(variables);
        self
    }

    fn has(&self, name: &str) -> bool {
        self.arguments.iter().any(|argument| argument == name)
    }

    fn command(&self) -> Command {
        let mut words = self.under.iter().chain([&self.executable]);
        let mut command = Command::new(words.next().expect("one is there"));
        command.args(words);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("BODYLOG_")) {
            command.env_remove(name);
        }
        command.env("NO_COLOR", "1").env("RUST_LOG", "debug");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.arg("--dir").arg(&self.dir).args(&self.arguments);
        command
    }

    /// Runs a program that ends by itself. Returns its output and its exit code. The system chooses
    /// the ports.
    pub async fn refused(&self) -> Finished {
        let mut command = self.command();
        command.args(["--listen", "127.0.0.1:0"]);
        Program::spawn(command).finish().await
    }
}

impl Listener {
    /// Starts the listener and waits until it serves.
    pub async fn start(mut start: Start) -> Self {
        let any = ADDRESS.parse().expect("an address");
        if !start.has("--min-free") {
            // The disk of the machine that runs the tests may be full.
            start = start.option("--min-free", "0%");
        }
        let mut listener = Self {
            frames: any,
            http: any,
            start,
            program: None,
        };
        listener.restart().await;
        listener
    }

    /// Starts it again at the same address.
    ///
    /// # Panics
    ///
    /// While it still runs.
    pub async fn restart(&mut self) {
        assert!(self.program.is_none(), "it runs");
        let mut command = self.start.command();
        command
            .args(["--listen", &self.frames.to_string()])
            .args(["--http-listen", &self.http.to_string()]);
        let program = match self.start.is_unread {
            true => Program::spawn_unread(command),
            false => Program::spawn(command),
        };
        let line = program.line("bodylog-listener ready: ").await;
        self.frames = address(&line, "tcp://");
        self.http = address(&line, "http://");
        self.program = Some(program);
    }

    /// Kills it, as in a crash.
    pub async fn kill(&mut self) {
        let mut program = self.program.take().expect("it runs");
        program.signal(Signal::KILL);
        program.exited().await;
    }

    /// Asks it to end, and returns its output.
    pub async fn stop(&mut self) -> Finished {
        let program = self.program.take().expect("it runs");
        program.signal(Signal::TERM);
        program.finish().await
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.program.as_ref().expect("it runs").id()
    }

    /// Everything that it has logged so far.
    pub fn log(&self) -> String {
        self.program.as_ref().map(Program::log).unwrap_or_default()
    }

    /// `GET` on its HTTP port.
    pub async fn get(&self, target: &str) -> Reply {
        call(self.http, "GET", target, &[], "").await
    }

    /// The sum of the series of its metrics page that begin with `bodylog_listener_<series>`.
    pub async fn metric(&self, series: &str) -> u64 {
        let page = self.get("/metrics").await.text();
        sum(&page, &format!("bodylog_listener_{series}"))
    }

    /// The full records on disk.
    pub fn records(&self) -> Vec<Value> {
        objects(&self.start.dir)
    }

    /// The slim rows on disk.
    pub fn rows(&self) -> Vec<Value> {
        objects(&self.start.dir.join("details"))
    }

    /// The number of whole lines in the files of the records and of the rows.
    pub fn lines(&self) -> [u64; 2] {
        [self.start.dir.clone(), self.start.dir.join("details")].map(|root| {
            let files = hour_files(&root).into_iter().map(|(_, path)| lines(&path));
            files.map(|lines| lines.len() as u64).sum()
        })
    }

    /// The hours of the records, oldest first: `2026-01-02/23.jsonl`, or `.jsonl.gz`.
    pub fn hours(&self) -> Vec<String> {
        hour_files(&self.start.dir)
            .into_iter()
            .map(|(name, _)| name)
            .collect()
    }
}

/// An exporter that a test may end and start again.
pub struct Exporter {
    /// The address of its HTTP port.
    pub http: SocketAddr,
    start: Start,
    program: Option<Program>,
}

impl Exporter {
    /// Starts the exporter over a listener's directory, and waits until it serves. It counts every
    /// existing row.
    pub async fn start(start: Start) -> Self {
        let mut exporter = Self {
            http: ADDRESS.parse().expect("an address"),
            start,
            program: None,
        };
        exporter.restart().await;
        exporter
    }

    /// Starts it again at the same address.
    ///
    /// # Panics
    ///
    /// While it still runs.
    pub async fn restart(&mut self) {
        assert!(self.program.is_none(), "it runs");
        let mut command = self.start.command();
        command
            .args(["--listen", &self.http.to_string()])
            .arg("--from-start");
        let program = Program::spawn(command);
        let line = program.line("bodylog-exporter ready: ").await;
        self.http = address(&line, "http://");
        self.program = Some(program);
    }

    /// Kills it, as in a crash.
    pub async fn kill(&mut self) {
        let mut program = self.program.take().expect("it runs");
        program.signal(Signal::KILL);
        program.exited().await;
    }

    /// Everything that it has logged so far.
    pub fn log(&self) -> String {
        self.program.as_ref().map(Program::log).unwrap_or_default()
    }

    /// Its metrics page.
    pub async fn page(&self) -> String {
        let reply = call(self.http, "GET", "/metrics", &[], "").await;
        assert_eq!(reply.status, 200, "{}", self.log());
        reply.text()
    }
}

/// The address after `scheme` in a ready line.
fn address(line: &str, scheme: &str) -> SocketAddr {
    let rest = line.split_once(scheme).map(|(_, rest)| rest);
    rest.and_then(|rest| rest.split(' ').next()?.parse().ok())
        .unwrap_or_else(|| panic!("no {scheme} address in {line:?}"))
}

/// The hour files below `root`, oldest first, each with its day and name. While an hour is being
/// packed, its plain file.
fn hour_files(root: &Path) -> Vec<(String, PathBuf)> {
    let listed = |dir: &Path| {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        paths
    };
    let name = |path: &Path| {
        let name = path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    };
    let is_day = |path: &PathBuf| name(path).len() == 10 && name(path).starts_with("20");
    let days = listed(root).into_iter().filter(is_day);
    let files = days.flat_map(|day| {
        let hours = listed(&day).into_iter();
        hours.map(move |path| (format!("{}/{}", name(&day), name(&path)), path))
    });
    let mut files: Vec<_> = files
        .filter(|(name, _)| name.ends_with(".jsonl") || name.ends_with(".jsonl.gz"))
        .collect();
    files.dedup_by(|later, earlier| later.0.trim_end_matches(".gz") == earlier.0);
    files
}

/// The whole lines of an hour file, packed or not.
fn lines(path: &Path) -> Vec<Vec<u8>> {
    let is_packed = path.extension().is_some_and(|end| end == "gz");
    let file = match fs::File::open(path) {
        Ok(file) => file,
        // The file was packed after it was listed.
        Err(_) if !is_packed => return lines(&path.with_extension("jsonl.gz")),
        Err(error) => panic!("{}: {error}", path.display()),
    };
    let mut reader: Box<dyn BufRead> = if is_packed {
        Box::new(BufReader::new(MultiGzDecoder::new(file)))
    } else {
        Box::new(BufReader::new(file))
    };
    let mut lines = Vec::new();
    loop {
        let mut line = Vec::new();
        reader.read_until(b'\n', &mut line).expect("a sound file");
        if !line.ends_with(b"\n") {
            return lines;
        }
        lines.push(line);
    }
}

/// All lines of the hours below `root` that are JSON objects, in order. Lines that are incomplete,
/// or that a crash cut, are left out.
fn objects(root: &Path) -> Vec<Value> {
    let texts = hour_files(root).into_iter().map(|(_, path)| lines(&path));
    let objects = texts
        .flatten()
        .filter_map(|line| serde_json::from_slice(&line).ok());
    objects.filter(Value::is_object).collect()
}

/// The sum of the metrics series whose text begins with `start`.
pub fn sum(page: &str, start: &str) -> u64 {
    let values = page.lines().filter(|line| line.starts_with(start));
    let values = values.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.sum::<f64>() as u64
}
