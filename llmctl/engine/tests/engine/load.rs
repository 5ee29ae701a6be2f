//! Slots, queue, cancellation, and the end of an engine.

use std::time::Duration;

use serde_json::{Value, json};
use sim_engine::{Engine, Fault, Options, Outcome, Pace};

use crate::harness::{Wire, engine, post, slow, until};

fn stream() -> String {
    json!({"messages": [{"role": "user", "content": "hi"}], "stream": true}).to_string()
}

#[tokio::test]
async fn requests_beyond_the_slots_wait_and_a_client_that_leaves_makes_room() {
    let engine = engine(slow()).await;
    let gauges = || (engine.stats().running, engine.stats().waiting);
    let mut running = Wire::to(&engine).await;
    running
        .send("POST", "/v1/chat/completions", "", &stream())
        .await;
    running.read_until("The").await;
    let mut queued = Wire::to(&engine).await;
    queued
        .send(
            "POST",
            "/v1/messages",
            "",
            r#"{"messages":[{"role":"user","content":"x"}],"max_tokens":1}"#,
        )
        .await;
    until("one runs and one waits", || gauges() == (1, 1)).await;
    let mut impatient = Wire::to(&engine).await;
    impatient
        .send("POST", "/v1/chat/completions", "", &stream())
        .await;
    until("two wait", || gauges() == (1, 2)).await;
    drop(impatient);
    until("the one that left is out of the queue", || {
        gauges() == (1, 1)
    })
    .await;
    drop(running);
    let message = queued.answer().await.expect("its turn has come").json();
    assert_eq!(message["usage"]["output_tokens"], 1);
    until("all is quiet", || gauges() == (0, 0)).await;
}

#[tokio::test]
async fn the_log_tells_a_client_that_left_from_one_that_stayed() {
    let engine = engine(slow()).await;
    let mut leaver = Wire::to(&engine).await;
    leaver
        .send(
            "POST",
            "/v1/chat/completions",
            "x-case: left\r\n",
            &stream(),
        )
        .await;
    leaver.read_until("The").await;
    drop(leaver);
    until("the slot is free", || engine.stats().running == 0).await;
    let one = json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1});
    post(&engine, "/v1/chat/completions", &one).await;
    let seen = engine.requests();
    assert_eq!(seen[0].header("X-Case").collect::<Vec<_>>(), ["left"]);
    assert_eq!(
        (seen[0].outcome, seen[0].generated_tokens),
        (Outcome::Cancelled, 1)
    );
    assert_eq!(
        (seen[1].outcome, seen[1].status),
        (Outcome::Completed, Some(200))
    );
    assert_eq!(seen[1].body.as_deref(), Some(one.to_string().as_str()));
    assert_ne!(seen[0].connection, seen[1].connection);
}

#[tokio::test]
async fn a_client_that_leaves_before_the_headers_frees_its_slot() {
    let ttft = Duration::from_secs(3600);
    let engine = engine(Options {
        pace: Pace {
            ttft,
            ..Pace::default()
        },
        ..Options::default()
    })
    .await;
    let mut wire = Wire::to(&engine).await;
    wire.send("POST", "/v1/completions", "", r#"{"prompt": "x"}"#)
        .await;
    until("it runs", || engine.stats().running == 1).await;
    drop(wire);
    until("it is gone", || engine.stats().running == 0).await;
    assert_eq!(engine.requests()[0].outcome, Outcome::Cancelled);
}

#[tokio::test]
async fn requests_of_one_connection_are_numbered_on_it() {
    let engine = engine(Options::default()).await;
    let mut wire = Wire::to(&engine).await;
    for _ in 0..2 {
        wire.send("GET", "/v1/models", "", "").await;
        wire.answer().await.expect("an answer");
    }
    let seen = engine.requests();
    assert_eq!(
        seen.iter()
            .map(|s| (s.connection, s.on_connection))
            .collect::<Vec<_>>(),
        [(0, 0), (0, 1)]
    );
}

#[tokio::test]
async fn an_answer_without_a_body_is_complete() {
    let engine = engine(Options::default()).await;
    let mut wire = Wire::to(&engine).await;
    wire.send("HEAD", "/v1/models", "", "").await;
    let head = wire.read_until("\r\n\r\n").await;
    assert!(
        head.starts_with("HTTP/1.1 200") && !head.contains('{'),
        "{head}"
    );
    until("it is complete", || {
        engine.requests()[0].outcome == Outcome::Completed
    })
    .await;
}

#[tokio::test]
async fn shutdown_lets_a_stream_finish_and_refuses_new_connections() {
    let engine = engine(Options {
        faults: vec!["slow-header=50ms".parse::<Fault>().unwrap()],
        ..Options::default()
    })
    .await;
    let mut wire = Wire::to(&engine).await;
    wire.send("POST", "/v1/chat/completions", "", &stream())
        .await;
    until("it has arrived", || engine.requests().len() == 1).await;
    let (answer, ()) = tokio::join!(wire.answer(), engine.shutdown(Duration::from_secs(10)));
    assert_eq!(
        answer.expect("the whole stream").data().last(),
        Some(&Value::from("[DONE]"))
    );
    assert!(tokio::net::TcpStream::connect(engine.addr).await.is_err());
}

#[tokio::test]
async fn killing_or_dropping_an_engine_cuts_a_stream_short() {
    for dropped in [false, true] {
        let engine = engine(slow()).await;
        let mut wire = Wire::to(&engine).await;
        wire.send("POST", "/v1/chat/completions", "", &stream())
            .await;
        wire.read_until("The").await;
        if dropped {
            drop(engine);
        } else {
            engine.kill().await;
        }
        assert!(wire.closed().await);
    }
}

#[tokio::test]
async fn the_same_requests_get_the_same_answers_from_a_new_engine() {
    let answer = async || {
        let engine = Engine::local(Options::default())
            .await
            .expect("a free port");
        let request = json!({"prompt": "x", "max_tokens": 40});
        let mut answer = post(&engine, "/v1/completions", &request).await.json();
        answer["created"].take();
        answer
    };
    assert_eq!(answer().await, answer().await);
}
