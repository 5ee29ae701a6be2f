use serde_json::json;

use super::*;

fn read(json: &str) -> Meta {
    Meta::from_json(json.as_bytes()).unwrap()
}

fn written(meta: &Meta) -> Value {
    serde_json::to_value(meta).unwrap()
}

#[test]
fn what_a_reader_does_not_know_it_passes_on() {
    let meta = read(r#"{"v":2,"status":200,"colour":"red","nested":{"a":[1,2.5,null]}}"#);
    assert_eq!(meta.status, Some(200));
    assert_eq!(
        written(&meta),
        json!({"v":2,"status":200,"colour":"red","nested":{"a":[1,2.5,null]}})
    );
}

#[test]
fn a_known_field_of_another_type_is_kept_and_the_rest_is_read() {
    let meta = read(r#"{"status":"200","rt":0.25,"stream":"yes","route":"chat"}"#);
    assert_eq!((meta.status, meta.stream), (None, None));
    assert_eq!((meta.rt, meta.route.as_deref()), (Some(0.25), Some("chat")));
    assert_eq!(
        written(&meta),
        json!({"status":"200","rt":0.25,"stream":"yes","route":"chat"})
    );
}

#[test]
fn null_is_absent() {
    let meta = read(r#"{"peer":null,"usage":null}"#);
    assert_eq!(written(&meta), json!({}));
}

#[test]
fn bytes_that_are_not_utf_8_are_accepted() {
    let meta = Meta::from_json(b"{\"uri\":\"/v1/\xff\",\"status\":200}").unwrap();
    assert_eq!(meta.uri.as_deref(), Some("/v1/\u{fffd}"));
}

#[test]
fn what_is_no_object_is_refused() {
    for text in ["", "[]", "3", "null", "{", "{}x", "\"{}\""] {
        assert!(Meta::from_json(text.as_bytes()).is_err(), "{text}");
    }
}

#[test]
fn large_integers_keep_their_digits() {
    let meta = read(r#"{"big":18446744073709551615,"ts_unix_ms":1767369600100}"#);
    let line = serde_json::to_string(&meta).unwrap();
    assert!(
        line.contains("18446744073709551615") && line.contains("1767369600100"),
        "{line}"
    );
}

#[test]
fn an_object_too_large_loses_its_largest_headers_first() {
    let meta = read(&json!({
        "request_id": "r1",
        "req_headers": {"accept": "*/*", "cookie-like": "x".repeat(500), "user-agent": "u".repeat(100)},
    })
    .to_string());
    let json = meta.to_json_within(300).unwrap();
    assert!(json.len() <= 300);
    let left: Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(left["meta_trimmed"], true);
    assert_eq!(left["request_id"], "r1");
    let names: Vec<&String> = left["req_headers"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["accept", "user-agent"]);
}

#[test]
fn an_object_that_fits_is_left_alone() {
    let meta = read(r#"{"request_id":"r1"}"#);
    assert_eq!(
        &meta.to_json_within(19).unwrap()[..],
        br#"{"request_id":"r1"}"#
    );
    assert!(!meta.meta_trimmed);
}

#[test]
fn the_uri_is_cut_last_and_then_there_is_nothing_left_to_cut() {
    let meta = Meta {
        request_id: Some("r1".into()),
        uri: Some(format!("/v1/chat?q={}", "é".repeat(40_000))),
        resp_meta: Some(RespMeta {
            id: Some("c1".into()),
            ..RespMeta::default()
        }),
        ..Meta::default()
    };
    let json = meta.to_json_within(crate::frame::MAX_META_V1).unwrap();
    let left: Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(left["request_id"], "r1");
    assert!(left.get("resp_meta").is_none());
    assert!(left["uri"].as_str().unwrap().len() <= KEPT_URI);
    assert!(meta.to_json_within(1000).is_none());
}

#[test]
fn nothing_private_is_shown() {
    let meta = read(
        r#"{"session_id":"s-secret","client_ip":"203.0.113.9","req_headers":{"x":"y-secret"}}"#,
    );
    let shown = format!("{meta:?}");
    assert!(
        !shown.contains("secret") && !shown.contains("203.0"),
        "{shown}"
    );
}

#[test]
fn half_a_surrogate_pair_costs_one_character_and_not_the_record() {
    let meta = read(r#"{"request_id":"sur","note":"x\ud800y","route":"\udc00"}"#);
    assert_eq!(meta.request_id.as_deref(), Some("sur"));
    assert_eq!(meta.route.as_deref(), Some("\u{fffd}"));
    assert_eq!(meta.extra["note"], "x\u{fffd}y");
}
