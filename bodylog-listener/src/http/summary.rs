//! Counts the exchanges of the last minutes per backend from the slim rows on disk, so that a
//! restart does not change the numbers.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use proto::row::DetailRow;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ledger::dir_of;
use crate::lines::{self, Continue};
use crate::stream::Output;

/// Default number of minutes.
const MINUTES: i64 = 5;
/// Most minutes: a week.
const MINUTES_MAX: i64 = 10_080;

/// The query.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Asked {
    minutes: Option<String>,
    breakdown: Option<String>,
    stream: Option<String>,
}

/// The parsed query.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    minutes: Option<i64>,
    breakdown: bool,
    stream: Option<String>,
}

impl Asked {
    /// Parses the parameters.
    ///
    /// # Errors
    /// Names the invalid parameter and the expected form.
    pub(super) fn read(self) -> Result<Wanted, String> {
        let minutes = self.minutes.map(|text| text.parse()).transpose();
        let breakdown = match self.breakdown.as_deref() {
            None | Some("" | "false" | "0") => false,
            Some("true" | "1") => true,
            Some(_) => return Err("'breakdown' must be true or false".to_owned()),
        };
        Ok(Wanted {
            minutes: minutes.map_err(|_| "'minutes' must be a number of minutes")?,
            breakdown,
            stream: self.stream,
        })
    }
}

/// The counts of a backend, in total or for one minute.
#[derive(Clone, Debug, Default, Serialize)]
struct Counts {
    peer: String,
    requests: u64,
    status_2xx: u64,
    status_4xx: u64,
    status_5xx: u64,
    prompt_tokens: u64,
    cached_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
    req_body_bytes: u64,
    resp_body_bytes: u64,
    rt_avg_ms: f64,
    rt_max_ms: f64,
    frt_avg_ms: f64,
    frt_max_ms: f64,
    frt_n: u64,
    #[serde(skip)]
    rt_sum: f64,
    #[serde(skip)]
    frt_sum: f64,
}

impl Counts {
    fn add(&mut self, row: &DetailRow<'_>) {
        self.requests += 1;
        match row.status {
            200..300 => self.status_2xx += 1,
            400..500 => self.status_4xx += 1,
            500..600 => self.status_5xx += 1,
            _ => {}
        }
        self.prompt_tokens += row.prompt_tokens;
        self.cached_tokens += row.cached_tokens;
        self.completion_tokens += row.completion_tokens;
        self.total_tokens += row.total_tokens;
        self.req_body_bytes += row.req_bytes;
        self.resp_body_bytes += row.resp_bytes;
        self.rt_sum += row.rt * 1000.0;
        self.rt_max_ms = self.rt_max_ms.max(row.rt * 1000.0);
        self.rt_avg_ms = self.rt_sum / self.requests as f64;
        if row.frt > 0.0 {
            self.frt_n += 1;
            self.frt_sum += row.frt * 1000.0;
            self.frt_max_ms = self.frt_max_ms.max(row.frt * 1000.0);
            self.frt_avg_ms = self.frt_sum / self.frt_n as f64;
        }
    }
}

/// One backend in one minute: the fields of version 1's aggregates.
#[derive(Serialize)]
struct Bucket {
    /// Unix seconds.
    minute: i64,
    peer: String,
    /// Absent if streamed and other exchanges are counted together.
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<&'static str>,
    requests: u64,
    status_2xx: u64,
    status_4xx: u64,
    status_5xx: u64,
    prompt_tok: u64,
    cached_tok: u64,
    compl_tok: u64,
    total_tok: u64,
    req_bytes: u64,
    /// Same as `resp_wire_bytes`: rows do not contain the length of the text in a response.
    resp_bytes: u64,
    resp_wire_bytes: u64,
    rt_sum_ms: f64,
    rt_max_ms: f64,
    frt_sum_ms: f64,
    frt_max_ms: f64,
    frt_n: u64,
}

