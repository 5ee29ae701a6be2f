//! The counters of `session_prio`: the outcomes of each bucket's requests, and the number of
//! requests without a usable header. Nothing here changes while the feature is off.

use std::time::{Duration, Instant};

use super::status::{BucketCounters, BucketState, NoHeader, PriorityState};
use super::table::Table;
use crate::admission::priority::{Bucket, PrioritySpec};
use crate::decision::PriorityClass;
use crate::window::{window_end, window_number};

/// Period over which requests are counted for the warning.
const MINUTE: Duration = Duration::from_secs(60);

/// Counters of one route. The first turn of a bucket identifies its counters over reloads.
#[derive(Debug, Default)]
pub(super) struct Priority {
    /// Counters by first turn. Every resolved route whose table has the bucket holds them.
    buckets: Table<u32, BucketCounters>,
    no_header: BucketCounters,
    minute: Minute,
    warning: Option<NoHeader>,
}

/// The requests of the current minute.
#[derive(Debug, Default)]
struct Minute {
    number: u64,
    requests: u64,
    no_header: u64,
}

impl Priority {
    /// Slots of a table's buckets, in table order.
    pub(super) fn acquire(&mut self, spec: &PrioritySpec) -> Vec<u32> {
        let rows = spec.table.iter();
        rows.map(|row| self.buckets.acquire(&row.min_turn))
            .collect()
    }

    pub(super) fn release_hold(&mut self, slots: &[u32]) {
        for slot in slots {
            self.buckets.release_hold(*slot);
        }
    }

    /// Counts one request that reached a gate.
    pub(super) fn count(&mut self, grade: PriorityClass, is_admitted: bool) {
        self.minute.requests += 1;
        self.minute.no_header += u64::from(grade.turn.is_none());
        if let Some(counters) = self.counters(grade) {
            if is_admitted {
                counters.admitted += 1;
            } else {
                counters.refused += 1;
            }
        }
    }

    pub(super) fn tokens(&mut self, grade: PriorityClass, prompt: u64, cached: u64) {
        if let Some(counters) = self.counters(grade) {
            counters.prompt_tokens = counters.prompt_tokens.saturating_add(prompt);
            counters.cached_tokens = counters.cached_tokens.saturating_add(cached);
        }
    }

    /// Ends the minute when it is over.
    pub(super) fn roll(&mut self, warn_frac: f64, epoch: Instant, now: Instant) {
        let number = window_number(epoch, MINUTE, now);
        if number == self.minute.number {
            return;
        }
        let Minute {
            requests,
            no_header,
            ..
        } = std::mem::replace(
            &mut self.minute,
            Minute {
                number,
                ..Minute::default()
            },
        );
        if no_header as f64 > requests as f64 * warn_frac {
            self.warning = Some(NoHeader {
                no_header,
                requests,
                warn_frac,
            });
        }
    }

    pub(super) fn minute_end(&self, epoch: Instant, now: Instant) -> Instant {
        window_end(epoch, MINUTE, now)
    }

    pub(super) fn take_warning(&mut self) -> Option<NoHeader> {
        self.warning.take()
    }

    /// The rows of a table with their counters.
    pub(super) fn state(&self, table: &[Bucket], slots: &[u32]) -> PriorityState {
        let rows = table.iter().zip(slots);
        PriorityState {
            buckets: rows
                .map(|(bucket, slot)| BucketState {
                    bucket: *bucket,
                    counters: *self.buckets.get(*slot),
                })
                .collect(),
            no_header: self.no_header,
        }
    }

    pub(super) fn reset(&mut self) {
        self.no_header = BucketCounters::default();
        self.buckets
            .iter_mut()
            .for_each(|counters| *counters = BucketCounters::default());
    }

    /// Debug-asserts that the buckets have `holders` holders.
    pub(super) fn check(&self, holders: u64) {
        self.buckets.check();
        debug_assert_eq!(self.buckets.holders(), holders);
    }

    /// The counters of a request; `None` for a bucket that no resolved route has any more.
    fn counters(&mut self, grade: PriorityClass) -> Option<&mut BucketCounters> {
        if grade.turn.is_none() {
            return Some(&mut self.no_header);
        }
        let slot = self.buckets.find(&grade.bucket)?;
        Some(self.buckets.get_mut(slot))
    }
}
