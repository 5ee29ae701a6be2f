//! Limits of owners, over all routes: exact, given back, and told.

use serde_json::json;
use system_tests::peer::{Gate, Peer};
use system_tests::wire::Wire;

use crate::common::{CHAT, setup};

const FIRST: &str = "data: {\"choices\":[]}\n\n";
const DONE: &str = "data: [DONE]\n\n";
const STREAM: &str = r#"{"model":"m","stream":true,"messages":[]}"#;

fn key(name: &str) -> (String, String) {
    ("authorization".to_owned(), format!("Bearer key-of-{name}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_has_its_places_over_all_routes_and_gets_them_back() {
    let gate = Gate::default();
    let peer = Peer::streaming(&gate, FIRST, &[DONE]).await;
    let peers = format!(
        "peers: [{{address: '{}', max_concurrency: 64}}]\n",
        peer.address
    );
    let router = setup()
        .main("owners: {alice: {max_concurrency: 2}, default: {max_concurrency: 3}}")
        .keys("key-of-alice:alice\nkey-of-bob:bob\n")
        .route("a", &peers)
        .route("b", &peers)
        .start()
        .await;
    let mut wires = Vec::new();
    for route in ["a", "b"] {
        let mut wire = Wire::connect(router.public).await;
        let (name, value) = key("alice");
        let target = format!("/{route}/v1/chat/completions");
        wire.request("POST", &target, &[(&name, &value)], STREAM.as_bytes())
            .await;
        assert_eq!(wire.head("POST").await.status, 200);
        wire.body_until(FIRST).await;
        wires.push(wire);
    }
    let (name, alice) = key("alice");
    let refused = router
        .post_with("/a/v1/chat/completions", &[(&name, &alice)], CHAT)
        .await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("retry-after"), "1");
    let error = refused.json()["error"].clone();
    assert_eq!(
        (
            &error["code"],
            &error["owner"],
            &error["in_flight"],
            &error["limit"]
        ),
        (&json!("owner_limit"), &json!("alice"), &json!(2), &json!(2))
    );
    // In the client's dialect.
    let refused = router
        .post_with("/a/v1/messages", &[(&name, &alice)], CHAT)
        .await;
    assert_eq!(
        (refused.status, &refused.json()["error"]["type"]),
        (429, &json!("rate_limit_error"))
    );
    let page = router.admin_get("/_owners").await.json();
    assert_eq!(
        page["owners"][0],
        json!({"owner": "alice", "in_flight": 2, "max_concurrency": 2, "refused_concurrency": 2, "refused_rate": 0})
    );
    // One stream ends, one client leaves: both places are free again.
    gate.open(1);
    drop(wires.pop());
    router
        .admin_until("/_owners", "the places to come back", |page| {
            page["owners"][0]["in_flight"] == 0
        })
        .await;
    gate.open(64);
    let (name, bob) = key("bob");
    let served = router
        .post_with("/a/v1/chat/completions", &[(&name, &bob)], CHAT)
        .await;
    assert_eq!(served.status, 200, "another owner is not touched");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_is_too_fast_waits_and_a_reload_changes_its_limit() {
    let peer = Peer::plain().await;
    let router = setup()
        .main("owners: {'team-*': {requests_per_minute: 10}}")
        .keys("key-of-x:team-x\n")
        .route("r", &format!("peers: [{{address: '{}'}}]\n", peer.address))
        .start()
        .await;
    let (name, value) = key("x");
    let headers = [(name.as_str(), value.as_str())];
    let path = "/r/v1/chat/completions";
    assert_eq!(router.post_with(path, &headers, CHAT).await.status, 200);
    let refused = router.post_with(path, &headers, CHAT).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.json()["error"]["code"], "owner_rate_limit");
    let wait: u64 = refused.header("retry-after").parse().expect("a number");
    assert!((1..=6).contains(&wait), "{wait}");
    let main = std::fs::read_to_string(router.path().join("router.yaml")).expect("it is there");
    router.replace(
        "router.yaml",
        &main.replace("requests_per_minute: 10", "requests_per_minute: off"),
    );
    assert_eq!(router.admin_post("/_reload").await.status, 200);
    assert_eq!(router.post_with(path, &headers, CHAT).await.status, 200);
}
