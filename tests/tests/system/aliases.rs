//! Names that clients ask for, and the models that are served instead.

use serde_json::{Value, json};
use system_tests::peer::Peer;
use system_tests::wire::Reply;

use crate::common::{over, setup};

const STREAM: &str = "data: {\"id\":\"1\",\"model\":\"qwen3\",\"choices\":[{\"delta\":{\"content\":\"model qwen3\"}}]}\n\ndata: [DONE]\n\n";

/// An engine that answers by the model which it was asked for, as a stream if it was asked to.
async fn engine() -> Peer {
    Peer::spawn(|seen, mut exchange| async move {
        let body: Value = serde_json::from_slice(&seen.body).unwrap_or_default();
        if body["stream"] == true {
            exchange.open_stream().await;
            exchange.chunk(STREAM).await;
            exchange.end_chunks().await;
            return exchange;
        }
        let answer = json!({"id": "1", "model": body["model"], "choices": []}).to_string();
        let kind = [("content-type", "application/json")];
        exchange.reply(200, &kind, answer).await;
        exchange
    })
    .await
}

fn asked(peer: &Peer) -> Vec<Value> {
    let body = |seen: &system_tests::peer::Seen| serde_json::from_slice::<Value>(&seen.body);
    let bodies = peer
        .requests()
        .iter()
        .map(|seen| body(seen).unwrap())
        .collect::<Vec<_>>();
    bodies.iter().map(|body| body["model"].clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_engine_sees_the_served_model_and_the_client_the_one_it_asked_for() {
    let peer = engine().await;
    let options = "models: {gpt-4o: qwen3, \"claude-*\": qwen3}";
    let router = over(&[&peer], options).start().await;
    let post = async |body: &str| router.post("/r/v1/chat/completions", body).await;
    assert_eq!(
        post(r#"{"model":"gpt-4o"}"#).await.json()["model"],
        "gpt-4o"
    );
    assert_eq!(
        post(r#"{"model":"claude-opus-4"}"#).await.json()["model"],
        "claude-opus-4"
    );
    assert_eq!(post(r#"{"model":"llama"}"#).await.json()["model"], "llama");
    assert_eq!(asked(&peer), ["qwen3", "qwen3", "llama"]);
    let stream: Reply = post(r#"{"model":"gpt-4o","stream":true}"#).await;
    assert_eq!(
        stream.text(),
        STREAM.replace("\"model\":\"qwen3\"", "\"model\":\"gpt-4o\"")
    );
    let receipts = router.admin_get("/_decisions?n=4").await.json().to_string();
    assert!(
        receipts.contains("\"model\":\"gpt-4o\"")
            && receipts.contains("\"served_model\":\"qwen3\""),
        "{receipts}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_in_the_query_is_replaced_and_aliases_are_counted_by_both_names() {
    let (a, b) = (engine().await, engine().await);
    let of = |model: &str, peer: &Peer| {
        format!(
            "models: {{gpt: {model}}}\npeers_by_model: {{{model}: [{}]}}",
            peer.yaml()
        )
    };
    let router = setup()
        .route("a", &of("a b", &a))
        .route("b", "{peers: [], models: {other: x}}")
        .route("c", &of("c", &b))
        .start()
        .await;
    for path in ["/v1/audio?x=%41&model=gpt&y", "/a/v1/audio?model=a+b"] {
        let sent = router.post(path, "{}").await;
        assert_eq!(sent.status, 200, "{path}");
    }
    let targets: Vec<_> = a
        .requests()
        .iter()
        .map(|seen| seen.target.clone())
        .collect();
    assert_eq!(
        targets,
        ["/v1/audio?x=%41&model=a%20b&y", "/v1/audio?model=a+b"]
    );
    let body = r#"{"model":"other"}"#;
    router.post("/a/v1/chat/completions?model=gpt", body).await;
    let page = router.admin_get("/metrics").await.text();
    let counted: Vec<_> = page
        .lines()
        .filter(|line| line.starts_with("llm_router_aliased_total") && !line.ends_with(" 0"))
        .collect();
    let expected = "llm_router_aliased_total{route=\"a\",asked=\"gpt\",model=\"a b\"} 1";
    assert_eq!(counted, [expected]);
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_keep_the_served_name_if_the_route_says_so() {
    let peer = engine().await;
    let options = "models: {gpt-4o: qwen3}\nalias_answers: served";
    let router = over(&[&peer], options).start().await;
    let body = r#"{"model":"gpt-4o"}"#;
    let reply = router.post("/r/v1/chat/completions", body).await;
    assert_eq!(reply.json()["model"], "qwen3");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alias_chooses_route_and_pool_by_the_served_name_and_is_listed() {
    let (a, b) = (engine().await, engine().await);
    let of = |model: &str, peer: &Peer| format!("peers_by_model: {{{model}: [{}]}}", peer.yaml());
    let router = setup()
        .main("defaults: {models: {fast: model-a, gpt-4o: model-b}}")
        .route("a", &of("model-a", &a))
        .route("b", &of("model-b", &b))
        .start()
        .await;
    let body = r#"{"model":"gpt-4o"}"#;
    let reply = router.post("/v1/chat/completions", body).await;
    assert_eq!(
        (reply.status, &reply.json()["model"]),
        (200, &json!("gpt-4o"))
    );
    assert_eq!((asked(&a), asked(&b)), (vec![], vec![json!("model-b")]));
    let ids = async |path: &str| {
        let list = router.get(path).await.json();
        let ids = list["data"].as_array().unwrap().clone();
        ids.iter()
            .map(|entry| entry["id"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids("/b/v1/models").await, ["model-b", "gpt-4o"]);
    assert_eq!(
        ids("/v1/models").await,
        ["model-a", "fast", "model-b", "gpt-4o"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn aliases_in_a_loop_are_an_error_of_the_check() {
    let peer = Peer::plain().await;
    let setup = over(&[&peer], "models: {a: b, b: a}");
    let checked = setup.run(&["--check"]).await;
    assert_eq!(checked.code, Some(1));
    let said = checked.stdout + &checked.stderr;
    assert!(
        said.contains("the aliases go in a loop: a → b → a"),
        "{said}"
    );
}
