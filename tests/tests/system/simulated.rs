//! The router in front of the simulated engines of `llmctl`: the gain from affinity, and what a
//! client sees when an engine dies.

use std::collections::HashSet;

use serde_json::{Value, json};
use sim_engine::{Engine, EngineHandle, Options};
use system_tests::router::{Router, Setup};
use system_tests::wait::until;
use system_tests::wire::{End, Reply, Wire};

use crate::common::setup;

async fn engines(count: usize, options: &Options) -> Vec<EngineHandle> {
    let mut engines = Vec::new();
    for _ in 0..count {
        engines.push(Engine::local(options.clone()).await.unwrap());
    }
    engines
}

fn over(engines: &[EngineHandle], options: &str) -> Setup {
    let list: Vec<_> = engines
        .iter()
        .map(|engine| format!("{{address: {}}}", engine.addr))
        .collect();
    setup().route("r", &format!("peers: [{}]\n{options}\n", list.join(", ")))
}

async fn turn(router: &Router, session: &str, messages: &[Value]) -> Reply {
    let body = json!({"model": "sim", "user": session, "messages": messages, "max_tokens": 16});
    let reply = router
        .post("/r/v1/chat/completions", &body.to_string())
        .await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply
}

#[tokio::test(flavor = "multi_thread")]
async fn every_turn_after_the_first_finds_its_prefix_in_the_cache() {
    let engines = engines(3, &Options::default()).await;
    let router = over(&engines, "").start().await;
    let mut homes = HashSet::new();
    for conversation in 0..9 {
        let session = format!("conversation-{conversation}");
        let opening = format!("{session}: {}", "remember these words ".repeat(30));
        let mut messages = vec![json!({"role": "user", "content": opening})];
        let mut home = None;
        for n in 0..4 {
            let reply = turn(&router, &session, &messages).await;
            let answer = reply.json();
            let cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
                .as_u64()
                .unwrap_or(0);
            let peer = reply.header("x-routed-peer").to_owned();
            assert!(n == 0 || cached >= 16, "turn {n} of {session}: {answer}");
            assert_eq!(home.get_or_insert_with(|| peer.clone()), &peer);
            messages.push(answer["choices"][0]["message"].clone());
            messages.push(json!({"role": "user", "content": "and then?"}));
        }
        homes.extend(home);
    }
    assert!(homes.len() > 1, "all nine conversations live on one engine");
}

