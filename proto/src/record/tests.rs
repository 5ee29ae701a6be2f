//! The cells of the table in docs/bodylog.md: old and new reader against old and new writer.

use serde_json::json;

use super::*;

/// A record of a version 1 writer.
const OLD: &str = r#"{"chunk_count":2,"client_ip":"203.0.113.9","first_chunk_t":0.1,"method":"POST","mode":"hash","peer":"10.0.0.1:8000 (retry#1)","req_body":"{\"stream\":true}","req_headers":{"a":["1","2"]},"request_id":"r1","resp_body":"Hi","resp_bytes":196,"resp_meta":{"finish_reason":"stop","id":"c1","model":"m","usage":{"prompt_tokens":7}},"rt":0.2,"source_addr":"10.0.0.7","status":200,"ts":"2026-01-02T23:59:59.900+08:00","ts_end":"2026-01-03T00:00:00.100+08:00","uri":"/v1/chat/completions"}"#;

fn new() -> Record<'static> {
    let meta = json!({
        "v": 2, "ts": "2026-01-02T15:59:59.900Z", "ts_unix_ms": 1_767_369_599_900_i64,
        "request_id": "r1", "pid": "p", "epoch": 3, "seq": 9, "route": "chat", "tenant": "team",
        "status": 200, "rt": 0.2, "usage": {"prompt": 7, "completion": 2, "total": 9},
        "resp_meta": {"id": "c1", "usage": {"prompt_tokens": 7}},
    });
    Record {
        meta: Meta::from_json(meta.to_string().as_bytes()).unwrap(),
        source_addr: Some("10.0.0.7".into()),
        ts_end: Some("2026-01-02T16:00:00.100Z".into()),
        req_body: "/w==".into(),
        req_body_b64: true,
        resp_body: "a \"quoted\" word".into(),
        ..Record::default()
    }
}

#[test]
fn new_reader_old_writer() {
    let record: Record<'_> = serde_json::from_str(OLD).unwrap();
    assert!(record.is_readable());
    assert_eq!(record.meta.v, None);
    assert_eq!(record.meta.peer.as_deref(), Some("10.0.0.1:8000 (retry#1)"));
    assert_eq!(
        (&*record.req_body, &*record.resp_body),
        (r#"{"stream":true}"#, "Hi")
    );
    assert!(!record.req_body_b64);
    assert_eq!(
        record
            .meta
            .resp_meta
            .as_ref()
            .unwrap()
            .finish_reason
            .as_deref(),
        Some("stop")
    );
    let (back, old): (Value, Value) = (
        serde_json::to_value(&record).unwrap(),
        serde_json::from_str(OLD).unwrap(),
    );
    assert_eq!(back, old);
}

#[test]
fn new_reader_new_writer() {
    let line = serde_json::to_string(&new()).unwrap();
    assert!(!line.contains('\n'));
    assert_eq!(serde_json::from_str::<Record<'_>>(&line).unwrap(), new());
}

#[test]
fn old_reader_new_writer() {
    // A version 1 reader checks the name and type of each of its fields and skips the rest.
    let new = serde_json::to_value(new()).unwrap();
    let old: Value = serde_json::from_str(OLD).unwrap();
    for name in [
        "ts",
        "ts_end",
        "request_id",
        "source_addr",
        "status",
        "rt",
        "req_body",
        "resp_body",
    ] {
        assert_eq!(
            std::mem::discriminant(&new[name]),
            std::mem::discriminant(&old[name]),
            "{name}"
        );
    }
    assert_eq!(new["req_body_b64"], true);
    assert!(new.get("resp_body_b64").is_none());
    assert_eq!(new["resp_meta"]["usage"], json!({"prompt_tokens": 7}));
}

#[test]
fn this_reader_later_minor_writer_keeps_what_it_does_not_know() {
    let mut line = serde_json::to_value(new()).unwrap();
    line["invented_later"] = json!({"a": 1});
    let text = line.to_string();
    let record: Record<'_> = serde_json::from_str(&text).unwrap();
    assert!(record.is_readable());
    assert_eq!(serde_json::to_value(&record).unwrap(), line);
}

#[test]
fn this_reader_later_major_writer_refuses() {
    let record: Record<'_> = serde_json::from_str(r#"{"v":3}"#).unwrap();
    assert!(!record.is_readable());
}

#[test]
fn a_body_without_escapes_is_borrowed_from_its_line() {
    let record: Record<'_> = serde_json::from_str(OLD).unwrap();
    assert!(matches!(record.resp_body, Cow::Borrowed("Hi")));
}

#[test]
fn no_body_is_shown() {
    assert!(!format!("{:?}", new()).contains("quoted"));
}

proptest::proptest! {
    #[test]
    fn written_quickly_is_written_the_same(
        req in ".{0,80}", resp in "[\\PC\\n\\r\\t\"\\\\\u{0}-\u{1f}\u{7f}\u{2028}é]{0,200}",
        has in proptest::prelude::any::<[bool; 5]>(),
    ) {
        let mut record = if has[0] { new() } else { Record::default() };
        record.ts_end = has[1].then(|| resp.chars().take(9).collect());
        record.req_body_b64 = has[2];
        record.resp_body_b64 = has[3];
        if has[4] {
            record.resp_choices = vec![json!({"index": 0, "text": &*resp}), json!(null)];
        }
        (record.req_body, record.resp_body) = (req.into(), resp.into());
        let mut line = Vec::new();
        record.write_json(&mut line).unwrap();
        proptest::prop_assert_eq!(String::from_utf8(line).unwrap(), serde_json::to_string(&record).unwrap());
    }
}
