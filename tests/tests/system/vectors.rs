//! Numbered vectors from the written request-path specification, as far as they need a whole
//! router. The core tests the vectors of placement, and the key file tests those of keys.

use serde_json::json;
use system_tests::peer::Peer;

use crate::common::{CHAT, over, setup};

/// The vector has 10m as the default of a route: a 5 MiB body passes and 20 MiB does not. A route
/// with 64m accepts 60 MiB and refuses 110 MiB.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_are_bounded_by_their_route() {
    let peer = Peer::plain().await;
    let wide = format!("peers: [{}]\nmax_body_size: 64m\n", peer.yaml());
    let router = over(&[&peer], "").route("wide", &wide).start().await;
    let cases = [
        ("/r/v1/x", 5, 200),
        ("/r/v1/x", 20, 413),
        ("/wide/v1/x", 60, 200),
        ("/wide/v1/x", 110, 413),
    ];
    for (path, mebibytes, status) in cases {
        let body = "x".repeat(mebibytes << 20);
        let reply = router.post(path, &body).await;
        assert_eq!(reply.status, status, "{mebibytes} MiB to {path}");
    }
}

/// The implementation in the specification answers 502 and leaves 404 to a new design. The contract
/// requires 404, so that an unknown route does not look like a dead engine.
#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_route_is_404() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    let reply = router.post("/nosuch/v1/x", CHAT).await;
    assert_eq!(reply.status, 404);
    assert_eq!(reply.json()["error"]["code"], "route_not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn healthz_says_ok() {
    let router = setup().start().await;
    let reply = router.admin_get("/healthz").await;
    assert_eq!((reply.status, reply.text().as_str()), (200, "ok\n"));
}

/// This uses the contract's error shape instead of the specification's.
#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_model_of_a_by_model_route_gets_the_list() {
    let peer = Peer::plain().await;
    let route = format!("peers_by_model: {{m1: [{}]}}\n", peer.yaml());
    let router = setup().route("r", &route).start().await;
    let reply = router
        .post("/r/v1/chat/completions", r#"{"model":"nope"}"#)
        .await;
    assert_eq!(reply.status, 400);
    let body = reply.json();
    assert_eq!(body["error"]["code"], "model_not_supported");
    assert_eq!(body["error"]["supported_models"], json!(["m1"]));
    let metrics = router.admin_get("/metrics").await.text();
    let refused = metrics
        .lines()
        .filter(|line| line.starts_with("llm_router_refusals_total"));
    assert!(refused.clone().count() > 0);
    for line in refused {
        assert!(line.ends_with(" 0"), "{line}");
    }
}
