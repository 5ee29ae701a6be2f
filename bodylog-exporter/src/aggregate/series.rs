//! The series of one combination of route, backend and model, and what a row adds to them.

mod by_bucket;

use proto::row::DetailRow;
use serde::{Deserialize, Serialize};

pub use self::by_bucket::ByBucket;
use super::labels;
use crate::histogram::{Edges, Histogram};

/// Fewest completion tokens and shortest request in seconds for the plain output rate: shorter
/// answers measure the start, not the rate.
const RATE_TOKENS_MIN: u64 = 16;
const RATE_SECONDS_MIN: f64 = 0.5;

/// The decode rate needs more than this many seconds between first and last chunk.
const DECODE_SECONDS_ABOVE: f64 = 0.3;

/// The finish reason of a 200 that ended without one: the engine died after the headers.
pub const NO_FINISH: &str = "none";

/// The labels of a set of series.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeriesLabels {
    /// The route.
    pub route: Box<str>,
    /// The service from the cluster; without one, the route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Box<str>>,
    /// The peer, `host:port`.
    pub backend: Box<str>,
    /// The model that the response named.
    pub model: Box<str>,
}

/// Kinds of tokens, in the order of [`Series::tokens`].
pub const TOKEN_KINDS: [&str; 5] = ["prompt", "completion", "cached", "reasoning", "total"];

/// Why a body is not whole, in the order of [`Series::truncated`].
pub const TRUNCATION_CAUSES: [&str; 3] = ["no_finish", "client_abort", "capture"];

/// Everything counted for one set of labels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Its labels.
    pub labels: SeriesLabels,
    /// First row, milliseconds since the Unix epoch.
    pub created_ms: i64,
    /// Last row, likewise.
    pub used_ms: i64,
    /// By status class, then by stream.
    pub requests: [[u64; 3]; 4],
    /// By [`TOKEN_KINDS`].
    pub tokens: [u64; 5],
    /// Bytes of request bodies.
    pub req_bytes: u64,
    /// Bytes of response bodies.
    pub resp_bytes: u64,
    /// By finish reason, in the order they were first seen; capped by the caller.
    pub finish: Vec<(Box<str>, u64)>,
    /// Attempts beyond the first.
    pub retries: u64,
    /// By [`TRUNCATION_CAUSES`].
    pub truncated: [u64; 3],
    /// Successful requests without token counts.
    pub usage_missing: u64,
    /// Whole requests, by stream.
    pub rt: [Option<Box<Histogram>>; 3],
    /// Time to the first token of streams, by prompt bucket.
    pub ttft: ByBucket,
    /// Output rate over the whole request, by prompt bucket.
    pub output_rate: ByBucket,
    /// Histograms without a label of their own, by [`Plain`].
    pub plain: [Option<Box<Histogram>>; Plain::ALL.len()],
}

/// Histograms that have only the base labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plain {
    /// Output rate over the whole request, successes only.
    OverallRate,
    /// Output rate between first and last chunk, successes only.
    DecodeRate,
    /// Seconds per output token after the first.
    Tpot,
    /// Prompt tokens.
    PromptTokens,
    /// Completion tokens.
    CompletionTokens,
    /// Connecting and queueing.
    Overhead,
}

impl Plain {
    /// In the order of [`Series::plain`].
    pub const ALL: [Self; 6] = [
        Self::OverallRate,
        Self::DecodeRate,
        Self::Tpot,
        Self::PromptTokens,
        Self::CompletionTokens,
        Self::Overhead,
    ];

    /// The edges of its classic buckets.
    pub fn edges(self) -> Edges {
        match self {
            Self::OverallRate | Self::DecodeRate => Edges::Rate,
            Self::Tpot => Edges::PerToken,
            Self::PromptTokens | Self::CompletionTokens => Edges::Tokens,
            Self::Overhead => Edges::Overhead,
        }
    }
}

/// The finish reason under which a row counts, before the cap: its own, or [`NO_FINISH`] for a 200
/// without an end whose client waited for it. The sender says whether the answer ended; a row of
/// version 1 lacks that, so there a missing reason decides.
pub fn finish_reason<'r>(row: &'r DetailRow<'_>) -> Option<&'r str> {
    if !row.finish_reason.is_empty() {
        return Some(&row.finish_reason);
    }
    is_cut(row).then_some(NO_FINISH)
}

