//! `/_findings` names a problem, and drops it once it is solved.

use serde_json::Value;
use system_tests::peer::{COMPLETION, Peer};
use system_tests::router::Router;
use system_tests::wire::Wire;

use crate::common::{CHAT, CHAT_PATH, setup};

async fn findings(router: &Router) -> Vec<Value> {
    let page = router.admin_get("/_findings").await.json();
    page["findings"].as_array().cloned().unwrap_or_default()
}

/// The only finding with this code.
async fn finding(router: &Router, code: &str) -> Value {
    let all = findings(router).await;
    let mut found: Vec<_> = all.iter().filter(|one| one["code"] == code).collect();
    assert_eq!(found.len(), 1, "{code} once in {all:#?}");
    found.remove(0).clone()
}

fn one(peer: &Peer) -> String {
    format!("peers: [{{address: {}}}]\napi_keys: {{}}\n", peer.address)
}

fn two(one: &Peer, other: &Peer) -> String {
    format!(
        "peers: [{{address: {}}}, {{address: {}}}]\nbalance: round_robin\nmax_more_tries: 0\napi_keys: {{}}\n",
        one.address, other.address
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quiet_router_has_no_findings() {
    let peer = Peer::plain().await;
    let router = setup().route("r", &one(&peer)).start().await;
    router.post(CHAT_PATH, CHAT).await;
    assert_eq!(findings(&router).await, [] as [Value; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_answers_500_is_named_with_its_share() {
    let bad = Peer::fixed(500, r#"{"error":{"message":"no"}}"#).await;
    let good = Peer::plain().await;
    let router = setup().route("r", &two(&bad, &good)).start().await;
    for _ in 0..12 {
        router.post(CHAT_PATH, CHAT).await;
    }
    let finding = finding(&router, "peer_failing").await;
    assert_eq!(finding["severity"], "critical");
    assert_eq!(finding["route"], "r");
    assert_eq!(finding["peer"], bad.address.to_string());
    assert_eq!(finding["count"], finding["of"]);
    assert_eq!(finding["last_s"], 0);
    assert!(finding["text"].as_str().unwrap().contains("5xx"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_404_of_one_engine_points_at_the_engine() {
    let odd = Peer::fixed(404, r#"{"error":{"message":"no such model"}}"#).await;
    let good = Peer::plain().await;
    let router = setup().route("r", &two(&odd, &good)).start().await;
    for _ in 0..12 {
        router.post(CHAT_PATH, CHAT).await;
    }
    let finding = finding(&router, "peer_not_found").await;
    assert_eq!(finding["peer"], odd.address.to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_leave_a_silent_engine_show_that_it_hangs() {
    let peer = Peer::spawn(|_, mut exchange| async move {
        exchange.gone().await;
        exchange
    })
    .await;
    let router = setup().route("r", &one(&peer)).start().await;
    for waiting in 1..=5 {
        let mut client = Wire::connect(router.public).await;
        client
            .request("POST", CHAT_PATH, &[], CHAT.as_bytes())
            .await;
        peer.arrived(waiting).await;
        drop(client);
        peer.cancelled(waiting).await;
    }
    router
        .admin_until("/_findings", "a hung peer", |page| {
            page["findings"][0]["code"] == "peer_hung"
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_for_a_small_limit_are_counted_by_route() {
    let gate = system_tests::peer::Gate::default();
    let peer = Peer::gated(&gate).await;
    let route = format!(
        "peers: [{{address: {}, max_concurrency: 1}}]\n",
        peer.address
    );
    let router = setup().route("r", &route).start().await;
    let mut client = Wire::connect(router.public).await;
    client
        .request("POST", CHAT_PATH, &[], CHAT.as_bytes())
        .await;
    peer.arrived(1).await;
    for _ in 0..20 {
        assert_eq!(router.post(CHAT_PATH, CHAT).await.status, 429);
    }
    let finding = finding(&router, "concurrency_limit").await;
    assert_eq!(
        (&finding["count"], &finding["of"]),
        (&20.into(), &20.into())
    );
    gate.open(1);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_keys_are_a_finding_and_no_key_is_shown() {
    let peer = Peer::plain().await;
    let router = setup()
        .keys("sk-right:alice\n")
        .route("r", &format!("peers: [{{address: {}}}]\n", peer.address))
        .start()
        .await;
    for _ in 0..6 {
        let headers = [("authorization", "Bearer sk-wrong")];
        let reply = router.post_with(CHAT_PATH, &headers, CHAT).await;
        assert_eq!(reply.status, 401);
    }
    let page = router.admin_get("/_findings").await.text();
    assert!(page.contains(r#""code":"unauthorized""#), "{page}");
    assert!(!page.contains("sk-"), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_session_id_with_each_request_is_named() {
    let peer = Peer::spawn(|_, mut exchange| async move {
        let json = [("content-type", "application/json")];
        exchange.reply(200, &json, COMPLETION).await;
        exchange
    })
    .await;
    let router = setup().route("r", &one(&peer)).start().await;
    for session in 0..30 {
        let headers = [("x-session-id", &*format!("s{session}"))];
        router.post_with(CHAT_PATH, &headers, CHAT).await;
    }
    let finding = finding(&router, "sessions_seen_once").await;
    let text = finding["text"].as_str().unwrap();
    assert!(text.starts_with("30 of the last 30 sessions"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switch_that_somebody_forgot_is_named_with_its_age() {
    let peer = Peer::plain().await;
    let router = setup().route("r", &one(&peer)).start().await;
    router.admin_post("/r/_rate_limit_toggle?on=0").await;
    let finding = finding(&router, "override_in_force").await;
    assert_eq!(finding["severity"], "info");
    assert!(
        finding["text"]
            .as_str()
            .unwrap()
            .contains("rate-limit is off")
    );
    router.admin_post("/r/_rate_limit_toggle?reset=1").await;
    let all = findings(&router).await;
    assert!(all[0]["text"].as_str().unwrap().starts_with("over: "));
}
