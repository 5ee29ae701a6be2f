use bytes::Bytes;
use proptest::prelude::*;
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
    let run = (protocol == Protocol::V2).then(|| ("p".into(), 3));
    Sender::new("127.0.0.1".parse().unwrap(), run)
}

fn stored_as(protocol: Protocol, meta: &[u8], req: &[u8], resp: &[u8]) -> (Value, Value) {
    let data = frame(protocol, meta, req, resp);
    let sender = sender(protocol);
    let lines = lines(&data, &sender, false).unwrap();
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
fn an_answer_from_a_version_1_sender_is_read_as_the_router_reads_it() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/answers/corpus");
    let expected = std::fs::read(format!("{corpus}/expected.json")).unwrap();
    let expected: Value = serde_json::from_slice(&expected).unwrap();
    for (name, conclusion) in expected.as_object().unwrap() {
        let body = std::fs::read(format!("{corpus}/{name}")).unwrap();
        let (record, row) = v1(br#"{"status":200}"#, b"{}", &body);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        assert_eq!(
            text(&row["finish_reason"]),
            text(&conclusion["finish_reason"]),
            "{name}"
        );
        assert_eq!(text(&row["model"]), text(&conclusion["model"]), "{name}");
        let counts = ["prompt", "completion", "cached", "reasoning", "total"]
            .map(|kind| row[format!("{kind}_tokens")].as_u64().unwrap_or(0));
        let told = conclusion["usage"].as_array();
        let told = told.map_or([0; 5].into(), |told| {
            told.iter().filter_map(Value::as_u64).collect::<Vec<_>>()
        });
        assert_eq!(counts[..], told, "{name}");
        assert_eq!(
            record["resp_meta"]["id"].as_str(),
            conclusion["id"].as_str(),
            "{name}"
        );
    }
}

