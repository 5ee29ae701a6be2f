//! The last quarter of an hour of a route, for the console's sparklines.

use std::collections::VecDeque;

use crate::telemetry::metrics::Gate;

/// Number of samples: 15 minutes at one in five seconds. About 10 KiB for each route.
pub const SAMPLES_MAX: usize = 180;

/// One reading of a route.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Requests in flight, over all pools.
    pub in_flight: u64,
    /// Requests that wait for a slot.
    pub waiting: u32,
    /// Refusals since the sample before, in the order of [`Gate::ALL`].
    pub refused: [u64; Gate::ALL.len()],
    /// The highest average TTFT of any pool, milliseconds.
    pub ttft_ms: Option<f64>,
    /// The lowest average decode rate of any pool, tokens per second.
    pub tps: Option<f64>,
}

/// The last samples, oldest first.
#[derive(Debug, Default)]
pub struct History {
    samples: VecDeque<Sample>,
    refused: Option<[u64; Gate::ALL.len()]>,
}

impl History {
    /// Adds a sample. `refused` are counts since the start of the process.
    pub fn push(&mut self, mut sample: Sample, refused: [u64; Gate::ALL.len()]) {
        let before = self.refused.replace(refused).unwrap_or(refused);
        // A reset makes the counts smaller.
        for (change, (now, before)) in sample.refused.iter_mut().zip(refused.iter().zip(before)) {
            *change = now.saturating_sub(before);
        }
        if self.samples.len() >= SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    /// The samples, oldest first.
    pub fn samples(&self) -> Vec<Sample> {
        self.samples.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_differences_and_a_reset_is_no_refusal() {
        let mut history = History::default();
        for refused in [[5, 0, 0, 0], [7, 1, 0, 0], [0, 1, 0, 0]] {
            history.push(Sample::default(), refused);
        }
        let changes: Vec<_> = history.samples().iter().map(|s| s.refused).collect();
        assert_eq!(changes, [[0, 0, 0, 0], [2, 1, 0, 0], [0, 0, 0, 0]]);
    }

    #[test]
    fn the_oldest_sample_leaves_at_the_bound() {
        let mut history = History::default();
        for in_flight in 0..=SAMPLES_MAX as u64 {
            let sample = Sample {
                in_flight,
                ..Sample::default()
            };
            history.push(sample, [0; Gate::ALL.len()]);
        }
        let samples = history.samples();
        assert_eq!(samples.len(), SAMPLES_MAX);
        assert_eq!(samples[0].in_flight, 1);
    }
}
