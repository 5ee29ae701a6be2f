//! `full_policy: wait`: first come, first served, and every way to leave the queue.

use std::time::Duration;

use serde_json::json;
use system_tests::peer::{Gate, Peer};
use system_tests::router::Router;
use system_tests::wait::until_answer;
use system_tests::wire::{Wire, call};
use tokio::task::JoinHandle;

use crate::common::{CHAT, CHAT_PATH, setup};

/// A route with one slot, whose requests wait, with more options.
async fn one_slot(peer: &Peer, options: &str) -> Router {
    let route = format!(
        "peers: [{{address: {}, max_concurrency: 1}}]\nhealth_check_interval: 1h\nfull_policy: wait\n{options}\n",
        peer.address
    );
    setup().route("r", &route).start().await
}

/// Sends a request in the background. Its `user` distinguishes it from others.
#[expect(
    clippy::disallowed_methods,
    reason = "each test awaits what it asked for"
)]
fn ask(router: &Router, user: usize) -> JoinHandle<u16> {
    let public = router.public;
    let body = json!({ "model": "tiny", "user": format!("u{user}") }).to_string();
    tokio::spawn(async move { call(public, "POST", CHAT_PATH, &[], &body).await.status })
}

/// Waits until this many requests are in the queue.
async fn waiting(router: &Router, n: usize) {
    let line = format!(r#"llm_router_waiting{{route="r",model="-"}} {n}.0"#);
    until_answer("the queue", async || {
        let page = router.admin_get("/metrics").await.text();
        page.lines().any(|seen| seen == line).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_are_handed_over_in_the_order_of_arrival() {
    let gate = Gate::default();
    let peer = Peer::gated(&gate).await;
    let router = one_slot(&peer, "").await;
    let mut clients = vec![ask(&router, 0)];
    peer.running(1).await;
    for n in 1..=5 {
        clients.push(ask(&router, n));
        waiting(&router, n).await;
    }
    gate.open(6);
    for client in clients {
        assert_eq!(client.await.unwrap(), 200);
    }
    let seen = peer.requests();
    let bodies = seen.iter().filter(|seen| !seen.is_probe());
    let users: Vec<String> = bodies
        .map(|seen| {
            let body: serde_json::Value = serde_json::from_slice(&seen.body).unwrap();
            body["user"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(users, ["u0", "u1", "u2", "u3", "u4", "u5"]);
    assert_eq!(peer.tally().peak, 1);
    let receipts = router.admin_get("/r/_decisions?n=9").await.json();
    let facts =
        |n: usize| receipts["decisions"][n]["decision"]["send"]["facts"]["waited_ms"].clone();
    assert!(facts(0).is_u64(), "{receipts}");
    assert_eq!(facts(5), json!(null), "the first did not wait");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_the_queue_costs_no_slot() {
    let gate = Gate::default();
    let peer = Peer::gated(&gate).await;
    let router = one_slot(&peer, "wait_max: 2").await;
    let first = ask(&router, 0);
    peer.running(1).await;
    let mut leaver = Wire::connect(router.public).await;
    leaver
        .request("POST", CHAT_PATH, &[], CHAT.as_bytes())
        .await;
    waiting(&router, 1).await;
    let last = ask(&router, 2);
    waiting(&router, 2).await;
    let refused = router.post(CHAT_PATH, CHAT).await;
    assert_eq!(
        (refused.status, &refused.json()["error"]["code"]),
        (429, &json!("concurrency_limit"))
    );
    assert!(refused.header("retry-after").parse::<u64>().unwrap() >= 1);
    leaver.reset();
    waiting(&router, 1).await;
    gate.open(2);
    assert_eq!((first.await.unwrap(), last.await.unwrap()), (200, 200));
    let served = peer
        .requests()
        .iter()
        .filter(|seen| !seen.is_probe())
        .count();
    assert_eq!(served, 2, "nothing was sent for the one that left");
    let conns = router.admin_get("/r/_active_conns").await.json();
    assert_eq!(conns[peer.address.to_string()], json!(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_takes_too_long_goes_past_the_limit() {
    let gate = Gate::default();
    let peer = Peer::gated(&gate).await;
    let router = one_slot(&peer, "wait_timeout: 200ms").await;
    let clients = [ask(&router, 0), ask(&router, 1)];
    peer.running(2).await;
    gate.open(2);
    for client in clients {
        assert_eq!(client.await.unwrap(), 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn request_timeout_and_the_master_switch_end_waits() {
    let gate = Gate::default();
    let peer = Peer::gated(&gate).await;
    let router = one_slot(&peer, "").await;
    let first = ask(&router, 0);
    peer.running(1).await;
    let second = ask(&router, 1);
    waiting(&router, 1).await;
    router.admin_post("/r/_rate_limit_toggle?on=0").await;
    peer.running(2).await;
    gate.open(2);
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (200, 200));

    let router = one_slot(&peer, "request_timeout: 300ms").await;
    let stuck = ask(&router, 0);
    peer.running(1).await;
    let late = router.post(CHAT_PATH, CHAT).await;
    assert_eq!(
        (late.status, &late.json()["error"]["timeout"]),
        (504, &json!("request_timeout"))
    );
    assert_eq!(stuck.await.unwrap(), 504);
    waiting(&router, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_when_the_process_leaves_is_told_so() {
    let gate = Gate::default();
    let peer = Peer::gated(&gate).await;
    let router = one_slot(&peer, "").await;
    let first = ask(&router, 0);
    peer.running(1).await;
    let mut second = Wire::connect(router.public).await;
    second
        .request("POST", CHAT_PATH, &[], CHAT.as_bytes())
        .await;
    waiting(&router, 1).await;
    router.admin_post("/_drain").await;
    let reply = tokio::time::timeout(Duration::from_secs(20), second.reply("POST"));
    let reply = reply.await.unwrap();
    assert_eq!(
        (reply.status, &reply.json()["error"]["code"]),
        (503, &json!("draining"))
    );
    gate.open(1);
    assert_eq!(first.await.unwrap(), 200, "what runs is finished");
}
