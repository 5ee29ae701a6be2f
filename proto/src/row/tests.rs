//! The cells of the table in docs/bodylog.md: old and new reader against old and new writer.

use serde_json::{Value, json};

use super::*;

/// A row of a version 1 writer.
const OLD: &str = r#"{"ts":"2026-01-02T23:59:59.900+08:00","ts_end":"2026-01-03T00:00:00.100+08:00","request_id":"r1","stream":true,"status":200,"backend":"10.0.0.1:8000","backend_gpu":"H20","frt":0.1,"lct":0.2,"rt":0.2,"chunk_count":2,"req_bytes":27,"resp_bytes":196,"prompt_tokens":7,"completion_tokens":2,"cached_tokens":0,"total_tokens":9,"reasoning_tokens":0,"model":"m","finish_reason":"stop"}"#;

/// Every field that is always present in a version 1 row, and its type.
const OLD_ALWAYS: [&str; 13] = [
    "ts",
    "status",
    "backend",
    "frt",
    "lct",
    "rt",
    "chunk_count",
    "req_bytes",
    "resp_bytes",
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "total_tokens",
];

fn new() -> DetailRow<'static> {
    DetailRow {
        ts: "2026-01-02T15:59:59.900Z".into(),
        request_id: "r1".into(),
        pid: "p".into(),
        epoch: 3,
        seq: 9,
        route: "chat".into(),
        tenant: "te\"am".into(),
        status: 200,
        stream: Some(false),
        complete: Some(true),
        queue_t: Some(0.001),
        ..DetailRow::default()
    }
}

#[test]
fn new_reader_old_writer() {
    let row: DetailRow<'_> = serde_json::from_str(OLD).unwrap();
    assert!(row.is_readable());
    assert_eq!((row.v, row.seq, row.complete), (1, 0, None));
    assert_eq!(
        (&*row.backend, row.status, row.prompt_tokens),
        ("10.0.0.1:8000", 200, 7)
    );
    assert_eq!((&*row.route, row.stream), ("", Some(true)));
}

#[test]
fn new_reader_new_writer() {
    let line = serde_json::to_string(&new()).unwrap();
    assert_eq!(serde_json::from_str::<DetailRow<'_>>(&line).unwrap(), new());
    assert!(line.starts_with(r#"{"v":2,"ts":"#), "{line}");
}

#[test]
fn old_reader_new_writer() {
    let old: Value = serde_json::from_str(OLD).unwrap();
    let new = serde_json::to_value(new()).unwrap();
    for name in OLD_ALWAYS {
        assert_eq!(
            std::mem::discriminant(&new[name]),
            std::mem::discriminant(&old[name]),
            "{name}"
        );
    }
    assert_eq!(new["backend"], NO_BACKEND);
}

#[test]
fn this_reader_later_minor_writer_skips_what_it_does_not_know() {
    let row: DetailRow<'_> = serde_json::from_str(r#"{"v":2,"status":200,"later":[1]}"#).unwrap();
    assert_eq!((row.is_readable(), row.status), (true, 200));
}

#[test]
fn this_reader_later_major_writer_refuses() {
    let row: DetailRow<'_> = serde_json::from_str(r#"{"v":3}"#).unwrap();
    assert!(!row.is_readable());
}

#[test]
fn text_without_escapes_is_borrowed_from_its_line() {
    let row: DetailRow<'_> = serde_json::from_str(OLD).unwrap();
    assert!(matches!(row.backend, Cow::Borrowed(_)));
    let line = json!({"tenant": "a\"b"}).to_string();
    let row: DetailRow<'_> = serde_json::from_str(&line).unwrap();
    assert!(matches!(row.tenant, Cow::Owned(_)));
}

#[test]
fn written_quickly_is_written_the_same() {
    let full = r#"{"v":2,"ts":"t","ts_end":"e","request_id":"r\"1","pid":"p","epoch":1,"seq":2,"source_addr":"::1","method":"POST",
        "uri":"/é\n","route":"r","tenant":"t","model_req":"q","model":"m","stream":false,"status":200,"peer":"a:1","peer_name":"a",
        "forwarded_to":"b","backend":"b:2","attempts":3,"mode":"hash","session_src":"s","reject_reason":"x","finish_reason":"stop",
        "complete":true,"client_gone":true,"resp_body_truncated":true,"frt":0.1,"first_token_t":0.2,"lct":1.0,"rt":1e-7,"upstream_connect_t":0.0,
        "queue_t":2.5,"chunk_count":1,"req_bytes":2,"resp_bytes":3,"prompt_tokens":4,"completion_tokens":5,"cached_tokens":6,
        "total_tokens":7,"reasoning_tokens":8,"sampled_by":"all","shed":"disk"}"#;
    let rows = [
        DetailRow::default(),
        new(),
        serde_json::from_str(full).unwrap(),
    ];
    for row in rows {
        let mut line = Vec::new();
        row.write_json(&mut line).unwrap();
        let line = String::from_utf8(line).unwrap();
        assert_eq!(line, serde_json::to_string(&row).unwrap());
        if row.epoch == 1 {
            let names = serde_json::from_str::<Value>(&line).unwrap();
            let all = serde_json::from_str::<Value>(full).unwrap();
            assert_eq!(
                names.as_object().unwrap().len(),
                all.as_object().unwrap().len()
            );
        }
    }
}

#[test]
fn a_count_that_cannot_be_one_is_absent_and_the_row_stays() {
    for (found, expected) in [("-1", 0), ("12.0", 12), ("-0.5", 0), ("null", 0), ("7", 7)] {
        let line = format!(r#"{{"status":200,"completion_tokens":{found}}}"#);
        let row: DetailRow<'_> = serde_json::from_str(&line).unwrap();
        assert_eq!(row.completion_tokens, expected, "{found}");
    }
    serde_json::from_str::<DetailRow<'_>>(r#"{"completion_tokens":"7"}"#).unwrap_err();
}
