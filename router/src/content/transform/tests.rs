use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;

const USAGE: Wanted = Wanted {
    include_usage: true,
};

/// The body after `include_usage`, which says whether it changed something.
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
fn u1_the_member_is_added_before_the_last_brace() {
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
fn u2_options_that_are_there_are_completed() {
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

/// Any JSON, with keys that the transforms look for among them.
fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 48, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((key(), inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("\"stream\":true,\\".to_owned()),
        Just("{\"stream_options\":{}}".to_owned()),
        "[ -~]{0,12}",
        "\\PC{0,6}",
    ]
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("stream".to_owned()),
        Just("stream_options".to_owned()),
        Just("include_usage".to_owned()),
        text(),
    ]
}

/// A body of a request, its interesting members likely.
fn body() -> impl Strategy<Value = Value> {
    let member = prop_oneof![
        2 => (key(), json()),
        1 => Just(("stream".to_owned(), Value::Bool(true))),
        1 => json().prop_map(|v| ("stream_options".to_owned(), json!({"include_usage": v}))),
    ];
    prop::collection::vec(member, 0..8)
        .prop_map(|members| Value::Object(members.into_iter().collect()))
}

/// What `include_usage` means, on a tree.
fn model(mut body: Value) -> Value {
    let Some(top) = body.as_object_mut() else {
        return body;
    };
    if top.get("stream") != Some(&Value::Bool(true)) {
        return body;
    }
    let options = top
        .entry("stream_options")
        .and_modify(|options| {
            if options.is_null() {
                *options = Value::Object(Map::new());
            }
        })
        .or_insert_with(|| Value::Object(Map::new()));
    if let Some(options) = options.as_object_mut() {
        let flag = options.entry("include_usage").or_insert(Value::Null);
        if !flag.is_object() && !flag.is_array() {
            *flag = Value::Bool(true);
        }
    }
    body
}

proptest! {
    #[test]
    fn the_edited_body_means_what_the_tree_would_and_keeps_every_other_byte(
        value in body(),
        pretty in any::<bool>(),
    ) {
        let text = match pretty {
            true => serde_json::to_string_pretty(&value).unwrap(),
            false => value.to_string(),
        };
        // Numbers are compared as they read back.
        let value: Value = serde_json::from_str(&text).unwrap();
        let out = asked(&text);
        prop_assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), model(value));
        // One edit at most: the bytes around it are the same.
        let same = |a: &mut dyn Iterator<Item = (u8, u8)>| a.take_while(|(x, y)| x == y).count();
        let before = same(&mut text.bytes().zip(out.bytes()));
        let after = same(&mut text.bytes().rev().zip(out.bytes().rev()));
        let changed = text.len().saturating_sub(before + after);
        prop_assert!(changed <= text.len() && out.len() <= text.len() + 40);
        let kept = &text[..before];
        prop_assert!(out.starts_with(kept));
    }

    #[test]
    fn no_body_breaks_the_scanner(body in r#"(\{|\}|\[|\]|:|,|"|\\|"stream"|true| |x){0,24}"#) {
        let done = transform(body.as_bytes(), USAGE);
        prop_assert!(done.body.is_none_or(|edited| edited.len() >= body.len()));
    }

    #[test]
    fn a_body_cut_anywhere_changes_nothing(value in body(), at in any::<prop::sample::Index>()) {
        let text = value.to_string();
        let cut = &text.as_bytes()[..at.index(text.len())];
        prop_assert_eq!(transform(cut, USAGE).body, None);
    }
}
