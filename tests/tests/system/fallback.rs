//! Routes that take over before a client gets an error.

use serde_json::json;
use system_tests::peer::{Gate, Peer};

use crate::common::{CHAT, peers, setup};

fn route(list: &[&Peer], options: &str) -> String {
    format!("{}health_check_interval: 1h\n{options}\n", peers(list))
}

async fn named(name: &'static str) -> Peer {
    Peer::fixed(200, name).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_route_hands_requests_on_and_gets_its_session_back() {
    let gate = Gate::default();
    let (first, second) = (Peer::gated(&gate).await, named("{\"by\":\"second\"}").await);
    let router = setup()
        .route("a", &route(&[&first], "default_max: 1\nfallback: [b]"))
        .route("b", &route(&[&second], ""))
        .start()
        .await;
    let session = [("x-session-id", "s")];
    let post = async || {
        router
            .post_with("/a/v1/chat/completions", &session, CHAT)
            .await
    };
    let (one, two) = tokio::join!(post(), async {
        first.running(1).await;
        let two = post().await;
        gate.open(1);
        two
    });
    assert_eq!((one.status, two.status), (200, 200));
    assert_eq!(two.json()["by"], "second");
    let last = router.admin_get("/_decisions?n=2").await.json().to_string();
    assert!(
        last.contains("\"hops\":[{") && last.contains("\"concurrency_limit\""),
        "{last}"
    );
    let page = router.admin_get("/metrics").await.text();
    let counted = "llm_router_fallbacks_total{route=\"a\",to=\"b\"} 1";
    assert!(page.contains(counted), "{page}");
    gate.open(1);
    let back = post().await;
    assert_eq!(back.header("x-routed-peer"), first.address.to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_and_failing_peers_are_replaced_and_loops_end() {
    let (failing, last) = (
        Peer::fixed(503, "{}").await,
        named("{\"by\":\"last\"}").await,
    );
    let dead = "peers: [{address: '127.0.0.1:9'}]\nhealth_check_interval: 1h\n";
    let router = setup()
        .route("a", &format!("{dead}fallback: [b]"))
        .route("b", &route(&[&failing], "fallback: [a, c]"))
        .route("c", &route(&[&last], ""))
        .route("x", &format!("{dead}fallback: [y]"))
        .route("y", &format!("{dead}fallback: [x]"))
        .start()
        .await;
    let reply = router.post("/a/v1/chat/completions", CHAT).await;
    assert_eq!((reply.status, &reply.json()["by"]), (200, &json!("last")));
    let reply = router.post("/x/v1/chat/completions", CHAT).await;
    assert!([502, 503].contains(&reply.status), "{}", reply.status);
    assert_eq!(reply.json()["error"]["route"], "y");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_request_and_a_client_error_stay_where_they_are() {
    let (first, second) = (Peer::fixed(400, "{}").await, named("{}").await);
    let router = setup()
        .route("a", &route(&[&first], "fallback: [b]"))
        .route("b", &route(&[&second], ""))
        .start()
        .await;
    assert_eq!(
        router.post("/a/v1/chat/completions", CHAT).await.status,
        400
    );
    assert!(second.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fallback_that_does_not_exist_is_an_error_of_the_check() {
    let peer = Peer::plain().await;
    let setup = setup().route("a", &route(&[&peer], "fallback: [nowhere, a]"));
    let checked = setup.run(&["--check"]).await;
    assert_eq!(checked.code, Some(1));
    let said = checked.stdout + &checked.stderr;
    assert!(said.contains("no route is named `nowhere`"), "{said}");
    assert!(said.contains("`a` is this route itself"), "{said}");
}
