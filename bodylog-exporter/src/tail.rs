//! Reads the detail rows of every hour, in order, each line once.
//!
//! A [`Tail`] keeps a position for the newest hours and reads whatever lies behind it: usually one
//! growing file, after a stop several, and an older one again when something is still written to it
//! (a listener that starts anew after its clock stepped back). Files that grow, are compressed,
//! replaced, cut or deleted meanwhile are noticed by what they hold, not by their names, and counted.

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

/// Longest row, bytes. A row is a few hundred; its labels are client-made but bounded.
pub const ROW_BYTES_MAX: usize = 1024 * 1024;

/// Where the log is and what a line of it may be.
#[derive(Clone, Debug)]
pub struct Where {
    /// The directory of the days: `<dir>/details` for rows, `<dir>` for records.
    pub root: PathBuf,
    /// Longest line, bytes, about: longer ones are skipped and counted.
    pub line_bytes_max: usize,
}

impl Where {
    /// The rows below a listener's directory.
    pub fn rows(dir: &Path) -> Self {
        Self {
            root: dir.join("details"),
            line_bytes_max: ROW_BYTES_MAX,
        }
    }
}

/// Hours before the newest that are still looked at for late lines.
const LATE_HOURS: i32 = 6;

/// How far ahead of our clock an hour may be that says which others are over. What lies further ahead
/// was written by a clock that was wrong for a while: it is read, but the hours that are written
/// after it are not old for that.
const AHEAD_HOURS: i32 = 24;

/// An hour that cannot be read is given up when it is this old.
const UNREADABLE_HOURS: i32 = 24;

/// A place in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The hour.
    pub hour: Hour,
    /// Uncompressed bytes before it.
    pub offset: u64,
}

impl Place {
    fn of(hour: Hour, offset: u64) -> Self {
        Self { hour, offset }
    }
}

/// Who is told what is read.
pub trait Sink {
    /// A whole line, without its end, not empty.
    fn line(&mut self, at: Place, line: &[u8]);
    /// What a closed file ends with, without a line end. False when it is no row; then it counts as
    /// [`BadLine::Torn`].
    fn last_line(&mut self, line: &[u8]) -> bool;
    /// A line that is not handed over.
    fn bad(&mut self, at: Place, kind: BadLine);
    /// Reading did not simply go on.
    fn reset(&mut self, hour: Hour, cause: Reset);
    /// An hour cannot be read now; the next pass tries again.
    fn failed(&mut self, hour: Hour, error: &io::Error);
    /// Reading goes on in the compressed file of an hour that was begun in the plain one.
    fn recovered(&mut self, hour: Hour);
}

/// How much may be read before the epoch ends.
#[derive(Debug)]
pub struct Budget {
    now: Instant,
    deadline: Instant,
    bytes: u64,
    read: u64,
}

impl Budget {
    /// Reads until `time` is up or `bytes` are read, whichever is first, but at least something.
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

/// How a pass ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// Everything there was is read.
    pub is_caught_up: bool,
    /// Bytes read.
    pub read: u64,
    /// About how many bytes are left.
    pub lag: u64,
    /// Hours that could not be read now.
    pub errors: u64,
}

/// The positions of all hours, as they are kept in the checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Positions {
    /// Earlier hours are not looked at.
    floor: Hour,
    hours: Vec<(Hour, Position)>,
}

impl Positions {
    /// For display: each hour, how far it was read, and whether it is closed.
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

    /// The newest hour and how far it was read.
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
    /// Goes on where it was.
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

    /// Reads everything there is.
    pub fn from_start(log: Where) -> Self {
        Self::from_hour(log, Hour::FIRST)
    }

    /// Reads everything from an hour on.
    pub fn from_hour(log: Where, floor: Hour) -> Self {
        Self {
            log,
            floor,
            cursors: BTreeMap::new(),
        }
    }

    /// Reads what is written from here on.
    ///
    /// # Errors
    /// When the directory or its newest file cannot be read.
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

    /// Reads what there is, within the budget.
    ///
    /// # Errors
    /// When the directory cannot be listed. An hour that cannot be read is counted in the result and
    /// tried again by the next pass.
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

    /// Lets go of hours that are read and so old that nothing will come.
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

    /// Where it stands.
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
