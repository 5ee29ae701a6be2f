//! `cch_strip`.

use super::*;

const STRIP: Wanted = Wanted {
    cch_strip: true,
    ..NOTHING
};

const HEADER: &str = "x-anthropic-billing-header: cc_version=1; cc_entrypoint=cli; cch=abc;";

/// Puts a text into every place where a prompt can begin, one at a time, and expects another text
/// there.
fn everywhere(text: &str, expected: &str) {
    for place in [
        r#"{"messages":[{"role":"user","content":"@"}]}"#,
        r#"{"messages":[{"content":"x"},{"content":[{"type":"image"},{"type":"text","text":"@"}]}]}"#,
        r#"{"messages":["x",{"role":"user", "content" : "@" }]}"#,
        r#"{"system":"@","messages":[]}"#,
        r#"{"system":[{"text":"@","cache_control":{"type":"ephemeral"}},"x",7]}"#,
        r#"{"input":[{"role":"developer","content":[{"type":"input_text","text":"@"}]}]}"#,
        r#"{"messages":[{"c\u006fntent":[{"te\u0078t":"@"}]}]}"#,
    ] {
        let body = |text: &str| place.replace('@', text);
        assert_eq!(sent(&body(text), STRIP), body(expected));
    }
}

#[test]
fn the_header_goes_and_the_blank_behind_it_stays() {
    everywhere(&format!("{HEADER} You are"), " You are");
    everywhere(HEADER, "");
    everywhere(
        &format!("{HEADER}\\n\\\"{HEADER}"),
        &format!("\\n\\\"{HEADER}"),
    );
    everywhere(
        "x-anthropic-billing-header:cc_version=;cc_entrypoint=;  cch=;x",
        "x",
    );
}

#[test]
fn at_any_index_and_at_every_place_at_once() {
    let message = |text: &str| format!(r#"{{"role":"user","content":"{text}"}}"#);
    let body = |text: &str| {
        let messages = [message(text), message("-"), message(text)].join(",");
        format!(r#"{{"messages":[{messages}],"system":[{{"text":"{text}"}}]}}"#)
    };
    let done = transform(body(&format!("{HEADER} a")).as_bytes(), STRIP);
    assert_eq!(done.headers_stripped, 3);
    assert_eq!(done.body.as_deref(), Some(body(" a").as_bytes()));
}

#[test]
fn anything_less_than_a_header_stays() {
    for text in [
        "x-anthropic-billing-header: cc_version=1; cc_entrypoint=cli; cch=abc",
        "x-anthropic-billing-header: cc_version=1; cc_entrypoint=cli; cch=abc You are",
        "x-anthropic-billing-header: cc_version=1; cch=abc; You are",
        "x-anthropic-billing-header: cc_entrypoint=cli; cc_version=1; cch=abc; You are",
        "x-anthropic-billing-header: cc_version=1; cc_entrypoint=cli; You are",
        "X-Anthropic-Billing-Header: cc_version=1; cc_entrypoint=cli; cch=abc;",
        "x-anthropic-billing-header: cc_version=1\\\"; cc_entrypoint=cli; cch=abc;",
        "x-anthropic-billing-header: cc_version=1\\n; cc_entrypoint=cli; cch=abc;",
        "x-anthropic-billing-header:",
    ] {
        everywhere(text, text);
    }
    let preceded = format!("You are {HEADER}");
    everywhere(&preceded, &preceded);
    let preceded = format!(" {HEADER}");
    everywhere(&preceded, &preceded);
}

#[test]
fn a_look_alike_elsewhere_is_somebodys_data() {
    for place in [
        r#"{"metadata":{"content":"@","text":"@"},"content":"@","text":"@"}"#,
        r#"{"messages":[{"role":"@","name":"@","extra":{"content":"@"}}]}"#,
        r#"{"messages":[{"content":[{"type":"tool_use","input":{"content":"@","text":"@"}}]}]}"#,
        r#"{"messages":[{"content":[{"type":"tool_result","content":"@"}]}]}"#,
        r#"{"messages":[{"content":[["@"],"@",{"text":["@"]},{"text":{"text":"@"}}]}]}"#,
        r#"{"messages":[{"tool_calls":[{"function":{"arguments":"@","content":"@"}}]}]}"#,
        r#"{"messages":{"content":"@"},"system":{"text":"@"},"input":"@"}"#,
        r#"{"messages":[[{"content":"@"}]],"tools":[{"content":"@"}]}"#,
        r#"{"messages":[{"content":"say {\"content\":\"@\"}"}]}"#,
        r#"{"@":"@","messages":[{"@":"@"}]}"#,
        r#"[{"content":"@"}]"#,
        r#""@""#,
        r#"{"messages":[{"content":"@"}"#,
        r#"{"messages":[{"content":"@"}]}}"#,
    ] {
        let body = place.replace('@', HEADER);
        assert_eq!(sent(&body, STRIP), body);
    }
}

#[test]
fn of_duplicates_the_last_one_counts() {
    let body = |first: &str, last: &str| {
        format!(
            r#"{{"messages":[{{"content":"{HEADER}a"}}],"messages":[{{"content":"{HEADER}b","content":[{{"text":"{HEADER}c","text":"{first}d"}}]}}],"system":"{HEADER}e","system":"{last}f"}}"#
        )
    };
    assert_eq!(sent(&body(HEADER, HEADER), STRIP), body("", ""));
}

#[test]
fn bytes_that_are_no_text_stay_where_they_are() {
    let body = [
        &br#"{"x":"\ud83d\udca9\ud83d","messages":[{"content":""#[..],
        HEADER.as_bytes(),
        b"\xff\xfe \\ud800\"}]}",
    ]
    .concat();
    let expected = [
        &br#"{"x":"\ud83d\udca9\ud83d","messages":[{"content":""#[..],
        b"\xff\xfe \\ud800\"}]}",
    ]
    .concat();
    assert_eq!(transform(&body, STRIP).body, Some(expected));
}
