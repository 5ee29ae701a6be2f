//! Counts of refusals per gate. Each refusal is counted once, and shown both as series and in
//! `/_429_status`.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use router_core::admission;

/// The gate that refused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gate {
    /// The pool's in-flight had reached its limit.
    Concurrency,
    /// The pool's average TTFT was too high.
    Ttft,
    /// The pool's average token rate was too low.
    Tps,
    /// A content rule matched.
    Rule,
}

impl Gate {
    /// Every gate, in label order.
    pub const ALL: [Self; 4] = [Self::Concurrency, Self::Ttft, Self::Tps, Self::Rule];

    /// The label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Concurrency => "concurrency",
            Self::Ttft => "ttft",
            Self::Tps => "tps",
            Self::Rule => "rule",
        }
    }

    /// Whether the gate grades requests by turn.
    fn is_graded(self) -> bool {
        self != Self::Rule
    }
}

impl From<admission::Gate> for Gate {
    fn from(gate: admission::Gate) -> Self {
        match gate {
            admission::Gate::Concurrency => Self::Concurrency,
            admission::Gate::Ttft => Self::Ttft,
            admission::Gate::Tps => Self::Tps,
        }
    }
}

/// Why a request got no peer although no gate refused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unplaced {
    /// No peer is usable.
    NoHealthyPeer,
    /// No peer serves the request's model.
    UnknownModel,
}

/// Refusals of one route.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<Counts>);

/// A gate and the first turn of a bucket; `None` for refusals without a grade.
type Series = (Gate, Option<u32>);

#[derive(Debug, Default)]
struct Counts {
    /// Since the series started; bounded by the configured buckets and those of snapshots still in
    /// use.
    series: BTreeMap<Series, u64>,
    /// Since the last reset, index = gate.
    since_reset: [u64; Gate::ALL.len()],
    /// Index = [`Unplaced`].
    unplaced: [u64; 2],
}

impl Refusals {
    /// Series at zero for every gate and bucket; series of removed buckets disappear.
    pub(super) fn sync(&self, buckets: &[u32]) {
        let mut counts = self.0.lock();
        counts
            .series
            .retain(|(_, bucket), _| bucket.is_none_or(|bucket| buckets.contains(&bucket)));
        for gate in Gate::ALL {
            counts.series.entry((gate, None)).or_default();
            for bucket in buckets.iter().filter(|_| gate.is_graded()) {
                counts.series.entry((gate, Some(*bucket))).or_default();
            }
        }
    }

    pub(super) fn count(&self, gate: Gate, bucket: Option<u32>) {
        let mut counts = self.0.lock();
        *counts.series.entry((gate, bucket)).or_default() += 1;
        counts.since_reset[gate as usize] += 1;
    }

    pub(super) fn unplaced(&self, why: Unplaced) {
        self.0.lock().unplaced[why as usize] += 1;
    }

    /// All requests that got no peer, since the series started, by the error's code.
    pub(super) fn by_code(&self) -> [(&'static str, u64); 6] {
        let counts = self.0.lock();
        let of = |gate: Gate| {
            let series = counts.series.iter().filter(|((of, _), _)| *of == gate);
            series.map(|(_, count)| count).sum()
        };
        let [no_peer, no_model] = counts.unplaced;
        [
            ("concurrency_limit", of(Gate::Concurrency)),
            ("ttft_limit", of(Gate::Ttft)),
            ("tps_limit", of(Gate::Tps)),
            ("rejected_by_rule", of(Gate::Rule)),
            ("no_healthy_peer", no_peer),
            ("unknown_model", no_model),
        ]
    }

    /// By gate since the last reset, index = gate.
    pub(super) fn since_reset(&self) -> [u64; Gate::ALL.len()] {
        self.0.lock().since_reset
    }

    /// Resets the counts; the series continue. Returns the counts before the reset.
    pub(super) fn reset(&self) -> [u64; Gate::ALL.len()] {
        std::mem::take(&mut self.0.lock().since_reset)
    }

    /// Every series: gate, bucket, count.
    pub(super) fn series(&self) -> Vec<(Gate, Arc<str>, u64)> {
        let label = |bucket: Option<u32>| match bucket {
            None => super::route::NONE.into(),
            Some(turn) => turn.to_string().into(),
        };
        let counts = self.0.lock();
        let series = counts.series.iter();
        series
            .map(|((gate, bucket), count)| (*gate, label(*bucket), *count))
            .collect()
    }
}
