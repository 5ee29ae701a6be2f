//! `session_prio` prefers warm sessions. A request's turn puts it into a bucket. Under load the
//! bucket's share scales the concurrency limit, and its tolerance scales the TTFT and TPS
//! thresholds.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// One row of the priority table.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bucket {
    /// First turn of the bucket. The bucket ends where the next one starts.
    pub min_turn: u32,
    /// Share of the concurrency limit that the bucket may fill, above 0 and at most 1.
    pub share: f64,
    /// Tolerance: multiplies the TTFT threshold and divides the TPS threshold, at least 1.
    pub tol: f64,
}

/// The `session_prio_*` options of a route.
#[derive(Clone, Debug, PartialEq)]
pub struct PrioritySpec {
    /// `session_prio_table`, or the table computed from the other options; never empty, ascending
    /// from turn 1.
    pub table: Arc<[Bucket]>,
    /// At threshold × this (÷ for TPS) every bucket is refused. At least as large as every `tol`.
    pub severe: f64,
    /// Turn 1 is admitted again below threshold × this, above 0 and at most 1.
    pub release: f64,
    /// Probe slots of turn 1 per window.
    pub t1_probes: u32,
    /// Share of requests without a usable header in one minute that triggers a warning.
    pub warn_frac: f64,
}

impl Default for PrioritySpec {
    fn default() -> Self {
        Self::graded(0.85, 32, 1.5)
    }
}

impl PrioritySpec {
    /// Index of the bucket of a turn. Without a usable header, the last bucket.
    pub fn bucket(&self, turn: Option<u32>) -> usize {
        let ended = |turn| self.table.partition_point(|bucket| bucket.min_turn <= turn);
        // The first bucket starts at turn 1, and a turn is at least 1.
        turn.map_or(self.table.len(), ended).saturating_sub(1)
    }

    /// Whether the bucket is refused first. False for a table with a single bucket, which ranks no
    /// request before another.
    pub fn is_first(&self, bucket: usize) -> bool {
        bucket == 0 && self.table.len() > 1
    }

    /// The table computed from `session_prio_r_new`, `session_prio_full_turn` and
    /// `session_prio_severe`: turn 1, 2–3, 4–7, … doubling up to `full_turn`, where the last bucket
    /// starts. The share rises linearly from `r_new` to 1, the tolerance from 1 to `severe`.
    pub fn graded(r_new: f64, full_turn: u32, severe: f64) -> Self {
        let doubling = std::iter::successors(Some(1_u32), |turn| turn.checked_mul(2));
        let mut turns: Vec<u32> = doubling.take_while(|turn| *turn < full_turn).collect();
        turns.push(full_turn.max(1));
        let last = (turns.len() - 1).max(1) as f64;
        let only = turns.len() == 1;
        let row = |(i, min_turn): (usize, u32)| {
            let warmth = if only { 1.0 } else { i as f64 / last };
            Bucket {
                min_turn,
                share: r_new + (1.0 - r_new) * warmth,
                tol: 1.0 + (severe - 1.0) * warmth,
            }
        };
        Self {
            table: turns.into_iter().enumerate().map(row).collect(),
            severe,
            release: 0.9,
            t1_probes: 1,
            warn_frac: 0.2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::concurrency::ceiling;

    /// The README of the router that this one replaces prints this table.
    #[test]
    fn ceilings_of_the_default_shares() {
        let spec = PrioritySpec::default();
        let ceilings = |limit: f64| -> Vec<u64> {
            let shares = spec.table.iter().map(|bucket| bucket.share);
            shares.map(|share| ceiling(limit * share, 1.0)).collect()
        };
        assert_eq!(ceilings(6.0), [6, 6, 6, 6, 6, 6]);
        assert_eq!(ceilings(7.0), [6, 7, 7, 7, 7, 7]);
        assert_eq!(ceilings(10.0), [9, 9, 10, 10, 10, 10]);
        assert_eq!(ceilings(20.0), [17, 18, 19, 19, 20, 20]);
    }

    #[test]
    fn buckets_double_up_to_the_full_turn() {
        let spec = PrioritySpec::default();
        let starts: Vec<u32> = spec.table.iter().map(|bucket| bucket.min_turn).collect();
        assert_eq!(starts, [1, 2, 4, 8, 16, 32]);
        let of = |turn| spec.bucket(Some(turn));
        assert_eq!(
            [1, 2, 3, 4, 7, 31, 32, 1_000_000_000].map(of),
            [0, 1, 1, 2, 2, 4, 5, 5]
        );
        assert_eq!(
            spec.bucket(None),
            5,
            "without a header a request counts as warm"
        );
        assert!(spec.is_first(0) && !spec.is_first(1));
    }

    #[test]
    fn the_last_bucket_starts_at_the_full_turn_whatever_it_is() {
        let starts = |full| -> Vec<u32> {
            let spec = PrioritySpec::graded(0.5, full, 2.0);
            spec.table.iter().map(|bucket| bucket.min_turn).collect()
        };
        assert_eq!(starts(20), [1, 2, 4, 8, 16, 20]);
        assert_eq!(starts(2), [1, 2]);
        let one = PrioritySpec::graded(0.5, 1, 2.0);
        assert_eq!((one.table.len(), one.table[0].share), (1, 1.0));
        assert!(!one.is_first(0));
    }

    #[test]
    fn share_and_tolerance_rise_to_one_and_to_severe() {
        let table = PrioritySpec::default().table;
        let (first, last) = (table[0], table[5]);
        assert_eq!((first.share, first.tol), (0.85, 1.0));
        assert_eq!((last.share, last.tol), (1.0, 1.5));
        assert!(
            table
                .windows(2)
                .all(|pair| pair[0].share < pair[1].share && pair[0].tol < pair[1].tol)
        );
    }
}
