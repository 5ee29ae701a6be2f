//! What each API answers, whole and streamed.

use serde_json::{Value, json};
use sim_engine::{Dialect, Length, Options};

use crate::harness::{ask, engine, get, post};

const STORY: &str = "Tell me a long story about the road from the hills to the sea, and about those who walk it \
                     with nothing but a map, a lamp and two loaves of bread.";
const TEXT: &str = "The quick brown fox";

fn user(text: &str) -> Value {
    json!([{"role": "user", "content": text}])
}

fn weather() -> Value {
    json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]})
}

#[tokio::test]
async fn a_second_turn_reports_what_the_first_left_in_the_cache() {
    let engine = engine(Options {
        dialect: Dialect::Llamacpp,
        ..Options::default()
    })
    .await;
    let first = post(
        &engine,
        "/v1/chat/completions",
        &json!({"messages": user(STORY)}),
    )
    .await
    .json();
    assert_eq!(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    let mut turns = user(STORY);
    let list = turns.as_array_mut().unwrap();
    list.push(first["choices"][0]["message"].clone());
    list.push(json!({"role": "user", "content": "And then?"}));
    let second = post(&engine, "/v1/chat/completions", &json!({"messages": turns}))
        .await
        .json();
    let before = first["usage"]["total_tokens"].as_u64().unwrap();
    assert_eq!(
        second["usage"]["prompt_tokens_details"]["cached_tokens"],
        before / 16 * 16
    );
    assert_eq!(second["timings"]["cache_n"], before / 16 * 16);
    let again = post(
        &engine,
        "/v1/messages",
        &json!({"messages": user(STORY), "max_tokens": 1}),
    )
    .await
    .json();
    assert_eq!(
        again["usage"]["cache_read_input_tokens"], 32,
        "one prompt, whatever the API"
    );
}

#[tokio::test]
async fn a_chat_stream_tells_role_text_reason_usage_and_done() {
    let engine = engine(Options::default()).await;
    let request = json!({
        "messages": user("hi"), "max_tokens": 4, "stream": true, "stream_options": {"include_usage": true},
    });
    let answer = ask(
        &engine,
        "POST",
        "/v1/chat/completions",
        "x-request-id: abc-1\r\n",
        &request.to_string(),
    )
    .await;
    assert!(
        answer.head.contains("content-type: text/event-stream"),
        "{}",
        answer.head
    );
    let events = answer.data();
    let choices: Vec<&Value> = events.iter().map(|event| &event["choices"][0]).collect();
    assert_eq!(events[0]["id"], "chatcmpl-abc-1");
    assert_eq!(
        choices[0]["delta"],
        json!({"role": "assistant", "content": ""})
    );
    let text: String = choices[1..5]
        .iter()
        .filter_map(|choice| choice["delta"]["content"].as_str())
        .collect();
    assert_eq!(text, TEXT);
    assert_eq!(
        (&choices[5]["finish_reason"], &choices[5]["delta"]),
        (&json!("length"), &json!({}))
    );
    assert_eq!(
        (
            &events[6]["choices"],
            &events[6]["usage"]["completion_tokens"]
        ),
        (&json!([]), &json!(4))
    );
    assert_eq!(events[7..], ["[DONE]"]);
}

#[tokio::test]
async fn without_being_asked_a_stream_has_no_usage_chunk() {
    let engine = engine(Options::default()).await;
    let request = json!({"messages": user("hi"), "max_tokens": 1, "stream": true});
    let answer = post(&engine, "/v1/chat/completions", &request).await;
    assert!(!answer.body.contains("usage"), "{}", answer.body);
}

#[tokio::test]
async fn several_choices_are_counted_and_numbered() {
    let engine = engine(Options::default()).await;
    let request = json!({"messages": user("hi"), "max_tokens": 3, "n": 2});
    let whole = post(&engine, "/v1/chat/completions", &request).await.json();
    assert_eq!(whole["choices"][1]["index"], 1);
    assert_eq!(whole["usage"]["completion_tokens"], 6);
}

#[tokio::test]
async fn a_completion_stops_at_its_stop_sequence() {
    let engine = engine(Options::default()).await;
    let request = json!({"prompt": "once", "stop": [" fox"]});
    let whole = post(&engine, "/v1/completions", &request).await.json();
    assert_eq!(whole["choices"][0]["text"], "The quick brown");
    assert_eq!(whole["choices"][0]["finish_reason"], "stop");
    assert_eq!(whole["choices"][0]["stop_reason"], " fox");
}

#[tokio::test]
async fn a_forced_tool_is_called_in_every_api_and_streams_its_arguments() {
    let engine = engine(Options::default()).await;
    let function =
        json!({"type": "function", "function": {"name": "get_weather", "parameters": weather()}});
    let chat = json!({"messages": user("hi"), "tools": [function], "tool_choice": "required", "stream": true});
    let events = post(&engine, "/v1/chat/completions", &chat).await.data();
    let calls = events
        .iter()
        .map(|event| &event["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"]);
    assert_eq!(
        calls.filter_map(Value::as_str).collect::<String>(),
        r#"{"city":"sample"}"#
    );
    assert!(
        events
            .iter()
            .any(|event| event["choices"][0]["finish_reason"] == "tool_calls")
    );

    let tool = json!({"name": "get_weather", "input_schema": weather()});
    let messages = json!({"messages": user("hi"), "max_tokens": 50, "tools": [tool], "tool_choice": {"type": "any"}});
    let message = post(&engine, "/v1/messages", &messages).await.json();
    assert_eq!(
        (&message["stop_reason"], &message["content"][0]["input"]),
        (&json!("tool_use"), &json!({"city": "sample"}))
    );

    let tool = json!({"type": "function", "name": "get_weather", "parameters": weather()});
    let responses = json!({"input": "What is the weather?", "tools": [tool]});
    let response = post(&engine, "/v1/responses", &responses).await.json();
    assert_eq!(
        (
            &response["output"][0]["type"],
            &response["output"][0]["name"]
        ),
        (&json!("function_call"), &json!("get_weather"))
    );
}

#[tokio::test]
async fn a_message_stream_has_anthropics_events_in_order() {
    let engine = engine(Options::default()).await;
    let request =
        json!({"messages": user("hi"), "max_tokens": 2, "stream": true, "system": "Be brief."});
    let answer = post(&engine, "/v1/messages", &request).await;
    assert_eq!(
        answer.names(),
        [
            "message_start",
            "content_block_start",
            "ping",
            "content_block_delta",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop",
        ]
    );
    let events = answer.data();
    assert!(
        events
            .iter()
            .zip(answer.names())
            .all(|(event, name)| event["type"] == name)
    );
    assert_eq!(
        (
            &events[6]["delta"]["stop_reason"],
            &events[6]["usage"]["output_tokens"]
        ),
        (&json!("max_tokens"), &json!(2))
    );
}

#[tokio::test]
async fn counting_tokens_agrees_with_the_usage_of_the_request() {
    let engine = engine(Options::default()).await;
    let request = json!({"messages": user(STORY), "max_tokens": 1});
    let counted = post(&engine, "/v1/messages/count_tokens", &request)
        .await
        .json();
    let answered = post(&engine, "/v1/messages", &request).await.json();
    assert_eq!(counted["input_tokens"], answered["usage"]["input_tokens"]);
}

#[tokio::test]
async fn a_response_stream_is_numbered_and_ends_with_the_whole_response() {
    let engine = engine(Options::default()).await;
    let request = json!({"input": "hi", "stream": true, "max_output_tokens": 4});
    let answer = post(&engine, "/v1/responses", &request).await;
    let events = answer.data();
    assert!(
        events
            .iter()
            .enumerate()
            .all(|(number, event)| event["sequence_number"] == number)
    );
    assert_eq!(answer.names().first(), Some(&"response.created"));
    let last = &events.last().unwrap();
    assert_eq!(last["type"], "response.completed");
    assert_eq!(last["response"]["output"][0]["content"][0]["text"], TEXT);
    assert_eq!(
        last["response"]["incomplete_details"]["reason"],
        "max_output_tokens"
    );
}

#[tokio::test]
async fn embeddings_come_as_floats_or_as_base64_of_the_same() {
    let engine = engine(Options::default()).await;
    let ask = async |encoding: &str| {
        let request = json!({"input": ["a", "b"], "dimensions": 4, "encoding_format": encoding});
        post(&engine, "/v1/embeddings", &request).await.json()["data"][1]["embedding"].clone()
    };
    assert_eq!(ask("float").await.as_array().map(Vec::len), Some(4));
    assert_eq!(ask("base64").await.as_str().map(str::len), Some(24));
}

#[tokio::test]
async fn bad_requests_are_refused_in_the_engines_words() {
    let engine = engine(Options {
        strict_model: true,
        api_key: Some("k".into()),
        ..Options::default()
    })
    .await;
    let ask = async |body: &str| {
        ask(
            &engine,
            "POST",
            "/v1/chat/completions",
            "authorization: Bearer k\r\n",
            body,
        )
        .await
    };
    for (body, status, says) in [
        ("{", 400, "could not be read"),
        ("{\"messages\": 1}", 400, "expected a sequence"),
        ("{\"messages\": []}", 400, "must not be empty"),
        (
            "{\"messages\": [{\"role\": \"user\"}], \"max_tokens\": 0}",
            400,
            "from 1 to",
        ),
        (
            "{\"messages\": [{\"role\": \"user\"}], \"model\": \"gpt\"}",
            404,
            "`gpt` does not exist",
        ),
    ] {
        let answer = ask(body).await;
        assert_eq!(answer.status, status, "{body}");
        let error = &answer.json()["error"];
        assert!(error["message"].as_str().unwrap().contains(says), "{error}");
        assert_eq!(error["code"], status);
    }
    let keyless = post(&engine, "/v1/chat/completions", &json!({})).await;
    assert_eq!(keyless.status, 401);
    assert_eq!(
        get(&engine, "/health").await.status,
        200,
        "health needs no key"
    );
}

#[tokio::test]
async fn models_are_listed_and_found_by_names_with_slashes() {
    let models = vec!["org/a".to_owned(), "b".to_owned()];
    let engine = engine(Options {
        models,
        ..Options::default()
    })
    .await;
    let list = get(&engine, "/v1/models").await.json();
    assert_eq!(
        (&list["data"][0]["id"], &list["data"][1]["id"]),
        (&json!("org/a"), &json!("b"))
    );
    assert_eq!(get(&engine, "/v1/models/org/a").await.json()["id"], "org/a");
    assert_eq!(get(&engine, "/v1/models/c").await.status, 404);
}

/// A prompt of about `words` words, as agents send them: a long system text before a short question.
fn long_prompt(words: usize) -> String {
    let word = |n| ["lorem", "ipsum", "dolor", "amet,"][n % 4];
    (0..words).map(word).collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn anthropic_counts_of_a_long_prompt_add_up_on_every_turn() {
    let engine = engine(Options::default()).await;
    let system = long_prompt(12_000);
    let mut messages = vec![json!({"role": "user", "content": "hi"})];
    for turn in 0..2 {
        let body =
            json!({"model": "sim", "max_tokens": 32_000, "system": system, "messages": messages});
        let usage = post(&engine, "/v1/messages", &body).await.json()["usage"].clone();
        let counted = post(&engine, "/v1/messages/count_tokens", &body)
            .await
            .json();
        let (input, cached) = (&usage["input_tokens"], &usage["cache_read_input_tokens"]);
        let whole = input.as_u64().unwrap() + cached.as_u64().unwrap();
        assert_eq!(counted["input_tokens"], whole, "{usage}");
        assert!(whole > 12_000, "{usage}");
        assert_eq!(cached.as_u64().unwrap() > 12_000, turn > 0, "{usage}");
        messages.push(json!({"role": "assistant", "content": "The"}));
        messages.push(json!({"role": "user", "content": "and then?"}));
    }
}

#[tokio::test]
async fn a_natural_reply_ends_by_itself_and_ignore_eos_goes_on() {
    let engine = engine(Options {
        length: Length::Natural(58),
        ..Options::default()
    })
    .await;
    let mut body = json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 32_000});
    let ended = post(&engine, "/v1/chat/completions", &body).await.json();
    assert_eq!(ended["choices"][0]["finish_reason"], "stop");
    let tokens = ended["usage"]["completion_tokens"].as_u64().unwrap();
    assert!((29..1_000).contains(&tokens), "{tokens}");
    body["ignore_eos"] = json!(true);
    body["max_tokens"] = json!(2_000);
    let filled = post(&engine, "/v1/chat/completions", &body).await.json();
    assert_eq!(filled["choices"][0]["finish_reason"], "length");
    assert_eq!(filled["usage"]["completion_tokens"], 2_000);
}

#[tokio::test]
async fn an_agents_loop_of_call_and_result_ends_with_a_text() {
    let engine = engine(Options {
        length: Length::Natural(29),
        ..Options::default()
    })
    .await;
    let tools = json!([{"name": "Bash", "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}}}]);
    let reminder = "<system-reminder>Never use bash for reading.</system-reminder>";
    let asked = json!({"role": "user", "content": [{"type": "text", "text": reminder}, {"type": "text", "text": "Use bash: `ls -l`"}]});
    let mut body = json!({"max_tokens": 32_000, "tools": tools, "messages": [asked]});
    let called = post(&engine, "/v1/messages", &body).await.json();
    assert_eq!(called["stop_reason"], "tool_use");
    let call = &called["content"][0];
    assert_eq!(
        (&call["name"], &call["input"]),
        (&json!("Bash"), &json!({"command": "ls -l"}))
    );
    let result = json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": call["id"], "content": "a.txt"}]});
    body["messages"] = json!([asked, {"role": "assistant", "content": [call]}, result]);
    let ended = post(&engine, "/v1/messages", &body).await.json();
    assert_eq!(
        (&ended["stop_reason"], &ended["content"][0]["type"]),
        (&json!("end_turn"), &json!("text"))
    );
}
