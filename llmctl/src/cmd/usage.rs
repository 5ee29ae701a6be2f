//! `llmctl usage`: sums up the usage per owner, model, route or day from the rows that a bodylog
//! listener stored.
//!
//! A row counts once, by the exporter's own rule, so the sums equal the exporter's counters.

mod print;
mod tally;

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bodylog_exporter::aggregate::{BadLine, Reset};
use bodylog_exporter::tail::{Budget, Hour, Place, Sink, Tail, Where};
use clap::{Args, ValueEnum};

use self::tally::Tally;
use super::since::{Since, wall_ms};
use crate::exit::{Ended, Failure};
use crate::render::{Format, Screen};

/// Interval for checking that the reader of stdout is still there.
const PASS_TIME: Duration = Duration::from_secs(1);

/// What `llmctl usage` takes.
#[derive(Debug, Args)]
#[command(
    after_help = "Requests are all recorded ones, including refusals. Prompt tokens include
cached ones. Busy time runs from the end of waiting to the end of the answer,
without refused requests. Without --by, usage is summed up by owner.

Examples:
  llmctl usage --since 7d
  llmctl usage --by owner,model --since 2026-01-01T00:00:00Z --until 2026-02-01T00:00:00Z
  llmctl usage --by day,route --output csv > usage.csv"
)]
pub struct UsageArgs {
    /// The listener's directory
    #[arg(
        long,
        value_name = "DIR",
        env = "BODYLOG_DIR",
        default_value = "/var/lib/bodylog",
        hide_env_values = true
    )]
    pub dir: PathBuf,
    /// What to sum up by; several, separated by commas
    #[arg(
        long,
        value_enum,
        value_name = "WHAT",
        value_delimiter = ',',
        default_value = "owner"
    )]
    pub by: Vec<By>,
    /// Exchanges that ended at this time or later: 90s, 10m, 2h, 3d ago, or 2026-01-02T10:00:00Z
    #[arg(long, value_name = "WHEN")]
    pub since: Option<Since>,
    /// Exchanges that ended before this time
    #[arg(long, value_name = "WHEN")]
    pub until: Option<Since>,
}

/// What usage is summed up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// The owner of the key
    Owner,
    /// The model that answered, else the one asked for
    Model,
    /// The route
    Route,
    /// The day of the end, in UTC
    Day,
}

impl By {
    fn name(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Model => "model",
            Self::Route => "route",
            Self::Day => "day",
        }
    }
}

/// Reads all rows of the time span and prints the sums.
///
/// # Errors
/// When the directory or a file in it cannot be read.
pub fn run(args: &UsageArgs, screen: &mut Screen) -> Result<Ended, Failure> {
    let unreadable = |error: &io::Error| Failure::file("read the rows in", &args.dir, error);
    std::fs::read_dir(&args.dir).map_err(|error| unreadable(&error))?;
    let now_ms = wall_ms();
    let since_ms = args.since.map(|since| since.unix_ms(now_ms));
    let until_ms = args.until.map(|until| until.unix_ms(now_ms));
    let rows = Where::rows(&args.dir);
    // The listener writes a row when the exchange ends, or later.
    let mut tail = match since_ms {
        Some(since_ms) => Tail::from_hour(rows, Hour::at(since_ms)),
        None => Tail::from_start(rows),
    };
    let mut reader = Reader {
        tally: Tally::new(&args.by, since_ms, until_ms, now_ms),
        failure: None,
    };
    loop {
        let mut budget = Budget::new(Instant::now(), PASS_TIME, u64::MAX);
        let pass = tail
            .pass(&mut budget, &mut reader)
            .map_err(|error| unreadable(&error))?;
        if pass.is_caught_up || pass.errors > 0 {
            break;
        }
    }
    let tally = reader.tally;
    match screen.format() {
        Format::Json => screen.json(&print::document(&tally))?,
        Format::Csv => print::csv(&tally, screen),
        Format::Human | Format::Github => print::table(&tally, screen),
    }
    if tally.skipped() > 0 {
        let skipped = tally.skipped();
        screen.warn(&format!("{skipped} lines were skipped, they are no rows"));
    }
    reader
        .failure
        .map_or(Ok(Ended::Fine), |failure| Err(Failure::Wrong(failure)))
}

/// Passes lines to the tally.
struct Reader {
    tally: Tally,
    /// The last error of an hour that could not be read.
    failure: Option<String>,
}

impl Sink for Reader {
    fn line(&mut self, _: Place, line: &[u8]) {
        self.tally.line(line);
    }

    fn last_line(&mut self, line: &[u8]) -> bool {
        self.tally.line(line)
    }

    fn bad(&mut self, _: Place, _: BadLine) {
        self.tally.bad();
    }

    /// An hour that changes while it is read is read further; a row still counts once.
    fn reset(&mut self, _: Hour, _: Reset) {}

    fn failed(&mut self, hour: Hour, error: &io::Error) {
        self.failure = Some(format!("cannot read the rows of {hour}: {error}"));
    }

    fn recovered(&mut self, _: Hour) {}
}
