//! `kimi_normalize`.

use serde_json::{Value, json};

use super::*;

fn by(strategy: IdStrategy) -> Wanted {
    Wanted {
        kimi_normalize: Some(strategy),
        ..NOTHING
    }
}

const RERANK: IdStrategy = IdStrategy::Rerank;

fn call(id: &str, name: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}})
}

fn calls(calls: &[(&str, &str)]) -> Value {
    let calls: Vec<_> = calls.iter().map(|(id, name)| call(id, name)).collect();
    json!({"role": "assistant", "content": null, "tool_calls": calls})
}

fn answer(id: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": "ok"})
}

fn conversation(messages: &[Value]) -> String {
    json!({"model": "kimi-k2.6", "messages": messages}).to_string()
}

/// The ids of calls, and those of answers with a `>`, in order, and how many changed.
fn ids(body: &str, strategy: IdStrategy) -> (Vec<String>, usize) {
    let done = transform(body.as_bytes(), by(strategy));
    let sent = done.body.unwrap_or_else(|| body.into());
    let body: Value = serde_json::from_slice(&sent).unwrap();
    let mut ids = Vec::new();
    for message in body["messages"].as_array().unwrap() {
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            ids.extend(call["id"].as_str().map(str::to_owned));
        }
        ids.extend(message["tool_call_id"].as_str().map(|id| format!(">{id}")));
    }
    (ids, done.ids_renamed)
}

fn expect(messages: &[Value], strategy: IdStrategy, expected: &[&str], changes: usize) {
    let found = ids(&conversation(messages), strategy);
    assert_eq!(
        (found.0, found.1),
        (
            expected.iter().map(|id| (*id).to_owned()).collect(),
            changes
        )
    );
}

#[test]
fn calls_are_numbered_by_their_place() {
    let messages = [calls(&[("call_x", "read"), ("call_y", "bash")])];
    expect(
        &messages,
        RERANK,
        &["functions.read:0", "functions.bash:1"],
        2,
    );
}

#[test]
fn answers_follow_and_the_count_goes_on() {
    let messages = [
        calls(&[("c1", "read")]),
        answer("c1"),
        calls(&[("c2", "bash")]),
    ];
    expect(
        &messages,
        RERANK,
        &["functions.read:0", ">functions.read:0", "functions.bash:1"],
        3,
    );
}

#[test]
fn a_hash_is_of_name_and_arguments() {
    let messages = [calls(&[("a", "read"), ("b", "Bash")])];
    let expected = ["functions.read:1466615", "functions.Bash:1662697"];
    expect(&messages, IdStrategy::Hash, &expected, 2);
}

#[test]
fn another_model_is_left_alone() {
    let messages = json!([calls(&[("call_x", "read")])]);
    for model in [
        json!("other"),
        json!("kimi-k2"),
        json!("KIMI-K2.5"),
        json!("x/kimi-k2.5"),
        json!(["kimi-k2.5"]),
        json!(null),
    ] {
        let body = json!({"model": model, "messages": messages}).to_string();
        assert_eq!(sent(&body, by(RERANK)), body);
    }
    let body = json!({"messages": messages}).to_string();
    assert_eq!(sent(&body, by(RERANK)), body);
    for model in [
        "kimi-k2.5",
        "kimi-k2.6",
        "Kimi-K2.5",
        "Kimi-K2.6",
        "moonshotai/kimi-k2.5",
        "moonshotai/kimi-k2.6",
    ] {
        assert!(is_kimi(model));
        let body = json!({"model": model, "messages": messages}).to_string();
        assert_eq!(ids(&body, RERANK).1, 1);
    }
    let escaped = conversation(&[calls(&[("call_x", "read")])]).replace("kimi", "k\\u0069mi");
    assert_eq!(ids(&escaped, RERANK).1, 1);
}

#[test]
fn ids_that_are_right_already_do_not_change() {
    let messages = [
        calls(&[("functions.read:0", "read")]),
        answer("functions.read:0"),
    ];
    let body = conversation(&messages);
    assert_eq!(transform(body.as_bytes(), by(RERANK)), Done::default());
}

#[test]
fn every_call_takes_a_place_and_only_those_with_id_and_name_are_renamed() {
    let odd = json!({"tool_calls": [
        {"id": " ", "function": {"name": "a"}}, {"id": 7, "function": {"name": "a"}},
        {"id": "n", "function": {"name": "a b"}}, {"id": "e", "function": {"name": ""}},
        {"id": "x", "function": 5}, {"id": "y"}, {}, "no", 7,
    ]});
    let messages = [
        odd,
        answer("n"),
        answer("nobody"),
        calls(&[("c", "A-b_c.d")]),
        answer("c"),
    ];
    let (found, changes) = ids(&conversation(&messages), RERANK);
    assert_eq!(
        found[found.len() - 4..],
        [
            ">n",
            ">nobody",
            "functions.A-b_c.d:7",
            ">functions.A-b_c.d:7"
        ]
    );
    assert_eq!(changes, 2);
}

