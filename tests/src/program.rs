//! A child process. Its output is kept line by line, its end is awaited, and it is killed when the
//! value is dropped. Only processes started here get signals, by their own id.

use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

use crate::wait::{until, until_some, within};

/// A running program.
pub struct Program {
    child: Child,
    output: Arc<Mutex<Output>>,
    _readers: JoinSet<()>,
}

#[derive(Default)]
struct Output {
    stdout: Vec<String>,
    stderr: Vec<String>,
    open: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stderr {
    Kept,
    Unread,
}

/// The results of a finished program.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Its exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Program {
    /// Starts `command` with an empty standard input.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    pub fn spawn(command: Command) -> Self {
        Self::spawn_with(command, Stderr::Kept)
    }

    /// Starts `command` as [`spawn`](Self::spawn) does, with standard error on a pipe that nobody
    /// reads.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    pub fn spawn_unread(command: Command) -> Self {
        Self::spawn_with(command, Stderr::Unread)
    }

    fn spawn_with(mut command: Command, errors: Stderr) -> Self {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("start {command:?}: {error}"));
        let output = Arc::new(Mutex::new(Output {
            open: 1,
            ..Output::default()
        }));
        let mut readers = JoinSet::new();
        let stdout = child.stdout.take().expect("it is piped");
        readers.spawn(keep(stdout, output.clone(), |output| &mut output.stdout));
        // If the pipe stays with the child, it stays open and fills up.
        if errors == Stderr::Kept {
            let stderr = child.stderr.take().expect("it is piped");
            output.lock().open += 1;
            readers.spawn(keep(stderr, output.clone(), |output| &mut output.stderr));
        }
        Self {
            child,
            output,
            _readers: readers,
        }
    }

    /// The process id.
    ///
    /// # Panics
    ///
    /// When the program has been awaited already.
    pub fn id(&self) -> u32 {
        self.child.id().expect("the program still runs")
    }

    /// Everything that it has printed so far, on both streams.
    pub fn log(&self) -> String {
        let output = self.output.lock();
        [output.stdout.join("\n"), output.stderr.join("\n")].join("\n")
    }

    /// Waits for a line of standard output that begins with `prefix`, and returns the rest of it.
    ///
    /// # Panics
    ///
    /// When the program ends first or prints no such line. Shows the whole log.
    pub async fn line(&self, prefix: &str) -> String {
        self.find_line(prefix, |line| Some(line.strip_prefix(prefix)?.to_owned()))
            .await
    }

    /// Waits for a line of standard output that contains `text`, and returns it.
    ///
    /// # Panics
    ///
    /// As [`line`](Self::line).
    pub async fn line_with(&self, text: &str) -> String {
        self.find_line(text, |line| line.contains(text).then(|| line.to_owned()))
            .await
    }

    async fn find_line(&self, text: &str, pick: impl Fn(&str) -> Option<String>) -> String {
        let found = until_some(&format!("a line {text:?}"), || {
            let output = self.output.lock();
            match output.stdout.iter().find_map(|line| pick(line)) {
                Some(found) => Some(Some(found)),
                None => (output.open == 0).then_some(None),
            }
        })
        .await;
        found
            .unwrap_or_else(|| panic!("the program ended without a line {text:?}:\n{}", self.log()))
    }

    /// Waits until the log contains `text`.
    pub async fn logged(&self, text: &str) {
        until(&format!("{text:?} in the log"), || {
            self.log().contains(text)
        })
        .await;
    }

    /// Sends a signal.
    ///
    /// # Panics
    ///
    /// When the program has been awaited already.
    pub fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.id())
            .ok()
            .and_then(Pid::from_raw)
            .expect("a process id");
        kill_process(id, signal).expect("our own child takes signals");
    }

    /// Waits for the end.
    pub async fn exited(&mut self) -> ExitStatus {
        within("the program to end", self.child.wait())
            .await
            .expect("a child can be awaited")
    }

    /// Whether it has ended.
    pub fn has_exited(&mut self) -> bool {
        self.child
            .try_wait()
            .expect("a child can be asked")
            .is_some()
    }

    /// Waits for the end, and returns its output and exit code.
    pub async fn finish(mut self) -> Finished {
        let status = self.exited().await;
        until("the end of the output", || self.output.lock().open == 0).await;
        let output = self.output.lock();
        Finished {
            code: status.code(),
            stdout: output.stdout.join("\n"),
            stderr: output.stderr.join("\n"),
        }
    }
}

async fn keep(
    from: impl AsyncRead + Unpin,
    output: Arc<Mutex<Output>>,
    which: fn(&mut Output) -> &mut Vec<String>,
) {
    let mut lines = BufReader::new(from).split(b'\n');
    while let Ok(Some(line)) = lines.next_segment().await {
        which(&mut output.lock()).push(String::from_utf8_lossy(&line).into_owned());
    }
    output.lock().open -= 1;
}
