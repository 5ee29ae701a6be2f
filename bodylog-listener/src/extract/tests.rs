use answers::finish::chat_word as finish_reason;
use serde_json::json;

use super::*;

fn counts(usage: &Value) -> answers::Usage {
    answers::Usage::of(usage.to_string().as_bytes()).unwrap_or_default()
}

fn events(events: &[Value]) -> Vec<u8> {
    let mut out = String::new();
    for event in events {
        if let Some(kind) = event["type"].as_str() {
            out += &format!("event: {kind}\n");
        }
        out += &format!("data: {event}\n\n");
    }
    (out + "data: [DONE]\n\n").into_bytes()
}

fn whole(value: &Value) -> Extracted {
    extract(value.to_string().as_bytes())
}

#[test]
fn a_complete_stream() {
    let found = extract(&events(&[
        json!({"id":"c1","model":"m","choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]}),
        json!({"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}}),
    ]));
    assert_eq!(found.text.as_deref(), Some("Hi"));
    assert_eq!(
        serde_json::to_value(&found.meta).unwrap(),
        json!({"finish_reason":"stop","id":"c1","model":"m",
            "usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}})
    );
    assert_eq!(found.shape, Shape::Stream);
}

#[test]
fn a_stream_cut_anywhere_gives_what_came() {
    let stream = events(&[
        json!({"id":"c1","model":"m","choices":[{"delta":{"content":"Hello"}}]}),
        json!({"choices":[{"delta":{"content":" there"},"finish_reason":"stop"}]}),
    ]);
    for cut in 0..stream.len() {
        let found = extract(&stream[..cut]);
        assert!("Hello there".starts_with(&found.text.unwrap_or_default()));
    }
}

#[test]
fn the_marker_in_the_middle_of_a_stream_falls_out() {
    let mut body = events(&[json!({"id":"c1","choices":[{"delta":{"content":"a"}}]})]);
    body.extend_from_slice(b"data: {\"choices\":[{\"delt\n[BODYLOG_TRUNCATED 99 BYTES MISSING IN MIDDLE]\nent\":\"x\"}}]}\n\n");
    body.extend_from_slice(&events(&[json!({"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1}})]));
    let found = extract(&body);
    assert_eq!(found.text.as_deref(), Some("ab"));
    assert_eq!(found.meta.usage, Some(json!({"prompt_tokens":1})));
}

#[test]
fn chat_and_completions_that_are_not_streamed() {
    let found = whole(&json!({
        "id":"c1","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hi",
        "reasoning_content":"hm","tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}]},
        "finish_reason":"tool_calls"}],"usage":{"prompt_tokens":1},"actual_usage":{"prompt_tokens":2}}));
    assert_eq!(found.text.as_deref(), Some("Hi"));
    assert_eq!(found.meta.reasoning.as_deref(), Some("hm"));
    assert_eq!(found.meta.tool_calls.len(), 1);
    assert_eq!(found.meta.actual_usage, Some(json!({"prompt_tokens":2})));
    assert_eq!(found.shape, Shape::Json);
    assert!(found.choices.is_empty());
    let found = whole(&json!({"choices":[{"text":"once","index":0,"finish_reason":"length"}]}));
    assert_eq!(found.text.as_deref(), Some("once"));
}

#[test]
fn several_choices_are_told_apart() {
    let found = extract(&events(&[
        json!({"choices":[{"index":1,"delta":{"content":"b1"}}]}),
        json!({"choices":[{"index":0,"delta":{"content":"a1","tool_calls":[{"index":0,"id":"x","function":{"name":"f","arguments":"1"}}]}}]}),
        json!({"choices":[{"index":1,"delta":{"content":"b2","tool_calls":[{"index":0,"id":"y","function":{"name":"g","arguments":"2"}}]}}]}),
        json!({"choices":[{"index":0,"delta":{},"finish_reason":"stop"},{"index":1,"delta":{},"finish_reason":"length"}]}),
    ]));
    assert_eq!(found.text.as_deref(), Some("a1"));
    assert_eq!(found.choices.len(), 2);
    assert_eq!(
        (&found.choices[0]["text"], &found.choices[1]["text"]),
        (&json!("a1"), &json!("b1b2"))
    );
    assert_eq!(found.choices[1]["finish_reason"], "length");
    assert_eq!(
        found.choices[0]["tool_calls"][0]["function"]["arguments"],
        "1"
    );
    let ids: Vec<&Value> = found
        .meta
        .tool_calls
        .iter()
        .map(|call| &call["id"])
        .collect();
    assert_eq!(ids, ["x", "y"]);
}

#[test]
fn an_anthropic_stream() {
    let found = extract(&events(&[
        json!({"type":"message_start","message":{"id":"m1","type":"message","role":"assistant","model":"c","content":[],
            "usage":{"input_tokens":25,"cache_read_input_tokens":10,"output_tokens":1}}}),
        json!({"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}),
        json!({"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}),
        json!({"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}),
        json!({"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Hi"}}),
        json!({"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"t","name":"f","input":{}}}),
        json!({"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"x\""}}),
        json!({"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":":1}"}}),
        json!({"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":7}}),
        json!({"type":"message_stop"}),
    ]));
    assert_eq!(found.text.as_deref(), Some("Hi"));
    assert_eq!(found.meta.reasoning.as_deref(), Some("hm"));
    assert_eq!(
        (found.meta.id.as_deref(), found.meta.model.as_deref()),
        (Some("m1"), Some("c"))
    );
    assert_eq!(
        finish_reason(found.meta.stop_reason.as_deref().unwrap()),
        "stop"
    );
    let usage = counts(found.meta.usage.as_ref().unwrap());
    assert_eq!(
        (
            usage.prompt,
            usage.completion,
            usage.cached,
            usage.reasoning,
            usage.total
        ),
        (35, 7, 10, 0, 42)
    );
    assert_eq!(
        found.meta.tool_calls,
        [json!({"type":"tool_use","id":"t","name":"f","index":2,"input":{"x":1}})]
    );
}

#[test]
fn an_anthropic_message_that_is_not_streamed() {
    let found = whole(
        &json!({"id":"m1","type":"message","model":"c","stop_reason":"tool_use","content":[
        {"type":"thinking","thinking":"hm"},{"type":"text","text":"Hi"},
        {"type":"tool_use","id":"t","name":"f","input":{"x":1}},{"type":"tool_use","id":"u","name":"g","input":{}}],
        "usage":{"input_tokens":3,"output_tokens":4}}),
    );
    assert_eq!(found.text.as_deref(), Some("Hi"));
    assert_eq!(found.meta.stop_reason.as_deref(), Some("tool_use"));
    assert_eq!(
        found.meta.tool_calls,
        [
            json!({"type":"tool_use","id":"t","name":"f","input":{"x":1}}),
            json!({"type":"tool_use","id":"u","name":"g","input":{}})
        ]
    );
}

#[test]
fn the_responses_api_whole_and_streamed() {
    let response = json!({"id":"r1","object":"response","model":"m","status":"completed","output":[
        {"type":"reasoning","summary":[{"type":"summary_text","text":"hm"}]},
        {"type":"message","content":[{"type":"output_text","text":"Hi"}]},
        {"type":"function_call","call_id":"a","name":"f","arguments":"{}"}],
        "usage":{"input_tokens":3,"output_tokens":4,"total_tokens":7}});
    let streamed = extract(&events(&[
        json!({"type":"response.created","response":{"id":"r1","status":"in_progress","output":[]}}),
        json!({"type":"response.reasoning_summary_text.delta","delta":"hm"}),
        json!({"type":"response.output_text.delta","delta":"H"}),
        json!({"type":"response.output_text.delta","delta":"i"}),
        json!({"type":"response.completed","response":response}),
    ]));
    for found in [whole(&response), streamed] {
        assert_eq!(found.text.as_deref(), Some("Hi"));
        assert_eq!(found.meta.reasoning.as_deref(), Some("hm"));
        assert_eq!(found.meta.id.as_deref(), Some("r1"));
        assert_eq!(
            finish_reason(found.meta.finish_reason.as_deref().unwrap()),
            "stop"
        );
        assert_eq!(counts(found.meta.usage.as_ref().unwrap()).total, 7);
        assert_eq!(found.meta.tool_calls.len(), 1);
        assert_eq!(found.meta.tool_calls[0]["function"]["name"], "f");
    }
    let found = whole(
        &json!({"object":"response","status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},
        "output":[{"type":"message","content":[{"type":"output_text","text":"H"}]}]}),
    );
    assert_eq!(
        finish_reason(found.meta.finish_reason.as_deref().unwrap()),
        "length"
    );
}

#[test]
fn embeddings_and_rerank_keep_model_and_usage_and_their_body() {
    let found = whole(
        &json!({"object":"list","model":"e","data":[{"embedding":[0.1]}],"usage":{"prompt_tokens":8,"total_tokens":8}}),
    );
    assert_eq!(found.text, None);
    assert_eq!(found.meta.model.as_deref(), Some("e"));
    assert_eq!(counts(found.meta.usage.as_ref().unwrap()).prompt, 8);
    let found = whole(
        &json!({"id":"r","results":[{"index":0,"relevance_score":0.5}],"usage":{"total_tokens":8}}),
    );
    assert_eq!((found.text, found.meta.id.as_deref()), (None, Some("r")));
}

#[test]
fn an_error_in_a_stream_or_alone_is_kept() {
    let found = whole(&json!({"error":{"message":"no"}}));
    assert_eq!(
        (found.text.as_deref(), found.meta.error),
        (Some(""), Some(json!({"message":"no"})))
    );
    let found = extract(
        b"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n",
    );
    assert!(found.meta.error.is_some());
}

#[test]
fn a_cut_json_body_keeps_its_usage_and_model() {
    let said = format!("{} \"finish_reason\":\"made_up\" ", "x".repeat(5000));
    let body = json!({"id":"c1","model":"m","choices":[{"message":{"content":said},"finish_reason":"length"}],
        "usage":{"prompt_tokens":7,"completion_tokens_details":{"reasoning_tokens":1}}})
    .to_string();
    let at = body.find("xxx").unwrap() + 100;
    let end = body.rfind("xxx").unwrap() - 100;
    let body = format!(
        "{}\n[BODYLOG_TRUNCATED 4000 BYTES MISSING IN MIDDLE]\n{}",
        &body[..at],
        &body[end..]
    );
    let found = extract(body.as_bytes());
    assert_eq!(found.shape, Shape::Tail);
    assert_eq!(found.text, None);
    assert_eq!(found.meta.model.as_deref(), Some("m"));
    assert_eq!(counts(found.meta.usage.as_ref().unwrap()).reasoning, 1);
    assert_eq!(found.meta.finish_reason.as_deref(), Some("length"));
}

#[test]
fn a_cut_anthropic_body_keeps_why_it_stopped() {
    let body = format!(
        r#"{{"id":"m1","model":"c","content":[{{"type":"text","text":"{0}{1}{0}"}}],"stop_reason":"max_tokens","stop_sequence":null,"usage":{{"input_tokens":3,"output_tokens":4}}}}"#,
        "x".repeat(100),
        "\n[BODYLOG_TRUNCATED 4000 BYTES MISSING IN MIDDLE]\n",
    );
    let found = extract(body.as_bytes());
    assert_eq!((found.shape, found.text), (Shape::Tail, None));
    assert_eq!(found.meta.stop_reason.as_deref(), Some("max_tokens"));
    assert_eq!(counts(found.meta.usage.as_ref().unwrap()).total, 7);
}

#[test]
fn fields_of_unexpected_types_do_not_hide_the_others() {
    let found = whole(
        &json!({"id":7,"model":["m"],"usage":null,"choices":[{"index":"x","message":{"content":[1]},"finish_reason":"stop"},{"message":null},3]}),
    );
    assert_eq!(found.meta.finish_reason.as_deref(), Some("stop"));
    assert_eq!((found.meta.id, found.meta.usage), (None, None));
}

#[test]
fn what_is_no_answer_is_nothing() {
    for body in [
        &b""[..],
        b"plain",
        b"\xff\xfeA",
        b"[1,2]",
        b"{}",
        b"{",
        b"data: x\n\n",
        b"null",
    ] {
        let found = extract(body);
        assert!(found.text.is_none() && found.meta.is_empty(), "{body:?}");
        assert_eq!(found.shape, Shape::None);
    }
}

proptest::proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(body in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..400)) {
        extract(&body);
        extract(&[b"data: {\"choices\":[", &body[..]].concat());
        unpacked(&body, Some("deflate"));
        asked(&String::from_utf8_lossy(&body));
    }
}
