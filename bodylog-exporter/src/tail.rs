//! Reads the detail rows of every hour in order, each line once.
//!
//! A [`Tail`] keeps a position for each of the newest hours and reads everything behind it: usually
//! one growing file, several after a stop, and an older one again when something is still written
//! to it (a listener that restarts after its clock stepped back). It detects files that grow, are
//! compressed, replaced, truncated or deleted by their contents, not by their names, and counts
//! these events.

mod cursor;
mod hours;
mod position;
mod source;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

pub use self::hours::Hour;
pub use self::position::Position;

use self::cursor::{Cursor, Standing, Visit};
use crate::aggregate::{BadLine, Reset};

/// Longest row in bytes. A row usually has a few hundred; its client-made labels are bounded.
pub const ROW_BYTES_MAX: usize = 1024 * 1024;

/// The place of the log and the limit of its lines.
#[derive(Clone, Debug)]
pub struct Where {
    /// The parent of the day directories: `<dir>/details` for rows, `<dir>` for records.
    pub root: PathBuf,
    /// Longest line in bytes, approximately. Longer ones are skipped and counted.
    pub line_bytes_max: usize,
}

impl Where {
    /// The rows in a listener's directory.
    pub fn rows(dir: &Path) -> Self {
        Self {
            root: dir.join("details"),
            line_bytes_max: ROW_BYTES_MAX,
        }
    }
}

/// Number of hours before the newest that are still checked for late lines.
const LATE_HOURS: i32 = 6;

/// How far an hour may be ahead of our clock and still mark earlier hours as over. An hour further
/// ahead was written while a clock was wrong: it is read, but hours written after it do not count
/// as old.
const AHEAD_HOURS: i32 = 24;

/// An unreadable hour is given up at this age.
const UNREADABLE_HOURS: i32 = 24;

/// A position in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The hour.
    pub hour: Hour,
    /// Uncompressed bytes before it in the hour.
    pub offset: u64,
}

impl Place {
    fn of(hour: Hour, offset: u64) -> Self {
        Self { hour, offset }
    }
}

/// Receives the lines and events of a tail.
pub trait Sink {
    /// A complete, non-empty line, without its line end.
    fn line(&mut self, at: Place, line: &[u8]);
    /// The end of a closed file after the last line end. Returns false if it is not a row; it then
    /// counts as [`BadLine::Torn`].
    fn last_line(&mut self, line: &[u8]) -> bool;
    /// A line that is not passed on.
    fn bad(&mut self, at: Place, kind: BadLine);
    /// Something interrupted the normal reading of a file.
    fn reset(&mut self, hour: Hour, cause: Reset);
    /// An hour is unreadable now; the next pass tries again.
    fn failed(&mut self, hour: Hour, error: &io::Error);
    /// Reading continues in the compressed file of an hour that was begun in the plain file.
    fn recovered(&mut self, hour: Hour);
}

/// The limits of reading in one epoch.
#[derive(Debug)]
pub struct Budget {
    now: Instant,
    deadline: Instant,
    bytes: u64,
    read: u64,
}

impl Budget {
    /// Reads until `time` is up or `bytes` are read, whichever comes first, but at least something.
    pub fn new(now: Instant, time: Duration, bytes: u64) -> Self {
        Self {
            now,
            deadline: now + time,
            bytes,
            read: 0,
        }
    }

    fn spend(&mut self, bytes: usize) {
        self.read += bytes as u64;
    }

    fn is_spent(&self) -> bool {
        self.read >= self.bytes || Instant::now() >= self.deadline
    }
}

/// The result of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// Whether all existing lines are read.
    pub is_caught_up: bool,
    /// Bytes read.
    pub read: u64,
    /// Approximate number of bytes left.
    pub lag: u64,
    /// Number of hours that were unreadable.
    pub errors: u64,
}

/// The positions of all hours, as stored in the checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Positions {
    /// Earlier hours are ignored.
    floor: Hour,
    hours: Vec<(Hour, Position)>,
}

impl Positions {
    /// For display: each hour, its position, and whether it is closed.
    pub fn shown(&self) -> impl Serialize + use<> {
        #[derive(Serialize)]
        struct Shown {
            hour: String,
            offset: u64,
            lines: u64,
            closed: bool,
        }
        let hours = self.hours.iter().map(|(hour, position)| Shown {
            hour: hour.to_string(),
            offset: position.offset(),
            lines: position.lines(),
            closed: position.is_done(),
        });
        hours.collect::<Vec<_>>()
    }

