//! The figures of a run: gathered while it goes, printed at its end, compared with another run.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::stream::Whole;
use crate::exit::Failure;
use crate::render::{Format, Screen, Table};

/// Longest time that a histogram holds apart from longer ones.
const TIME_MAX_US: u64 = 3_600_000_000;

/// Turns that have a row of their own.
const TURNS_SHOWN: usize = 8;

/// Times in microseconds, within 0.1 %.
#[derive(Debug)]
struct Times(Histogram<u64>);

impl Default for Times {
    fn default() -> Self {
        Self(Histogram::new_with_bounds(1, TIME_MAX_US, 3).expect("the bounds are valid"))
    }
}

impl Times {
    fn add(&mut self, time: Duration, times: u64) {
        let us = u64::try_from(time.as_micros()).unwrap_or(TIME_MAX_US);
        self.0.saturating_record_n(us.clamp(1, TIME_MAX_US), times);
    }

    fn summary(&self) -> Summary {
        let ms = |us: f64| (us / 10.0).round() / 100.0;
        let at = |quantile| ms(self.0.value_at_quantile(quantile) as f64);
        Summary {
            count: self.0.len(),
            mean: ms(self.0.mean()),
            p50: at(0.5),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            max: ms(self.0.max() as f64),
        }
    }
}

/// Milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Summary {
    pub(super) count: u64,
    pub(super) mean: f64,
    pub(super) p50: f64,
    pub(super) p90: f64,
    pub(super) p95: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
}

/// Everything measured so far.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) ok: u64,
    errors: BTreeMap<String, u64>,
    ttft: Times,
    gaps: Times,
    latency: Times,
    tokens: Tokens,
    turns: BTreeMap<usize, Turn>,
}

#[derive(Debug, Default)]
struct Turn {
    ttft: Times,
    tokens: Tokens,
}

/// Sums over answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Tokens {
    pub(super) prompt: u64,
    pub(super) cached: u64,
    pub(super) output: u64,
}

impl Tokens {
    fn add(&mut self, whole: &Whole) {
        let usage = whole.usage.unwrap_or_default();
        self.prompt += usage.prompt;
        self.cached += usage.cached;
        self.output += whole.output;
    }

    /// The cached part of the prompts.
    fn hit_rate(self) -> Option<f64> {
        (self.prompt > 0).then(|| round(self.cached as f64 / self.prompt as f64, 4))
    }
}

impl Tally {
    /// Adds an answer. `waited` is how long the request stood ready before it was sent; an open load
    /// counts it, because its clients would have waited.
    pub(super) fn answered(
        &mut self,
        turn: usize,
        whole: &Whole,
        waited: Duration,
        took: Duration,
    ) {
        self.ok += 1;
        self.ttft.add(whole.ttft + waited, 1);
        for gap in &whole.gaps {
            self.gaps.add(gap.each, gap.events);
        }
        self.latency.add(took + waited, 1);
        self.tokens.add(whole);
        let turn = self.turns.entry(turn).or_default();
        turn.ttft.add(whole.ttft + waited, 1);
        turn.tokens.add(whole);
    }

    /// Adds a failure by its class.
    pub(super) fn failed(&mut self, class: String) {
        *self.errors.entry(class).or_default() += 1;
    }

    pub(super) fn failures(&self) -> u64 {
        self.errors.values().sum()
    }

