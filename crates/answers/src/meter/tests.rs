use super::*;

/// The findings of a meter: usage as prompt, completion, cached, reasoning, total; the finish
/// reason in the chat API's word; model; id; whether the answer was complete.
type Reading = (
    Option<[u64; 5]>,
    Option<String>,
    Option<String>,
    Option<String>,
    bool,
);

fn read(mut meter: Meter, chunks: &[&[u8]]) -> Reading {
    for chunk in chunks {
        meter.feed(chunk);
    }
    meter.finish();
    (
        meter
            .usage()
            .map(|u| [u.prompt, u.completion, u.cached, u.reasoning, u.total]),
        meter.finish_reason().map(str::to_owned),
        meter.model().map(str::to_owned),
        meter.id().map(str::to_owned),
        meter.is_complete(),
    )
}

/// Reads a body whole, byte by byte, and cut once at every byte. All results must agree.
fn reading(make: fn() -> Meter, body: &str) -> Reading {
    let body = body.as_bytes();
    let whole = read(make(), &[body]);
    let bytes: Vec<&[u8]> = body.chunks(1).collect();
    assert_eq!(read(make(), &bytes), whole);
    for cut in 0..=body.len() {
        let (a, b) = body.split_at(cut);
        assert_eq!(read(make(), &[a, b]), whole, "cut at {cut}");
    }
    whole
}

fn told(usage: Option<[u64; 5]>, finish: &str, model: &str, id: &str, complete: bool) -> Reading {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    (usage, some(finish), some(model), some(id), complete)
}

#[test]
fn chat_stream_tells_usage_in_its_last_chunk() {
    let stream = concat!(
        ": keep-alive\n\n",
        r#"data: {"id":"c1","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}"#,
        "\n\n",
        r#"data: {"id":"c1","model":"m","choices":[{"index":0,"delta":{"content":"\"usage\": {\"completion_tokens\": 99}"},"finish_reason":null}]}"#,
        "\n\n",
        r#"data: {"id":"c1","model":"m","choices":[{"index":0,"delta":{},"finish_reason": "length","stop_reason":null}]}"#,
        "\n\n",
        r#"data: {"id":"c1","model":"m","choices":[],"usage": {"prompt_tokens":7,"completion_tokens":2,"total_tokens":9,"prompt_tokens_details":{"cached_tokens":4}}}"#,
        "\n\ndata: [DONE]\n\n",
    );
    assert_eq!(
        reading(Meter::stream, stream),
        told(Some([7, 2, 4, 0, 9]), "length", "m", "c1", true)
    );
}

#[test]
fn running_usage_is_superseded_by_the_last_one() {
    let stream = concat!(
        "data: {\"id\":\"c\",\"model\":\"m\",\"choices\":[{\"text\":\"a\"}],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":19}}\r\n\r\n",
        "data: {\"choices\":[{\"text\":\"b\"}],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":20}}\r\n\r\n",
    );
    assert_eq!(
        reading(Meter::stream, stream),
        told(Some([5, 20, 0, 0, 25]), "", "m", "c", false)
    );
}

