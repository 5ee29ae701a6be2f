//! Epochs: read rows, count them, write the checkpoint, publish the counts. In this order a scraper
//! never sees a count that a crash could undo.
//!
//! After a crash before the checkpoint is in place, the epoch is repeated from the previous state,
//! which is also the published one. After a later crash, the new state is used. If a checkpoint
//! cannot be written, the exporter retries before it reads more, and shows the old counts
//! meanwhile.

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::aggregate::{BadLine, RefusalReading, Reset, State};
use crate::checkpoint::{CheckpointRef, Found, Store, StoreError};
use crate::now::Now;
use crate::shared::{Committed, Shared};
use crate::tail::{Budget, Hour, Pass, Place, Positions, Sink, Tail, Where};

/// Maximum bytes read in one epoch: the amount that must be read again after a crash.
const EPOCH_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// Maximum number of bad lines logged in one epoch; further ones are only counted.
const BAD_LINES_LOGGED: u64 = 5;

/// Where an exporter without a checkpoint starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColdStart {
    /// Only new rows.
    #[default]
    End,
    /// All rows in the directory.
    Start,
}

/// Why an exporter could not start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The checkpoint.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The detail files.
    #[error("read the detail files in {path}")]
    Details {
        /// The directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}

/// Reads and counts rows, and saves the counts.
#[derive(Debug)]
pub struct Pipeline {
    tail: Tail,
    state: State,
    store: Store,
    shared: Arc<Shared>,
    /// How long one epoch may read.
    epoch: Duration,
    /// Positions of the last checkpoint.
    kept: Option<Positions>,
    /// Whether anything was counted since the last checkpoint.
    is_changed: bool,
    last_pass: Pass,
}

impl Pipeline {
    /// Continues from the checkpoint, or starts without one, and publishes the state.
    ///
    /// # Errors
    /// When the checkpoint cannot be used, or cannot be written for another reason than want of room,
    /// or the detail files cannot be listed. On a full disk the state is shown as it was kept, and
    /// every epoch tries to write it.
    pub fn open(
        log: Where,
        store: Store,
        cold: ColdStart,
        epoch: Duration,
        shared: Arc<Shared>,
        now: Now,
    ) -> Result<Self, OpenError> {
        let found = store.load()?;
        let is_older = matches!(found, Found::Older(_));
        let (tail, state) = match found {
            Found::Newest(checkpoint) | Found::Older(checkpoint) => {
                let mut state = checkpoint.state;
                if is_older {
                    tracing::warn!("reading goes on from the older checkpoint");
                    state.own_mut().fallbacks += 1;
                }
                (Tail::resume(log, checkpoint.positions), state)
            }
            Found::Nothing => {
                let mut state = State::default();
                state.own_mut().cold_starts += 1;
                let tail = match cold {
                    ColdStart::Start => Tail::from_start(log),
                    ColdStart::End => {
                        Tail::from_end(log.clone()).map_err(|source| OpenError::Details {
                            path: log.root,
                            source,
                        })?
                    }
                };
                tracing::info!(from = ?cold, "no checkpoint, counting begins");
                (tail, state)
            }
        };
        let mut pipeline = Self {
            tail,
            state,
            store,
            shared,
            epoch,
            kept: None,
            is_changed: true,
            last_pass: Pass::default(),
        };
        match pipeline.commit(now) {
            Err(error) if error.is_full() => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::error!(%error, cause, "counts cannot be kept yet");
                pipeline.show(now);
            }
            committed => committed?,
        }
        Ok(pipeline)
    }

    /// Runs one epoch. Returns whether more rows can be read at once.
    ///
    /// # Errors
    /// The checkpoint cannot be written. The counts of this epoch are kept in memory and saved by
    /// the next call that succeeds.
    pub fn epoch(&mut self, now: Now) -> Result<bool, StoreError> {
        if self.is_changed {
            self.commit(now)?;
        }
        self.read(now);
        self.commit(now)?;
        Ok(!self.last_pass.is_caught_up && self.last_pass.errors == 0)
    }

    /// Reads and counts, but publishes nothing yet.
    pub fn read(&mut self, now: Now) {
        for (router, reading) in self.shared.take_refusals() {
            self.refused(&router, &reading);
        }
        self.is_changed |= match self.shared.resolver() {
            Some(_) => {
                let reading = self.shared.take_places();
                self.state.places(reading.as_ref(), now.wall_ms)
            }
            None => self.state.no_places(),
        };
        let mut counter = Counter {
            state: &mut self.state,
            now_ms: now.wall_ms,
            bad: 0,
        };
        let mut budget = Budget::new(now.instant, self.epoch, EPOCH_BYTES_MAX);
        match self.tail.pass(&mut budget, &mut counter) {
            Ok(pass) => self.last_pass = pass,
            Err(error) => {
                tracing::warn!(%error, "the detail files cannot be listed now");
                self.last_pass = Pass {
                    errors: 1,
                    ..Pass::default()
                };
            }
        }
        let unlogged = counter.bad.saturating_sub(BAD_LINES_LOGGED);
        if unlogged > 0 {
            tracing::warn!(unlogged, "more lines were no rows");
        }
        self.is_changed |= self.last_pass.read > 0;
        self.shared.read_errors(self.last_pass.errors);
        self.state.settle(now.wall_ms, self.shared.scraped_ms());
    }

    fn refused(&mut self, router: &str, reading: &RefusalReading) {
        self.state.refusals_mut().read(router, reading);
        self.is_changed = true;
    }

    /// Saves the counts, then publishes them.
    ///
    /// # Errors
    /// The checkpoint cannot be written. Nothing new is published then.
    pub fn commit(&mut self, now: Now) -> Result<(), StoreError> {
        let positions = self.tail.positions();
        if self.is_changed || self.kept.as_ref() != Some(&positions) {
            let checkpoint = CheckpointRef {
                positions: &positions,
                state: &self.state,
            };
            match self.store.save(&checkpoint) {
                Ok(bytes) => self.shared.saved(bytes),
                Err(error) => {
                    self.is_changed = true;
                    self.shared.save_failed();
                    return Err(error);
                }
            }
            self.is_changed = false;
            self.kept = Some(positions);
        }
        self.show(now);
        Ok(())
    }

    fn show(&self, now: Now) {
        self.shared.publish(Committed {
            view: self.state.view(),
            positions: self.tail.positions(),
            lag_bytes: self.last_pass.lag,
            is_caught_up: self.last_pass.is_caught_up,
            at: now,
        });
    }
}