    /// The report of a run that lasted `seconds`.
    pub(super) fn report(&self, run: Run, seconds: f64) -> Report {
        let rate = |count: u64| {
            if seconds > 0.0 {
                round(count as f64 / seconds, 2)
            } else {
                0.0
            }
        };
        Report {
            run,
            seconds: round(seconds, 3),
            requests: Requests {
                ok: self.ok,
                failed: self.failures(),
            },
            errors: self.errors.clone(),
            tokens: self.tokens,
            hit_rate: self.tokens.hit_rate(),
            per_second: PerSecond {
                requests: rate(self.ok),
                prompt_tokens: rate(self.tokens.prompt),
                output_tokens: rate(self.tokens.output),
            },
            ttft_ms: self.ttft.summary(),
            inter_token_ms: self.gaps.summary(),
            latency_ms: self.latency.summary(),
            turns: self
                .turns
                .iter()
                .map(|(turn, seen)| TurnReport {
                    turn: turn + 1,
                    hit_rate: seen.tokens.hit_rate(),
                    ttft_ms: seen.ttft.summary(),
                })
                .collect(),
        }
    }
}

fn round(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

/// What was run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) version: String,
    /// RFC 3339.
    pub(super) started: String,
    pub(super) url: String,
    pub(super) api: String,
    pub(super) model: String,
    pub(super) load: String,
    pub(super) workload: String,
    pub(super) seed: u64,
}

/// The result of a run; its JSON form is stable, and further members may come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Report {
    pub(super) run: Run,
    /// How long requests were counted, without the warm-up.
    pub(super) seconds: f64,
    pub(super) requests: Requests,
    /// Number of failed requests by class.
    pub(super) errors: BTreeMap<String, u64>,
    pub(super) tokens: Tokens,
    /// `cached / prompt`; absent when the engine counts no prompt tokens.
    pub(super) hit_rate: Option<f64>,
    pub(super) per_second: PerSecond,
    /// To the first event with content.
    pub(super) ttft_ms: Summary,
    /// Between events with content.
    pub(super) inter_token_ms: Summary,
    /// To the end of the answer.
    pub(super) latency_ms: Summary,
    /// By turn of the conversation, from 1.
    pub(super) turns: Vec<TurnReport>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Requests {
    pub(super) ok: u64,
    pub(super) failed: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct PerSecond {
    pub(super) requests: f64,
    pub(super) prompt_tokens: f64,
    pub(super) output_tokens: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct TurnReport {
    pub(super) turn: usize,
    pub(super) hit_rate: Option<f64>,
    pub(super) ttft_ms: Summary,
}

impl Report {
    /// Reads a report that `--report` wrote.
    ///
    /// # Errors
    /// When the file cannot be read, or is no report.
    pub(super) fn read(path: &std::path::Path) -> Result<Self, Failure> {
        let text =
            std::fs::read(path).map_err(|error| Failure::file("read report", path, &error))?;
        let report: Self = serde_json::from_slice(&text).map_err(|error| {
            Failure::Wrong(format!(
                "{}: not a report of llmctl bench: {error}",
                path.display()
            ))
        })?;
        if report.run.version.is_empty() {
            return Err(Failure::Wrong(format!(
                "{}: not a report of llmctl bench: `run.version` is missing",
                path.display()
            )));
        }
        Ok(report)
    }

    /// Prints the report.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub(super) fn show(&self, screen: &mut Screen) -> Result<(), Failure> {
        if screen.format() == Format::Json {
            return screen.json(self);
        }
        let run = &self.run;
        screen.heading(&format!("{} ({}, model {})", run.url, run.api, run.model));
        screen.line(&format!("load      {}", run.load));
        screen.line(&format!("workload  {}", run.workload));
        screen.line("");
        let mut table = Table::new(&[
            "milliseconds",
            "count",
            "mean",
            "p50",
            "p90",
            "p95",
            "p99",
            "max",
        ]);
        for (name, times) in [
            ("first token", self.ttft_ms),
            ("between tokens", self.inter_token_ms),
            ("whole answer", self.latency_ms),
        ] {
            table.row(row(name, times));
        }
        screen.table(&table);
        screen.line("");
        let Requests { ok, failed } = self.requests;
        screen.line(&format!(
            "requests  {ok} answered, {failed} failed, in {:.1} s",
            self.seconds
        ));
        for (class, count) in &self.errors {
            screen.line(&format!("          {count} x {class}"));
        }
        let PerSecond {
            requests,
            prompt_tokens,
            output_tokens,
        } = self.per_second;
        screen.line(&format!(
            "a second  {requests} requests, {prompt_tokens} prompt tokens, {output_tokens} generated"
        ));
        screen.line(&format!("hit rate  {}", percent(self.hit_rate)));
        if self.turns.len() > 1 {
            screen.line("");
            let mut table = Table::new(&["turn", "requests", "hit rate", "ttft p50", "ttft p95"]);
            for turn in self.turns.iter().take(TURNS_SHOWN) {
                table.row([
                    turn.turn.to_string(),
                    turn.ttft_ms.count.to_string(),
                    percent(turn.hit_rate),
                    format!("{} ms", turn.ttft_ms.p50),
                    format!("{} ms", turn.ttft_ms.p95),
                ]);
            }
            screen.table(&table);
        }
        Ok(())
    }
}

fn row(name: &str, times: Summary) -> [String; 8] {
    let Summary {
        count,
        mean,
        p50,
        p90,
        p95,
        p99,
        max,
    } = times;
    let [mean, p50, p90, p95, p99, max] = [mean, p50, p90, p95, p99, max].map(|ms| format!("{ms}"));
    [
        name.to_owned(),
        count.to_string(),
        mean,
        p50,
        p90,
        p95,
        p99,
        max,
    ]
}

fn percent(rate: Option<f64>) -> String {
    rate.map_or("not reported".to_owned(), |rate| {
        format!("{:.1} %", rate * 100.0)
    })
}

/// Two runs side by side.
#[derive(Debug, Serialize)]
pub(super) struct Comparison {
    pub(super) before: Run,
    pub(super) after: Run,
    pub(super) figures: Vec<Figure>,
}

/// One figure of two runs.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Figure {
    pub(super) name: &'static str,
    pub(super) before: f64,
    pub(super) after: f64,
    /// `after / before`; absent when `before` is 0.
    pub(super) ratio: Option<f64>,
}

