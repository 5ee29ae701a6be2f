//! Sums over rows. Does no I/O.

use std::collections::BTreeMap;

use bodylog_exporter::aggregate::dedupe::{Dedupe, RowKey};
use bodylog_exporter::aggregate::refusal_reason;
use chrono::DateTime;
use proto::row::DetailRow;
use serde::Serialize;

use super::By;

/// Maximum number of separate groups: clients choose model names, so their number is unlimited.
const GROUPS_MAX: usize = 100_000;

/// The group for all rows after [`GROUPS_MAX`] groups.
const OTHERS: &str = "(others)";

/// Placeholder for a value that a row does not have.
const NOTHING: &str = "-";

/// The usage of one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Sums {
    pub(super) requests: u64,
    /// Includes the cached ones.
    pub(super) prompt_tokens: u64,
    pub(super) cached_tokens: u64,
    pub(super) generated_tokens: u64,
    pub(super) busy_s: f64,
    pub(super) refused: u64,
}

impl Sums {
    fn add(&mut self, row: &DetailRow<'_>) {
        self.requests += 1;
        self.prompt_tokens = self.prompt_tokens.saturating_add(row.prompt_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(row.cached_tokens);
        self.generated_tokens = self.generated_tokens.saturating_add(row.completion_tokens);
        if refusal_reason(row).is_some() {
            self.refused += 1;
        } else {
            self.busy_s += (row.rt - row.queue_t.unwrap_or(0.0)).max(0.0);
        }
    }
}

/// The sums of the rows so far.
pub(super) struct Tally {
    pub(super) by: Vec<By>,
    since_ms: Option<i64>,
    until_ms: Option<i64>,
    now_ms: i64,
    seen: Dedupe,
    pub(super) groups: BTreeMap<Vec<String>, Sums>,
    pub(super) total: Sums,
    skipped: u64,
}

impl Tally {
    pub(super) fn new(
        by: &[By],
        since_ms: Option<i64>,
        until_ms: Option<i64>,
        now_ms: i64,
    ) -> Self {
        let mut unique: Vec<By> = Vec::new();
        for one in by {
            if !unique.contains(one) {
                unique.push(*one);
            }
        }
        Self {
            by: unique,
            since_ms,
            until_ms,
            now_ms,
            seen: Dedupe::default(),
            groups: BTreeMap::new(),
            total: Sums::default(),
            skipped: 0,
        }
    }

    /// Number of lines that are no rows.
    pub(super) fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Counts an unreadable line.
    pub(super) fn bad(&mut self) {
        self.skipped += 1;
    }

    /// Counts a line. Returns false when it is no row.
    pub(super) fn line(&mut self, line: &[u8]) -> bool {
        let is_object = line.trim_ascii_start().starts_with(b"{");
        let row = serde_json::from_slice::<DetailRow<'_>>(line).ok();
        let Some(row) = row.filter(|row| is_object && row.is_readable()) else {
            self.bad();
            return false;
        };
        let is_new = RowKey::of(&row).is_none_or(|key| self.seen.is_new(key, self.now_ms));
        if is_new && self.is_in_time(&row) {
            self.add(&row);
        }
        true
    }

    /// A row without an end time is outside every time span.
    fn is_in_time(&self, row: &DetailRow<'_>) -> bool {
        if self.since_ms.is_none() && self.until_ms.is_none() {
            return true;
        }
        end_ms(row).is_some_and(|end| {
            self.since_ms.is_none_or(|since| end >= since)
                && self.until_ms.is_none_or(|until| end < until)
        })
    }

