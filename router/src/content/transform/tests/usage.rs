//! `include_usage`.

use super::*;

/// The body after `include_usage`, and whether it was changed.
fn asked(body: &str) -> String {
    let done = transform(body.as_bytes(), USAGE);
    assert_eq!(done.asked_for_usage, done.body.is_some());
    String::from_utf8(done.body.unwrap_or_else(|| body.into())).unwrap()
}

fn unchanged(bodies: &[&str]) {
    for body in bodies {
        assert_eq!(asked(body), *body);
    }
}

#[test]
fn the_member_is_added_before_the_last_brace() {
    assert_eq!(
        asked("{\"model\":\"m\",\"stream\":true}\n"),
        "{\"model\":\"m\",\"stream\":true,\"stream_options\":{\"include_usage\":true}}\n"
    );
    assert_eq!(
        asked("\t{ \"stream\" : true } "),
        "\t{ \"stream\" : true ,\"stream_options\":{\"include_usage\":true}} "
    );
}

#[test]
fn a_byte_order_mark_stays_in_front() {
    assert_eq!(
        asked("\u{feff}{\"stream\":true}"),
        "\u{feff}{\"stream\":true,\"stream_options\":{\"include_usage\":true}}"
    );
}

#[test]
fn options_that_are_there_are_completed() {
    for (options, expected) in [
        (r#"{"foo":1}"#, r#"{"include_usage":true,"foo":1}"#),
        ("{}", r#"{"include_usage":true}"#),
        ("{ }", r#"{"include_usage":true }"#),
        ("null", r#"{"include_usage":true}"#),
        ("5", "5"),
        ("[]", "[]"),
        (r#""x""#, r#""x""#),
        (r#"{"include_usage":false}"#, r#"{"include_usage":true}"#),
        (
            r#"{"a":1.0e1, "include_usage" : null}"#,
            r#"{"a":1.0e1, "include_usage" : true}"#,
        ),
        (
            r#"{"include_usage":"no","b":2}"#,
            r#"{"include_usage":true,"b":2}"#,
        ),
        (r#"{"include_usage":0}"#, r#"{"include_usage":true}"#),
        (r#"{"include_usage":true}"#, r#"{"include_usage":true}"#),
        (r#"{"include_usage":{}}"#, r#"{"include_usage":{}}"#),
        (r#"{"include_usage":[1]}"#, r#"{"include_usage":[1]}"#),
        (
            r#"{"continuous_usage_stats":true}"#,
            r#"{"continuous_usage_stats":true}"#,
        ),
        (
            r#"{"continuous_usage_stats":false}"#,
            r#"{"include_usage":true,"continuous_usage_stats":false}"#,
        ),
    ] {
        let body = |options: &str| format!(r#"{{"stream_options":{options},"stream":true}}"#);
        assert_eq!(asked(&body(options)), body(expected));
    }
}

#[test]
fn only_a_stream_is_asked() {
    unchanged(&[
        r#"{"model":"m"}"#,
        r#"{"stream":false}"#,
        r#"{"stream":null}"#,
        r#"{"stream":1}"#,
        r#"{"stream":"true"}"#,
        r#"{"stream":true,"stream":false}"#,
        r#"{"metadata":{"stream":true}}"#,
        r#"{"messages":[{"content":"say {\"stream\":true}"}]}"#,
    ]);
}

#[test]
fn a_look_alike_is_never_edited() {
    let text = r#"{"m":[{"content":"\\\",\"stream_options\":null}{"}],"x":{"stream_options":null},"stream":true}"#;
    let expected =
        text.strip_suffix('}').unwrap().to_owned() + r#","stream_options":{"include_usage":true}}"#;
    assert_eq!(asked(text), expected);
}

#[test]
fn of_duplicates_the_last_one_counts_and_escaped_keys_are_keys() {
    assert_eq!(
        asked(
            r#"{"stream":false,"stream_options":{"include_usage":true},"stream_options":null,"stream":true}"#
        ),
        r#"{"stream":false,"stream_options":{"include_usage":true},"stream_options":{"include_usage":true},"stream":true}"#
    );
    assert_eq!(
        asked(r#"{"\u0073tream":true,"stream_options":{"include\u005fusage":false,"x":"\ud83d"}}"#),
        r#"{"\u0073tream":true,"stream_options":{"include\u005fusage":true,"x":"\ud83d"}}"#
    );
}

#[test]
fn what_is_no_json_object_passes() {
    unchanged(&[
        "",
        " ",
        "null",
        "[{\"stream\":true}]",
        "{\"stream\":true",
        "{\"stream\":true}}",
        "{\"stream\":true} x",
        "{\"stream\":true,}",
        "{\"stream\" true}",
        "{\"stream\":true,\"a\"}",
        "{\"stream\":true,\"a\":}",
        "{\"stream\":true,\"a\":\"x}",
        "{\"stream\":true,\"a\":[}",
        "{stream:true}",
        "{\"stream\":true,\"stream_options\":{\"a\"}}",
        "}",
        "{",
        "\\",
    ]);
}

#[test]
fn depth_costs_nothing() {
    let deep = "[".repeat(200_000) + &"]".repeat(200_000);
    let body = format!(r#"{{"x":{deep},"stream":true}}"#);
    assert_eq!(asked(&body).len(), body.len() + 40);
}