/// Counts the lines that the tail reads.
struct Counter<'s> {
    state: &'s mut State,
    now_ms: i64,
    /// Number of bad lines in this epoch.
    bad: u64,
}

impl Counter<'_> {
    /// The text of the line is not logged, because it may contain anything.
    fn log(&mut self, at: Place, kind: BadLine) {
        self.bad += 1;
        if self.bad <= BAD_LINES_LOGGED {
            tracing::warn!(hour = %at.hour, offset = at.offset, kind = kind.as_str(), "a line is no row");
        }
    }
}

impl Sink for Counter<'_> {
    fn line(&mut self, at: Place, line: &[u8]) {
        if let Err(kind) = self.state.line(line, self.now_ms) {
            self.log(at, kind);
        }
    }

    fn last_line(&mut self, line: &[u8]) -> bool {
        if serde_json::from_slice::<serde::de::IgnoredAny>(line).is_err() {
            return false;
        }
        // Valid JSON that is not a row gets its own reason.
        let _ = self.state.line(line, self.now_ms);
        true
    }

    fn bad(&mut self, at: Place, kind: BadLine) {
        self.state.bad_line(kind);
        self.log(at, kind);
    }

    fn reset(&mut self, _: Hour, cause: Reset) {
        let resets = &mut self.state.own_mut().file_resets;
        *resets.entry(cause).or_default() += 1;
    }

    fn failed(&mut self, hour: Hour, error: &std::io::Error) {
        tracing::warn!(%hour, %error, "an hour cannot be read now");
    }

    fn recovered(&mut self, hour: Hour) {
        tracing::info!(%hour, "an hour was closed meanwhile, reading goes on in the compressed file");
        self.state.own_mut().recoveries += 1;
    }
}