#[test]
fn the_smallest_useful_frame() {
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
fn a_complete_stream() {
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
fn an_anthropic_stop_is_a_stop_in_the_row() {
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
fn embeddings_have_model_and_tokens_and_keep_their_body() {
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
fn errors_and_binary() {
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
    let lines = lines(&data, &sender, true).unwrap();
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
        "finish_reason":"stop","stop_reason_raw":"end_turn","complete":true,"attempts":2,"client_gone":true,"upstream_connect_t":0.25,"first_token_t":0.125,
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
        ("first_token_t", json!(0.125)),
        ("client_gone", json!(true)),
        ("v", json!(2)),
    ] {
        assert_eq!(row[name], value, "{name}");
    }
}

#[test]
fn a_packed_response_is_unpacked() {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    Write::write_all(&mut gzip, br#"{"choices":[{"text":"Hi"}]}"#).unwrap();
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
    let (record, row) = parsed(&lines(&data, &sender, true).unwrap());
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
        let error = lines(&frame(Protocol::V2, meta, b"", b""), &sender, false).unwrap_err();
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
            json!("2026-05-04T10:30:57.999Z"),
            json!(2.0),
            json!("2026-05-04T10:30:59.999Z"),
        ),
        (
            json!("2026-05-04T10:30:57.999Z"),
            json!(2.001),
            json!("2026-05-04T10:31:00.000Z"),
        ),
        (
            json!("2026-12-31T23:59:59.999Z"),
            json!(0.001),
            json!("2027-01-01T00:00:00.000Z"),
        ),
        (json!("2026-02-30T10:30:00.000Z"), json!(1), Value::Null),
        (json!("2026-13-01T10:30:00.000Z"), json!(1), Value::Null),
        (json!("2026-01-01T24:30:00.000Z"), json!(1), Value::Null),
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

/// The lines of a frame, with its meta object serialised again.
fn taken(data: &Data, sender: &Sender) -> Result<(Value, Value), Unstorable> {
    let meta = meta_of(data, sender)?;
    let (mut record, mut row) = (Vec::new(), Vec::new());
    write_taken(meta, data, sender, false, [&mut record, &mut row]);
    let shape = Shape::None;
    Ok(parsed(&Lines { record, row, shape }))
}

/// A meta object with every member, as the router writes it.
fn full_meta() -> Value {
    let json = r#"{"v":2,"ts":"2026-01-02T23:59:59.900Z","ts_unix_ms":1767398399900,"request_id":"r1","client_ip":"203.0.113.9",
        "method":"POST","uri":"/v1/chat?a=\"b\"","req_headers":{"accept":["*/*","x"],"n":null},"meta_trimmed":true,
        "req_body_truncated":false,"resp_body_truncated":true,"req_bytes":100,"resp_bytes":0,"chunk_count":3,"route":"chat",
        "tenant":"te\\am","model_req":"m-é","model":"m","stream":true,"peer":"10.0.0.1:8000","peer_clean":"10.0.0.1:8000",
        "peer_name":"gpu","forwarded_to":"http://10.0.0.9:30000/v1","attempts":2,"session_id":"s","session_src":"body.user",
        "mode":"hash","decision":{"load":[1,2.5,-1e-7,true,null,{"a":""}]},"reject_reason":"why","status":200,
        "usage":{"prompt":1,"completion":2,"cached":3,"reasoning":4,"total":5},"finish_reason":"end_turn",
        "stop_reason_raw":"end_turn","complete":true,"client_gone":true,"first_chunk_t":0.1,"first_token_t":0.2,"last_chunk_t":1.25,"rt":1.5,
        "upstream_connect_t":0.0,"queue_t":0.001,"sampled_by":"all","shed":"bodies","lost_before":9,
        "resp_meta":{"id":"c0","model":"x","usage":{"prompt_tokens":1},"reasoning":"a \"b\"","tool_calls":[{"id":1}]}}"#;
    serde_json::from_str(json).unwrap()
}

const STREAM: &[u8] = b"data: {\"id\":\"c1\",\"model\":\"m\",\"choices\":[{\"delta\":{\"content\":\"Hi\"},\"finish_reason\":\"stop\"}]}\n\n\
    data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2,\"total_tokens\":9}}\n\n";

#[test]
fn what_a_router_writes_is_stored_as_it_is() {
    // `Value` sorts names; the router writes them in the order of `MetaOf`.
    let meta = Meta::from_json(full_meta().to_string().as_bytes()).unwrap();
    assert!(meta.extra.is_empty());
    let json = serde_json::to_string(&meta).unwrap();
    for meta in [json.clone(), json.replace(r#""request_id":"r1","#, "")] {
        let data = frame(Protocol::V2, meta.as_bytes(), b"{\"a\":1}", STREAM);
        let sender = sender(Protocol::V2);
        let told = told(&data, &sender, false).unwrap();
        assert!(matches!(told.0, Form::Verbatim(_)), "{meta}");
        let made = lines(&data, &sender, false).unwrap();
        assert_eq!(parsed(&made), taken(&data, &sender).unwrap());
        // The origin follows the request id.
        let (before, after) = meta.split_at(meta.find(r#","client_ip""#).unwrap());
        let record = String::from_utf8(made.record).unwrap();
        if before.contains("request_id") {
            let stamped = format!(r#"{before},"pid":"p","epoch":3,"seq":9{after}"#);
            let same = stamped.find(r#","resp_meta""#).unwrap();
            assert!(record.starts_with(&stamped[..same]), "{record}");
        }
        let _: Record<'_> = serde_json::from_str(&record).unwrap();
    }
}

#[test]
fn what_is_not_plain_is_written_anew() {
    let deep = format!(r#"{{"decision":{}1{}}}"#, "[".repeat(60), "]".repeat(60));
    for meta in [
        r#"{ "v":2}"#,
        "{\"v\":2,\n\"status\":200}",
        "{}",
        r#"{"peer":null}"#,
        r#"{"status":"200"}"#,
        r#"{"status":200,"status":201}"#,
        r#"{"decision":1,"decision":2}"#,
        r#"{"client_gone":false}"#,
        r#"{"usage":{"prompt":1}}"#,
        r#"{"usage":{"prompt":1,"completion":2,"cached":3,"reasoning":4,"total":5,"more":6}}"#,
        r#"{"rt":1e400}"#,
        r#"{"a":"\u0041"}"#,
        r#"{"a":"\ud800"}"#,
        r#"{"a\"b":1}"#,
        r#"{"v":2,"seq":7}"#,
        r#"{"v":2,"req_body":"x"}"#,
        r#"{"v":2,"resp_encoding":"br"}"#,
        r#"{"v":2,"resp_meta":{"id":1}}"#,
        r#"{"resp_meta":{"id":"c"},"v":2}"#,
        &deep,
        r#"{"v":3}"#,
        r#"{"v":2}x"#,
        r#"{"v":2,}"#,
        r#"{"v":02}"#,
        r#"{"v":2"#,
        "[]",
    ] {
        let data = frame(Protocol::V2, meta.as_bytes(), b"", b"");
        let sender = sender(Protocol::V2);
        if let Ok(told) = told(&data, &sender, false) {
            assert!(matches!(told.0, Form::Taken(_)), "{meta}");
        } else {
            assert!(meta_of(&data, &sender).is_err(), "{meta}");
        }
    }
}

#[test]
fn what_is_changed_in_a_body_is_said_in_the_meta_object() {
    let gzip = b"\x1f\x8bx";
    for (resp, without_bodies) in [(&gzip[..], false), (b"", true)] {
        let data = frame(Protocol::V2, br#"{"v":2}"#, b"", resp);
        let told = told(&data, &sender(Protocol::V2), without_bodies).unwrap();
        assert!(matches!(told.0, Form::Taken(_)));
    }
}

/// A meta object with members in any order, known or unknown, valid or not.
fn any_meta() -> impl Strategy<Value = String> {
    let odd = prop::sample::select(vec![
        r#""more":{"a":[{},[],"x\n",1.50,-0,true,null]}"#,
        r#""more":12345678901234567890123"#,
        r#""more":-1.5E+07"#,
        r#""more":1e"#,
        r#""more":01"#,
        r#""more":[1,]"#,
        r#""more":{"a"}"#,
        r#""more":"\x""#,
        r#""more":tru"#,
        r#""more" :1"#,
        r#""status":1.0"#,
        r#""status":70000"#,
        r#""rt":-0"#,
        r#""rt":123456789012.345"#,
        r#""rt":0.1234567890123456789"#,
        r#""tenant":"""#,
        r#""tenant":null"#,
        r#""model":"a\\\"\/b""#,
        r#""uri":"\u00e9""#,
        r#""stream":"yes""#,
        r#""pid":"other""#,
        r#""usage":{"total":1,"prompt":2,"cached":3,"completion":4,"reasoning":5}"#,
        r#""usage":{"total":1}"#,
        r#""usage":{}"#,
        r#""resp_meta":{"usage":null,"tool_calls":[1],"later":1}"#,
        r#""resp_meta":{"id":"a","id":"b"}"#,
        r#""resp_meta":[]"#,
    ]);
    let full = full_meta();
    let sound: Vec<String> = full
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, value)| format!("\"{name}\":{value}"))
        .collect();
    let member = prop_oneof![
        4 => prop::sample::select(sound),
        1 => odd.prop_map(str::to_owned),
    ];
    prop::collection::vec(member, 0..12).prop_map(|members| format!("{{{}}}", members.join(",")))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn what_is_stored_as_it_is_says_what_it_would_if_it_were_written_anew(
        meta in any_meta(), cut in prop::option::weighted(0.05, any::<prop::sample::Index>()),
        protocol in prop::sample::select(vec![Protocol::V1, Protocol::V2]),
    ) {
        let meta = cut.map_or(&meta[..], |cut| &meta[..meta.floor_char_boundary(cut.index(meta.len()))]);
        let data = frame(protocol, meta.as_bytes(), br#"{"model":"q","stream":true}"#, STREAM);
        let sender = sender(protocol);
        match (lines(&data, &sender, false), taken(&data, &sender)) {
            (Ok(made), Ok(expected)) => {
                if let Form::Verbatim(_) = told(&data, &sender, false).unwrap().0 {
                    let _: Record<'_> = serde_json::from_slice(&made.record).unwrap();
                }
                prop_assert_eq!(parsed(&made), expected);
            }
            (made, expected) => prop_assert_eq!(made.is_err(), expected.is_err()),
        }
    }
}
