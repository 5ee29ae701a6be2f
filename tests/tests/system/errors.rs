//! The shape of every refusal, in both dialects, and what the SDKs read from its headers.

use serde_json::{Value, json};
use system_tests::peer::{Gate, Peer, Refusing};
use system_tests::wire::{Reply, Wire};

use crate::common::{CHAT, CHAT_PATH, over, setup};

const MESSAGES: &str = "/r/v1/messages";

/// Checks the shape of an OpenAI error and returns its inner object.
fn openai(reply: &Reply) -> Value {
    let json = reply.json();
    let error = &json["error"];
    assert_eq!(reply.header("content-type"), "application/json");
    assert!(
        error["message"].is_string() && error["type"].is_string() && error["code"].is_string(),
        "{json}"
    );
    assert!(error.as_object().unwrap().contains_key("param"), "{json}");
    assert_eq!(json.as_object().unwrap().len(), 1, "{json}");
    error.clone()
}

/// Checks the shape of an Anthropic error and returns it.
fn anthropic(reply: &Reply) -> Value {
    let json = reply.json();
    assert_eq!(reply.header("content-type"), "application/json");
    assert_eq!(json["type"], "error", "{json}");
    assert!(
        json["error"]["type"].is_string() && json["error"]["message"].is_string(),
        "{json}"
    );
    json
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_key_in_both_dialects() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").keys("sk-a:alice\n").start().await;
    let reply = router.post(CHAT_PATH, CHAT).await;
    assert_eq!(
        (reply.status, openai(&reply)["code"].clone()),
        (401, json!("invalid_api_key"))
    );
    assert_eq!(reply.header("www-authenticate"), "Bearer");
    let reply = router.post(MESSAGES, "{}").await;
    assert_eq!(reply.status, 401);
    assert_eq!(anthropic(&reply)["error"]["type"], "authentication_error");
    assert_eq!(reply.header("request-id"), reply.header("x-request-id"));
}

