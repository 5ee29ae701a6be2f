//! Background work: measures free disk space every second, deletes old files every minute, and
//! packs closed hours every minute, one after the other.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use proto::layout::Hour;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::ledger::dir_of;
use crate::metrics::Metrics;
use crate::retention::{self, Policy};
use crate::space::{Level, Pressure, Room};
use crate::stream::Output;
use crate::writer::Status;
use crate::{lines, pack, segment};
use service::clock::WallClock;

/// How often free disk space is measured.
const LOOK: Duration = Duration::from_secs(1);
/// How often files are packed and deleted. Under disk pressure, files are deleted after every
/// measurement.
const SWEEP: Duration = Duration::from_secs(60);

/// Measures disk space. Replaced in tests.
pub(crate) type AskRoom = Arc<dyn Fn() -> std::io::Result<Room> + Send + Sync>;

/// The dependencies of housekeeping.
#[derive(Clone)]
pub(crate) struct Housekeeping {
    pub(crate) root: PathBuf,
    pub(crate) policy: Policy,
    pub(crate) clock: WallClock,
    pub(crate) ask_room: AskRoom,
    pub(crate) pressure: Arc<Pressure>,
    pub(crate) metrics: Arc<Metrics>,
    /// Same order as [`Output::ALL`].
    pub(crate) statuses: [Arc<Status>; 2],
}

impl Housekeeping {
    /// Runs housekeeping until shutdown. Finishes the file that is being packed first.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let packing = self.clone().pack_in_turn(stop.clone());
        let looking = self.look_in_turn(stop);
        tokio::join!(packing, looking);
    }

    async fn look_in_turn(self, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last_sweep: Option<Instant> = None;
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = stop.cancelled() => return,
            }
            let now = Instant::now();
            let is_due = last_sweep.is_none_or(|last| now.duration_since(last) >= SWEEP);
            if is_due {
                last_sweep = Some(now);
            }
            let this = self.clone();
            let _ = tokio::task::spawn_blocking(move || this.look(is_due)).await;
        }
    }

    /// Updates the level, and deletes files if they are due or space is short.
    pub(crate) fn look(&self, is_due: bool) {
        let room = match (self.ask_room)() {
            Ok(room) => room,
            Err(error) => {
                tracing::warn!(%error, "the room on the disk cannot be asked for");
                return;
            }
        };
        if is_due || Level::of(room, self.policy.min_free) > Level::Normal {
            self.sweep(room);
        }
        let room = (self.ask_room)().unwrap_or(room);
        self.metrics
            .disk_free_bytes
            .set(i64::try_from(room.free).unwrap_or(i64::MAX));
        self.metrics
            .disk_size_bytes
            .set(i64::try_from(room.total).unwrap_or(i64::MAX));
        let level = Level::of(room, self.policy.min_free);
        let before = self.pressure.set(level);
        if before != level {
            tracing::warn!(
                before = before.as_str(),
                level = level.as_str(),
                free = room.free,
                total = room.total,
                "the room on the disk has changed"
            );
        }
    }

    fn sweep(&self, room: Room) {
        let now = self.clock.now();
        let is_open = |output: Output, hour: Hour| !self.status(output).is_over(hour);
        let files = match retention::list(&self.root, is_open, now) {
            Ok(files) => files,
            Err(error) => {
                tracing::warn!(%error, "the stored files cannot be listed");
                return;
            }
        };
        retention::measure(&files, &self.metrics, now);
        retention::delete(&retention::plan(files, &self.policy, room, now));
    }

    fn status(&self, output: Output) -> &Status {
        match output {
            Output::Records => &self.statuses[0],
            Output::Details => &self.statuses[1],
        }
    }

    async fn pack_in_turn(self, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(SWEEP);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = stop.cancelled() => return,
            }
            let (this, stop) = (self.clone(), stop.clone());
            let _ = tokio::task::spawn_blocking(move || this.pack_all(&stop)).await;
        }
    }

    /// Packs every hour that is closed and no longer changes.
    pub(crate) fn pack_all(&self, stop: &CancellationToken) {
        for output in Output::ALL {
            let dir = dir_of(&self.root, output);
            let files = match lines::hour_files(&dir) {
                Ok(files) => files,
                Err(error) => {
                    tracing::warn!(%error, "the closed hours cannot be listed");
                    continue;
                }
            };
            for file in files.iter().filter(|file| !file.packed) {
                let is_due = self.status(output).is_over(file.hour)
                    && segment::is_quiet(file.hour, self.clock.now());
                if !is_due {
                    continue;
                }
                if stop.is_cancelled() {
                    return;
                }
                let began = std::time::Instant::now();
                match pack::pack(&file.path, &dir.join(file.hour.packed())) {
                    Ok(()) => {
                        let took = std::time::Instant::now().duration_since(began);
                        self.metrics.archive_seconds.observe(took.as_secs_f64());
                        tracing::info!(path = %file.path.display(), ?took, "a closed hour was packed");
                    }
                    Err(error) => {
                        self.metrics.archive_failures.inc();
                        let cause = std::error::Error::source(&error).map(ToString::to_string);
                        tracing::warn!(path = %file.path.display(), %error, cause, "a closed hour stays as it is");
                    }
                }
            }
        }
    }
}

/// Converts days to an age. A number that is too large means for ever.
pub(crate) fn days(days: u32) -> TimeDelta {
    TimeDelta::days(i64::from(days.min(1_000_000)))
}