fn is_cut(row: &DetailRow<'_>) -> bool {
    row.status == 200
        && row.finish_reason.is_empty()
        && row.complete != Some(true)
        && !row.client_gone
}

impl Series {
    /// Nothing counted yet.
    pub fn new(labels: SeriesLabels, now_ms: i64) -> Self {
        Self {
            labels,
            created_ms: now_ms,
            used_ms: now_ms,
            requests: [[0; 3]; 4],
            tokens: [0; 5],
            req_bytes: 0,
            resp_bytes: 0,
            finish: Vec::new(),
            retries: 0,
            truncated: [0; 3],
            usage_missing: 0,
            rt: [const { None }; 3],
            ttft: ByBucket::default(),
            output_rate: ByBucket::default(),
            plain: [const { None }; Plain::ALL.len()],
        }
    }

    /// Counts a row. `finish` is [`finish_reason`] after the cap.
    pub fn observe(&mut self, row: &DetailRow<'_>, finish: Option<&str>, now_ms: i64) {
        self.used_ms = now_ms;
        self.requests[labels::status_class(row.status)][labels::stream(row.stream)] += 1;
        let tokens = [
            row.prompt_tokens,
            row.completion_tokens,
            row.cached_tokens,
            row.reasoning_tokens,
            row.total_tokens,
        ];
        for (sum, tokens) in self.tokens.iter_mut().zip(tokens) {
            *sum = sum.saturating_add(tokens);
        }
        self.req_bytes = self.req_bytes.saturating_add(row.req_bytes);
        self.resp_bytes = self.resp_bytes.saturating_add(row.resp_bytes);
        if let Some(finish) = finish {
            self.finished(finish);
        }
        self.retries = self.retries.saturating_add(match row.attempts {
            0 => labels::retries_of(&row.peer),
            attempts => u64::from(attempts - 1),
        });
        let is_left = row.status == 499 || row.client_gone;
        let causes = [is_cut(row), is_left, row.resp_body_truncated];
        for (count, is_so) in self.truncated.iter_mut().zip(causes) {
            *count += u64::from(is_so);
        }
        // A list of models has no usage.
        let is_usage_missing = is_success(row)
            && row.method != "GET"
            && row.prompt_tokens == 0
            && row.completion_tokens == 0
            // A rerank reports nothing else.
            && row.total_tokens == 0;
        self.usage_missing += u64::from(is_usage_missing);
        self.measure(row, now_ms);
    }

    fn finished(&mut self, reason: &str) {
        match self.finish.iter_mut().find(|known| *known.0 == *reason) {
            Some(known) => known.1 += 1,
            None => self.finish.push((reason.into(), 1)),
        }
    }

    fn measure(&mut self, row: &DetailRow<'_>, now_ms: i64) {
        let tokens = row.completion_tokens as f64;
        let bucket = labels::prompt_bucket(row.prompt_tokens);
        if row.rt > 0.0 {
            let slot = &mut self.rt[labels::stream(row.stream)];
            count(slot, Edges::Seconds, row.rt, now_ms);
        }
        // A first chunk may hold no token: a role, or a comment that keeps the connection alive.
        let ttft = row.first_token_t.unwrap_or(row.frt);
        if ttft > 0.0 && row.stream == Some(true) {
            self.ttft.observe(bucket, Edges::Seconds, ttft, now_ms);
        }
        if row.completion_tokens >= RATE_TOKENS_MIN && row.rt >= RATE_SECONDS_MIN {
            let rate = tokens / row.rt;
            self.output_rate.observe(bucket, Edges::Rate, rate, now_ms);
        }
        let mut plain = |which: Plain, value: f64| {
            let slot = &mut self.plain[which as usize];
            count(slot, which.edges(), value, now_ms);
        };
        if is_success(row) && row.completion_tokens > 0 {
            let decode = row.lct - row.frt;
            if row.rt > 0.0 {
                plain(Plain::OverallRate, tokens / row.rt);
            }
            if decode > DECODE_SECONDS_ABOVE {
                plain(Plain::DecodeRate, tokens / decode);
            }
            if row.stream == Some(true)
                && row.completion_tokens > 1
                && row.frt > 0.0
                && decode > 0.0
            {
                plain(Plain::Tpot, decode / (tokens - 1.0));
            }
        }
        if row.prompt_tokens > 0 {
            plain(Plain::PromptTokens, row.prompt_tokens as f64);
        }
        if row.completion_tokens > 0 {
            plain(Plain::CompletionTokens, tokens);
        }
        if row.upstream_connect_t.is_some() || row.queue_t.is_some() {
            let overhead = row.upstream_connect_t.unwrap_or(0.0) + row.queue_t.unwrap_or(0.0);
            plain(Plain::Overhead, overhead);
        }
    }

