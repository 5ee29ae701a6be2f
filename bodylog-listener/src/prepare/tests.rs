use bytes::Bytes;
use proto::frame::{Flags, Protocol};
use serde_json::{Value, json};

use super::*;

fn frame(protocol: Protocol, meta: &[u8], req: &[u8], resp: &[u8]) -> Data {
    Data {
        protocol,
        seq: if protocol == Protocol::V2 { 9 } else { 0 },
        flags: Flags::default(),
        meta: Bytes::copy_from_slice(meta),
        req: Bytes::copy_from_slice(req),
        resp: Bytes::copy_from_slice(resp),
    }
}

fn sender(protocol: Protocol) -> Sender {
    Sender {
        source: "127.0.0.1".parse().unwrap(),
        run: (protocol == Protocol::V2).then(|| ("p".into(), 3)),
    }
}

fn stored_as(protocol: Protocol, meta: &[u8], req: &[u8], resp: &[u8]) -> (Value, Value) {
    let data = frame(protocol, meta, req, resp);
    let sender = sender(protocol);
    let lines = lines(meta_of(&data, &sender).unwrap(), &data, &sender, false);
    parsed(&lines)
}

fn parsed(lines: &Lines) -> (Value, Value) {
    for line in [&lines.record, &lines.row] {
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        assert_eq!(line.last(), Some(&b'\n'));
    }
    (
        serde_json::from_slice(&lines.record).unwrap(),
        serde_json::from_slice(&lines.row).unwrap(),
    )
}

fn v1(meta: &[u8], req: &[u8], resp: &[u8]) -> (Value, Value) {
    stored_as(Protocol::V1, meta, req, resp)
}

#[test]
fn v1_the_smallest_useful_frame() {
    let (record, row) = v1(b"{}", b"", b"");
    assert_eq!(
        record,
        json!({"req_body":"","resp_body":"","source_addr":"127.0.0.1"})
    );
    assert_eq!(
        (&row["backend"], &row["status"]),
        (&json!("(none)"), &json!(0))
    );
    assert!(row.get("stream").is_none() && row.get("ts_end").is_none());
}

