use bytes::Bytes;
use proptest::prelude::*;
use router_config::options::Choice;
use serde_json::{Map, Value};

use super::*;

fn edited(name: Postprocess, json: &str) -> String {
    let mut out = Vec::new();
    let text = format!("<{json}>");
    match Editor::new(handler(name).unwrap()).edit(text.as_bytes(), 1..text.len() - 1, &mut out) {
        true => {
            let out = String::from_utf8(out).unwrap();
            let inside = out.strip_prefix('<').unwrap().strip_suffix('>').unwrap();
            inside.to_owned()
        }
        false => {
            assert!(out.is_empty());
            json.to_owned()
        }
    }
}

fn vllm(json: &str) -> String {
    edited(Postprocess::VllmFormat, json)
}

/// Inside a choice, beside an index.
fn choice(members: &str) -> String {
    format!(r#"{{"choices":[{{"index":0,{members}}}]}}"#)
}

#[test]
fn every_handler_is_documented() {
    let docs = include_str!("../../../../docs/postprocess.md");
    for (word, named) in Postprocess::WORDS {
        let is_documented = docs.contains(&format!("## `{word}`"));
        assert_eq!(is_documented, handler(*named).is_some(), "{word}");
    }
}

#[test]
fn actual_usage_goes_and_nothing_else() {
    for (json, expected) in [
        (
            r#"{"usage":{"a":1},"actual_usage":{"b":[1,{}]}}"#,
            r#"{"usage":{"a":1}}"#,
        ),
        (
            r#"{ "actual_usage" : {"b":1} , "x" : 1.0e1 }"#,
            r#"{ "x" : 1.0e1 }"#,
        ),
        (r#"{"actual_usage":null}"#, "{}"),
        (r#"{"actual_usage":1,"actual_usage":2}"#, "{}"),
        (r#"{"a":1,"actual\u005fusage":2}"#, r#"{"a":1}"#),
        (
            r#"{"usage":{"actual_usage":1}}"#,
            r#"{"usage":{"actual_usage":1}}"#,
        ),
        (
            r#"{"text":"\"actual_usage\":1"}"#,
            r#"{"text":"\"actual_usage\":1"}"#,
        ),
        (r#"[{"actual_usage":1}]"#, r#"[{"actual_usage":1}]"#),
    ] {
        assert_eq!(edited(Postprocess::StripActualUsage, json), expected);
    }
}

/// Passes texts through one editor, one after the other.
fn edited_in_turn(texts: &[String]) -> Vec<String> {
    let mut editor = Editor::new(handler(Postprocess::VllmFormat).unwrap());
    let mut edited = |json: &String| {
        let mut out = Vec::new();
        match editor.edit(json.as_bytes(), 0..json.len(), &mut out) {
            true => String::from_utf8(out).unwrap(),
            false => json.clone(),
        }
    };
    texts.iter().map(&mut edited).collect()
}

#[test]
fn a_chunk_that_differs_in_its_text_alone_becomes_what_the_last_one_became() {
    let chunk = |text: &str| {
        format!(
            r#"{{"id":"c","service_tier":null,"choices":[{{"delta":{{"content":"{text}"}},"token_ids":null}}]}}"#
        )
    };
    let without =
        |text: &str| format!(r#"{{"id":"c","choices":[{{"delta":{{"content":"{text}"}}}}]}}"#);
    let mut repeat = repeat::Repeat::default();
    let (first, made) = (chunk("Hello"), without("Hello"));
    let at = first.find("Hello").unwrap();
    repeat.changed(
        first.as_bytes(),
        &(at..at + 5),
        made.as_bytes(),
        made.find("Hello").unwrap(),
    );
    for text in [" world", "", r#"a\"b\n"#, "é"] {
        let mut out = Vec::new();
        assert_eq!(repeat.apply(chunk(text).as_bytes(), &mut out), Some(true));
        assert_eq!(String::from_utf8(out).unwrap(), without(text));
    }
    for other in ["\"", "\\", "\\x", "\\u0041", "\n", r#"a","role":"x"#] {
        assert_eq!(
            repeat.apply(chunk(other).as_bytes(), &mut Vec::new()),
            None,
            "{other}"
        );
    }
    let another = chunk("Hello").replace("\"c\"", "\"d\"");
    assert_eq!(repeat.apply(another.as_bytes(), &mut Vec::new()), None);
}

#[test]
fn what_says_something_stays() {
    for json in [
        r#"{"choices":[{"message":{"refusal":"no"}}],"metrics":{"a":1}}"#,
        r#"{"choices":[{"logprobs":{},"token_ids":[1],"routed_experts":0,"prompt_token_ids":[],"prompt_text":""}]}"#,
        r#"{"choices":[],"prompt_logprobs":[],"prompt_token_ids":[1],"prompt_text":"x","logprobs":0,"token_ids":[2]}"#,
        r#"{"choices":[{"message":{"annotations":[],"audio":{},"function_call":{}}}]}"#,
    ] {
        assert_eq!(vllm(json), json);
    }
}

#[test]
fn placeholders_go_at_each_level() {
    for key in [
        "prompt_logprobs",
        "prompt_token_ids",
        "prompt_text",
        "metrics",
        "logprobs",
        "token_ids",
    ] {
        assert_eq!(
            vllm(&format!(r#"{{"choices":[],"{key}":null}}"#)),
            r#"{"choices":[]}"#
        );
    }
    for key in [
        "logprobs",
        "token_ids",
        "routed_experts",
        "prompt_token_ids",
        "prompt_text",
    ] {
        let left = r#"{"choices":[{"index":0}]}"#;
        assert_eq!(vllm(&choice(&format!(r#""{key}":null"#))), left);
    }
    for key in ["refusal", "annotations", "audio", "function_call"] {
        let json = choice(&format!(r#""message":{{"{key}":null,"content":null}}"#));
        assert_eq!(vllm(&json), choice(r#""message":{"content":null}"#));
        let elsewhere = choice(&format!(r#""delta":{{"{key}":null}}"#));
        assert_eq!(vllm(&elsewhere), elsewhere);
    }
}

#[test]
fn what_describes_the_engine_goes_whatever_it_says() {
    for key in [
        "service_tier",
        "system_fingerprint",
        "kv_transfer_params",
        "ec_transfer_params",
        "actual_usage",
    ] {
        for value in ["null", r#""x""#, r#"{"a":[1]}"#] {
            let json = format!(r#"{{"{key}":{value},"choices":[]}}"#);
            assert_eq!(vllm(&json), r#"{"choices":[]}"#);
        }
    }
    for value in ["null", "128001", r#""stop""#] {
        assert_eq!(
            vllm(&choice(&format!(r#""stop_reason":{value}"#))),
            r#"{"choices":[{"index":0}]}"#
        );
    }
}

#[test]
fn reasoning_is_renamed_where_an_answer_has_it() {
    for place in ["delta", "message"] {
        for (members, expected) in [
            (r#""reasoning":"A""#, r#""reasoning_content":"A""#),
            (r#""reasoning":null"#, r#""reasoning_content":null"#),
            (
                r#""reasoning":"A","reasoning_content":"B""#,
                r#""reasoning_content":"A""#,
            ),
            (
                r#""reasoning_content":null, "reasoning" : "A""#,
                r#""reasoning_content" : "A""#,
            ),
            (
                r#""reasoning":"A","reasoning_content":1,"x":2"#,
                r#""reasoning_content":"A","x":2"#,
            ),
        ] {
            let at = |members: &str| choice(&format!(r#""{place}":{{{members}}}"#));
            assert_eq!(vllm(&at(members)), at(expected));
        }
    }
    assert_eq!(
        vllm(&choice(r#""reasoning":1"#)),
        choice(r#""reasoning_content":1"#)
    );
    let top = r#"{"choices":[],"reasoning":1}"#;
    assert_eq!(vllm(top), top);
}

#[test]
fn cache_tokens_get_their_usual_name() {
    for (details, expected) in [
        (
            r#"{"created_cache_tokens":7}"#,
            r#"{"cache_write_tokens":7}"#,
        ),
        (
            r#"{"created_cache_tokens":7,"cache_write_tokens":9}"#,
            r#"{"cache_write_tokens":9}"#,
        ),
        (
            r#"{"cache_write_tokens":null,"created_cache_tokens":7}"#,
            r#"{"cache_write_tokens":null}"#,
        ),
        (
            r#"{"multimodal_tokens":null,"cached_tokens":1}"#,
            r#"{"cached_tokens":1}"#,
        ),
        (r#"{"multimodal_tokens":3}"#, r#"{"multimodal_tokens":3}"#),
        ("null", "null"),
        ("[]", "[]"),
    ] {
        let at = |details: &str| {
            format!(
                r#"{{"choices":[],"usage":{{"prompt_tokens_details":{details},"total_tokens":1}}}}"#
            )
        };
        assert_eq!(vllm(&at(details)), at(expected));
    }
}

#[test]
fn only_an_object_with_choices_is_touched() {
    for (choices, touched) in [
        ("[]", true),
        ("{}", true),
        ("null", false),
        ("1", false),
        (r#""x""#, false),
    ] {
        let json = |tier: &str| format!(r#"{{"choices":{choices}{tier}}}"#);
        let with = json(r#","service_tier":1"#);
        assert_eq!(vllm(&with) == json(""), touched, "{choices}");
        assert_eq!(vllm(&with) == with, !touched, "{choices}");
    }
    let none = r#"{"object":"response","choice":[],"service_tier":"choices"}"#;
    assert_eq!(vllm(none), none);
    let last = r#"{"choices":[{"stop_reason":1}],"choices":null,"service_tier":1}"#;
    assert_eq!(vllm(last), last);
}

#[test]
fn of_duplicates_the_last_one_counts() {
    let at = |members: &str| format!(r#"{{"choices":[]{members}}}"#);
    assert_eq!(vllm(&at(r#","metrics":1,"metrics":null"#)), at(""));
    let stays = at(r#","metrics":null,"metr\u0069cs":1"#);
    assert_eq!(vllm(&stays), stays);
    assert_eq!(
        vllm(&at(r#","service\u005ftier":1,"service_tier":2"#)),
        at("")
    );
}

#[test]
fn a_frame_of_vllm_loses_its_placeholders_and_keeps_every_other_byte() {
    let frame = r#"{"id":"chatcmpl-abc-123","object":"chat.completion.chunk","created":1795983406,"model":"tiny","choices":[{"index":0,"delta":{"content":"�� request"},"logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null}]}"#;
    let out = r#"{"id":"chatcmpl-abc-123","object":"chat.completion.chunk","created":1795983406,"model":"tiny","choices":[{"index":0,"delta":{"content":"�� request"},"finish_reason":"length"}]}"#;
    assert_eq!(vllm(frame), out);
}

#[test]
fn white_space_around_what_goes_goes_with_it() {
    let pretty = "{\n  \"choices\": [],\n  \"service_tier\": null,\n  \"usage\": null\n}\n";
    assert_eq!(
        vllm(pretty),
        "{\n  \"choices\": [],\n  \"usage\": null\n}\n"
    );
    let last = "{\n  \"choices\": [],\n  \"service_tier\": null\n}\n";
    assert_eq!(vllm(last), "{\n  \"choices\": []\n}\n");
}

fn document(chunks: &[&[u8]]) -> Vec<u8> {
    let mut document = Document::new(handler(Postprocess::VllmFormat).unwrap());
    let mut out = Vec::new();
    for chunk in chunks {
        out.extend_from_slice(&document.feed(&Bytes::copy_from_slice(chunk)));
    }
    out.extend_from_slice(&document.finish());
    assert!(!document.holds());
    out
}

#[test]
fn a_document_is_rewritten_up_to_the_bound() {
    let body = |len: usize| {
        let shell = r#"{"choices":[],"service_tier":1,"x":""}"#.len();
        format!(
            r#"{{"choices":[],"service_tier":1,"x":"{}"}}"#,
            "x".repeat(len - shell)
        )
    };
    let exact = body(HELD_MAX);
    let chunks: Vec<&[u8]> = exact.as_bytes().chunks(1 << 20).collect();
    let gone = r#","service_tier":1"#;
    assert!(document(&chunks) == exact.replace(gone, "").into_bytes());
    let over = body(HELD_MAX + 1);
    let chunks: Vec<&[u8]> = over.as_bytes().chunks(1 << 20).collect();
    assert!(document(&chunks) == over.into_bytes());
}

#[test]
fn a_document_cut_anywhere_is_the_same_document() {
    let body = r#"{"choices":[{"message":{"content":"é\ud83d\ude00","refusal":null}}]}"#.as_bytes();
    let out = r#"{"choices":[{"message":{"content":"é\ud83d\ude00"}}]}"#.as_bytes();
    for at in 0..=body.len() {
        assert_eq!(document(&[&body[..at], &body[at..]]), out);
    }
    assert_eq!(document(&[]), b"");
    assert_eq!(document(&[b"", body]), out);
}

/// A model of `vllm_format` that edits a tree.
fn model(mut value: Value) -> Value {
    let Some(top) = value.as_object_mut() else {
        return value;
    };
    if !top
        .get("choices")
        .is_some_and(|c| c.is_array() || c.is_object())
    {
        return value;
    }
    let nulls = [
        "prompt_logprobs",
        "prompt_token_ids",
        "prompt_text",
        "metrics",
        "logprobs",
        "token_ids",
    ];
    remove_nulls(top, &nulls);
    for key in [
        "service_tier",
        "system_fingerprint",
        "kv_transfer_params",
        "ec_transfer_params",
        "actual_usage",
    ] {
        top.remove(key);
    }
    if let Some(details) = top
        .get_mut("usage")
        .and_then(|usage| usage.get_mut("prompt_tokens_details"))
        && let Some(details) = details.as_object_mut()
    {
        remove_nulls(details, &["multimodal_tokens"]);
        if let Some(created) = details.remove("created_cache_tokens") {
            details.entry("cache_write_tokens").or_insert(created);
        }
    }
    for choice in top["choices"].as_array_mut().into_iter().flatten() {
        let Some(choice) = choice.as_object_mut() else {
            continue;
        };
        remove_nulls(
            choice,
            &[
                "logprobs",
                "token_ids",
                "routed_experts",
                "prompt_token_ids",
                "prompt_text",
            ],
        );
        choice.remove("stop_reason");
        rename_reasoning(choice);
        if let Some(delta) = choice.get_mut("delta").and_then(Value::as_object_mut) {
            rename_reasoning(delta);
        }
        if let Some(message) = choice.get_mut("message").and_then(Value::as_object_mut) {
            remove_nulls(
                message,
                &["refusal", "annotations", "audio", "function_call"],
            );
            rename_reasoning(message);
        }
    }
    value
}

fn remove_nulls(object: &mut Map<String, Value>, keys: &[&str]) {
    object.retain(|key, value| !(value.is_null() && keys.contains(&key.as_str())));
}

fn rename_reasoning(object: &mut Map<String, Value>) {
    if let Some(reasoning) = object.remove("reasoning") {
        object.insert("reasoning_content".into(), reasoning);
    }
}

const KEYS: &[&str] = &[
    "choices",
    "usage",
    "prompt_tokens_details",
    "message",
    "delta",
    "reasoning",
    "reasoning_content",
    "stop_reason",
    "logprobs",
    "metrics",
    "service_tier",
    "token_ids",
    "refusal",
    "multimodal_tokens",
    "created_cache_tokens",
    "cache_write_tokens",
    "actual_usage",
    "content",
    "st\\u006fp_reason",
    "ch\\u006fices",
    "reas\\u006fning",
    "log\\u0070robs",
    "",
    "\\\\\\\"choices",
];

fn blank() -> impl Strategy<Value = &'static str> {
    prop_oneof![6 => Just(""), 1 => Just(" "), 1 => Just("\n\t")]
}

/// JSON text with any nesting, duplicate and escaped keys, and numbers in any spelling.
fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        3 => Just("null".to_owned()),
        1 => prop::sample::select(vec!["true", "-0", "1.50e+02", "12345678901234567890", "0.1", "1E2"]).prop_map(str::to_owned),
        1 => prop::sample::select(vec![r#""""#, r#""\"stop_reason\":null,""#, r#""\ud83d\ude00\u00e9\\""#, "\"}{][\"", "\"é\u{1F600}\""]).prop_map(str::to_owned),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        prop_oneof![array(inner.clone()), object(inner)]
    })
}

fn array(item: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    (
        prop::collection::vec((blank(), item, blank()), 0..4),
        blank(),
    )
        .prop_map(|(items, rest)| {
            let items: Vec<String> = items
                .iter()
                .map(|(a, item, b)| format!("{a}{item}{b}"))
                .collect();
            format!("[{}{rest}]", items.join(","))
        })
}

fn object(value: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    let key = prop::sample::select(KEYS);
    (
        prop::collection::vec((blank(), key, blank(), value, blank()), 0..7),
        blank(),
    )
        .prop_map(|(members, rest)| {
            let members: Vec<String> = members
                .iter()
                .map(|(a, key, b, value, c)| format!("{a}\"{key}\"{b}:{b}{value}{c}"))
                .collect();
            format!("{{{}{rest}}}", members.join(","))
        })
}

/// An answer that is likely to contain the interesting parts.
fn answer() -> impl Strategy<Value = String> {
    let choice =
        (object(json()), object(json()), object(json())).prop_map(|(rest, delta, message)| {
            let rest = rest.strip_prefix('{').unwrap().to_owned();
            let comma = if rest.trim_start() == "}" { "" } else { "," };
            format!(r#"{{"delta":{delta},"message": {message}{comma}{rest}"#)
        });
    let whole = (array(choice), object(json()), object(json())).prop_map(|(choices, details, rest)| {
        let rest = rest.strip_prefix('{').unwrap().to_owned();
        let comma = if rest.trim_start() == "}" { "" } else { "," };
        format!(r#"{{"choices":{choices},"usage":{{"prompt_tokens_details":{details}}}{comma}{rest}"#)
    });
    prop_oneof![4 => whole, 1 => json()]
}

/// The tokens of a valid JSON text as written.
fn tokens(text: &str) -> Vec<&str> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let from = at;
        at += 1;
        match bytes[from] {
            b' ' | b'\n' | b'\t' => continue,
            b'"' => {
                while bytes[at] != b'"' {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
            }
            b'{' | b'}' | b'[' | b']' | b':' | b',' => {}
            _ => {
                while at < bytes.len() && !b" \n\t,]}".contains(&bytes[at]) {
                    at += 1;
                }
            }
        }
        tokens.push(&text[from..at]);
    }
    tokens
}

/// Whether `out` is `text` with some tokens removed and the two keys renamed.
fn is_spliced(text: &str, out: &str) -> bool {
    let mut before = tokens(text).into_iter();
    let old = |new: &str, token: &str| match new {
        "\"reasoning_content\"" => {
            token == new || serde_json::from_str::<Value>(token).is_ok_and(|t| t == "reasoning")
        }
        "\"cache_write_tokens\"" => {
            token == new
                || serde_json::from_str::<Value>(token).is_ok_and(|t| t == "created_cache_tokens")
        }
        _ => token == new,
    };
    tokens(out)
        .iter()
        .all(|new| before.any(|token| old(new, token)))
}

/// Chunks of one stream that differ only in their text, valid or not.
fn alike() -> impl Strategy<Value = Vec<String>> {
    let piece = prop::sample::select(vec![
        "a",
        "é",
        "",
        "\\n",
        "\\u0041",
        "\\\"",
        "\\x",
        "\\",
        "\"",
        "\u{1}",
        "\",\"token_ids\":null,\"x\":\"",
    ]);
    let text = prop::collection::vec(piece, 0..3).prop_map(|pieces| pieces.concat());
    let frame = prop::sample::select(vec![
        r#"{"id":"c","choices":[{"delta":{"content":"TEXT"},"finish_reason":null}]}"#,
        r#"{"service_tier":null,"choices":[{"token_ids":null,"delta":{"role":"a","content":"TEXT"},"stop_reason":null}],"metrics":null}"#,
        r#"{"choices":[{"delta":{"reasoning":"r","reasoning_content":"TEXT"},"logprobs":null}]}"#,
        r#"{"choices":[{"delta":{"reasoning":"TEXT"}}]}"#,
        r#"{"choices":[{"text":"TEXT","stop_reason":1}],"prompt_text":null}"#,
    ]);
    (frame, prop::collection::vec(text, 0..6)).prop_map(|(frame, texts)| {
        texts
            .iter()
            .map(|text| frame.replace("TEXT", text))
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn chunks_alike_become_what_each_would_alone(texts in alike()) {
        let alone: Vec<String> = texts.iter().map(|text| vllm(text)).collect();
        prop_assert_eq!(edited_in_turn(&texts), alone);
    }


    #[test]
    fn an_edited_answer_means_what_the_tree_would_and_keeps_every_other_token(text in answer()) {
        let value: Value = serde_json::from_str(&text).unwrap();
        let out = vllm(&text);
        prop_assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), model(value.clone()));
        prop_assert!(is_spliced(&text, &out), "{}\n{}", text, out);
        // An answer that is already right stays unchanged, byte for byte.
        prop_assert_eq!(vllm(&out), out);
        let stripped = edited(Postprocess::StripActualUsage, &text);
        let mut without = value;
        if let Some(top) = without.as_object_mut() {
            top.remove("actual_usage");
        }
        prop_assert_eq!(serde_json::from_str::<Value>(&stripped).unwrap(), without);
        prop_assert!(is_spliced(&text, &stripped));
    }

    #[test]
    fn an_answer_cut_short_or_broken_is_left_alone(text in answer(), at in any::<prop::sample::Index>(), byte in prop::sample::select(b"{}[],:\"\\x".to_vec())) {
        if text.is_empty() { return Ok(()); }
        let at = at.index(text.len());
        let mut broken = text.clone().into_bytes();
        broken[at] = byte;
        for json in [&text.as_bytes()[..at], &broken] {
            if serde_json::from_slice::<serde::de::IgnoredAny>(json).is_err() {
                let mut out = Vec::new();
                prop_assert!(!Editor::new(handler(Postprocess::VllmFormat).unwrap()).edit(json, 0..json.len(), &mut out));
                prop_assert!(out.is_empty());
            }
        }
    }
}
