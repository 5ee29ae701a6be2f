//! Puts frames into the outbox, and frames without room in memory into segments.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::spawn_blocking;

use super::remove;
use crate::budget::{Charge, MemoryBudget};
use crate::clock::now;
use crate::counters::{Counters, Reason};
use crate::outbox::{MEMORY_ONLY_MAX, Outbox, Unnumbered, Written};
use crate::spool::segment::{SEGMENT_MAX, SegmentName, SegmentWriter, Stored};
use crate::spool::{Progress, Spool};

/// Pause before the next attempt after the disk refused a write.
const DISK_PAUSE: Duration = Duration::from_secs(1);

/// Pause between two looks at what must leave memory: while it can, and while nothing waits there or
/// the spool has no room.
const SPILL_PAUSE: Duration = Duration::from_millis(20);
const SPILL_IDLE: Duration = Duration::from_millis(250);

/// Share of the budget for frames in memory. Further frames go to disk.
const MEMORY_SHARE: u64 = 4;

/// The only writer of an outbox.
#[derive(Debug)]
pub(super) struct Writer {
    outbox: Arc<Outbox>,
    budget: MemoryBudget,
    counters: Arc<Counters>,
    current: Option<Current>,
    disk_refused: Option<Instant>,
    /// When frames were last looked for that must leave memory.
    spilled: Option<Instant>,
    /// Then not all of them found room.
    is_spool_short: bool,
    /// What the successor of this process would read.
    noted: Option<Progress>,
}

/// The segment to which frames are appended.
#[derive(Debug)]
struct Current {
    name: SegmentName,
    last: u64,
    file: SegmentWriter,
}

impl Writer {
    /// Creates the writer of an outbox. An outbox has only one.
    pub(super) fn new(outbox: Arc<Outbox>, budget: MemoryBudget, counters: Arc<Counters>) -> Self {
        Self {
            outbox,
            budget,
            counters,
            current: None,
            disk_refused: None,
            spilled: None,
            is_spool_short: false,
            noted: None,
        }
    }

    /// Takes frames and keeps them in memory or on disk. If neither has room, they are lost and
    /// counted.
    pub(super) async fn take(&mut self, frames: Vec<Unnumbered>) {
        let now = now();
        let rest = self
            .outbox
            .keep(frames, self.share(), now, |frame| self.count(frame));
        if rest.is_empty() {
            return;
        }
        let Some(spool) = self.outbox.spool().cloned() else {
            return;
        };
        if self
            .disk_refused
            .is_some_and(|since| now < since + DISK_PAUSE)
        {
            return self.keep_or_lose(rest, Reason::Disk);
        }
        let (fits, excess) = split_at_room(rest, &spool);
        if !fits.is_empty() {
            self.append(&spool, fits).await;
        }
        self.keep_or_lose(excess, Reason::SpoolFull);
    }

    /// When frames must next leave memory; never long ago, so that a disk without room is not asked
    /// without a pause.
    pub(super) fn spill_at(&self) -> Instant {
        let now = now();
        let due = self.outbox.spool().and(self.outbox.oldest_in_memory());
        let due = due.map_or(now + SPILL_IDLE, |since| since + MEMORY_ONLY_MAX);
        let paused = self.disk_refused.map(|since| since + DISK_PAUSE);
        let pause = if self.is_spool_short {
            SPILL_IDLE
        } else {
            SPILL_PAUSE
        };
        let spilled = self.spilled.map(|at| at + pause);
        [Some(due), paused, spilled]
            .into_iter()
            .flatten()
            .max()
            .unwrap_or(now)
    }

    /// Notes how far the epoch has got, for a successor that has to count what a kill cost.
    pub(super) async fn note(&mut self) {
        let Some(spool) = self.outbox.spool().cloned() else {
            return;
        };
        let progress = self.outbox.progress();
        if self.noted == Some(progress) {
            return;
        }
        self.noted = Some(progress);
        let noted = spawn_blocking(move || spool.note(progress));
        if let Ok(Err(error)) = noted.await {
            self.refused(&error);
        }
    }