#[test]
fn a_shared_id_keeps_its_first_name_unless_that_would_be_another_functions() {
    let messages = [
        calls(&[("c", "read"), ("c", "read")]),
        answer("c"),
        calls(&[("c", "bash")]),
        answer("c"),
    ];
    expect(
        &messages,
        RERANK,
        &[
            "functions.read:0",
            "functions.read:0",
            ">functions.read:0",
            "functions.bash:2",
            ">functions.bash:2",
        ],
        5,
    );
}

#[test]
fn new_ids_are_not_taken_for_old_ones() {
    let messages = [
        calls(&[("functions.read:1", "read"), ("functions.read:0", "read")]),
        answer("functions.read:0"),
        answer("functions.read:1"),
    ];
    expect(
        &messages,
        RERANK,
        &[
            "functions.read:0",
            "functions.read:1",
            ">functions.read:1",
            ">functions.read:0",
        ],
        4,
    );
}

#[test]
fn the_last_call_keeps_up_with_the_greatest_number() {
    let maxlast = IdStrategy::RerankMaxlast;
    let messages = [calls(&[
        ("functions.read:7", "read"),
        ("a", "read"),
        ("b", "bash"),
    ])];
    let expected = ["functions.read:0", "functions.read:1", "functions.bash:7"];
    expect(&messages, maxlast, &expected, 3);
    // None of these ids counts: the form is wrong, the function is another one, or the number is
    // too low.
    for id in ["a", "functions.bash:9", "functions.read:0"] {
        let messages = [calls(&[(id, "read"), ("b", "read"), ("c", "read")])];
        let expected = ["functions.read:0", "functions.read:1", "functions.read:2"];
        let changes = if id == expected[0] { 2 } else { 3 };
        expect(&messages, maxlast, &expected, changes);
    }
    // A call that is no candidate takes no place.
    let messages = [json!({"tool_calls": [{}]}), calls(&[("a", "read")])];
    expect(&messages, maxlast, &["functions.read:0"], 1);
}

#[test]
fn rising_numbers_stay_and_the_others_follow_on() {
    let messages = [
        calls(&[
            ("functions.read:3", "read"),
            ("a", "bash"),
            ("functions.read:4", "read"),
        ]),
        calls(&[
            ("functions.read:9", "read"),
            ("functions.read:09", "read"),
            ("functions.bash:12", "read"),
            ("functions.read:99999999999", "read"),
        ]),
    ];
    expect(
        &messages,
        IdStrategy::Keepinc,
        &[
            "functions.read:3",
            "functions.bash:4",
            "functions.read:5",
            "functions.read:9",
            "functions.read:10",
            "functions.read:11",
            "functions.read:12",
        ],
        5,
    );
}

#[test]
fn a_look_alike_is_never_edited() {
    let call = call("c", "read");
    let body = json!({
        "model": "kimi-k2.5",
        "id": "c", "tool_call_id": "c",
        "metadata": {"id": "c", "tool_calls": [call], "messages": [{"tool_calls": [call]}]},
        "tools": [{"id": "c", "parameters": {"tool_call_id": "c"}}],
        "messages": [
            {"role": "assistant", "tool_calls": [call], "id": "c", "meta": {"id": "c", "tool_call_id": "c"}},
            {"role": "tool", "tool_call_id": "c", "content": "{\"id\":\"c\"}"},
            {"role": "user", "content": [{"type": "x", "id": "c", "tool_call_id": "c"}]},
        ],
    })
    .to_string();
    let out = sent(&body, by(RERANK));
    assert_eq!(out.matches("functions.read:0").count(), 2);
    assert_eq!(out.replacen("functions.read:0", "c", 2), body);
}

#[test]
fn escapes_and_duplicates_are_read_as_an_engine_would() {
    let body = r#"{"model":"kimi-k2.5","messages":[{"tool_calls":[{"id":"x","function":{"name":"no"}}],"tool_\u0063alls":[
        {"id":"old","id":"c\u0031","function":{"name":"n"},"function":{"n\u0061me":"r\u0065ad","arguments":"{\"a\":\"\ud83d\ude00\"}"}}]},
        {"tool_call_id":"x","tool_call_id":"\u0063\u0031"}]}"#;
    let expected = body
        .replacen(r#""c\u0031""#, r#""functions.read:0""#, 1)
        .replacen(r#""\u0063\u0031""#, r#""functions.read:0""#, 1);
    assert_eq!(sent(body, by(RERANK)), expected);
}
