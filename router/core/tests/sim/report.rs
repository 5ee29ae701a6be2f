//! The observations of a simulation.

use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use router_core::admission::Gate;
use router_core::aimd::Bounds;
use router_core::book::status::PriorityState;
use router_core::health::HealthState;

/// All turns except the first.
pub(crate) const WARM: RangeInclusive<u32> = 2..=u32::MAX;
pub(crate) const NEW: RangeInclusive<u32> = 1..=1;
pub(crate) const ALL: RangeInclusive<u32> = 1..=u32::MAX;

/// One request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) at: Duration,
    pub(crate) turn: u32,
    pub(crate) refused: Option<Gate>,
    /// Whether the request went to the engine of the previous turn; false for turn 1 and for a
    /// refusal.
    pub(crate) kept: bool,
}

/// One finished request; `at` is its arrival.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served {
    pub(crate) at: Duration,
    pub(crate) prompt: u32,
    pub(crate) cached: u32,
    /// Seconds to the first token.
    pub(crate) ttft: f64,
}

#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) asked: Vec<Asked>,
    pub(crate) served: Vec<Served>,
    /// The limit in force after each tick.
    pub(crate) limits: Vec<(Duration, f64)>,
    /// Bounds of the adaptive limit.
    pub(crate) bounds: Option<Bounds>,
    /// When requests were lost: answered 500, or abandoned without a first byte.
    pub(crate) lost: Vec<Duration>,
    /// When the first engine changed its state, and the new state.
    pub(crate) states: Vec<(Duration, HealthState)>,
    /// The book's own counters.
    pub(crate) priority: PriorityState,
}

impl Report {
    fn asked(
        &self,
        turns: RangeInclusive<u32>,
        during: Range<Duration>,
    ) -> impl Iterator<Item = &Asked> {
        let counts =
            move |asked: &&Asked| during.contains(&asked.at) && turns.contains(&asked.turn);
        self.asked.iter().filter(counts)
    }

    pub(crate) fn count(&self, turns: RangeInclusive<u32>, during: Range<Duration>) -> usize {
        self.asked(turns, during).count()
    }

    /// Share of refused requests; 0 without any request.
    pub(crate) fn refused(&self, turns: RangeInclusive<u32>, during: Range<Duration>) -> f64 {
        share(
            self.asked(turns, during)
                .map(|asked| asked.refused.is_some()),
        )
    }

    pub(crate) fn refused_by(&self, gate: Gate, during: Range<Duration>) -> usize {
        let by_gate = |asked: &&Asked| asked.refused == Some(gate);
        self.asked(ALL, during).filter(by_gate).count()
    }

    /// Share of the admitted warm requests that went to the engine of the previous turn.
    pub(crate) fn kept(&self, during: Range<Duration>) -> f64 {
        let admitted = |asked: &&Asked| asked.refused.is_none();
        share(
            self.asked(WARM, during)
                .filter(admitted)
                .map(|asked| asked.kept),
        )
    }

    /// Share of the prompt tokens that came from a cache.
    pub(crate) fn hit_rate(&self, during: Range<Duration>) -> f64 {
        let counted = self
            .served
            .iter()
            .filter(|served| during.contains(&served.at));
        let (cached, prompt) = counted.fold((0_u64, 0_u64), |(cached, prompt), served| {
            (
                cached + u64::from(served.cached),
                prompt + u64::from(served.prompt),
            )
        });
        cached as f64 / prompt.max(1) as f64
    }

    /// 95th percentile of the time to first token, in seconds.
    pub(crate) fn ttft_p95(&self, during: Range<Duration>) -> f64 {
        let counted = self.served.iter();
        let counted = counted.filter(|served| during.contains(&served.at));
        let mut all: Vec<f64> = counted.map(|served| served.ttft).collect();
        all.sort_by(f64::total_cmp);
        all[(all.len() - 1) * 95 / 100]
    }

    /// Smallest, mean and largest limit during a period.
    pub(crate) fn limit(&self, during: Range<Duration>) -> (f64, f64, f64) {
        let limits = self.limits.iter().filter(|(at, _)| during.contains(at));
        let limits: Vec<f64> = limits.map(|(_, limit)| *limit).collect();
        assert!(!limits.is_empty(), "no tick in {during:?}");
        let mean = limits.iter().sum::<f64>() / limits.len() as f64;
        let least = limits.iter().copied().fold(f64::INFINITY, f64::min);
        (least, mean, limits.iter().copied().fold(0.0, f64::max))
    }
}

fn share(of: impl Iterator<Item = bool>) -> f64 {
    let (mut hits, mut all) = (0_u32, 0_u32);
    for hit in of {
        hits += u32::from(hit);
        all += 1;
    }
    f64::from(hits) / f64::from(all.max(1))
}