impl Bucket {
    fn of(minute: i64, counts: Counts, stream: Option<bool>) -> Self {
        Self {
            minute,
            peer: counts.peer,
            stream: stream.map(|stream| if stream { "true" } else { "false" }),
            requests: counts.requests,
            status_2xx: counts.status_2xx,
            status_4xx: counts.status_4xx,
            status_5xx: counts.status_5xx,
            prompt_tok: counts.prompt_tokens,
            cached_tok: counts.cached_tokens,
            compl_tok: counts.completion_tokens,
            total_tok: counts.total_tokens,
            req_bytes: counts.req_body_bytes,
            resp_bytes: counts.resp_body_bytes,
            resp_wire_bytes: counts.resp_body_bytes,
            rt_sum_ms: counts.rt_sum,
            rt_max_ms: counts.rt_max_ms,
            frt_sum_ms: counts.frt_sum,
            frt_max_ms: counts.frt_max_ms,
            frt_n: counts.frt_n,
        }
    }
}

#[derive(Serialize)]
struct Summary {
    from: String,
    to: String,
    minutes: i64,
    peers: Vec<Counts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    buckets: Option<Vec<Bucket>>,
    /// Lines that are not rows, including torn lines.
    bad_lines: u64,
}

/// Reads the rows of the exchanges that ended in the last minutes.
pub(super) fn of(root: &Path, asked: &Wanted, now: DateTime<Utc>) -> io::Result<Value> {
    let minutes = match asked.minutes {
        Some(minutes) if minutes > 0 => minutes.min(MINUTES_MAX),
        _ => MINUTES,
    };
    let from = now - TimeDelta::minutes(minutes);
    let from = from - TimeDelta::milliseconds(from.timestamp_millis().rem_euclid(60_000));
    let wanted_stream = match asked.stream.as_deref() {
        None | Some("") => None,
        Some(text) => Some(matches!(text, "true" | "1")),
    };
    let mut bad_lines = 0;
    let mut counts: BTreeMap<(i64, String), Counts> = BTreeMap::new();
    let mut peers: BTreeMap<String, Counts> = BTreeMap::new();
    for file in lines::one_per_hour(lines::hour_files(&dir_of(root, Output::Details))?) {
        // A row is written after its exchange ended, so earlier hours hold no row from after
        // `from`.
        if file.hour.next().start() <= from {
            continue;
        }
        let mut reader = match lines::open(&file.path) {
            Ok(reader) => reader,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        lines::each_line(&mut *reader, 0, |line| {
            let Some(row) = super::row(line, &mut bad_lines) else {
                return Continue::Yes;
            };
            let end = if row.ts_end.is_empty() {
                &row.ts
            } else {
                &row.ts_end
            };
            let is_wanted = wanted_stream.is_none_or(|wanted| row.stream == Some(wanted));
            if let Ok(end) = DateTime::parse_from_rfc3339(end)
                && end >= from
                && is_wanted
            {
                let minute = end.timestamp().div_euclid(60) * 60;
                let of_peer = |counts: &mut Counts| {
                    counts.peer.clone_from(&row.backend.clone().into_owned());
                    counts.add(&row);
                };
                of_peer(peers.entry(row.backend.to_string()).or_default());
                if asked.breakdown {
                    of_peer(counts.entry((minute, row.backend.to_string())).or_default());
                }
            }
            Continue::Yes
        })?;
    }
    let text = |time: DateTime<Utc>| time.to_rfc3339_opts(SecondsFormat::Secs, true);
    let buckets = counts
        .into_iter()
        .map(|((minute, _), counts)| Bucket::of(minute, counts, wanted_stream))
        .collect();
    Ok(serde_json::to_value(Summary {
        from: text(from),
        to: text(now),
        minutes,
        peers: peers.into_values().collect(),
        buckets: asked.breakdown.then_some(buckets),
        bad_lines,
    })?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(end: &str, backend: &str, status: u16, rt: f64, stream: Option<bool>) -> String {
        let row = DetailRow {
            ts_end: end.into(),
            backend: backend.into(),
            status,
            rt,
            frt: rt / 2.0,
            prompt_tokens: 3,
            stream,
            ..DetailRow::default()
        };
        serde_json::to_string(&row).unwrap() + "\n"
    }

    #[test]
    fn rows_of_the_last_minutes_are_counted_per_backend() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: String| {
            let path = root.path().join("details").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(
            "2026-01-02/09.jsonl",
            [
                row("2026-01-02T09:56:59.999Z", "a:1", 200, 1.0, None),
                row("2026-01-02T17:58:00.000+08:00", "a:1", 200, 1.0, Some(true)),
                "torn\n".into(),
            ]
            .concat(),
        );
        write(
            "2026-01-02/10.jsonl",
            [
                row("2026-01-02T10:01:00Z", "a:1", 503, 3.0, Some(false)),
                row("2026-01-02T10:01:30Z", "(none)", 429, 0.0, Some(true)),
            ]
            .concat(),
        );
        let now = "2026-01-02T10:02:30Z".parse().unwrap();
        let of = |asked: Wanted| of(root.path(), &asked, now).unwrap();

        let all = of(Wanted {
            breakdown: true,
            ..Wanted::default()
        });
        assert_eq!(
            (&all["from"], &all["to"]),
            (
                &json!("2026-01-02T09:57:00Z"),
                &json!("2026-01-02T10:02:30Z")
            )
        );
        let peers = all["peers"].as_array().unwrap();
        assert_eq!(peers.len(), 2);
        assert_eq!(
            (
                &peers[0]["peer"],
                &peers[0]["status_4xx"],
                &peers[0]["frt_n"]
            ),
            (&json!("(none)"), &json!(1), &json!(0))
        );
        assert_eq!(
            (
                &peers[1]["requests"],
                &peers[1]["status_5xx"],
                &peers[1]["prompt_tokens"]
            ),
            (&json!(2), &json!(1), &json!(6))
        );
        assert_eq!(
            (
                &peers[1]["rt_avg_ms"],
                &peers[1]["rt_max_ms"],
                &peers[1]["frt_avg_ms"]
            ),
            (&json!(2000.0), &json!(3000.0), &json!(1000.0))
        );
        let minutes: Vec<i64> = all["buckets"]
            .as_array()
            .unwrap()
            .iter()
            .map(|bucket| bucket["minute"].as_i64().unwrap())
            .collect();
        assert_eq!(minutes, [1_767_347_880, 1_767_348_060, 1_767_348_060]);
        assert_eq!(all["bad_lines"], 1);

        let streams = of(Wanted {
            stream: Some("true".into()),
            ..Wanted::default()
        });
        assert_eq!(streams["peers"].as_array().unwrap().len(), 2);
        assert!(streams.get("buckets").is_none());
        assert_eq!(
            of(Wanted {
                breakdown: true,
                stream: Some("0".into()),
                ..Wanted::default()
            })["buckets"],
            json!([{"minute": 1_767_348_060, "peer": "a:1", "stream": "false", "requests": 1, "status_2xx": 0,
                "status_4xx": 0, "status_5xx": 1, "prompt_tok": 3, "cached_tok": 0, "compl_tok": 0, "total_tok": 0,
                "req_bytes": 0, "resp_bytes": 0, "resp_wire_bytes": 0, "rt_sum_ms": 3000.0, "rt_max_ms": 3000.0,
                "frt_sum_ms": 1500.0, "frt_max_ms": 1500.0, "frt_n": 1}])
        );
        let week = of(Wanted {
            minutes: Some(1_000_000),
            ..Wanted::default()
        });
        assert_eq!(week["minutes"], 10_080);
        assert_eq!(week["peers"][1]["requests"], 3);
    }

    #[test]
    fn a_wrong_parameter_is_named() {
        let read = |name: &str, text: &str| {
            let asked: Asked = serde_json::from_value(json!({ name: text })).unwrap();
            asked.read()
        };
        for text in ["true", "1"] {
            assert!(read("breakdown", text).unwrap().breakdown, "{text}");
        }
        for text in ["false", "0", ""] {
            assert!(!read("breakdown", text).unwrap().breakdown, "{text}");
        }
        assert_eq!(read("minutes", "-3").unwrap().minutes, Some(-3));
        for (name, text) in [("minutes", "few"), ("breakdown", "yes")] {
            let refused = read(name, text).unwrap_err();
            assert!(refused.contains(&format!("'{name}'")), "{refused}");
        }
    }

    #[test]
    fn a_row_counts_in_the_minute_it_ended_in() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("details/2026-01-02/16.jsonl");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let row = row("2026-01-03T00:00:00.100+08:00", "a:1", 200, 0.2, Some(true));
        std::fs::write(path, row).unwrap();
        let asked = Wanted {
            breakdown: true,
            ..Wanted::default()
        };
        let now = "2026-01-02T16:01:00Z".parse().unwrap();
        let summary = of(root.path(), &asked, now).unwrap();
        assert_eq!(summary["buckets"][0]["minute"], 1_767_369_600);
    }
}
