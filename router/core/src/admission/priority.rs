//! `session_prio`: warm sessions first. A request's turn puts it into a bucket; under load the
//! bucket's share scales the concurrency limit and its tolerance the TTFT and TPS thresholds.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// One row of the table in force.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bucket {
    /// Its first turn; the next bucket's first turn ends it.
    pub min_turn: u32,
    /// Share of the concurrency limit it may fill, above 0 and at most 1.
    pub share: f64,
    /// Multiplies the TTFT threshold and divides the TPS threshold, at least 1.
    pub tol: f64,
}

/// `session_prio_*` of a route.
#[derive(Clone, Debug, PartialEq)]
pub struct PrioritySpec {
    /// `session_prio_table`, or what the other options make; never empty, ascending from turn 1.
    pub table: Arc<[Bucket]>,
    /// At threshold × this (÷ for TPS) every bucket is refused; at least every `tol`.
    pub severe: f64,
    /// Turn 1 is let in again below threshold × this, above 0 and at most 1.
    pub release: f64,
    /// Probe slots of turn 1 in each window.
    pub t1_probes: u32,
    /// Share of requests without a usable header in a minute that is worth a warning.
    pub warn_frac: f64,
}

impl Default for PrioritySpec {
    fn default() -> Self {
        Self::graded(0.85, 32, 1.5)
    }
}

impl PrioritySpec {
    /// The table of `session_prio_r_new`, `session_prio_full_turn` and `session_prio_severe`: turn
    /// 1, 2–3, 4–7, … doubling up to `full_turn`, where the last bucket starts. The share rises
    /// linearly from `r_new` to 1, the tolerance from 1 to `severe`.
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