/// A figure of a report.
type Pick = (&'static str, fn(&Report) -> f64);

impl Comparison {
    pub(super) fn of(before: &Report, after: &Report) -> Self {
        let share = |report: &Report| {
            let all = report.requests.ok + report.requests.failed;
            if all == 0 {
                0.0
            } else {
                round(report.requests.failed as f64 / all as f64, 4)
            }
        };
        let pick: [Pick; 11] = [
            ("ttft_ms.p50", |r| r.ttft_ms.p50),
            ("ttft_ms.p95", |r| r.ttft_ms.p95),
            ("ttft_ms.p99", |r| r.ttft_ms.p99),
            ("inter_token_ms.p50", |r| r.inter_token_ms.p50),
            ("inter_token_ms.p99", |r| r.inter_token_ms.p99),
            ("latency_ms.p50", |r| r.latency_ms.p50),
            ("latency_ms.p95", |r| r.latency_ms.p95),
            ("per_second.requests", |r| r.per_second.requests),
            ("per_second.output_tokens", |r| r.per_second.output_tokens),
            ("hit_rate", |r| r.hit_rate.unwrap_or(0.0)),
            ("requests.ok", |r| r.requests.ok as f64),
        ];
        let figure = |name, before: f64, after: f64| Figure {
            name,
            before,
            after,
            ratio: (before != 0.0).then(|| round(after / before, 3)),
        };
        let mut figures: Vec<Figure> = pick
            .into_iter()
            .map(|(name, of)| figure(name, of(before), of(after)))
            .collect();
        figures.push(figure("failed share", share(before), share(after)));
        Self {
            before: before.run.clone(),
            after: after.run.clone(),
            figures,
        }
    }

    /// Prints the comparison.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub(super) fn show(&self, screen: &mut Screen) -> Result<(), Failure> {
        if screen.format() == Format::Json {
            return screen.json(self);
        }
        for (name, run) in [("before", &self.before), ("after", &self.after)] {
            screen.line(&format!(
                "{name:<7} {}  {}  {}",
                run.started, run.url, run.model
            ));
        }
        if (&self.before.load, &self.before.workload) != (&self.after.load, &self.after.workload) {
            screen.warn("the two runs had different loads or workloads");
        }
        screen.line("");
        let mut table = Table::new(&["figure", "before", "after", "ratio"]);
        for figure in &self.figures {
            table.row([
                figure.name.to_owned(),
                figure.before.to_string(),
                figure.after.to_string(),
                figure
                    .ratio
                    .map_or("-".to_owned(), |ratio| format!("{ratio} x")),
            ]);
        }
        screen.table(&table);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use answers::Usage;

    use super::super::stream::Gap;
    use super::*;
    use crate::render::testing::capture;

    fn whole(ttft_ms: u64, cached: u64) -> Whole {
        Whole {
            ttft: Duration::from_millis(ttft_ms),
            gaps: vec![Gap {
                each: Duration::from_millis(10),
                events: 4,
            }],
            text: String::new(),
            usage: Some(Usage {
                prompt: 100,
                completion: 5,
                cached,
                ..Usage::default()
            }),
            output: 5,
        }
    }

    fn report(slower: u64) -> Report {
        let mut tally = Tally::default();
        for at in 1..=100 {
            let took = Duration::from_millis(100 + at);
            tally.answered(0, &whole(at * slower, 0), Duration::ZERO, took);
            tally.answered(1, &whole(at * slower / 2 + 1, 80), Duration::ZERO, took);
        }
        tally.failed("429 rate_limit_exceeded".to_owned());
        tally.failed("429 rate_limit_exceeded".to_owned());
        let run = Run {
            version: "0".into(),
            started: "2026-01-02T10:00:00Z".into(),
            url: "http://127.0.0.1:8080/chat".into(),
            api: "openai".into(),
            model: "m".into(),
            load: "8 at once".into(),
            workload: "2 turns".into(),
            seed: 1,
        };
        tally.report(run, 10.0)
    }

    #[test]
    fn the_page_says_what_a_client_felt_and_what_failed() {
        let page = capture(Format::Human, |screen| report(1).show(screen).unwrap());
        insta::assert_snapshot!(page);
    }

    #[test]
    fn percentiles_are_within_a_thousandth() {
        let ttft = report(1).turns[0].ttft_ms;
        for (found, true_value) in [
            (ttft.p50, 50.0),
            (ttft.p90, 90.0),
            (ttft.p99, 99.0),
            (ttft.max, 100.0),
        ] {
            assert!((found / true_value - 1.0f64).abs() <= 0.001, "{found}");
        }
    }

    #[test]
    fn time_in_the_queue_of_an_open_load_counts() {
        let mut tally = Tally::default();
        let took = Duration::from_millis(20);
        tally.answered(0, &whole(10, 0), Duration::from_millis(500), took);
        let report = tally.report(Run::default(), 1.0);
        assert!(
            (report.ttft_ms.p50 - 510.0).abs() < 1.0,
            "{}",
            report.ttft_ms.p50
        );
        assert!((report.latency_ms.p50 - 520.0).abs() < 1.0);
    }

    #[test]
    fn a_comparison_gives_each_figure_and_its_ratio() {
        let page = capture(Format::Human, |screen| {
            Comparison::of(&report(1), &report(2)).show(screen).unwrap();
        });
        insta::assert_snapshot!(page);
    }

    #[test]
    fn a_report_is_read_back_as_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("report.json");
        std::fs::write(&path, serde_json::to_string(&report(1)).unwrap()).unwrap();
        assert_eq!(Report::read(&path).unwrap(), report(1));
        std::fs::write(&path, "{}").unwrap();
        let error = Report::read(&path).unwrap_err().to_string();
        assert!(error.contains("not a report of llmctl bench"), "{error}");
    }
}
