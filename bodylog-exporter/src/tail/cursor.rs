//! Reads one hour from its position to the current end of its file.

use std::fs::{self, File};
use std::io;
use std::time::{Duration, Instant};

use service::files;

use super::hours::{Forms, Hour, is_absent};
use super::position::{Position, Trail, consume};
use super::source::{Fit, Source, file_id, fit_plain, open_gzip, prints_before};
use super::{Budget, Place, Sink, Where};
use crate::aggregate::{BadLine, Reset};

/// Bytes per read.
const CHUNK: usize = 256 * 1024;

/// An hour that is over is closed after its end was seen twice, this far apart. A batch for it may
/// still arrive after the next hour's file exists.
const QUIET: Duration = Duration::from_secs(2);

/// The age of an hour relative to the other hours on disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    pub(super) forms: Forms,
    /// A later hour has a file.
    pub(super) is_over: bool,
    /// A much later hour has a file, so that no line can still arrive.
    pub(super) is_long_over: bool,
}

/// The result of reading an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Visit {
    /// At the end of the file. This many bytes of an incomplete line follow.
    AtEnd { rest: u64 },
    /// The budget is used up. About this many bytes are left.
    Behind { rest: u64 },
}

/// An hour and its position.
#[derive(Debug, Default)]
pub(super) struct Cursor {
    pub(super) position: Position,
    open: Option<Open>,
    /// When the end was first seen after the hour was over.
    quiet_since: Option<Instant>,
}

#[derive(Debug)]
struct Open {
    source: Source,
    /// Holds `filled` bytes from behind the position, without a complete line.
    buffer: Vec<u8>,
    filled: usize,
    trail: Trail,
}

impl Open {
    fn new(source: Source, trail: Trail) -> Self {
        Self {
            source,
            buffer: vec![0; CHUNK],
            filled: 0,
            trail,
        }
    }
}

impl Cursor {
    pub(super) fn at(position: Position) -> Self {
        Self {
            position,
            ..Self::default()
        }
    }

    /// A cursor at the current end of the plain file, to read only new lines.
    pub(super) fn at_end_of(log: &Where, hour: Hour) -> io::Result<Self> {
        let file = files::open(&hour.plain(&log.root))?;
        let metadata = file.metadata()?;
        let offset = super::source::line_start(&file, metadata.len(), log.line_bytes_max)?;
        let (head, trail) = prints_before(&file, offset)?;
        let position = Position {
            file: file_id(&metadata),
            offset,
            head,
            tail: trail.print(),
            ..Position::default()
        };
        Ok(Self::at(position))
    }

    /// Reads new lines within the budget.
    pub(super) fn visit(
        &mut self,
        log: &Where,
        hour: Hour,
        standing: Standing,
        budget: &mut Budget,
        sink: &mut impl Sink,
    ) -> io::Result<Visit> {
        if !self.ensure_open(log, hour, standing, sink)? {
            return Ok(Visit::AtEnd { rest: 0 });
        }
        let before = self.position.offset;
        let visited = self.visit_open(log, hour, budget, sink);
        match visited {
            Ok(Visit::AtEnd { .. }) => {
                if self.position.offset != before {
                    self.quiet_since = None;
                }
                self.close_if_over(hour, standing, budget.now, sink);
                visited
            }
            Ok(Visit::Behind { .. }) => visited,
            Err(error) => {
                self.open = None;
                if !is_corrupt(&error) {
                    return Err(error);
                }
                self.damaged(hour, &error, sink);
                Ok(Visit::AtEnd { rest: 0 })
            }
        }
    }

    fn visit_open(
        &mut self,
        log: &Where,
        hour: Hour,
        budget: &mut Budget,
        sink: &mut impl Sink,
    ) -> io::Result<Visit> {
        loop {
            match self.drain(log, hour, budget, sink)? {
                Visit::Behind { .. } => {
                    let rest = self.rest(log, hour);
                    return Ok(Visit::Behind { rest });
                }
                at_end => {
                    if !self.follow(log, hour, sink)? {
                        return Ok(at_end);
                    }
                }
            }
        }
    }

    fn damaged(&mut self, hour: Hour, error: &io::Error, sink: &mut impl Sink) {
        tracing::error!(%hour, %error, "a compressed file is damaged, its rest is lost");
        self.abandon(hour, sink);
    }

    /// Gives up on the hour.
    pub(super) fn abandon(&mut self, hour: Hour, sink: &mut impl Sink) {
        sink.reset(hour, Reset::Unreadable);
        self.open = None;
        (self.position.gone, self.position.done) = (false, true);
    }

