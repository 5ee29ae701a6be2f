//! Lists slim rows by the end time of their exchange, page by page, ordered by (end, request id).

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::io;
use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use chrono::{DateTime, FixedOffset, NaiveDateTime, SecondsFormat, TimeDelta, Utc};
use proto::row::DetailRow;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, Value, to_value};

use crate::ledger::dir_of;
use crate::lines::{self, Continue};
use crate::stream::Output;

/// Most rows of a page, and the default.
const LIMIT: usize = 5000;
/// Longest delay between the end of an exchange and the writing of its row, unless the row waited
/// in a spool.
const LATE: TimeDelta = TimeDelta::hours(24);

/// The query.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Asked {
    start: Option<String>,
    end: Option<String>,
    model: Option<String>,
    peer: Option<String>,
    status: Option<String>,
    min_frt: Option<String>,
    stream: Option<String>,
    limit: Option<String>,
    cursor: Option<String>,
}

/// The parsed query.
#[derive(Debug)]
pub(super) struct Wanted {
    /// Only rows after this position: an end time, and with a cursor also a request id.
    from: Place,
    /// Only rows before this end time.
    to_ms: i64,
    model: Option<String>,
    peer: Option<String>,
    status: Option<u16>,
    min_frt: f64,
    stream: Option<Option<bool>>,
    limit: usize,
}

#[derive(Debug)]
enum Place {
    /// The position of the first row with this end time, milliseconds since the Unix epoch.
    At(i64),
    /// The position directly after this row.
    After(i64, String),
}

impl Asked {
    /// Parses the parameters.
    ///
    /// # Errors
    /// Names the invalid parameter and the expected form.
    pub(super) fn read(self) -> Result<Wanted, String> {
        const TIME: &str = "must be a time, as 2026-01-02T03:04:05Z or Unix seconds";
        let moment = |name: &str, text: Option<&str>| {
            let ms = text.and_then(time).map(|time| time.timestamp_millis());
            ms.ok_or_else(|| format!("'{name}' {TIME}"))
        };
        let from = match &self.cursor {
            Some(cursor) => {
                let (end, id) = read_cursor(cursor).ok_or("'cursor' is none that was given out")?;
                Place::After(end, id)
            }
            None => Place::At(moment("start", self.start.as_deref())?),
        };
        let status = self.status.map(|text| text.parse()).transpose();
        let min_frt = self.min_frt.map_or(Ok(0.0), |text| text.parse::<f64>());
        let stream = match self.stream.as_deref() {
            None => None,
            Some("true" | "1") => Some(Some(true)),
            Some("false" | "0") => Some(Some(false)),
            Some("null" | "unknown") => Some(None),
            Some(_) => return Err("'stream' must be true, false or unknown".to_owned()),
        };
        let limit = match self.limit.map(|text| text.parse::<usize>()) {
            None => LIMIT,
            Some(Ok(limit)) if limit > 0 => limit.min(LIMIT),
            Some(_) => return Err(format!("'limit' must be a number from 1 to {LIMIT}")),
        };
        Ok(Wanted {
            from,
            to_ms: moment("end", self.end.as_deref())?,
            model: self.model,
            peer: self.peer,
            status: status.map_err(|_| "'status' must be a status code")?,
            min_frt: min_frt
                .ok()
                .filter(|frt| frt.is_finite())
                .ok_or("'min_frt' must be seconds")?,
            stream,
            limit,
        })
    }
}

/// Parses RFC 3339, RFC 3339 without an offset (read as UTC), or Unix seconds.
fn time(text: &str) -> Option<DateTime<FixedOffset>> {
    let text = text.trim();
    if let Ok(time) = DateTime::parse_from_rfc3339(text) {
        return Some(time);
    }
    for form in ["%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S"] {
        if let Ok(time) = NaiveDateTime::parse_from_str(text, form) {
            return Some(time.and_utc().fixed_offset());
        }
    }
    let seconds = text.parse().ok()?;
    DateTime::from_timestamp(seconds, 0).map(|time| time.fixed_offset())
}

/// A matching row. Ordered by end, then by request id.
#[derive(Debug)]
struct Found {
    end_ms: i64,
    /// The end time as it is written in the row.
    end: String,
    request_id: String,
    line: Box<RawValue>,
}

impl Found {
    fn key(&self) -> (i64, &str) {
        (self.end_ms, &self.request_id)
    }
}

impl Ord for Found {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Found {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Found {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Found {}

impl Wanted {
    fn takes(&self, row: &DetailRow<'_>, end_ms: i64) -> bool {
        let is_behind = match &self.from {
            Place::At(from) => end_ms >= *from,
            Place::After(end, id) => (end_ms, &*row.request_id) > (*end, id),
        };
        let is_peer = |peer: &str| row.backend == peer || row.peer == peer;
        is_behind
            && end_ms < self.to_ms
            && self.model.as_deref().is_none_or(|model| row.model == model)
            && self.peer.as_deref().is_none_or(is_peer)
            && self.status.is_none_or(|status| row.status == status)
            && row.frt >= self.min_frt
            && self.stream.is_none_or(|stream| row.stream == stream)
    }

