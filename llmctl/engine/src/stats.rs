//! The engine's counters: the numbers behind `/metrics` and [`Stats`].

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Upper bounds of the latency histograms, in seconds: vLLM's for time to first token.
pub(crate) const LATENCY_BOUNDS: [f64; 21] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0,
];

/// A snapshot of the engine's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Requests in a slot now.
    pub running: u64,
    /// Requests in the queue now.
    pub waiting: u64,
    /// Requests that got a slot.
    pub started: u64,
    /// Number of those that finished normally.
    pub completed: u64,
    /// Number of those that ended because the client disconnected or the connection was cut.
    pub cancelled: u64,
    /// Prompt tokens of requests after their prefill.
    pub prompt_tokens: u64,
    /// Number of those that were in the prefix cache.
    pub cached_tokens: u64,
    /// Tokens generated.
    pub generated_tokens: u64,
    /// Blocks in the prefix cache now.
    pub cache_blocks: u64,
}

/// How a request ended, in vLLM's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Stop,
    Length,
    Abort,
}

/// Counters since the start; they never decrease.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) started: u64,
    pub(crate) stopped: u64,
    pub(crate) at_length: u64,
    pub(crate) aborted: u64,
    /// Prompt tokens that were looked up in the prefix cache, and the number found.
    pub(crate) cache_queries: u64,
    pub(crate) cache_hits: u64,
    /// The same two numbers, only of prompts whose prefill is complete.
    pub(crate) prompt_tokens: u64,
    pub(crate) cached_tokens: u64,
    pub(crate) generated_tokens: u64,
    /// Simulated time for prompts and for generated tokens.
    pub(crate) prompt_time: Duration,
    pub(crate) decode_time: Duration,
    /// The longest prompt including its reply, in tokens.
    pub(crate) longest: u64,
    pub(crate) ttft: Histogram,
    pub(crate) latency: Histogram,
}

/// A classic histogram over [`LATENCY_BOUNDS`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Histogram {
    /// Not cumulative; index = bound.
    counts: [u64; LATENCY_BOUNDS.len()],
    pub(crate) count: u64,
    pub(crate) sum: f64,
}

impl Histogram {
    pub(crate) fn observe(&mut self, value: Duration) {
        let seconds = value.as_secs_f64();
        if let Some(at) = LATENCY_BOUNDS.iter().position(|bound| seconds <= *bound) {
            self.counts[at] += 1;
        }
        self.count += 1;
        self.sum += seconds;
    }

    /// Each bound with the number of observations at or below it, ascending, without the infinite
    /// bound.
    pub(crate) fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        LATENCY_BOUNDS
            .into_iter()
            .zip(self.counts)
            .scan(0, |sum, (bound, count)| {
                *sum += count;
                Some((bound, *sum))
            })
    }
}

impl Counters {
    pub(crate) fn end(&mut self, how: Ended, latency: Duration) {
        match how {
            Ended::Stop => self.stopped += 1,
            Ended::Length => self.at_length += 1,
            Ended::Abort => self.aborted += 1,
        }
        if how != Ended::Abort {
            self.latency.observe(latency);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_counts_at_or_below_each_bound() {
        let mut histogram = Histogram::default();
        for ms in [1, 5, 6, 700_000] {
            histogram.observe(Duration::from_millis(ms));
        }
        let counts: Vec<u64> = histogram.cumulative().map(|(_, count)| count).collect();
        assert_eq!(
            (counts[0], counts[1], counts[2], counts[20], histogram.count),
            (1, 2, 3, 3, 4)
        );
    }
}
