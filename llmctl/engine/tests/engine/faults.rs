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

#[tokio::test]
async fn refused_connections_come_back_after_the_time_given() {
    let engine = engine(Options::default()).await;
    engine.set_faults(vec!["refuse".parse().expect("a fault")]);
    let refused = async || tokio::net::TcpStream::connect(engine.addr).await.is_err();
    while !refused().await {
        tokio::task::yield_now().await;
    }
    engine.set_faults(vec!["refuse=20ms".parse().expect("a fault")]);
    while refused().await {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let left = get(&engine, "/sim/faults").await.json();
    assert_eq!(left, json!({"faults": []}));
}

#[tokio::test]
async fn a_reset_is_an_error_and_a_close_is_an_end() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    for (fault, is_reset) in [("reset", true), ("cut-before-headers", false)] {
        let engine = engine(with(fault)).await;
        let mut stream = tokio::net::TcpStream::connect(engine.addr).await.unwrap();
        let request = format!(
            "POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{BODY}",
            BODY.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let read = stream.read_to_end(&mut Vec::new()).await;
        let kind = read.map_err(|error| error.kind());
        let expected = is_reset.then_some(std::io::ErrorKind::ConnectionReset);
        assert_eq!(kind.err(), expected, "{fault}");
        assert_eq!(engine.requests()[0].outcome, Outcome::Cut);
    }
}

#[tokio::test]
async fn an_answer_that_ends_early_lacks_its_terminator() {
    let engine = engine(with("end-stream=3")).await;
    let answer = ask(&engine, "POST", PATH, "", BODY).await;
    assert!(!answer.body.contains("[DONE]") && !answer.body.contains("finish_reason\":\"stop"));
    assert_eq!(answer.data().len(), 3);
}

#[tokio::test]
async fn a_stall_pauses_within_the_answer_and_goes_on() {
    let engine = engine(with("stall=2:10ms")).await;
    let answer = ask(&engine, "POST", PATH, "", BODY).await;
    assert!(answer.body.ends_with("data: [DONE]\n\n"), "{}", answer.body);
    engine.set_faults(vec!["stall=2:1h".parse().expect("a fault")]);
    let mut wire = Wire::to(&engine).await;
    wire.send("POST", PATH, "", BODY).await;
    wire.read_until("The").await;
    assert_eq!(engine.stats().running, 1);
    assert_eq!(engine.requests()[1].generated_tokens, 1);
}

#[tokio::test]
async fn a_slow_first_token_comes_after_the_head_and_in_the_slot() {
    let engine = engine(with("slow-ttft=1h")).await;
    let mut wire = Wire::to(&engine).await;
    wire.send("POST", PATH, "", BODY).await;
    wire.read_until("200 OK").await;
    assert_eq!(engine.stats().running, 1);
    assert_eq!(engine.stats().generated_tokens, 0);
    engine.set_faults(vec!["slow-ttft=10ms".parse().expect("a fault")]);
    let answer = ask(&engine, "POST", PATH, "", BODY).await;
    assert!(answer.body.contains("The"), "{}", answer.body);
}

#[tokio::test]
async fn one_page_can_be_a_black_hole_while_the_rest_answers() {
    let engine = engine(with("hang@/metrics")).await;
    let mut metrics = Wire::to(&engine).await;
    metrics.send("GET", "/metrics", "", "").await;
    until("it has arrived", || engine.requests().len() == 1).await;
    assert_eq!(ask(&engine, "POST", PATH, "", BODY).await.status, 200);
    assert_eq!(get(&engine, "/v1/models").await.status, 200);
    assert_eq!(engine.requests()[0].status, None);
}
