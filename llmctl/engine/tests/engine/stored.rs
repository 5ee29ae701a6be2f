//! Objects that the engine stores, the forms that upload files, and sockets.

use serde_json::json;
use sim_engine::Options;

use crate::harness::{Wire, ask, engine, get, post};

const FORM: &str = "content-type: multipart/form-data; boundary=b\r\n";

fn form(fields: &[(&str, &str)]) -> String {
    let part = |(head, value): &(&str, &str)| {
        format!("--b\r\nContent-Disposition: form-data; {head}\r\n\r\n{value}\r\n")
    };
    fields.iter().map(part).collect::<String>() + "--b--\r\n"
}

#[tokio::test]
async fn a_response_is_continued_shown_and_deleted() {
    let engine = engine(Options::default()).await;
    let long = "one two three four five six ".repeat(8);
    let first = post(&engine, "/v1/responses", &json!({"input": long}))
        .await
        .json();
    let id = first["id"].as_str().unwrap();
    let path = format!("/v1/responses/{id}");
    assert_eq!(get(&engine, &path).await.json(), first);
    let body = json!({"input": "and?", "previous_response_id": id, "stream": true});
    let second = post(&engine, "/v1/responses", &body).await.data();
    let second = &second.last().unwrap()["response"];
    let cached = &second["usage"]["input_tokens_details"]["cached_tokens"];
    assert!(
        cached.as_u64().unwrap() > 32,
        "the first turn is cached: {second}"
    );
    let items = format!(
        "/v1/responses/{}/input_items",
        second["id"].as_str().unwrap()
    );
    assert_eq!(
        get(&engine, &items).await.json()["data"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
    let deleted = ask(&engine, "DELETE", &path, "", "").await.json();
    assert_eq!(deleted["deleted"], true);
    assert_eq!(get(&engine, &path).await.status, 404);
    assert_eq!(post(&engine, "/v1/responses", &body).await.status, 404);
    let body = json!({"input": "x", "store": false});
    let forgotten = post(&engine, "/v1/responses", &body).await.json();
    let path = format!("/v1/responses/{}", forgotten["id"].as_str().unwrap());
    assert_eq!(get(&engine, &path).await.status, 404);
}

#[tokio::test]
async fn a_conversation_collects_what_its_responses_say() {
    let engine = engine(Options::default()).await;
    let made = post(&engine, "/v1/conversations", &json!({})).await.json();
    let id = made["id"].as_str().unwrap();
    for turn in 1..3 {
        let body = json!({"input": "hello", "conversation": {"id": id}});
        post(&engine, "/v1/responses", &body).await.json();
        let items = get(&engine, &format!("/v1/conversations/{id}/items"))
            .await
            .json();
        assert_eq!(items["data"].as_array().unwrap().len(), 2 * turn);
    }
}

#[tokio::test]
async fn files_are_stored_and_audio_is_transcribed() {
    let engine = engine(Options::default()).await;
    let file = ("name=\"file\"; filename=\"a.txt\"", "contents");
    let upload = form(&[("name=\"purpose\"", "batch"), file]);
    let made = ask(&engine, "POST", "/v1/files", FORM, &upload)
        .await
        .json();
    assert_eq!(
        (&made["bytes"], &made["purpose"]),
        (&json!(8), &json!("batch"))
    );
    let path = format!("/v1/files/{}/content", made["id"].as_str().unwrap());
    assert_eq!(get(&engine, &path).await.body, "contents");
    let list = get(&engine, "/v1/files").await.json();
    assert_eq!(list["data"], json!([made]));
    let audio = |more: &[(&str, &str)]| form(&[&[file, ("name=model", "whisper")], more].concat());
    let path = "/v1/audio/transcriptions";
    let whole = ask(&engine, "POST", path, FORM, &audio(&[])).await.json();
    assert_eq!(whole["model"], "whisper");
    let streamed = ask(
        &engine,
        "POST",
        path,
        FORM,
        &audio(&[("name=stream", "true")]),
    )
    .await;
    let events = streamed.data();
    assert_eq!(events.last().unwrap()["text"], whole["text"]);
    let none = ask(&engine, "POST", path, FORM, &form(&[])).await;
    assert_eq!(none.status, 400);
}

#[tokio::test]
async fn a_realtime_session_converses_in_text() {
    let engine = engine(Options::default()).await;
    let mut wire = Wire::to(&engine).await;
    let headers = "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                   sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-protocol: realtime\r\n";
    wire.send("GET", "/v1/realtime?model=m", headers, "").await;
    let head = wire.read_until("session.created").await;
    // The proof of RFC 6455's own example.
    let proof = "sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";
    assert!(
        head.contains(proof) && head.contains("sec-websocket-protocol: realtime\r\n"),
        "{head}"
    );
    for _ in 0..2 {
        let item =
            r#"{"type":"conversation.item.create","item":{"role":"user","content":"hello"}}"#;
        wire.send_frame(item).await;
        wire.read_until("conversation.item.done").await;
        wire.send_frame(r#"{"type":"response.create"}"#).await;
        let answer = wire.read_until("output_tokens").await;
        assert!(answer.contains("response.output_text.delta"), "{answer}");
    }
    wire.send_frame("not JSON").await;
    wire.read_until("invalid_request_error").await;
}