    /// Ensures that a file is open in which the position is valid. Returns false if there is
    /// nothing to read.
    fn ensure_open(
        &mut self,
        log: &Where,
        hour: Hour,
        standing: Standing,
        sink: &mut impl Sink,
    ) -> io::Result<bool> {
        match self.open.take() {
            Some(open) => {
                self.open = Some(open);
                self.check_open(log, hour, sink)?;
                return Ok(true);
            }
            None if self.is_unchanged(log, hour, standing.forms)? => return Ok(false),
            None => {}
        }
        if standing.forms.plain {
            match files::open(&hour.plain(&log.root)) {
                Ok(file) => {
                    self.adopt(log, hour, file, sink)?;
                    return Ok(true);
                }
                // The listener closed the hour after the listing.
                Err(error) if is_absent(&error) => {}
                Err(error) => return Err(error),
            }
        }
        if self.position.done && !self.position.gone {
            return Ok(false);
        }
        match open_gzip(&hour.gzip(&log.root), &self.position) {
            Ok((source, trail)) => {
                if trail.is_none() {
                    self.replaced(hour, sink);
                } else if self.position.offset > 0 {
                    sink.recovered(hour);
                }
                (self.position.gone, self.position.done) = (false, false);
                self.open = Some(Open::new(source, trail.unwrap_or_default()));
                Ok(true)
            }
            Err(error) if is_absent(&error) => {
                self.is_gone(hour, sink);
                // If a file with this name appears again, none of it has been read.
                self.position.restart();
                (self.position.gone, self.position.done) = (true, true);
                Ok(false)
            }
            Err(error) if is_corrupt(&error) => {
                self.damaged(hour, &error, sink);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether an hour that was read completely is still unchanged.
    fn is_unchanged(&self, log: &Where, hour: Hour, forms: Forms) -> io::Result<bool> {
        if self.position.gone && forms.gzip {
            // The hour was deleted, written again and compressed between two passes.
            return Ok(false);
        }
        if !self.position.done || !forms.plain {
            return Ok(self.position.done);
        }
        let file = match files::open(&hour.plain(&log.root)) {
            Ok(file) => file,
            Err(error) if is_absent(&error) => return Ok(true),
            Err(error) => return Err(error),
        };
        Ok(file.metadata()?.len() == self.position.offset
            && matches!(
                fit_plain(&file, &self.position, log.line_bytes_max)?,
                Fit::Same(_)
            ))
    }

    /// Detects that the open file was truncated or rewritten in place.
    fn check_open(&mut self, log: &Where, hour: Hour, sink: &mut impl Sink) -> io::Result<()> {
        let Some(Open {
            source: Source::Plain(file),
            ..
        }) = &self.open
        else {
            return Ok(());
        };
        let file = file.try_clone()?;
        let is_gone = self.position.gone;
        self.adopt(log, hour, file, sink)?;
        self.position.gone = is_gone;
        Ok(())
    }

    /// Opens a plain file. Continues at the position if the position belongs to this file.
    fn adopt(
        &mut self,
        log: &Where,
        hour: Hour,
        file: File,
        sink: &mut impl Sink,
    ) -> io::Result<()> {
        let id = file_id(&file.metadata()?);
        let fit = fit_plain(&file, &self.position, log.line_bytes_max)?;
        let trail = match fit {
            Fit::Same(trail) => trail,
            Fit::Cut(offset, head, trail) => {
                tracing::warn!(%hour, read = self.position.offset, offset, "a file was cut, reading goes on at its end");
                sink.reset(hour, Reset::Truncated);
                self.position = Position {
                    offset,
                    head,
                    tail: trail.print(),
                    lines: self.position.lines,
                    ..Position::default()
                };
                trail
            }
            Fit::Other => {
                if self.position.gone {
                    self.position.restart();
                } else {
                    self.replaced(hour, sink);
                }
                Trail::default()
            }
        };
        self.position.file = id;
        self.position.gone = false;
        self.position.done = false;
        self.open = Some(Open::new(Source::Plain(file), trail));
        Ok(())
    }

    fn replaced(&mut self, hour: Hour, sink: &mut impl Sink) {
        tracing::warn!(%hour, read = self.position.offset, "another file stands in a file's place, it is read from its start");
        sink.reset(hour, Reset::Replaced);
        self.position.restart();
    }

    fn is_gone(&mut self, hour: Hour, sink: &mut impl Sink) {
        if !self.position.gone {
            self.position.gone = true;
            tracing::warn!(%hour, read = self.position.offset, "a file is gone, what was not read of it is lost");
            sink.reset(hour, Reset::Deleted);
        }
    }

    /// Passes on complete lines up to the end of the file or of the budget.
    fn drain(
        &mut self,
        log: &Where,
        hour: Hour,
        budget: &mut Budget,
        sink: &mut impl Sink,
    ) -> io::Result<Visit> {
        let Some(open) = &mut self.open else {
            return Ok(Visit::AtEnd { rest: 0 });
        };
        loop {
            if open.filled == open.buffer.len() {
                // A line longer than the buffer, but within the limit.
                open.buffer.resize(open.buffer.len() * 2, 0);
            }
            let read_from = self.position.offset + open.filled as u64;
            let got = open
                .source
                .read(&mut open.buffer[open.filled..], read_from)?;
            if got == 0 {
                let rest = open.filled as u64;
                return Ok(Visit::AtEnd { rest });
            }
            budget.spend(got);
            let fresh = open.filled;
            open.filled += got;
            let mut used = lines(
                &mut self.position,
                &open.buffer[..open.filled],
                fresh,
                hour,
                sink,
            );
            if open.filled - used >= log.line_bytes_max {
                if !self.position.skipping {
                    self.position.skipping = true;
                    self.position.lines += 1;
                    sink.bad(
                        Place::of(hour, self.position.offset + used as u64),
                        BadLine::TooLong,
                    );
                }
                used = open.filled;
            }
            consume(&mut self.position, &mut open.trail, &open.buffer[..used]);
            open.buffer.copy_within(used..open.filled, 0);
            open.filled -= used;
            if open.filled < CHUNK && open.buffer.len() > CHUNK {
                open.buffer.truncate(CHUNK);
                open.buffer.shrink_to_fit();
            }
            if budget.is_spent() {
                return Ok(Visit::Behind { rest: 0 });
            }
        }
    }

    /// At the end of the open file: switches to the file that has replaced it, if any. Returns
    /// whether there may be more to read.
    fn follow(&mut self, log: &Where, hour: Hour, sink: &mut impl Sink) -> io::Result<bool> {
        if !matches!(&self.open, Some(open) if matches!(open.source, Source::Plain(_))) {
            return Ok(false);
        }
        match files::open(&hour.plain(&log.root)) {
            Ok(file) => {
                if file_id(&file.metadata()?) == self.position.file {
                    return Ok(false);
                }
                self.adopt(log, hour, file, sink)?;
                Ok(true)
            }
            Err(error) if is_absent(&error) => self.follow_closed(log, hour, sink),
            Err(error) => Err(error),
        }
    }

    /// The plain file is gone. The compressed one should contain the bytes read so far. It does not
    /// if the file was replaced before it was compressed.
    fn follow_closed(&mut self, log: &Where, hour: Hour, sink: &mut impl Sink) -> io::Result<bool> {
        match open_gzip(&hour.gzip(&log.root), &self.position) {
            Ok((source, trail)) => {
                if trail.is_none() {
                    self.replaced(hour, sink);
                }
                self.open = Some(Open::new(source, trail.unwrap_or_default()));
                Ok(true)
            }
            Err(error) if is_absent(&error) => {
                self.is_gone(hour, sink);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Closes an hour that is over and no longer changes.
    fn close_if_over(
        &mut self,
        hour: Hour,
        standing: Standing,
        now: Instant,
        sink: &mut impl Sink,
    ) {
        let is_final = match &self.open {
            Some(open) => matches!(open.source, Source::Gzip(_)),
            None => return,
        };
        let is_closed = standing.is_over && (standing.is_long_over || standing.forms.gzip);
        let is_quiet = standing.is_over && {
            let since = *self.quiet_since.get_or_insert(now);
            now.saturating_duration_since(since) >= QUIET
        };
        if !(is_final || is_closed || is_quiet) {
            return;
        }
        if let Some(mut open) = self.open.take()
            && open.filled > 0
        {
            let rest = &open.buffer[..open.filled];
            if !self.position.skipping {
                self.position.lines += 1;
                // Only the line end may be missing.
                if !sink.last_line(rest) {
                    sink.bad(Place::of(hour, self.position.offset), BadLine::Torn);
                }
            }
            consume(&mut self.position, &mut open.trail, rest);
        }
        self.position.done = true;
        self.quiet_since = None;
    }

    /// Approximate number of bytes left, for the lag.
    pub(super) fn rest(&self, log: &Where, hour: Hour) -> u64 {
        match &self.open {
            Some(Open {
                source: Source::Plain(file),
                ..
            }) => file
                .metadata()
                .map_or(0, |m| m.len().saturating_sub(self.position.offset)),
            _ if self.position.done => 0,
            _ => match fs::metadata(hour.plain(&log.root)) {
                Ok(plain) => plain.len().saturating_sub(self.position.offset),
                // Counts compressed bytes, so the real number is larger.
                Err(_) => fs::metadata(hour.gzip(&log.root)).map_or(0, |m| m.len()),
            },
        }
    }
}

/// Passes on the complete lines in `bytes` and returns their length. The bytes before `fresh`
/// contain no line end.
fn lines(
    position: &mut Position,
    bytes: &[u8],
    fresh: usize,
    hour: Hour,
    sink: &mut impl Sink,
) -> usize {
    let mut start = 0;
    for end in memchr::memchr_iter(b'\n', &bytes[fresh..]) {
        let end = fresh + end;
        let line = &bytes[start..end];
        if position.skipping {
            position.skipping = false;
        } else if !line.trim_ascii().is_empty() {
            position.lines += 1;
            sink.line(Place::of(hour, position.offset + start as u64), line);
        }
        start = end + 1;
    }
    start
}

fn is_corrupt(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof
    )
}