#[test]
fn v2_a_complete_stream() {
    let (record, row) = v1(
        br#"{"ts":"2026-01-02T23:59:59.900+08:00","request_id":"r1","status":200,"rt":0.2}"#,
        br#"{"model":"m","stream":true}"#,
        b"data: {\"id\":\"c1\",\"model\":\"m\",\"choices\":[{\"delta\":{\"content\":\"Hi\"},\"finish_reason\":\"stop\"}]}\n\n\
          data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2,\"total_tokens\":9}}\n\ndata: [DONE]\n\n",
    );
    assert_eq!(
        record,
        json!({"ts":"2026-01-02T23:59:59.900+08:00","request_id":"r1","status":200,"rt":0.2,
            "source_addr":"127.0.0.1","ts_end":"2026-01-03T00:00:00.100+08:00",
            "req_body":"{\"model\":\"m\",\"stream\":true}","resp_body":"Hi",
            "resp_meta":{"finish_reason":"stop","id":"c1","model":"m",
                "usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}}})
    );
    for (name, value) in [
        ("prompt_tokens", json!(7)),
        ("completion_tokens", json!(2)),
        ("total_tokens", json!(9)),
        ("stream", json!(true)),
        ("resp_bytes", json!(2)),
        ("req_bytes", json!(27)),
        ("model", json!("m")),
        ("finish_reason", json!("stop")),
        ("ts_end", json!("2026-01-03T00:00:00.100+08:00")),
    ] {
        assert_eq!(row[name], value, "{name}");
    }
}

#[test]
fn v8_an_anthropic_stop_is_a_stop_in_the_row() {
    let (record, row) = v1(
        br#"{"status":200}"#,
        b"",
        br#"{"type":"message","content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn","usage":{"input_tokens":25,"output_tokens":7}}"#,
    );
    assert_eq!(
        (&row["finish_reason"], &row["total_tokens"]),
        (&json!("stop"), &json!(32))
    );
    assert_eq!(record["resp_meta"]["stop_reason"], "end_turn");
}

#[test]
fn v8_embeddings_have_model_and_tokens_and_keep_their_body() {
    let body =
        br#"{"object":"list","model":"e","data":[],"usage":{"prompt_tokens":8,"total_tokens":8}}"#;
    let (record, row) = v1(br#"{"status":200}"#, br#"{"model":"e-1"}"#, body);
    assert_eq!(record["resp_body"], std::str::from_utf8(body).unwrap());
    assert_eq!(
        (&row["model"], &row["model_req"], &row["prompt_tokens"]),
        (&json!("e"), &json!("e-1"), &json!(8))
    );
}

#[test]
fn v10_errors_and_binary() {
    let (record, _) = v1(br#"{"status":429}"#, b"", br#"{"error":"x"}"#);
    assert_eq!(record["resp_body"], r#"{"error":"x"}"#);
    assert!(record.get("resp_meta").is_none());
    let (record, _) = v1(br#"{"status":200}"#, b"", b"\xff\xfeA");
    assert_eq!(
        (&record["resp_body"], &record["resp_body_b64"]),
        (&json!("//5B"), &json!(true))
    );
    let (record, _) = v1(b"{\"uri\":\"/v1/\xff\"}", b"", b"");
    assert_eq!(record["uri"], "/v1/\u{fffd}");
    let (record, row) = v1(b"{}", b"\xff", b"");
    assert_eq!(
        (&record["req_body"], &record["req_body_b64"]),
        (&json!("/w=="), &json!(true))
    );
    assert!(row.get("stream").is_none());
}

#[test]
fn a_sender_cannot_pretend_to_be_another() {
    let meta = br#"{"v":2,"pid":"other","epoch":1,"seq":1,"source_addr":"10.0.0.1"}"#;
    let (record, row) = stored_as(Protocol::V2, meta, b"", b"");
    for line in [record, row] {
        assert_eq!(
            (&line["pid"], &line["epoch"], &line["seq"]),
            (&json!("p"), &json!(3), &json!(9))
        );
        assert_eq!(line["source_addr"], "127.0.0.1");
    }
    let (record, row) = v1(meta, b"", b"");
    for line in [record, row] {
        assert!(line.get("pid").is_none() && line.get("seq").is_none());
    }
}

#[test]
fn a_name_of_ours_stands_in_a_line_once() {
    let mut odd: serde_json::Map<String, Value> = OURS
        .iter()
        .map(|name| ((*name).to_owned(), json!([1])))
        .collect();
    odd.insert("v".into(), json!(2));
    let meta = Value::Object(odd).to_string();
    let data = frame(Protocol::V2, meta.as_bytes(), b"", b"\xff");
    let sender = sender(Protocol::V2);
    let lines = lines(meta_of(&data, &sender).unwrap(), &data, &sender, true);
    let text = std::str::from_utf8(&lines.record).unwrap();
    for name in OURS {
        assert!(
            text.matches(&format!("\"{name}\":")).count() <= 1,
            "{name} in {text}"
        );
    }
    assert!(text.contains("\"pid\":\"p\"") && !text.contains("[1]"));
}

#[test]
fn a_row_stays_small_whatever_a_client_sends() {
    let long = "é".repeat(50_000);
    let meta =
        json!({"uri": long, "model": long, "peer": long, "finish_reason": long, "mode": long});
    let (record, row) = v1(
        meta.to_string().as_bytes(),
        json!({"model": long}).to_string().as_bytes(),
        b"",
    );
    assert!(row.to_string().len() < 8 << 10);
    assert_eq!(record["uri"].as_str().unwrap().len(), long.len());
}

#[test]
fn what_the_router_has_read_stands() {
    let meta = json!({"v":2,"status":200,"stream":false,"model_req":"asked","model":"answered",
        "finish_reason":"stop","stop_reason_raw":"end_turn","complete":true,"attempts":2,"client_gone":true,"upstream_connect_t":0.25,
        "usage":{"prompt":1,"completion":2,"cached":3,"reasoning":4,"total":5},
        "req_bytes":100,"resp_bytes":200,"peer":"10.0.0.1:8000","peer_name":"gpu-1","queue_t":0.5,
        "resp_meta":{"usage":{"prompt_tokens":1},"actual_usage":{"prompt_tokens":9}}})
    .to_string();
    let (record, row) = stored_as(
        Protocol::V2,
        meta.as_bytes(),
        br#"{"model":"x","stream":true}"#,
        br#"{"id":"c1","model":"y","choices":[{"message":{"content":"Hi"},"finish_reason":"length"}],"usage":{"prompt_tokens":77}}"#,
    );
    assert_eq!(
        record["resp_meta"],
        json!({"id":"c1","model":"y","finish_reason":"length",
        "usage":{"prompt_tokens":1},"actual_usage":{"prompt_tokens":9}})
    );
    for (name, value) in [
        ("stream", json!(false)),
        ("model", json!("answered")),
        ("model_req", json!("asked")),
        ("finish_reason", json!("stop")),
        ("cached_tokens", json!(3)),
        ("total_tokens", json!(5)),
        ("req_bytes", json!(100)),
        ("resp_bytes", json!(200)),
        ("backend", json!("10.0.0.1:8000")),
        ("attempts", json!(2)),
        ("complete", json!(true)),
        ("queue_t", json!(0.5)),
        ("upstream_connect_t", json!(0.25)),
        ("client_gone", json!(true)),
        ("v", json!(2)),
    ] {
        assert_eq!(row[name], value, "{name}");
    }
}

#[test]
fn a_packed_response_is_unpacked() {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gzip, br#"{"choices":[{"text":"Hi"}]}"#).unwrap();
    let packed = gzip.finish().unwrap();
    let (record, _) = v1(br#"{"status":200,"resp_encoding":"gzip"}"#, b"", &packed);
    assert_eq!(record["resp_body"], "Hi");
    assert!(record.get("resp_encoding").is_none());
    let (record, _) = v1(br#"{"status":200}"#, b"", &packed[..packed.len() - 9]);
    assert_eq!(record["resp_body_truncated"], true);
}

#[test]
fn the_backend_is_whoever_answered() {
    for (meta, backend) in [
        (json!({"peer":"10.0.0.1:8000 (retry#2)"}), "10.0.0.1:8000"),
        (
            json!({"peer":"10.0.0.1:8000 (retry#2)","peer_clean":"10.0.0.1:8000"}),
            "10.0.0.1:8000",
        ),
        (
            json!({"peer":"a:1","forwarded_to":"http://10.0.0.9:30000/v1?x"}),
            "10.0.0.9:30000",
        ),
        (json!({"forwarded_to":"10.0.0.9:30000"}), "10.0.0.9:30000"),
        (json!({"peer":""}), "(none)"),
    ] {
        let (_, row) = v1(meta.to_string().as_bytes(), b"", b"");
        assert_eq!(row["backend"], backend, "{meta}");
    }
}

#[test]
fn bodies_may_be_left_out_and_the_row_still_counts() {
    let data = frame(Protocol::V2, br#"{"v":2,"status":200}"#, b"a prompt",
        br#"{"model":"m","choices":[{"message":{"content":"secret","reasoning":"secret"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3}}"#);
    let sender = sender(Protocol::V2);
    let (record, row) = parsed(&lines(
        meta_of(&data, &sender).unwrap(),
        &data,
        &sender,
        true,
    ));
    assert_eq!(
        (&record["req_body"], &record["resp_body"], &record["shed"]),
        (&json!(""), &json!(""), &json!("disk"))
    );
    assert!(!record.to_string().contains("secret"));
    assert_eq!(
        (&row["prompt_tokens"], &row["req_bytes"], &row["model"]),
        (&json!(3), &json!(8), &json!("m"))
    );
}

#[test]
fn what_cannot_be_stored_is_an_error() {
    let sender = sender(Protocol::V2);
    for (meta, expected) in [
        (&b""[..], "Meta"),
        (b"[]", "Meta"),
        (br#"{"v":3}"#, "Schema"),
    ] {
        let error = meta_of(&frame(Protocol::V2, meta, b"", b""), &sender).unwrap_err();
        assert!(format!("{error:?}").starts_with(expected), "{error:?}");
    }
}

#[test]
fn a_row_holds_nothing_private() {
    let meta = json!({"session_id":"s-secret","client_ip":"203.0.113.9","req_headers":{"x":"h-secret"},
        "decision":{"d":"d-secret"},"resp_meta":{"reasoning":"r-secret","tool_calls":[{"t":"t-secret"}]}});
    let (_, row) = v1(meta.to_string().as_bytes(), b"b-secret", b"a-secret");
    assert!(
        !row.to_string().contains("secret") && !row.to_string().contains("203.0"),
        "{row}"
    );
}

#[test]
fn the_end_is_the_start_and_the_time_it_took() {
    for (ts, rt, end) in [
        (
            json!("2026-05-04T10:30:00.123Z"),
            json!(2.2),
            json!("2026-05-04T10:30:02.323Z"),
        ),
        (
            json!("2026-05-04T10:30:00.123+08:00"),
            json!(-1),
            json!("2026-05-04T10:30:00.123+08:00"),
        ),
        (
            json!("2026-05-04T10:30:00Z"),
            Value::Null,
            json!("2026-05-04T10:30:00.000Z"),
        ),
        (json!("yesterday"), json!(1), Value::Null),
        (
            json!("2026-05-04T10:30:00Z"),
            json!(1e300),
            json!("2026-05-04T10:30:00.000Z"),
        ),
    ] {
        let (record, _) = v1(json!({"ts":ts,"rt":rt}).to_string().as_bytes(), b"", b"");
        assert_eq!(
            record.get("ts_end").cloned().unwrap_or_default(),
            end,
            "{ts}"
        );
    }
}