    /// Moves frames from memory to the disk that have waited for long, and all of them while nobody
    /// is listening.
    pub(super) async fn spill(&mut self) {
        let now = now();
        self.spilled = Some(now);
        if self
            .disk_refused
            .is_some_and(|since| now < since + DISK_PAUSE)
        {
            return;
        }
        self.store(self.outbox.to_spill(now)).await;
    }

    /// Ends the writer because the process ends: frames in memory go to disk or are lost.
    pub(super) async fn finish(&mut self) {
        self.store(self.outbox.in_memory()).await;
        self.sync().await;
        self.note().await;
        let lost = self.outbox.in_memory().len() as u64;
        if lost > 0 {
            let reason = match self.outbox.spool() {
                None => Reason::Shutdown,
                Some(_) if self.disk_refused.is_some() => Reason::Disk,
                Some(_) => Reason::SpoolFull,
            };
            self.counters.dropped(reason, lost);
            tracing::error!(
                frames = lost,
                reason = reason.as_str(),
                "body log frames lost at the end"
            );
        }
    }

    /// Syncs the written data, so that it survives a machine crash.
    pub(super) async fn sync(&mut self) {
        let (Some(mut current), Some(spool)) = (self.current.take(), self.outbox.spool().cloned())
        else {
            return;
        };
        let synced = spawn_blocking(move || {
            let synced = current.file.sync().and_then(|()| spool.sync());
            (current, synced)
        });
        // A panic there would be our bug. The segment is then not appended to again.
        let Ok((current, synced)) = synced.await else {
            return;
        };
        self.current = Some(current);
        if let Err(error) = synced {
            self.refused(&error);
        }
    }

    fn share(&self) -> u64 {
        self.budget.limit() / MEMORY_SHARE
    }

    fn count(&self, frame: &Unnumbered) {
        self.counters.queued(1);
        if frame.origin.is_shed {
            self.counters.shed();
        }
        frame.origin.route.written(frame.origin.unix_ms);
    }

    /// Frames for which the disk has no room stay in memory, up to its share.
    fn keep_or_lose(&self, frames: Vec<Unnumbered>, reason: Reason) {
        if frames.is_empty() {
            return;
        }
        let lost = self
            .outbox
            .keep_in_memory(frames, self.share(), now(), |frame| self.count(frame));
        for frame in &lost {
            frame.origin.route.dropped();
        }
        self.counters.dropped(reason, lost.len() as u64);
    }

    async fn append(&mut self, spool: &Arc<Spool>, frames: Vec<Unnumbered>) {
        let origins: Vec<_> = frames.iter().map(|frame| frame.origin.clone()).collect();
        let (stored, charges): (Vec<Stored>, Vec<Charge>) =
            self.outbox.number(frames).into_iter().unzip();
        let written = self.write(spool, stored).await;
        drop(charges);
        for (at, origin) in origins.iter().enumerate() {
            if at < written {
                self.counters.queued(1);
                if origin.is_shed {
                    self.counters.shed();
                }
                origin.route.written(origin.unix_ms);
            } else {
                self.counters.dropped(Reason::Disk, 1);
                origin.route.dropped();
            }
        }
    }

    async fn store(&mut self, frames: Vec<Stored>) {
        let Some(spool) = self.outbox.spool().cloned() else {
            return;
        };
        let mut room = spool.max().saturating_sub(spool.used());
        let wanted = frames.len();
        let fits = frames.into_iter().take_while(|frame| {
            let len = frame.bytes.len() as u64;
            let fits = len <= room;
            room = room.saturating_sub(len);
            fits
        });
        let fits: Vec<Stored> = fits.collect();
        self.is_spool_short = fits.len() < wanted;
        if !fits.is_empty() {
            self.write(&spool, fits).await;
        }
    }

