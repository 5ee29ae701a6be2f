//! Computes the rates and percentiles of the arms of a replay, and prints them.

use std::time::Duration;

use serde::Serialize;

use super::measure::Sample;
use crate::exit::Failure;
use crate::render::{Format, Screen, Table};

/// The result of a replay; its JSON form is stable.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// The route of the replay.
    pub route: String,
    /// The requested model.
    pub model: String,
    /// Conversations per arm.
    pub sessions: usize,
    /// Requests per conversation.
    pub turns: usize,
    /// Affinity on, then off.
    pub arms: Vec<Arm>,
}

/// One pass of the workload.
#[derive(Debug, Serialize)]
pub(super) struct Arm {
    /// Whether affinity was on.
    pub affinity: bool,
    /// Number of answered requests.
    pub requests: usize,
    /// Sum over the requests.
    pub prompt_tokens: u64,
    /// Sum over the requests; absent when the engines do not report it.
    pub cached_tokens: Option<u64>,
    /// `cached_tokens ÷ prompt_tokens`.
    pub hit_rate: Option<f64>,
    /// Time to first token.
    pub ttft_ms: Percentiles,
}

/// Percentiles by nearest rank, milliseconds.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Percentiles {
    /// The median.
    pub p50: f64,
    /// The 95th percentile.
    pub p95: f64,
}

impl Arm {
    /// Sums up the samples of one pass.
    pub(super) fn of(affinity: bool, samples: &[Sample]) -> Self {
        let prompt_tokens: u64 = samples.iter().map(|sample| sample.prompt_tokens).sum();
        let cached_tokens: Option<u64> = samples.iter().map(|sample| sample.cached_tokens).sum();
        let hit_rate = cached_tokens
            .filter(|_| prompt_tokens > 0)
            .map(|cached| cached as f64 / prompt_tokens as f64);
        let mut ttfts: Vec<Duration> = samples.iter().map(|sample| sample.ttft).collect();
        ttfts.sort_unstable();
        Self {
            affinity,
            requests: samples.len(),
            prompt_tokens,
            cached_tokens,
            hit_rate,
            ttft_ms: Percentiles {
                p50: percentile(&ttfts, 50),
                p95: percentile(&ttfts, 95),
            },
        }
    }
}

fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    let millis = sorted
        .get(rank - 1)
        .map_or(0.0, |value| value.as_secs_f64() * 1e3);
    (millis * 10.0).round() / 10.0
}

impl Report {
    /// Writes the report.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub(super) fn show(&self, screen: &mut Screen) -> Result<(), Failure> {
        if screen.format() == Format::Json {
            return screen.json(self);
        }
        let mut table = Table::new(&[
            "affinity",
            "requests",
            "prompt tokens",
            "cached",
            "hit rate",
            "ttft p50",
            "ttft p95",
        ]);
        for arm in &self.arms {
            table.row([
                if arm.affinity { "on" } else { "off" }.to_owned(),
                arm.requests.to_string(),
                arm.prompt_tokens.to_string(),
                arm.cached_tokens
                    .map_or("not reported".to_owned(), |cached| cached.to_string()),
                arm.hit_rate
                    .map_or("-".to_owned(), |rate| format!("{:.1} %", rate * 100.0)),
                format!("{:.1} ms", arm.ttft_ms.p50),
                format!("{:.1} ms", arm.ttft_ms.p95),
            ]);
        }
        screen.table(&table);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(ttft_ms: u64, cached_tokens: Option<u64>) -> Sample {
        Sample {
            ttft: Duration::from_millis(ttft_ms),
            prompt_tokens: 100,
            cached_tokens,
            content: String::new(),
        }
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let samples: Vec<Sample> = (1..=20).map(|ms| sample(ms, Some(0))).collect();
        assert_eq!(
            Arm::of(true, &samples).ttft_ms,
            Percentiles {
                p50: 10.0,
                p95: 19.0
            }
        );
        assert_eq!(
            Arm::of(true, &samples[..1]).ttft_ms,
            Percentiles { p50: 1.0, p95: 1.0 }
        );
    }

    #[test]
    fn an_engine_that_does_not_report_cached_tokens_has_no_hit_rate() {
        let arm = Arm::of(true, &[sample(1, Some(50)), sample(1, None)]);
        assert_eq!((arm.cached_tokens, arm.hit_rate), (None, None));
    }

    #[test]
    fn the_table_puts_the_arms_below_each_other() {
        let arms = vec![
            Arm::of(true, &[sample(12, Some(80))]),
            Arm::of(false, &[sample(31, Some(40))]),
        ];
        let report = Report {
            route: "chat".into(),
            model: "m".into(),
            sessions: 1,
            turns: 1,
            arms,
        };
        let out =
            crate::render::testing::capture(Format::Human, |screen| report.show(screen).unwrap());
        insta::assert_snapshot!(out, @r"
        AFFINITY  REQUESTS  PROMPT TOKENS  CACHED  HIT RATE  TTFT P50  TTFT P95
        on        1         100            80      80.0 %    12.0 ms   12.0 ms
        off       1         100            40      40.0 %    31.0 ms   31.0 ms
        ");
    }
}