    fn add(&mut self, row: &DetailRow<'_>) {
        self.total.add(row);
        let mut key: Vec<String> = self.by.iter().map(|by| value(*by, row)).collect();
        if self.groups.len() >= GROUPS_MAX && !self.groups.contains_key(&key) {
            key.fill(OTHERS.to_owned());
        }
        self.groups.entry(key).or_default().add(row);
    }
}

fn value(by: By, row: &DetailRow<'_>) -> String {
    let text: &str = match by {
        By::Owner => &row.tenant,
        By::Model if row.model.is_empty() => &row.model_req,
        By::Model => &row.model,
        By::Route => &row.route,
        By::Day => return day(row).unwrap_or_else(|| NOTHING.to_owned()),
    };
    if text.is_empty() { NOTHING } else { text }.to_owned()
}

fn day(row: &DetailRow<'_>) -> Option<String> {
    let end = DateTime::from_timestamp_millis(end_ms(row)?)?;
    Some(end.format("%Y-%m-%d").to_string())
}

/// When the exchange ended, milliseconds since the Unix epoch.
fn end_ms(row: &DetailRow<'_>) -> Option<i64> {
    let ms = |text: &str| Some(DateTime::parse_from_rfc3339(text).ok()?.timestamp_millis());
    ms(&row.ts_end).or_else(|| {
        let took_ms = row.rt.max(0.0) * 1000.0;
        Some(ms(&row.ts)?.saturating_add(took_ms as i64))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: [&str; 5] = [
        r#"{"v":2,"pid":"p","epoch":1,"seq":1,"ts":"2026-01-01T23:59:58Z","ts_end":"2026-01-02T00:00:01Z","route":"chat","tenant":"alice","model":"m","status":200,"backend":"a:1","frt":0.1,"lct":3,"rt":3,"queue_t":1,"prompt_tokens":100,"cached_tokens":64,"completion_tokens":10}"#,
        r#"{"v":2,"pid":"p","epoch":1,"seq":2,"ts":"2026-01-02T10:00:00Z","ts_end":"2026-01-02T10:00:02Z","route":"chat","tenant":"bob","model_req":"m","status":200,"backend":"a:1","frt":0.1,"lct":2,"rt":2,"prompt_tokens":7,"completion_tokens":5}"#,
        r#"{"v":2,"pid":"p","epoch":1,"seq":3,"ts":"2026-01-02T10:00:03Z","ts_end":"2026-01-02T10:00:04Z","route":"chat","tenant":"alice","model_req":"m","status":429,"reject_reason":"ttft","frt":0,"lct":0,"rt":1}"#,
        // The same exchange again.
        r#"{"v":2,"pid":"p","epoch":1,"seq":2,"ts":"2026-01-02T10:00:00Z","ts_end":"2026-01-02T10:00:02Z","route":"chat","tenant":"bob","model_req":"m","status":200,"backend":"a:1","frt":0.1,"lct":2,"rt":2,"prompt_tokens":7,"completion_tokens":5}"#,
        "[]",
    ];

    fn tally(by: &[By], since_ms: Option<i64>, until_ms: Option<i64>) -> Tally {
        let mut tally = Tally::new(by, since_ms, until_ms, 1_767_400_000_000);
        for row in ROWS {
            tally.line(row.as_bytes());
        }
        tally
    }

    #[test]
    fn an_exchange_counts_once_and_a_refusal_is_not_busy() {
        let tally = tally(&[By::Owner], None, None);
        assert_eq!(tally.skipped(), 1);
        let alice = Sums {
            requests: 2,
            prompt_tokens: 100,
            cached_tokens: 64,
            generated_tokens: 10,
            busy_s: 2.0,
            refused: 1,
        };
        assert_eq!(tally.groups[&vec!["alice".to_owned()]], alice);
        assert_eq!(tally.groups[&vec!["bob".to_owned()]].busy_s, 2.0);
        assert_eq!((tally.total.requests, tally.total.prompt_tokens), (3, 107));
    }

    #[test]
    fn the_day_is_that_of_the_end() {
        let tally = tally(&[By::Day, By::Model, By::Day], None, None);
        let keys: Vec<_> = tally.groups.keys().cloned().collect();
        assert_eq!(keys, [["2026-01-02".to_owned(), "m".to_owned()]]);
    }

    #[test]
    fn a_span_of_time_holds_what_ended_in_it() {
        // 2026-01-02T10:00:00Z and 10:00:04Z.
        let tally = tally(
            &[By::Route],
            Some(1_767_348_000_000),
            Some(1_767_348_004_000),
        );
        assert_eq!(tally.total.requests, 1);
    }
}