    /// The newest hour and its position.
    pub fn newest(&self) -> Option<(Hour, &Position)> {
        self.hours.last().map(|(hour, position)| (*hour, position))
    }
}

/// Reads the log.
#[derive(Debug)]
pub struct Tail {
    log: Where,
    floor: Hour,
    cursors: BTreeMap<Hour, Cursor>,
}

impl Tail {
    /// Continues at stored positions.
    pub fn resume(log: Where, positions: Positions) -> Self {
        let cursors = positions
            .hours
            .into_iter()
            .map(|(hour, position)| (hour, Cursor::at(position)))
            .collect();
        Self {
            log,
            floor: positions.floor,
            cursors,
        }
    }

    /// Starts with the oldest row.
    pub fn from_start(log: Where) -> Self {
        Self::from_hour(log, Hour::FIRST)
    }

    /// Starts with the first row of an hour.
    pub fn from_hour(log: Where, floor: Hour) -> Self {
        Self {
            log,
            floor,
            cursors: BTreeMap::new(),
        }
    }

    /// Starts at the current end: reads only new rows.
    ///
    /// # Errors
    /// The directory or its newest file cannot be read.
    pub fn from_end(log: Where) -> io::Result<Self> {
        let on_disk = hours::list(&log.root, Hour::FIRST)?;
        let mut tail = Self::from_start(log);
        let Some((hour, forms)) = on_disk.last_key_value() else {
            return Ok(tail);
        };
        tail.floor = *hour;
        let cursor = if forms.plain {
            Cursor::at_end_of(&tail.log, *hour)?
        } else {
            Cursor::at(Position {
                done: true,
                ..Position::default()
            })
        };
        tail.cursors.insert(*hour, cursor);
        Ok(tail)
    }

    /// Reads new lines within the budget.
    ///
    /// # Errors
    /// The directory cannot be listed. An unreadable hour is no error: it is counted in the result,
    /// and the next pass tries again.
    pub fn pass(&mut self, budget: &mut Budget, sink: &mut impl Sink) -> io::Result<Pass> {
        let on_disk = hours::list(&self.log.root, self.floor)?;
        for hour in on_disk.keys() {
            self.cursors.entry(*hour).or_default();
        }
        let mut pass = Pass {
            is_caught_up: true,
            ..Pass::default()
        };
        let plausible = Hour::at(chrono::Utc::now().timestamp_millis()).plus(AHEAD_HOURS);
        let newest = on_disk.range(..=plausible).next_back();
        let newest = newest.or(on_disk.last_key_value()).map(|(hour, _)| *hour);
        for (&hour, cursor) in &mut self.cursors {
            if budget.is_spent() {
                pass.is_caught_up = false;
                pass.lag += cursor.rest(&self.log, hour);
                continue;
            }
            let standing = Standing {
                forms: on_disk.get(&hour).copied().unwrap_or_default(),
                is_over: newest > Some(hour),
                is_long_over: newest.is_some_and(|newest| newest.since(hour) > 1),
            };
            match cursor.visit(&self.log, hour, standing, budget, sink) {
                Ok(Visit::AtEnd { rest }) => pass.lag += rest,
                Ok(Visit::Behind { rest }) => {
                    pass.lag += rest;
                    pass.is_caught_up = false;
                }
                Err(error) => {
                    sink.failed(hour, &error);
                    pass.errors += 1;
                    pass.is_caught_up = false;
                    if newest.is_some_and(|newest| newest.since(hour) > UNREADABLE_HOURS) {
                        cursor.abandon(hour, sink);
                    }
                }
            }
        }
        pass.read = budget.read;
        if let Some(newest) = newest {
            self.forget(newest);
        }
        Ok(pass)
    }

    /// Forgets hours that are read completely and are too old for late lines.
    fn forget(&mut self, newest: Hour) {
        let unread = self
            .cursors
            .iter()
            .find(|(_, cursor)| !cursor.position.done)
            .map_or(newest, |(hour, _)| *hour);
        let floor = unread.min(newest.plus(-LATE_HOURS));
        self.floor = self.floor.max(floor);
        self.cursors.retain(|hour, _| *hour >= self.floor);
    }

    /// The current positions.
    pub fn positions(&self) -> Positions {
        Positions {
            floor: self.floor,
            hours: self
                .cursors
                .iter()
                .map(|(hour, cursor)| (*hour, cursor.position.clone()))
                .collect(),
        }
    }
}