#[test]
fn anthropic_stream_tells_usage_in_two_events() {
    let stream = concat!(
        "event: message_start\n",
        r#"data: {"type":"message_start","message":{"id":"msg","type":"message","model":"m","content":[],"stop_reason":null,"usage":{"input_tokens":25,"cache_read_input_tokens":10,"output_tokens":1}}}"#,
        "\n\nevent: ping\ndata: {\"type\": \"ping\"}\n\n",
        "event: content_block_delta\n",
        r#"data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi"}}"#,
        "\n\nevent: message_delta\n",
        r#"data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":7}}"#,
        "\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    );
    assert_eq!(
        reading(Meter::stream, stream),
        told(Some([35, 7, 10, 0, 42]), "stop", "m", "msg", true)
    );
}

#[test]
fn responses_stream_tells_all_in_its_closing_event() {
    let usage = r#"{"input_tokens":9,"input_tokens_details":{"cached_tokens":4},"output_tokens":3,"output_tokens_details":{"reasoning_tokens":2},"total_tokens":12}"#;
    let stream = |last: &str, rest: &str| {
        format!(
            "event: response.created\ndata: {{\"type\":\"response.created\",\"response\":{{\"id\":\"r\",\"status\":\"in_progress\",\"model\":\"m\",\"usage\":null}}}}\n\n\
             event: response.output_text.delta\ndata: {{\"type\":\"response.output_text.delta\",\"item_id\":\"i\",\"delta\":\"hi\"}}\n\n\
             event: {last}\ndata: {{\"response\":{{\"id\":\"r\",\"output\":[{{\"id\":\"i\"}}],{rest},\"usage\":{usage}}},\"type\":\"{last}\"}}\n\n"
        )
    };
    let counts = Some([9, 3, 4, 2, 12]);
    assert_eq!(
        reading(
            Meter::stream,
            &stream("response.completed", r#""status":"completed""#)
        ),
        told(counts, "stop", "m", "r", true)
    );
    let cut = r#""status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}"#;
    assert_eq!(
        reading(Meter::stream, &stream("response.incomplete", cut)),
        told(counts, "length", "m", "r", true)
    );
}

#[test]
fn documents_of_every_api_are_read() {
    for (body, expected) in [
        (
            r#"{"id":"c1","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"x","tool_calls":[{"id":"t"}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9,"completion_tokens_details":{"reasoning_tokens":1}}}"#,
            told(Some([7, 2, 0, 1, 9]), "tool_calls", "m", "c1", true),
        ),
        (
            r#"{"object":"list","model":"e","data":[{"embedding":[0.1,-2e3]}],"usage":{"prompt_tokens":8,"total_tokens":8}}"#,
            told(Some([8, 0, 0, 0, 8]), "", "e", "", true),
        ),
        (
            r#"{"id":"msg","type":"message","model":"m","content":[{"type":"tool_use","id":"t"}],"stop_reason":"tool_use","usage":{"input_tokens":3,"output_tokens":4}}"#,
            told(Some([3, 4, 0, 0, 7]), "tool_calls", "m", "msg", true),
        ),
        (
            r#"{"id":"r","status":"completed","model":"m","output":[],"usage":{"input_tokens":3,"output_tokens":4,"total_tokens":7}}"#,
            told(Some([3, 4, 0, 0, 7]), "stop", "m", "r", true),
        ),
        (
            r#"{"choices":[{"finish_reason":"stop"}],"timings":{"cache_n":1,"prompt_n":5,"prompt_ms":1.5,"predicted_n":3}}"#,
            told(Some([6, 3, 1, 0, 9]), "stop", "", "", true),
        ),
        (
            r#"{"choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":6,"comp"#,
            told(None, "stop", "", "", false),
        ),
        (r#"{"data":[]}"#, told(None, "", "", "", true)),
        ("[1,2]", told(None, "", "", "", false)),
    ] {
        assert_eq!(reading(Meter::document, body), expected, "{body}");
    }
}

#[test]
fn a_data_field_over_several_lines_is_one_event() {
    let stream = "data: {\"choices\":[],\ndata: \"usage\":\ndata: {\"prompt_tokens\":1,\"completion_tokens\":2}}\n\n";
    assert_eq!(reading(Meter::stream, stream).0, Some([1, 2, 0, 0, 3]));
}

#[test]
fn a_stream_without_a_last_newline_is_read_to_its_end() {
    assert!(reading(Meter::stream, "data: {}\n\ndata: [DONE]").4);
    let cut = "data: {\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}";
    assert_eq!(reading(Meter::stream, cut).0, Some([1, 2, 0, 0, 3]));
}

#[test]
fn what_is_no_json_is_passed_over() {
    let stream = "data: usage\":{\n\ndata: {\"usage\":{\"prompt\n\nevent: x\nretry: 3\n\ndata\n\n\
        data: {\"usage\":{\"prompt_tokens\":1}}\n\n";
    assert_eq!(reading(Meter::stream, stream).0, Some([1, 0, 0, 0, 1]));
}

#[test]
fn raw_objects_are_kept_as_they_were_written() {
    let mut meter = Meter::document();
    meter.feed(br#"{"usage":{ "prompt_tokens" : 1e0 },"actual_usage":{"x":[1]}}"#);
    assert_eq!(
        meter.raw_usage(),
        Some(&br#"{ "prompt_tokens" : 1e0 }"#[..])
    );
    assert_eq!(meter.raw_actual_usage(), Some(&br#"{"x":[1]}"#[..]));
    assert_eq!(meter.usage().map(|usage| usage.prompt), Some(1));
}

#[test]
fn the_finish_reason_keeps_the_word_of_the_peer() {
    let mut meter = Meter::stream();
    meter.feed(b"data: {\"delta\":{\"stop_reason\":\"max_tokens\"}}\n\n");
    assert_eq!(meter.raw_finish(), Some("max_tokens"));
    assert_eq!(meter.finish_reason(), Some("length"));
}

#[test]
fn a_delta_is_searched_and_only_a_telling_event_is_read() {
    for quiet in [
        r#"{"choices":[{"delta":{"content":"x"},"finish_reason":null,"stop_reason":null}],"usage":null}"#,
        r#"{"choices":[{"delta":{"content":"\"usage\":{}"}}]}"#,
        r#"{"choices":[{"delta":{"content":"usage"}}]}"#,
        r#"{"choices":[],"usage":7}"#,
        "usage\"",
    ] {
        assert!(!is_telling(quiet.as_bytes()), "{quiet}");
    }
    for telling in [
        r#"{"usage" : {"#,
        r#"{"actual_usage":{}}"#,
        r#"{"finish_reason":null,"stop_reason": "x"}"#,
        r#"{"timings":{}}"#,
    ] {
        assert!(is_telling(telling.as_bytes()), "{telling}");
    }
}

#[test]
fn a_key_and_its_value_on_two_lines_of_an_event_are_found() {
    let event = "data: {\"usage\"\ndata: :{\"prompt_tokens\":7,\"completion_tokens\":2}}\n\n";
    let first = "data: {\"id\":\"c\",\"model\":\"m\",\"choices\":[]}\n\n";
    let stream = [first, event].concat();
    let usage = Some([7, 2, 0, 0, 9]);
    assert_eq!(
        reading(Meter::stream, &stream),
        told(usage, "", "m", "c", false)
    );
}
