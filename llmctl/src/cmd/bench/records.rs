//! Requests as a bodylog listener recorded them: when, of which session, how long, and with which
//! body where it was stored.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use bodylog_exporter::aggregate::{BadLine, Reset};
use bodylog_exporter::tail::{Budget, Hour, Place, Sink, Tail, Where};
use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::stream::Api;
use super::text::words;
use crate::cmd::since::{Since, wall_ms};
use crate::exit::Failure;

/// Longest record, bytes: two bodies at their largest, every character escaped.
const RECORD_BYTES_MAX: usize = 128 * 1024 * 1024;

/// The most records that are sent.
const RECORDS_MAX: usize = 1_000_000;

/// The most bytes of stored bodies in memory; requests after them get made-up texts.
const BODIES_BYTES_MAX: usize = 1 << 30;

/// One recorded request.
#[derive(Debug, PartialEq)]
pub(super) struct Recorded {
    /// From the first one's arrival.
    pub(super) at: Duration,
    arrived_ms: i64,
    pub(super) session: String,
    pub(super) path: String,
    pub(super) api: Api,
    pub(super) body: Body,
}

/// What is sent.
#[derive(Debug, PartialEq)]
pub(super) enum Body {
    /// As it was stored.
    Stored(Value),
    /// About as long.
    Lengths { prompt: usize, output: usize },
}

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Records {
    pub(super) requests: Vec<Recorded>,
    /// Records of paths or answers that cannot be sent again.
    pub(super) left_out: u64,
}

/// Which records.
#[derive(Debug)]
pub(super) struct Wanted<'a> {
    pub(super) since: Option<Since>,
    pub(super) until: Option<Since>,
    pub(super) route: Option<&'a str>,
}

/// The members of a record that matter here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Line<'a> {
    ts_unix_ms: Option<i64>,
    method: Option<String>,
    uri: Option<String>,
    route: Option<String>,
    session_id: Option<String>,
    request_id: Option<String>,
    req_body_truncated: Option<bool>,
    req_body_b64: Option<bool>,
    usage: Option<Usage>,
    #[serde(borrow)]
    req_body: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Usage {
    prompt: Option<f64>,
    completion: Option<f64>,
}

/// Reads the records of `root`, in the order of their arrival.
///
/// # Errors
/// When the directory or a file in it cannot be read, or nothing matches.
pub(super) fn read(root: &Path, wanted: &Wanted<'_>) -> Result<Records, Failure> {
    let unreadable = |error: &io::Error| Failure::file("read the records in", root, error);
    std::fs::read_dir(root).map_err(|error| unreadable(&error))?;
    let now = wall_ms();
    let log = Where {
        root: root.to_owned(),
        line_bytes_max: RECORD_BYTES_MAX,
    };
    let since_ms = wanted.since.map(|since| since.unix_ms(now));
    // A record lies in the hour of its end, or a later one.
    let mut tail = match since_ms {
        Some(since_ms) => Tail::from_hour(log, Hour::at(since_ms)),
        None => Tail::from_start(log),
    };
    let mut reader = Reader {
        since_ms,
        until_ms: wanted.until.map(|until| until.unix_ms(now)),
        route: wanted.route,
        bytes: 0,
        records: Records::default(),
        failure: None,
    };
    loop {
        let mut budget = Budget::new(Instant::now(), Duration::from_secs(1), u64::MAX);
        let pass = tail
            .pass(&mut budget, &mut reader)
            .map_err(|error| unreadable(&error))?;
        if pass.is_caught_up || pass.errors > 0 || reader.records.requests.len() >= RECORDS_MAX {
            break;
        }
    }
    if let Some(failure) = reader.failure {
        return Err(Failure::Wrong(failure));
    }
    let mut records = reader.records;
    records.requests.sort_by_key(|request| request.arrived_ms);
    let Some(first) = records.requests.first().map(|request| request.arrived_ms) else {
        return Err(Failure::Wrong(format!(
            "no record in {} matches: {} were of other paths",
            root.display(),
            records.left_out
        )));
    };
    for request in &mut records.requests {
        request.at = Duration::from_millis(request.arrived_ms.saturating_sub(first).unsigned_abs());
    }
    Ok(records)
}

