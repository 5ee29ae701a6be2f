//! `llmctl logs`: filters and prints the records that a bodylog listener stored, and follows new
//! ones.
//!
//! Reads the stored files directly, compressed hours included, hour by hour. It contacts no router
//! and no listener.

mod filter;
mod line;
mod show;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::time::{Duration, Instant};

use bodylog_exporter::aggregate::{BadLine, Reset};
use bodylog_exporter::tail::{Budget, Hour, Place, Sink, Tail, Where};
use clap::Args;

use self::filter::{Filter, StatusFilter};
use self::line::Line;
use super::since::{Since, wall_ms};
use crate::exit::{Ended, Failure};
use crate::render::{Format, Screen};
use crate::signals;

/// Longest record, bytes: two bodies at their largest, every character escaped.
const RECORD_BYTES_MAX: usize = 128 * 1024 * 1024;

/// The most records that `-n` keeps in memory until the end is reached.
const LAST_MAX: i64 = 10_000;

/// The most bytes that `-n` keeps in memory; the oldest records are dropped first.
const LAST_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Poll interval of `--follow`.
const FOLLOW_PAUSE: Duration = Duration::from_millis(250);

/// Reading pauses at this interval to notice a closed pipe or Ctrl-C.
const PASS_TIME: Duration = Duration::from_millis(100);

/// What `llmctl logs` takes.
#[derive(Debug, Args)]
#[command(
    after_help = "The oldest hour comes first; within an hour, records are in the order of the
file. A record without an end time has the age of its hour. With --output json
each record is one line, as it is stored, bodies included.

Examples:
  llmctl logs --since 10m --status 5xx
  llmctl logs --request-id 0f6c2a --show
  llmctl logs --owner alice --model qwen3-32b -n 20
  llmctl logs --session user-42 --bodies
  llmctl logs --follow --since 0s --route chat
  llmctl logs --dir /data/bodylog --since 2026-01-02T10:00:00Z --output json | jq .usage"
)]
pub struct LogsArgs {
    /// The listener's directory
    #[arg(
        long,
        value_name = "DIR",
        env = "BODYLOG_DIR",
        default_value = "/var/lib/bodylog",
        hide_env_values = true
    )]
    pub dir: PathBuf,
    /// Records of this route only
    #[arg(long, value_name = "NAME")]
    pub route: Option<String>,
    /// The record with this x-request-id only
    #[arg(long, value_name = "ID")]
    pub request_id: Option<String>,
    /// Records of this model only: asked for, or answering
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Records of this key's owner only
    #[arg(long, value_name = "OWNER")]
    pub owner: Option<String>,
    /// Records of this peer only: its name, or HOST:PORT
    #[arg(long, value_name = "PEER")]
    pub peer: Option<String>,
    /// Records of this session only
    #[arg(long, value_name = "ID")]
    pub session: Option<String>,
    /// Records with this status only: 429, or 5xx for all that begin so; repeat for more
    #[arg(long, value_name = "CODE", value_delimiter = ',')]
    pub status: Vec<StatusFilter>,
    /// Records that ended at this time or later: 90s, 10m, 2h, 3d ago, or 2026-01-02T10:00:00Z
    #[arg(long, value_name = "WHEN")]
    pub since: Option<Since>,
    /// Records that ended before this time, written like --since
    #[arg(long, value_name = "WHEN", conflicts_with = "follow")]
    pub until: Option<Since>,
    /// The last N that match
    #[arg(short = 'n', long = "last", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=LAST_MAX))]
    pub last: Option<u32>,
    /// Wait for more, until Ctrl-C
    #[arg(long, short)]
    pub follow: bool,
    /// Show one screen for each exchange
    #[arg(long)]
    pub show: bool,
    /// Show the request and the answer, whole
    #[arg(long)]
    pub bodies: bool,
}

/// Prints the stored records, and new ones with `--follow`.
///
/// # Errors
/// When the directory or a file in it cannot be read.
pub async fn run(args: &LogsArgs, screen: &mut Screen) -> Result<Ended, Failure> {
    let unreadable = |error: &io::Error| Failure::file("read the records in", &args.dir, error);
    std::fs::read_dir(&args.dir).map_err(|error| unreadable(&error))?;
    let filter = Filter {
        route: args.route.clone(),
        session: args.session.as_deref().map(filter::stored_session),
        request_id: args.request_id.clone(),
        model: args.model.clone(),
        owner: args.owner.clone(),
        peer: args.peer.clone(),
        status: args.status.clone(),
        since_ms: args.since.map(|since| since.unix_ms(wall_ms())),
        until_ms: args.until.map(|until| until.unix_ms(wall_ms())),
    };
    let log = Where {
        root: args.dir.clone(),
        line_bytes_max: RECORD_BYTES_MAX,
    };
    // The listener writes a record when the exchange ends, or later.
    let mut tail = match filter.since_ms {
        Some(since_ms) => Tail::from_hour(log, Hour::at(since_ms)),
        None => Tail::from_start(log),
    };
    let mut printer = Printer {
        screen,
        filter,
        form: Form::of(args),
        held: args.last.map(Held::new),
        hour: Hour::FIRST,
        shown: 0,
        skipped: 0,
        failure: None,
    };
    let mut interrupted = pin!(async {
        match args.follow {
            true => signals::interrupted().await,
            // Without `--follow`, the signal ends the process as usual.
            false => std::future::pending().await,
        }
    });
    loop {
        let mut budget = Budget::new(Instant::now(), PASS_TIME, u64::MAX);
        let pass = tail
            .pass(&mut budget, &mut printer)
            .map_err(|error| unreadable(&error))?;
        printer.screen.flush();
        if printer.screen.is_closed() {
            return Ok(Ended::Fine);
        }
        let is_at_end = pass.is_caught_up || pass.errors > 0;
        if is_at_end {
            printer.release();
        }
        if is_at_end && !args.follow {
            break;
        }
        let pause = if is_at_end {
            FOLLOW_PAUSE
        } else {
            Duration::ZERO
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = &mut interrupted => break,
        }
    }
    printer.finish(args.follow)
}