    /// A matching row and its line.
    fn found(&self, row: DetailRow<'_>, line: &[u8]) -> Option<Found> {
        let end = end_of(&row)?;
        let end_ms = end.timestamp_millis();
        if !self.takes(&row, end_ms) {
            return None;
        }
        let text = match &*row.ts_end {
            "" => end.to_rfc3339_opts(SecondsFormat::Millis, true),
            text => text.to_owned(),
        };
        Some(Found {
            end_ms,
            end: text,
            request_id: row.request_id.into_owned(),
            line: serde_json::from_slice(line).ok()?,
        })
    }

    fn begins_ms(&self) -> i64 {
        match self.from {
            Place::At(ms) | Place::After(ms, _) => ms,
        }
    }
}

#[derive(Serialize)]
struct Page {
    count: usize,
    truncated: bool,
    rows: Vec<Box<RawValue>>,
    /// Lines that are not rows, including torn lines.
    bad_lines: u64,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    more: Option<More>,
}

/// The cursor for the next page, sent with every page but the last.
#[derive(Serialize)]
struct More {
    returned_from: String,
    returned_to: String,
    next_cursor: String,
    hint: &'static str,
}

/// One page of rows. The limit bounds the memory, regardless of how much is stored.
pub(super) fn page(root: &Path, wanted: &Wanted) -> io::Result<Value> {
    let moment = |ms| DateTime::<Utc>::from_timestamp_millis(ms).unwrap_or_default();
    let (from, to) = (moment(wanted.begins_ms()), moment(wanted.to_ms));
    let until = to.checked_add_signed(LATE).unwrap_or(to);
    let mut found: BinaryHeap<Found> = BinaryHeap::new();
    let mut bad_lines = 0;
    for file in lines::one_per_hour(lines::hour_files(&dir_of(root, Output::Details))?) {
        if file.hour.next().start() <= from || file.hour.start() > until {
            continue;
        }
        let mut reader = match lines::open(&file.path) {
            Ok(reader) => reader,
            // The file was packed or deleted after it was listed. If packed, the next request finds
            // it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        lines::each_line(&mut *reader, 0, |line| {
            let row = super::row(line, &mut bad_lines);
            if let Some(row) = row.and_then(|row| wanted.found(row, line)) {
                found.push(row);
                // One row beyond the page shows that there is a next page.
                if found.len() > wanted.limit + 1 {
                    found.pop();
                }
            }
            Continue::Yes
        })?;
    }
    let mut rows = found.into_sorted_vec();
    let truncated = rows.len() > wanted.limit;
    rows.truncate(wanted.limit);
    let more = match (rows.first(), rows.last()) {
        (Some(first), Some(last)) if truncated => Some(More {
            returned_from: first.end.clone(),
            returned_to: last.end.clone(),
            next_cursor: cursor(&last.end, &last.request_id),
            hint: "ask again with cursor=<next_cursor>, and without start, for what follows",
        }),
        _ => None,
    };
    let page = Page {
        count: rows.len(),
        truncated,
        rows: rows.into_iter().map(|row| row.line).collect(),
        bad_lines,
        more,
    };
    Ok(to_value(page)?)
}

/// `ts_end`, otherwise `ts` plus the duration.
fn end_of(row: &DetailRow<'_>) -> Option<DateTime<FixedOffset>> {
    if !row.ts_end.is_empty() {
        return DateTime::parse_from_rfc3339(&row.ts_end).ok();
    }
    let start = DateTime::parse_from_rfc3339(&row.ts).ok()?;
    let took = if (0.0..1e9).contains(&row.rt) {
        row.rt
    } else {
        0.0
    };
    start.checked_add_signed(TimeDelta::milliseconds((took * 1000.0).round() as i64))
}

fn cursor(end: &str, request_id: &str) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(format!("{end}|{request_id}"))
}

fn read_cursor(cursor: &str) -> Option<(i64, String)> {
    let text = String::from_utf8(BASE64_URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()?;
    let (end, id) = text.split_once('|')?;
    let end = DateTime::parse_from_rfc3339(end).ok()?;
    Some((end.timestamp_millis(), id.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(end: &str, id: &str) -> Value {
        json!({"ts": "2026-01-02T03:00:00.000Z", "ts_end": end, "request_id": id, "status": 200, "backend": "b:1",
            "peer": "b:1", "model": "m", "stream": true, "frt": 0.5, "lct": 1.0, "rt": 1.0, "chunk_count": 1,
            "req_bytes": 1, "resp_bytes": 1, "prompt_tokens": 1, "completion_tokens": 1, "cached_tokens": 0,
            "total_tokens": 2, "reasoning_tokens": 0})
    }

    fn write(root: &Path, name: &str, rows: &[Value]) {
        let path = root.join("details").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let text: String = rows.iter().map(|row| format!("{row}\n")).collect();
        std::fs::write(path, text).unwrap();
    }

    fn asked(query: &[(&str, &str)]) -> Asked {
        let query: serde_json::Map<_, _> = query
            .iter()
            .map(|(name, value)| ((*name).to_owned(), json!(value)))
            .collect();
        serde_json::from_value(Value::Object(query)).unwrap()
    }

    fn ids(page: &Value) -> Vec<&str> {
        let rows = page["rows"].as_array().unwrap();
        rows.iter()
            .map(|row| row["request_id"].as_str().unwrap())
            .collect()
    }

    #[test]
    fn pages_come_in_the_order_of_end_and_id_and_the_cursor_goes_on() {
        let root = tempfile::tempdir().unwrap();
        write(
            root.path(),
            "2026-01-02/03.jsonl",
            &[
                row("2026-01-02T03:10:00.000Z", "b"),
                row("2026-01-02T03:10:00.000Z", "a"),
                row("2026-01-02T03:05:00.000Z", "z"),
                json!({"no": "row"}),
                json!("text"),
                json!({"v": 3, "ts_end": "2026-01-02T03:05:00.000Z"}),
            ],
        );
        // A row that was written late and has a different offset.
        write(
            root.path(),
            "2026-01-02/05.jsonl",
            &[row("2026-01-02T11:20:00.000+08:00", "late")],
        );
        let window = [
            ("start", "2026-01-02T03:00:00Z"),
            ("end", "2026-01-02 04:00:00"),
        ];
        let page_of = |more: &[(&str, &str)]| {
            let wanted = asked(&[&window[..], more].concat()).read().unwrap();
            page(root.path(), &wanted).unwrap()
        };
        let all = page_of(&[]);
        assert_eq!(ids(&all), ["z", "a", "b", "late"]);
        assert_eq!(
            (&all["count"], &all["truncated"], &all["bad_lines"]),
            (&json!(4), &json!(false), &json!(2))
        );
        assert!(all.get("next_cursor").is_none());
        let first = page_of(&[("limit", "2")]);
        assert_eq!(ids(&first), ["z", "a"]);
        assert_eq!(first["returned_to"], "2026-01-02T03:10:00.000Z");
        let next = first["next_cursor"].as_str().unwrap();
        let rest = page_of(&[("limit", "2"), ("cursor", next)]);
        assert_eq!(ids(&rest), ["b", "late"]);
        assert_eq!(rest["truncated"], false);
    }

    #[test]
    fn filters_leave_out_what_does_not_match() {
        let root = tempfile::tempdir().unwrap();
        let mut other = row("2026-01-02T03:06:00.000Z", "other");
        other["status"] = json!(429);
        other["model"] = json!("n");
        other["backend"] = json!("(none)");
        other["peer"] = json!("");
        other["frt"] = json!(0.0);
        other.as_object_mut().unwrap().remove("stream");
        write(
            root.path(),
            "2026-01-02/03.jsonl",
            &[row("2026-01-02T03:05:00.000Z", "one"), other],
        );
        let found = |name: &str, value: &str| {
            let window = [("start", "1767322800"), ("end", "1767326400")];
            let wanted = asked(&[&window[..], &[(name, value)]].concat())
                .read()
                .unwrap();
            ids(&page(root.path(), &wanted).unwrap()).join(",")
        };
        for (name, value, ids) in [
            ("status", "429", "other"),
            ("model", "m", "one"),
            ("peer", "b:1", "one"),
            ("peer", "(none)", "other"),
            ("min_frt", "0.4", "one"),
            ("stream", "true", "one"),
            ("stream", "unknown", "other"),
            ("stream", "0", ""),
        ] {
            assert_eq!(found(name, value), ids, "{name}={value}");
        }
    }

    #[test]
    fn a_wrong_parameter_is_named() {
        for (query, name) in [
            (&[("end", "1")][..], "start"),
            (&[("start", "yesterday"), ("end", "1")], "start"),
            (&[("start", "1")], "end"),
            (&[("end", "1"), ("cursor", "!")], "cursor"),
            (&[("start", "1"), ("end", "2"), ("limit", "0")], "limit"),
            (&[("start", "1"), ("end", "2"), ("status", "ok")], "status"),
            (
                &[("start", "1"), ("end", "2"), ("min_frt", "nan")],
                "min_frt",
            ),
            (&[("start", "1"), ("end", "2"), ("stream", "no")], "stream"),
        ] {
            let refused = asked(query).read().unwrap_err();
            assert!(
                refused.contains(&format!("'{name}'")),
                "{query:?}: {refused}"
            );
        }
    }

    #[test]
    fn the_cursor_of_a_row() {
        let text = cursor("2026-01-03T00:00:00.100+08:00", "r1");
        assert_eq!(text, "MjAyNi0wMS0wM1QwMDowMDowMC4xMDArMDg6MDB8cjE");
        assert_eq!(
            read_cursor(&text),
            Some((1_767_369_600_100, "r1".to_owned()))
        );
    }
}