struct Reader<'a> {
    since_ms: Option<i64>,
    until_ms: Option<i64>,
    route: Option<&'a str>,
    bytes: usize,
    records: Records,
    failure: Option<String>,
}

impl Reader<'_> {
    /// Takes one record. Returns false when the line is none.
    fn take(&mut self, line: &[u8]) -> bool {
        let Ok(line) = serde_json::from_slice::<Line<'_>>(line) else {
            return false;
        };
        let Some(arrived_ms) = line.ts_unix_ms else {
            return false;
        };
        let in_time = self.since_ms.is_none_or(|since| arrived_ms >= since)
            && self.until_ms.is_none_or(|until| arrived_ms < until);
        let of_route = self
            .route
            .is_none_or(|route| line.route.as_deref() == Some(route));
        if !in_time || !of_route || self.records.requests.len() >= RECORDS_MAX {
            return true;
        }
        match self.request(&line, arrived_ms) {
            Some(request) => self.records.requests.push(request),
            None => self.records.left_out += 1,
        }
        true
    }

    fn request(&mut self, line: &Line<'_>, arrived_ms: i64) -> Option<Recorded> {
        let uri = line.uri.as_deref()?;
        let path = uri.split('?').next().unwrap_or_default();
        let api = match path.trim_end_matches('/') {
            "/v1/chat/completions" => Api::Openai,
            "/v1/messages" => Api::Anthropic,
            _ => return None,
        };
        if line.method.as_deref() != Some("POST") {
            return None;
        }
        let body = match self.stored(line, api) {
            Some(body) => Body::Stored(body),
            None => {
                let usage = line.usage.as_ref()?;
                Body::Lengths {
                    prompt: usage.prompt? as usize,
                    output: (usage.completion.unwrap_or(1.0) as usize).max(1),
                }
            }
        };
        let session = line.session_id.as_ref().or(line.request_id.as_ref());
        Some(Recorded {
            at: Duration::ZERO,
            arrived_ms,
            session: session.cloned().unwrap_or_default(),
            path: path.to_owned(),
            api,
            body,
        })
    }

    fn stored(&mut self, line: &Line<'_>, api: Api) -> Option<Value> {
        if line.req_body_truncated == Some(true) || line.req_body_b64 == Some(true) {
            return None;
        }
        let text: String = serde_json::from_str(line.req_body?.get()).ok()?;
        if self.bytes + text.len() > BODIES_BYTES_MAX {
            return None;
        }
        let mut body: Value = serde_json::from_str(&text).ok()?;
        body.as_object()?.get("messages")?;
        self.bytes += text.len();
        // Every answer is measured as a stream.
        body["stream"] = json!(true);
        if api == Api::Openai {
            body["stream_options"] = json!({"include_usage": true});
        }
        Some(body)
    }
}

impl Sink for Reader<'_> {
    fn line(&mut self, _: Place, line: &[u8]) {
        self.take(line);
    }

    fn last_line(&mut self, line: &[u8]) -> bool {
        self.take(line)
    }

    fn bad(&mut self, _: Place, _: BadLine) {
        self.records.left_out += 1;
    }

    fn reset(&mut self, _: Hour, _: Reset) {}

    fn failed(&mut self, hour: Hour, error: &io::Error) {
        self.failure = Some(format!("cannot read the records of {hour}: {error}"));
    }

    fn recovered(&mut self, _: Hour) {}
}

