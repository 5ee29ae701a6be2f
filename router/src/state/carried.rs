//! Counts that an operator's reset removed from the core's counters. The metrics page adds them
//! back, because a scraper must never see a counter go back.

use std::collections::BTreeMap;

use router_core::book::status::{BucketCounters, PriorityState, Trips};

/// Counts of one route before the last reset.
#[derive(Debug, Default)]
pub(super) struct Carried {
    trips: Trips,
    /// Indexed by the bucket's first turn; one entry per bucket that the table had at the last
    /// reset.
    buckets: BTreeMap<u32, BucketCounters>,
    no_header: BucketCounters,
}

impl Carried {
    pub(super) fn trips(&self, since: Trips) -> Trips {
        Trips {
            concurrency: self.trips.concurrency + since.concurrency,
            ttft: self.trips.ttft + since.ttft,
            tps: self.trips.tps + since.tps,
        }
    }

    pub(super) fn add_trips(&mut self, before: Trips) {
        self.trips = self.trips(before);
    }

    pub(super) fn priority(&self, mut since: PriorityState) -> PriorityState {
        since.no_header = sum(since.no_header, self.no_header);
        for row in &mut since.buckets {
            if let Some(carried) = self.buckets.get(&row.bucket.min_turn) {
                row.counters = sum(row.counters, *carried);
            }
        }
        since
    }

    pub(super) fn add_priority(&mut self, before: &PriorityState) {
        self.no_header = sum(self.no_header, before.no_header);
        // A bucket that was removed from the table has no series any more.
        self.buckets.retain(|turn, _| {
            before
                .buckets
                .iter()
                .any(|row| row.bucket.min_turn == *turn)
        });
        for row in &before.buckets {
            let carried = self.buckets.entry(row.bucket.min_turn).or_default();
            *carried = sum(*carried, row.counters);
        }
    }
}

fn sum(one: BucketCounters, other: BucketCounters) -> BucketCounters {
    BucketCounters {
        admitted: one.admitted + other.admitted,
        refused: one.refused + other.refused,
        prompt_tokens: one.prompt_tokens.saturating_add(other.prompt_tokens),
        cached_tokens: one.cached_tokens.saturating_add(other.cached_tokens),
    }
}

#[cfg(test)]
mod tests {
    use router_core::admission::priority::Bucket;
    use router_core::book::status::BucketState;

    use super::*;

    fn state(turns: &[u32], admitted: u64) -> PriorityState {
        let tally = BucketCounters {
            admitted,
            ..BucketCounters::default()
        };
        let row = |min_turn: &u32| BucketState {
            bucket: Bucket {
                min_turn: *min_turn,
                share: 1.0,
                tol: 1.0,
            },
            counters: tally,
        };
        PriorityState {
            buckets: turns.iter().map(row).collect(),
            no_header: tally,
        }
    }

    #[test]
    fn counts_go_on_over_resets_and_end_with_their_bucket() {
        let mut carried = Carried::default();
        carried.add_priority(&state(&[1, 2], 5));
        carried.add_priority(&state(&[1, 4], 2));
        let total = carried.priority(state(&[1, 2, 4], 10));
        let admitted: Vec<u64> = total
            .buckets
            .iter()
            .map(|row| row.counters.admitted)
            .collect();
        assert_eq!((admitted, total.no_header.admitted), (vec![17, 10, 12], 17));
        let trips = Trips {
            concurrency: 1,
            ttft: 2,
            tps: 3,
        };
        carried.add_trips(trips);
        carried.add_trips(trips);
        assert_eq!(carried.trips(Trips::default()).tps, 6);
    }
}