    /// Whether every histogram is consistent.
    pub fn is_sound(&self) -> bool {
        let by_bucket =
            |histograms: &ByBucket, edges| histograms.iter().all(|(_, h)| h.is_sound(edges));
        self.rt.iter().flatten().all(|h| h.is_sound(Edges::Seconds))
            && by_bucket(&self.ttft, Edges::Seconds)
            && by_bucket(&self.output_rate, Edges::Rate)
            && Plain::ALL.iter().all(|which| {
                self.plain[*which as usize]
                    .as_ref()
                    .is_none_or(|h| h.is_sound(which.edges()))
            })
    }
}

fn is_success(row: &DetailRow<'_>) -> bool {
    (200..300).contains(&row.status)
}

fn count(slot: &mut Option<Box<Histogram>>, edges: Edges, value: f64, now_ms: i64) {
    slot.get_or_insert_with(|| Box::new(Histogram::new(now_ms)))
        .observe(edges, value);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series() -> Series {
        let labels = SeriesLabels {
            route: "chat".into(),
            service: None,
            backend: "10.0.0.1:8000".into(),
            model: "m".into(),
        };
        Series::new(labels, 0)
    }

    fn observed(rows: &[DetailRow<'_>]) -> Series {
        let mut series = series();
        for row in rows {
            series.observe(row, finish_reason(row), 0);
        }
        series
    }

    fn timed(
        status: u16,
        completion_tokens: u64,
        rt: f64,
        lct: f64,
        frt: f64,
    ) -> DetailRow<'static> {
        DetailRow {
            status,
            completion_tokens,
            rt,
            lct,
            frt,
            ..DetailRow::default()
        }
    }

    fn count_and_sum(series: &Series, which: Plain) -> (u64, f64) {
        series.plain[which as usize]
            .as_ref()
            .map_or((0, 0.0), |h| (h.count(), h.sum()))
    }

    #[test]
    fn rates_of_streams() {
        let series = observed(&[
            timed(199, 10, 1.0, 1.0, 0.0),
            timed(200, 10, 1.0, 1.0, 0.0),
            timed(299, 10, 1.0, 1.0, 0.0),
            timed(300, 10, 1.0, 1.0, 0.0),
            timed(200, 10, -1.0, 0.5, 0.5),
            timed(200, 0, 1.0, 0.5, 0.5),
            timed(200, 10, 1.0, 0.5, 0.5),
            timed(200, 10, 1.0, 0.5, 0.2),
            timed(200, 10, 1.0, 0.500_000_1, 0.2),
        ]);
        assert_eq!(count_and_sum(&series, Plain::OverallRate), (5, 50.0));
        let (count, sum) = count_and_sum(&series, Plain::DecodeRate);
        assert_eq!(count, 3);
        assert!((sum - 53.333_322).abs() < 1e-5, "{sum}");
        assert!(
            series.output_rate.iter().next().is_none(),
            "sixteen tokens are needed"
        );

        let series = observed(&[timed(200, 1, 1.0, 0.8, 0.2)]);
        assert_eq!(count_and_sum(&series, Plain::OverallRate).0, 1);
        assert_eq!(count_and_sum(&series, Plain::DecodeRate).0, 1);
        assert!(series.output_rate.iter().next().is_none());
        assert_eq!(
            count_and_sum(&series, Plain::Tpot).0,
            0,
            "one token has no next"
        );
    }

    #[test]
    fn finish_reasons_of_rows() {
        let row = |status, reason: &'static str| DetailRow {
            status,
            finish_reason: reason.into(),
            ..DetailRow::default()
        };
        let series = observed(&[row(200, "stop"), row(200, ""), row(503, ""), row(499, "")]);
        assert_eq!(series.finish, [("stop".into(), 1), ("none".into(), 1)]);
        assert_eq!(series.truncated, [1, 1, 0], "no_finish and client_abort");
    }

    #[test]
    fn a_200_seen_to_its_end_needs_no_finish_reason() {
        let embeddings = DetailRow {
            status: 200,
            complete: Some(true),
            ..DetailRow::default()
        };
        assert_eq!(finish_reason(&embeddings), None);
        let cut = DetailRow {
            complete: Some(false),
            ..embeddings
        };
        assert_eq!(finish_reason(&cut), Some("none"));
        // A stream that its client stopped tells nothing about the engine.
        let left = DetailRow {
            client_gone: true,
            ..cut
        };
        assert_eq!(finish_reason(&left), None);
        assert_eq!(observed(&[left]).truncated, [0, 1, 0]);
    }

    #[test]
    fn ttft_is_of_streams_by_prompt_length() {
        let row = |stream, prompt_tokens| DetailRow {
            frt: 0.5,
            stream,
            prompt_tokens,
            ..DetailRow::default()
        };
        let series = observed(&[
            row(Some(true), 7000),
            row(Some(true), 0),
            row(Some(false), 7000),
            row(None, 7000),
            row(Some(true), 6999),
        ]);
        let counted: Vec<_> = series
            .ttft
            .iter()
            .map(|(bucket, h)| (labels::prompt_bucket_label(bucket), h.count()))
            .collect();
        assert_eq!(counted, [("unknown".into(), 1), ("0006k_0008k".into(), 2)]);
    }

    #[test]
    fn ttft_is_the_first_token_or_else_the_first_chunk() {
        let row = |first_token_t| DetailRow {
            frt: 0.5,
            first_token_t,
            stream: Some(true),
            ..DetailRow::default()
        };
        let series = observed(&[row(Some(2.0)), row(None)]);
        let sums: Vec<_> = series.ttft.iter().map(|(_, h)| h.sum()).collect();
        assert_eq!(sums, [2.5]);
    }

    #[test]
    fn tpot_is_the_time_between_tokens_of_a_stream() {
        let stream = DetailRow {
            stream: Some(true),
            ..timed(200, 11, 1.5, 1.2, 0.2)
        };
        let series = observed(&[stream, timed(200, 11, 1.5, 1.2, 0.2)]);
        let (count, sum) = count_and_sum(&series, Plain::Tpot);
        assert_eq!(count, 1);
        assert!((sum - 0.1).abs() < 1e-12);
    }

    #[test]
    fn retries_are_the_attempts_beyond_the_first() {
        let attempts = |attempts, peer: &'static str| DetailRow {
            attempts,
            peer: peer.into(),
            ..DetailRow::default()
        };
        let series = observed(&[
            attempts(1, ""),
            attempts(3, "a:1 (retry#2)"),
            attempts(0, "a:1 (retry#1)"),
            attempts(0, "a:1"),
        ]);
        assert_eq!(series.retries, 3);
    }

    #[test]
    fn overhead_is_connecting_and_queueing_and_may_be_nothing() {
        let row = |connect, queue| DetailRow {
            upstream_connect_t: connect,
            queue_t: queue,
            ..DetailRow::default()
        };
        let series = observed(&[
            row(Some(0.0), None),
            row(Some(0.25), Some(0.5)),
            row(None, None),
        ]);
        assert_eq!(count_and_sum(&series, Plain::Overhead), (2, 0.75));
    }

    #[test]
    fn usage_is_missed_where_tokens_were_made() {
        let row = |status, method: &'static str, prompt_tokens| DetailRow {
            status,
            method: method.into(),
            prompt_tokens,
            ..DetailRow::default()
        };
        let series = observed(&[
            row(200, "POST", 0),
            row(200, "", 0),
            row(200, "POST", 5),
            row(200, "GET", 0),
            row(500, "POST", 0),
            DetailRow {
                total_tokens: 5,
                ..row(200, "POST", 0)
            },
        ]);
        assert_eq!(series.usage_missing, 2);
    }
}