impl Recorded {
    /// The body to send. Made-up texts of one session begin alike, as far as the shorter one goes.
    pub(super) fn body(&self, model: Option<&str>) -> Value {
        let mut body = match &self.body {
            Body::Stored(body) => body.clone(),
            Body::Lengths { prompt, output } => {
                let mut body = json!({
                    "messages": [{"role": "user", "content": made_up(&self.session, *prompt)}],
                    "max_tokens": output,
                    "stream": true,
                });
                if self.api == Api::Openai {
                    body["stream_options"] = json!({"include_usage": true});
                }
                body
            }
        };
        if let Some(model) = model {
            body["model"] = json!(model);
        }
        body
    }
}

fn made_up(session: &str, tokens: usize) -> String {
    let digest = Sha256::digest(session.as_bytes());
    let mut seed = [0; 8];
    seed.copy_from_slice(&digest[..8]);
    words(
        tokens.max(1),
        &mut SmallRng::seed_from_u64(u64::from_le_bytes(seed)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDS: [&str; 5] = [
        r#"{"v":2,"ts_unix_ms":1767348002000,"method":"POST","uri":"/v1/chat/completions","route":"chat","session_id":"s","usage":{"prompt":50,"completion":7}}"#,
        r#"{"v":2,"ts_unix_ms":1767348000000,"method":"POST","uri":"/v1/chat/completions?x=1","route":"chat","session_id":"s","req_body":"{\"messages\":[],\"model\":\"old\",\"stream\":false}"}"#,
        r#"{"v":2,"ts_unix_ms":1767348001000,"method":"POST","uri":"/v1/embeddings","route":"chat"}"#,
        r#"{"v":2,"ts_unix_ms":1767348003000,"method":"POST","uri":"/v1/messages","route":"code","session_id":"t","req_body":"{\"mess","req_body_truncated":true,"usage":{"prompt":9}}"#,
        "no record",
    ];

    fn directory() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let day = directory.path().join("2026-01-02");
        std::fs::create_dir(&day).unwrap();
        std::fs::write(day.join("10.jsonl"), RECORDS.join("\n") + "\n").unwrap();
        directory
    }

    fn all() -> Wanted<'static> {
        Wanted {
            since: None,
            until: None,
            route: None,
        }
    }

    #[test]
    fn requests_come_in_the_order_of_their_arrival_with_bodies_or_lengths() {
        let records = read(directory().path(), &all()).unwrap();
        let seen: Vec<_> = records
            .requests
            .iter()
            .map(|r| (r.at.as_secs(), r.path.as_str(), r.api))
            .collect();
        assert_eq!(
            seen,
            [
                (0, "/v1/chat/completions", Api::Openai),
                (2, "/v1/chat/completions", Api::Openai),
                (3, "/v1/messages", Api::Anthropic),
            ]
        );
        let stored = records.requests[0].body(None);
        assert_eq!(
            (&stored["model"], &stored["stream"]),
            (&json!("old"), &json!(true))
        );
        let made = records.requests[1].body(Some("new"));
        assert_eq!(
            (&made["model"], &made["max_tokens"]),
            (&json!("new"), &json!(7))
        );
        assert_eq!(
            made["messages"][0]["content"]
                .as_str()
                .unwrap()
                .split_whitespace()
                .count(),
            50
        );
        assert_eq!(records.requests[2].body(None)["max_tokens"], json!(1));
        assert!(records.left_out >= 1);
    }

    #[test]
    fn filters_apply_to_the_arrival_and_the_route() {
        let wanted = Wanted {
            since: Some("2026-01-02T10:00:02Z".parse().unwrap()),
            until: Some("2026-01-02T10:00:03Z".parse().unwrap()),
            route: Some("chat"),
        };
        assert_eq!(read(directory().path(), &wanted).unwrap().requests.len(), 1);
        let none = Wanted {
            route: Some("other"),
            ..all()
        };
        let error = read(directory().path(), &none).unwrap_err().to_string();
        assert!(error.contains("no record in"), "{error}");
    }

    #[test]
    fn a_longer_prompt_of_a_session_begins_with_its_shorter_one() {
        assert!(made_up("s", 90).starts_with(&made_up("s", 40)));
        assert_ne!(made_up("s", 40), made_up("t", 40));
    }
}
