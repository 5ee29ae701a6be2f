//! Each fault as a client meets it.

use serde_json::json;
use sim_engine::{Options, Outcome};

use crate::harness::{Wire, ask, engine, get, post, until};

const BODY: &str = r#"{"messages":[{"role":"user","content":"hi"}],"stream":true}"#;
const PATH: &str = "/v1/chat/completions";

fn with(fault: &str) -> Options {
    Options {
        faults: vec![fault.parse().expect("a fault")],
        ..Options::default()
    }
}

#[tokio::test]
async fn a_status_is_shaped_like_the_engines_errors() {
    let engine = engine(with("429")).await;
    let answer = ask(&engine, "POST", PATH, "", BODY).await;
    assert_eq!(
        (answer.status, &answer.json()["error"]["type"]),
        (429, &json!("RateLimitError"))
    );
    let answer = ask(&engine, "POST", "/v1/messages", "", "{}").await;
    assert_eq!(
        (answer.status, &answer.json()["error"]["type"]),
        (429, &json!("rate_limit_error"))
    );
    assert_eq!(get(&engine, "/v1/models").await.status, 200);
}

#[tokio::test]
async fn a_request_brings_faults_of_its_own() {
    let engine = engine(Options::default()).await;
    assert_eq!(
        ask(&engine, "POST", PATH, "x-sim-fault: 503\r\n", BODY)
            .await
            .status,
        503
    );
    assert_eq!(ask(&engine, "POST", PATH, "", BODY).await.status, 200);
    let wrong = ask(&engine, "POST", PATH, "x-sim-fault: flood\r\n", BODY).await;
    assert_eq!(wrong.status, 400);
    assert!(
        wrong.body.contains("unknown kind `flood`"),
        "{}",
        wrong.body
    );
    let idle = ask(
        &engine,
        "POST",
        PATH,
        "x-sim-fault: close-idle=1s\r\n",
        BODY,
    )
    .await;
    assert!(idle.body.contains("about connections"), "{}", idle.body);
}

#[tokio::test]
async fn the_set_is_replaced_as_a_whole_or_not_at_all() {
    let engine = engine(with("503")).await;
    let bad = post(&engine, "/sim/faults", &json!({"faults": ["429", "bad"]})).await;
    assert_eq!(bad.status, 400);
    assert_eq!(
        get(&engine, "/sim/faults").await.json(),
        json!({"faults": ["503"]})
    );
    let good = post(&engine, "/sim/faults", &json!({"faults": ["429@x1"]})).await;
    assert_eq!(good.json(), json!({"faults": ["429@x1"]}));
    assert_eq!(ask(&engine, "POST", PATH, "", BODY).await.status, 429);
    assert_eq!(ask(&engine, "POST", PATH, "", BODY).await.status, 200);
    ask(&engine, "DELETE", "/sim/faults", "", "").await;
    assert_eq!(
        get(&engine, "/sim/faults").await.json(),
        json!({"faults": []})
    );
}

#[tokio::test]
async fn a_cut_before_the_headers_sends_nothing() {
    let engine = engine(with("cut-before-headers")).await;
    let mut wire = Wire::to(&engine).await;
    wire.send("POST", PATH, "", BODY).await;
    assert!(wire.answer().await.is_none());
    assert_eq!(engine.requests()[0].outcome, Outcome::Cut);
}

#[tokio::test]
async fn a_reused_connection_can_die_where_a_fresh_one_lives() {
    let engine = engine(with("cut-before-headers@reused")).await;
    let mut wire = Wire::to(&engine).await;
    wire.send("POST", PATH, "", BODY).await;
    assert!(wire.answer().await.expect("the first answer").whole);
    wire.send("POST", PATH, "", BODY).await;
    assert!(wire.answer().await.is_none());
}

#[tokio::test]
async fn a_cut_stream_delivers_exactly_its_chunks_and_no_end() {
    for chunks in [0, 1, 3] {
        let engine = engine(with(&format!("cut-stream={chunks}"))).await;
        let mut wire = Wire::to(&engine).await;
        wire.send("POST", PATH, "", BODY).await;
        let answer = wire.answer().await.expect("headers at least");
        assert_eq!(
            (answer.status, answer.data().len(), answer.whole),
            (200, chunks, false)
        );
        assert!(wire.closed().await);
        until("the slot is free", || engine.stats().running == 0).await;
        assert_eq!(engine.requests()[0].outcome, Outcome::Cut);
    }
}

#[tokio::test]
async fn a_cut_answer_that_is_not_a_stream_ends_within_its_body() {
    let engine = engine(with("cut-stream=1")).await;
    let mut wire = Wire::to(&engine).await;
    wire.send("POST", PATH, "", &BODY.replace("true", "false"))
        .await;
    let answer = wire.answer().await.expect("half an answer");
    assert!(!answer.whole && !answer.body.is_empty(), "{answer:?}");
}

#[tokio::test]
async fn a_hang_is_silent_until_the_client_leaves() {
    for (fault, before) in [("hang", ""), ("hang=2", "The")] {
        let engine = engine(with(fault)).await;
        let mut wire = Wire::to(&engine).await;
        wire.send("POST", PATH, "", BODY).await;
        wire.read_until(before).await;
        until("it was received", || {
            engine.requests().iter().any(|seen| seen.body_len > 0)
        })
        .await;
        assert_eq!(engine.requests()[0].outcome, Outcome::Open, "{fault}");
        drop(wire);
        until("its leaving is noticed", || {
            engine.requests()[0].outcome == Outcome::Cancelled
        })
        .await;
    }
}

#[tokio::test]
async fn a_big_chunk_is_one_event_of_that_size() {
    let engine = engine(with("big-chunk=70000")).await;
    let answer = ask(&engine, "POST", PATH, "", BODY).await;
    let content = answer.data()[1]["choices"][0]["delta"]["content"]
        .as_str()
        .map(str::len);
    assert_eq!(content, Some(70_000));
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_an_answer() {
    let engine = engine(with("close-idle=20ms")).await;
    let mut wire = Wire::to(&engine).await;
    wire.send("GET", "/v1/models", "", "").await;
    assert!(wire.answer().await.expect("an answer").whole);
    assert!(wire.closed().await);
}