#[tokio::test(flavor = "multi_thread")]
async fn engine_killed_in_mid_stream_is_an_error_and_the_session_moves() {
    let mut pace = Options::default().pace;
    pace.itl = std::time::Duration::from_millis(20);
    let engines = engines(
        2,
        &Options {
            pace,
            ..Options::default()
        },
    )
    .await;
    let router = over(&engines, "").start().await;
    let body = json!({"model": "sim", "user": "s", "stream": true, "max_tokens": 4000,
        "messages": [{"role": "user", "content": "hi"}]});
    let mut wire = Wire::connect(router.public).await;
    wire.request(
        "POST",
        "/r/v1/chat/completions",
        &[],
        body.to_string().as_bytes(),
    )
    .await;
    let head = wire.head("POST").await;
    wire.piece().await.unwrap();
    let home = head.headers.get("x-routed-peer").unwrap().to_owned();
    let victim = engines
        .iter()
        .find(|engine| engine.addr.to_string() == home)
        .unwrap();
    victim.kill().await;
    let (rest, end) = wire.body().await;
    let rest = String::from_utf8_lossy(&rest);
    assert_eq!(end, End::Broken);
    assert!(
        rest.trim_end()
            .rsplit("\n\n")
            .next()
            .unwrap()
            .starts_with("data: {\"error\""),
        "{rest}"
    );
    let reply = turn(&router, "s", &[json!({"role": "user", "content": "hi"})]).await;
    assert_ne!(reply.header("x-routed-peer"), home);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_api_of_the_engine_streams_to_its_end() {
    let engines = engines(1, &Options::default()).await;
    let router = over(&engines, "").start().await;
    let messages = json!([{"role": "user", "content": "hi"}]);
    let apis = [
        (
            "chat/completions",
            json!({"model": "sim", "stream": true, "messages": messages}),
            "data: [DONE]",
        ),
        (
            "completions",
            json!({"model": "sim", "stream": true, "prompt": "hi"}),
            "data: [DONE]",
        ),
        (
            "responses",
            json!({"model": "sim", "stream": true, "input": "hi"}),
            "response.completed",
        ),
        (
            "messages",
            json!({"model": "sim", "stream": true, "max_tokens": 8, "messages": messages}),
            "message_stop",
        ),
    ];
    for (api, body, last) in apis {
        let reply = router
            .post(&format!("/r/v1/{api}"), &body.to_string())
            .await;
        assert_eq!((reply.status, reply.end), (200, End::Clean), "{api}");
        assert!(reply.text().contains(last), "{api}: {}", reply.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_of_every_api_are_counted_by_owner_and_written_to_the_access_log() {
    let engines = engines(1, &Options::default()).await;
    let router = over(&engines, "")
        .keys("sk-one:team")
        .env("LLM_ROUTER_LOG_FORMAT", "json")
        .start()
        .await;
    let messages = json!([{"role": "user", "content": "count these words"}]);
    let asked = json!({"include_usage": true});
    let apis = [
        (
            "chat/completions",
            json!({"stream": true, "stream_options": asked, "messages": messages}),
        ),
        ("chat/completions", json!({"messages": messages})),
        (
            "completions",
            json!({"stream": true, "stream_options": asked, "prompt": "hi"}),
        ),
        ("responses", json!({"stream": true, "input": "hi"})),
        ("responses", json!({"input": "hi"})),
        ("messages", json!({"stream": true, "messages": messages})),
        ("messages", json!({"messages": messages})),
    ];
    for (n, (api, mut body)) in apis.into_iter().enumerate() {
        let (id, model) = (format!("id-{n}"), format!("sim-{n}"));
        body["model"] = json!(model);
        body["max_tokens"] = json!(8);
        let headers = [("x-request-id", &*id), ("authorization", "Bearer sk-one")];
        let path = format!("/r/v1/{api}");
        let reply = router.post_with(&path, &headers, &body.to_string()).await;
        assert_eq!(reply.status, 200, "{api}: {}", reply.text());
        let line = router.program.line_with(&format!(r#""rid":"{id}""#)).await;
        let line: Value = serde_json::from_str(&line).unwrap();
        let tokens = line["tokens"].as_u64().unwrap();
        assert!(tokens >= 8, "{api}: {line}");
        let page = router.admin_get("/metrics").await.text();
        let counted = |kind: &str| {
            let series = format!(
                r#"llm_router_tokens_total{{route="r",model="{model}",owner="team",kind="{kind}"}} "#
            );
            let value = page.lines().find_map(|line| line.strip_prefix(&series));
            value.and_then(|value| value.parse::<u64>().ok())
        };
        assert_eq!(counted("completion"), Some(tokens), "{api}: {page}");
        assert!(counted("prompt") > Some(0), "{api}: {page}");
        let found = router.admin_get("/r/_decisions?n=1").await.json();
        assert_eq!(
            found["decisions"][0]["usage"]["completion"], tokens,
            "{api}: {found}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_leaves_is_a_cancelled_request_of_the_engine() {
    let mut pace = Options::default().pace;
    pace.itl = std::time::Duration::from_millis(20);
    let engines = engines(
        1,
        &Options {
            pace,
            ..Options::default()
        },
    )
    .await;
    let router = over(&engines, "").start().await;
    let body = json!({"model": "sim", "stream": true, "max_tokens": 4000,
        "messages": [{"role": "user", "content": "hi"}]});
    let mut wire = Wire::connect(router.public).await;
    wire.request(
        "POST",
        "/r/v1/chat/completions",
        &[],
        body.to_string().as_bytes(),
    )
    .await;
    wire.head("POST").await;
    wire.piece().await.unwrap();
    drop(wire);
    until("the engine to count the cancel", || {
        engines[0].stats().cancelled == 1
    })
    .await;
    assert_eq!(engines[0].stats().running, 0);
}
