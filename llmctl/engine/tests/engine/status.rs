//! Health, metrics and what each engine says about itself.

use serde_json::json;
use sim_engine::{Dialect, Options};

use crate::harness::{Wire, engine, get, post, slow, until};

fn imitating(dialect: Dialect) -> Options {
    Options { dialect, ..slow() }
}

/// The metrics page while one request runs and one waits.
async fn busy_page(dialect: Dialect) -> String {
    let engine = engine(imitating(dialect)).await;
    let mut wires = Vec::new();
    for _ in 0..2 {
        let mut wire = Wire::to(&engine).await;
        wire.send(
            "POST",
            "/v1/completions",
            "",
            r#"{"prompt": "a b c", "stream": true}"#,
        )
        .await;
        wires.push(wire);
    }
    until("one runs and one waits", || {
        (engine.stats().running, engine.stats().waiting) == (1, 1)
    })
    .await;
    until("the first token is out", || {
        engine.stats().generated_tokens == 1
    })
    .await;
    get(&engine, "/metrics").await.body
}

#[tokio::test]
async fn vllm_names() {
    let page = busy_page(Dialect::Vllm).await;
    let labels = "engine=\"0\",model_name=\"sim\"";
    for line in [
        format!("vllm:num_requests_running{{{labels}}} 1.0\n"),
        format!("vllm:num_requests_waiting{{{labels}}} 1.0\n"),
        format!("vllm:num_requests_waiting_by_reason{{{labels},reason=\"capacity\"}} 1.0\n"),
        format!("vllm:prefix_cache_queries_total{{{labels}}} 3.0\n"),
        format!("vllm:time_to_first_token_seconds_bucket{{{labels},le=\"+Inf\"}} 1.0\n"),
        "# TYPE vllm:kv_cache_usage_perc gauge\n".to_owned(),
        "# TYPE vllm:e2e_request_latency_seconds histogram\n".to_owned(),
    ] {
        assert!(page.contains(&line), "{line} is not in\n{page}");
    }
}

#[tokio::test]
async fn sglang_names() {
    let page = busy_page(Dialect::Sglang).await;
    let labels = "engine_type=\"unified\",model_name=\"sim\",pp_rank=\"0\",tp_rank=\"0\"";
    for name in [
        "sglang:num_running_reqs",
        "sglang:num_queue_reqs",
        "sglang:generation_tokens_total",
    ] {
        assert!(
            page.contains(&format!("{name}{{{labels}}} 1.0\n")),
            "{name} is not in\n{page}"
        );
    }
}

#[tokio::test]
async fn llamacpp_names_of_both_generations() {
    let current = busy_page(Dialect::Llamacpp).await;
    assert!(
        current.contains("\nllamacpp:requests_processing 1\n"),
        "{current}"
    );
    assert!(
        current.contains("\nllamacpp:requests_deferred 1\n"),
        "{current}"
    );
    let old = busy_page(Dialect::LlamacppOld).await;
    assert!(
        old.contains("\nllama_slots_busy 1\n") && !old.contains("requests_processing"),
        "{old}"
    );
}

#[tokio::test]
async fn llamacpp_tells_its_slots() {
    let engine = engine(imitating(Dialect::Llamacpp)).await;
    assert_eq!(
        get(&engine, "/health").await.json(),
        json!({"status": "ok"})
    );
    assert_eq!(get(&engine, "/props").await.json()["total_slots"], 1);
    assert_eq!(
        get(&engine, "/slots").await.json()[0]["is_processing"],
        false
    );
    let mut wire = Wire::to(&engine).await;
    wire.send(
        "POST",
        "/v1/completions",
        "",
        r#"{"prompt": "a", "stream": true}"#,
    )
    .await;
    until("it runs", || engine.stats().running == 1).await;
    assert_eq!(
        get(&engine, "/slots").await.json()[0]["is_processing"],
        true
    );
}

#[tokio::test]
async fn other_engines_have_no_slots_page() {
    let engine = engine(imitating(Dialect::Vllm)).await;
    assert_eq!(get(&engine, "/health").await.body, "");
    assert_eq!(get(&engine, "/slots").await.status, 404);
    assert_eq!(
        get(&engine, "/nowhere").await.json()["error"]["type"],
        "NotFoundError"
    );
}

#[tokio::test]
async fn a_stream_of_llamacpp_is_silent_until_its_first_token() {
    for (dialect, silent) in [(Dialect::Vllm, false), (Dialect::Llamacpp, true)] {
        let engine = engine(imitating(dialect)).await;
        let body = r#"{"prompt": "a", "stream": true}"#;
        let mut running = Wire::to(&engine).await;
        running.send("POST", "/v1/completions", "", body).await;
        running.read_until("The").await;
        let mut queued = Wire::to(&engine).await;
        queued.send("POST", "/v1/completions", "", body).await;
        until("it waits", || engine.stats().waiting == 1).await;
        if silent {
            assert_eq!(engine.requests()[1].status, None);
        } else {
            queued.read_until("200 OK").await;
        }
    }
}

#[tokio::test]
async fn tokens_of_a_text_are_the_tokens_that_are_billed() {
    let engine = engine(Options::default()).await;
    let tokens = post(&engine, "/tokenize", &json!({"prompt": "Hello, world!"}))
        .await
        .json();
    assert_eq!(tokens["count"], 4);
    let billed = post(
        &engine,
        "/v1/completions",
        &json!({"prompt": "Hello, world!", "max_tokens": 1}),
    )
    .await;
    assert_eq!(billed.json()["usage"]["prompt_tokens"], 4);
    let ids = post(
        &engine,
        "/v1/completions",
        &json!({"prompt": tokens["tokens"], "max_tokens": 1}),
    )
    .await;
    assert_eq!(ids.json()["usage"]["prompt_tokens"], 4);
}

#[tokio::test]
async fn the_control_paths_leave_no_trace_in_the_log() {
    let engine = engine(Options::default()).await;
    get(&engine, "/v1/models").await;
    get(&engine, "/sim/stats").await;
    let requests = get(&engine, "/sim/requests").await.json();
    assert_eq!(requests["requests"].as_array().map(Vec::len), Some(1));
    assert_eq!(requests["requests"][0]["target"], "/v1/models");
}