/// How a record is printed.
#[derive(Clone, Copy, Debug)]
struct Form {
    is_screenful: bool,
    has_bodies: bool,
}

impl Form {
    fn of(args: &LogsArgs) -> Self {
        Self {
            is_screenful: args.show,
            has_bodies: args.bodies,
        }
    }
}

/// The last records, oldest first, bounded in number and bytes.
#[derive(Debug)]
struct Held {
    texts: VecDeque<Vec<u8>>,
    max: usize,
    bytes: usize,
}

impl Held {
    fn new(max: u32) -> Self {
        Self {
            texts: VecDeque::new(),
            max: max as usize,
            bytes: 0,
        }
    }

    fn push(&mut self, text: &[u8]) {
        self.bytes += text.len();
        self.texts.push_back(text.to_vec());
        while self.texts.len() > self.max || (self.bytes > LAST_BYTES_MAX && self.texts.len() > 1) {
            if let Some(oldest) = self.texts.pop_front() {
                self.bytes -= oldest.len();
            }
        }
    }
}

/// Start of an hour, milliseconds since the Unix epoch.
fn beginning_ms(hour: Hour) -> i64 {
    i64::from(hour.since(Hour::at(0))) * 3_600_000
}

/// Prints the records that match.
struct Printer<'s> {
    screen: &'s mut Screen,
    filter: Filter,
    form: Form,
    /// The records that `-n` keeps until the end is reached.
    held: Option<Held>,
    /// The hour that is being read.
    hour: Hour,
    shown: u64,
    /// Number of lines that are no records.
    skipped: u64,
    /// The last error of an hour that could not be read.
    failure: Option<String>,
}

impl Printer<'_> {
    /// Takes one line. Returns false when it is no record.
    fn record(&mut self, text: &[u8]) -> bool {
        let Some(line) = Line::read(text) else {
            return false;
        };
        if !self.filter.matches(&line, beginning_ms(self.hour)) {
            return true;
        }
        match &mut self.held {
            Some(held) => held.push(text),
            None => self.print(text, &line),
        }
        true
    }

    fn print(&mut self, text: &[u8], line: &Line<'_>) {
        if self.screen.format() == Format::Json {
            // The line was parsed as JSON, so it is UTF-8.
            self.screen.line(&String::from_utf8_lossy(text));
        } else if self.form.is_screenful {
            show::screenful(line, self.screen);
        } else {
            if self.shown == 0 {
                show::head(self.screen);
            }
            show::line(line, self.screen);
        }
        if self.form.has_bodies && self.screen.format() != Format::Json {
            show::bodies(line, self.screen);
        }
        self.shown += 1;
    }

    /// Prints the records that `-n` kept. Later records are printed at once.
    fn release(&mut self) {
        for text in self.held.take().into_iter().flat_map(|held| held.texts) {
            if let Some(line) = Line::read(&text) {
                self.print(&text, &line);
            }
        }
    }

    fn finish(self, followed: bool) -> Result<Ended, Failure> {
        if self.skipped > 0 {
            let skipped = self.skipped;
            self.screen.warn(&format!(
                "{skipped} lines were skipped, they are no records"
            ));
        }
        if let Some(failure) = self.failure {
            return Err(Failure::Wrong(failure));
        }
        if self.shown == 0 && !followed {
            self.screen.note("no record matches");
        }
        Ok(Ended::Fine)
    }
}

impl Sink for Printer<'_> {
    fn line(&mut self, at: Place, line: &[u8]) {
        self.hour = at.hour;
        if !self.screen.is_closed() && !self.record(line) {
            self.skipped += 1;
        }
    }

    fn last_line(&mut self, line: &[u8]) -> bool {
        self.record(line)
    }

    fn bad(&mut self, _: Place, _: BadLine) {
        self.skipped += 1;
    }

    fn reset(&mut self, hour: Hour, cause: Reset) {
        let what = match cause {
            Reset::Replaced => "was replaced and is read from its start",
            Reset::Truncated => "was cut and is read from its new end",
            Reset::Deleted => "is gone",
            Reset::Unreadable => "is damaged, its rest is lost",
        };
        self.screen.warn(&format!("the file of {hour} {what}"));
    }

    fn failed(&mut self, hour: Hour, error: &io::Error) {
        self.failure = Some(format!("cannot read the records of {hour}: {error}"));
    }

    fn recovered(&mut self, _: Hour) {}
}