    /// Writes frames in order. Returns how many were written.
    async fn write(&mut self, spool: &Arc<Spool>, frames: Vec<Stored>) -> usize {
        let name = self.current.as_ref().map(|current| current.name);
        let is_open = self.outbox.begin_write(name);
        let current = self.current.take().filter(|_| is_open);
        let (dir, epoch) = (Arc::clone(spool), self.outbox.epoch());
        let done = spawn_blocking(move || write(&dir, epoch, current, &frames)).await;
        // A panic there would be our bug. Then no frame counts as written.
        let done = done.unwrap_or_else(|_| Done {
            current: None,
            written: Vec::new(),
            frames: 0,
            failed: Some(io::Error::other("the writer of the spool panicked")),
        });
        self.current = done.current;
        remove(spool, self.outbox.wrote(&done.written)).await;
        match done.failed {
            Some(error) => self.refused(&error),
            None => self.disk_refused = None,
        }
        done.frames
    }

    fn refused(&mut self, error: &io::Error) {
        if self.disk_refused.is_none() {
            tracing::error!(%error, "the body log's spool cannot be written");
        }
        self.disk_refused = Some(now());
    }
}

/// Splits the frames into those that fit the spool and the rest.
fn split_at_room(frames: Vec<Unnumbered>, spool: &Spool) -> (Vec<Unnumbered>, Vec<Unnumbered>) {
    let mut room = spool.max().saturating_sub(spool.used());
    let (mut fits, mut excess) = (Vec::new(), Vec::new());
    for frame in frames {
        let len = frame.bytes.len() as u64;
        if excess.is_empty() && len <= room {
            room -= len;
            fits.push(frame);
        } else {
            excess.push(frame);
        }
    }
    (fits, excess)
}

struct Done {
    current: Option<Current>,
    written: Vec<Written>,
    frames: usize,
    failed: Option<io::Error>,
}

/// Appends to `current` while it has room and the sequences are consecutive, then to new segments.
fn write(spool: &Spool, epoch: u64, current: Option<Current>, frames: &[Stored]) -> Done {
    let mut done = Done {
        current,
        written: Vec::new(),
        frames: 0,
        failed: None,
    };
    let mut rest = frames;
    while let Some(first) = rest.first() {
        let part = match part(&mut done.current, spool, epoch, first, rest) {
            Ok(part) => part,
            Err(error) => {
                done.failed = Some(error);
                break;
            }
        };
        done.frames += part.0;
        rest = &rest[part.0..];
        done.written.push(part.1);
    }
    done
}

fn part(
    current: &mut Option<Current>,
    spool: &Spool,
    epoch: u64,
    first: &Stored,
    rest: &[Stored],
) -> io::Result<(usize, Written)> {
    let goes_on = |open: &Current| {
        open.last + 1 == first.seq && open.file.bytes() + first.bytes.len() as u64 <= SEGMENT_MAX
    };
    if let Some(mut full) = current.take_if(|open| !goes_on(open)) {
        full.file.sync()?;
    }
    if current.is_none() {
        let name = SegmentName {
            epoch,
            first: first.seq,
        };
        let file = SegmentWriter::create(&name.in_dir(spool.dir()))?;
        *current = Some(Current {
            name,
            last: first.seq.saturating_sub(1),
            file,
        });
    }
    let Some(open) = current else {
        return Err(io::ErrorKind::NotFound.into());
    };
    let (mut bytes, mut next) = (open.file.bytes(), open.last + 1);
    let run = rest.iter().take_while(|frame| {
        let fits = bytes == 0 || bytes + frame.bytes.len() as u64 <= SEGMENT_MAX;
        let goes_on = fits && frame.seq == next;
        bytes += frame.bytes.len() as u64;
        next += 1;
        goes_on
    });
    let run: Vec<_> = run.map(|frame| frame.bytes.clone()).collect();
    let before = open.file.bytes();
    if let Err(error) = open.file.append(&run) {
        if before == 0 {
            // An empty file with this name would block the next attempt.
            let _ = std::fs::remove_file(open.name.in_dir(spool.dir()));
            *current = None;
        }
        return Err(error);
    }
    open.last += run.len() as u64;
    let written = Written {
        name: open.name,
        last: open.last,
        len: open.file.bytes(),
        added: open.file.bytes() - before,
    };
    Ok((run.len(), written))
}