#[tokio::test(flavor = "multi_thread")]
async fn load_refusal_carries_numbers_and_both_retry_headers() {
    let gate = Gate::default();
    let peer = Peer::gated(&gate).await;
    let route = format!("peers: [{{address: {}, max_concurrency: 1}}]", peer.address);
    let router = setup().route("r", &route).start().await;
    let (_, ()) = tokio::join!(router.post(CHAT_PATH, CHAT), async {
        peer.running(1).await;
        let reply = router.post(CHAT_PATH, CHAT).await;
        let error = openai(&reply);
        assert_eq!(
            (reply.status, &error["code"]),
            (429, &json!("concurrency_limit"))
        );
        assert_eq!(
            (&error["limit"], &error["in_flight"], &error["route"]),
            (&json!(1), &json!(1), &json!("r"))
        );
        assert!(reply.header("retry-after").parse::<u64>().unwrap() >= 1);
        assert!(reply.header("retry-after-ms").parse::<u64>().unwrap() >= 1);
        assert_eq!(reply.headers.get("x-should-retry"), None);
        let reply = router.post(MESSAGES, "{}").await;
        let error = anthropic(&reply);
        assert_eq!(
            (reply.status, &error["error"]["type"]),
            (429, &json!("rate_limit_error"))
        );
        assert_eq!(error["details"]["limit"], json!(1));
        gate.open(1);
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn full_status_503_keeps_the_code_and_the_headers() {
    let gate = Gate::default();
    let peer = Peer::gated(&gate).await;
    let route = format!(
        "peers: [{{address: {}, max_concurrency: 1}}]\nfull_status: 503",
        peer.address
    );
    let router = setup().route("r", &route).start().await;
    let (_, ()) = tokio::join!(router.post(CHAT_PATH, CHAT), async {
        peer.running(1).await;
        let reply = router.post(CHAT_PATH, CHAT).await;
        assert_eq!(
            (reply.status, openai(&reply)["code"].clone()),
            (503, json!("concurrency_limit"))
        );
        assert!(
            !reply.header("retry-after").is_empty() && !reply.header("retry-after-ms").is_empty()
        );
        gate.open(1);
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_reachable_is_502_and_then_503() {
    let dead = Refusing::bind();
    let route = format!(
        "peers: [{{address: {}}}]\nhealth_check_interval: 1h",
        dead.address
    );
    let router = setup().route("r", &route).start().await;
    let reply = router.post(CHAT_PATH, CHAT).await;
    let code = openai(&reply)["code"].clone();
    // The first probe may have banned it before the first request.
    assert!(
        (reply.status, &code) == (502, &json!("upstream_error"))
            || (reply.status, &code) == (503, &json!("no_healthy_peer")),
        "{} {code}",
        reply.status
    );
    let reply = router.post(CHAT_PATH, CHAT).await;
    assert_eq!(
        (reply.status, openai(&reply)["code"].clone()),
        (503, json!("no_healthy_peer"))
    );
    assert_eq!(reply.header("retry-after"), "5");
    let reply = router.post(MESSAGES, "{}").await;
    assert_eq!(reply.status, 503);
    assert_eq!(anthropic(&reply)["details"]["code"], "no_healthy_peer");
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_headers_are_504() {
    let gate = Gate::default();
    let peer = Peer::gated(&gate).await;
    let router = over(&[&peer], "")
        .server("response_timeout: 200ms")
        .start()
        .await;
    let reply = router.post(CHAT_PATH, CHAT).await;
    assert_eq!(
        (reply.status, openai(&reply)["code"].clone()),
        (504, json!("upstream_timeout"))
    );
    assert_eq!(
        peer.requests().len(),
        1,
        "a time-out after the request was sent is not retried"
    );
    peer.cancelled(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn request_timeout_of_the_route_is_504_before_headers() {
    let gate = Gate::default();
    let peer = Peer::gated(&gate).await;
    let router = over(&[&peer], "request_timeout: 200ms").start().await;
    let reply = router.post(CHAT_PATH, CHAT).await;
    assert_eq!(
        (reply.status, openai(&reply)["code"].clone()),
        (504, json!("upstream_timeout"))
    );
    peer.cancelled(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn request_timeout_counts_from_the_first_byte_of_the_upload() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "request_timeout: 200ms").start().await;
    let mut wire = Wire::connect(router.public).await;
    wire.send(format!(
        "POST {CHAT_PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nhalf"
    ))
    .await;
    let reply = wire.reply("POST").await;
    assert_eq!(
        (reply.status, openai(&reply)["code"].clone()),
        (504, json!("upstream_timeout"))
    );
    assert!(peer.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_decides_its_route_has_the_time_of_the_most_patient_route() {
    let peer = Peer::plain().await;
    let route = |limit| format!("peers: [{}]\nrequest_timeout: {limit}\n", peer.yaml());
    let router = setup()
        .route("hasty", &route("10ms"))
        .route("patient", &route("300ms"))
        .start()
        .await;
    let mut wire = Wire::connect(router.public).await;
    wire.send("POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nhalf")
        .await;
    let reply = wire.reply("POST").await;
    let error = openai(&reply);
    assert_eq!(
        (reply.status, &error["code"], &error["limit_s"]),
        (504, &json!("upstream_timeout"), &json!(0.3))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_before_its_route_is_looked_at_still_has_the_dialect_and_headers() {
    let peer = Peer::plain().await;
    let route = format!("peers: [{}]", peer.yaml());
    let router = setup()
        .route("r", &route)
        .route("hidden", &format!("{route}\nexpose_routing_headers: false"))
        .start()
        .await;
    let big = "v".repeat(70 << 10);
    let cases = [
        ("/nowhere/v1/messages", "", 404, "-"),
        ("/r/v1/messages/../x", "", 400, "-"),
        ("/r/v1/messages", &big, 431, "-"),
        ("/hidden/v1/messages", &big, 431, ""),
    ];
    for (path, extra, status, session) in cases {
        let reply = router.post_with(path, &[("x-extra", extra)], "{}").await;
        assert_eq!(reply.status, status, "{path}");
        anthropic(&reply);
        assert_eq!(reply.header("request-id"), reply.header("x-request-id"));
        let shown = reply.headers.get("x-routed-session").unwrap_or_default();
        assert_eq!(shown, session, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_route_that_hides_its_headers_hides_them_without_a_prefix_too() {
    let peer = Peer::plain().await;
    let hidden = format!(
        "peers_by_model: {{m: [{}]}}\nexpose_routing_headers: false\nmax_body_size: 1k",
        peer.yaml()
    );
    let router = setup().route("hidden", &hidden).start().await;
    let big = "v".repeat(70 << 10);
    let extra = [("x-extra", big.as_str())];
    let reply = router.post_with("/v1/messages", &extra, "{}").await;
    assert_eq!(reply.status, 431);
    assert_eq!(reply.headers.get("x-routed-session"), None);

    let other = format!("peers_by_model: {{other: [{}]}}", peer.yaml());
    let router = setup()
        .route("hidden", &hidden)
        .route("other", &other)
        .start()
        .await;
    let body = format!(r#"{{"model":"m","x":"{}"}}"#, "x".repeat(2000));
    let reply = router.post("/v1/chat/completions", &body).await;
    assert_eq!(
        (reply.status, &openai(&reply)["limit"]),
        (413, &json!(1024))
    );
    assert_eq!(reply.headers.get("x-routed-session"), None);
}

/// One request that the router answers itself: the setup it needs, and the expected answer.
struct Refusal {
    options: &'static str,
    body: &'static str,
    status: u16,
    code: &'static str,
    anthropic: &'static str,
}

#[tokio::test(flavor = "multi_thread")]
async fn every_refusal_speaks_the_dialect_of_its_path() {
    let rule = "reject_rules: [{name: no, field: max_tokens, op: gt, value: 1}]";
    let refusals = [
        Refusal {
            options: "api_keys: {sk-a: a}",
            body: "{}",
            status: 401,
            code: "invalid_api_key",
            anthropic: "authentication_error",
        },
        Refusal {
            options: rule,
            body: r#"{"max_tokens":2}"#,
            status: 429,
            code: "rejected_by_rule",
            anthropic: "rate_limit_error",
        },
        Refusal {
            options: "max_body_size: 1k",
            body: Box::leak(" ".repeat(2000).into_boxed_str()),
            status: 413,
            code: "body_too_large",
            anthropic: "request_too_large",
        },
        Refusal {
            options: "request_timeout: 100ms",
            body: "{}",
            status: 504,
            code: "upstream_timeout",
            anthropic: "timeout_error",
        },
    ];
    let gate = Gate::default();
    for refusal in &refusals {
        let peer = Peer::gated(&gate).await;
        let router = over(&[&peer], refusal.options).start().await;
        for path in ["/v1/messages", "/v1/messages/count_tokens"] {
            let reply = router.post(&format!("/r{path}"), refusal.body).await;
            let error = anthropic(&reply);
            assert_eq!(reply.status, refusal.status, "{error}");
            assert_eq!(error["error"]["type"], refusal.anthropic);
            assert_eq!(error["details"]["code"], refusal.code);
            assert_eq!(reply.header("request-id"), reply.header("x-request-id"));
        }
        for path in [
            "/v1/responses",
            "/v1/chat/completions",
            "/v1/completions",
            "/v1/embeddings",
        ] {
            let reply = router.post(&format!("/r{path}"), refusal.body).await;
            let error = openai(&reply);
            assert_eq!(
                (reply.status, &error["code"]),
                (refusal.status, &json!(refusal.code))
            );
            assert_eq!(reply.headers.get("request-id"), None);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_engines_own_errors_pass_unchanged() {
    for status in [400, 401, 404, 409, 422, 429, 500, 504] {
        let body = r#"{"object":"error","message":"the engine's own words","code":1}"#;
        let peer = Peer::fixed(status, body).await;
        let router = over(&[&peer], "").start().await;
        let reply = router.post(CHAT_PATH, CHAT).await;
        assert_eq!((reply.status, reply.text().as_str()), (status, body));
        assert_eq!(reply.headers.get("x-should-retry"), None);
        assert_eq!(peer.requests().len(), 1, "{status} is not retried");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_route_file_makes_that_route_alone_answer_503() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "")
        .route("bad", "peers: [{addres: 10.0.0.1:1}]")
        .start()
        .await;
    for path in [
        "/bad/v1/chat/completions",
        "/bad/finish_session?session_id=s",
    ] {
        let reply = router.post(path, CHAT).await;
        assert_eq!(
            (reply.status, openai(&reply)["code"].clone()),
            (503, json!("route_invalid"))
        );
        // Until somebody repairs the file.
        assert_eq!(reply.header("x-should-retry"), "false");
    }
    assert_eq!(router.post(CHAT_PATH, CHAT).await.status, 200);
}
