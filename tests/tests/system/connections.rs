//! How many connections each port serves, and what happens to the others.

use std::time::Duration;

use system_tests::peer::Peer;
use system_tests::wait::until_answer;
use system_tests::wire::Wire;

use crate::common::{CHAT, CHAT_PATH, over};

/// A connection that has sent a request and stays open.
async fn kept(address: std::net::SocketAddr) -> (Wire, u16) {
    let mut wire = Wire::connect(address).await;
    wire.request("GET", "/healthz", &[], b"").await;
    let status = wire.reply("GET").await.status;
    (wire, status)
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_leave_descriptors_for_operators_and_engines() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "")
        .under("sh", &["-c", "ulimit -n 256; exec \"$0\" \"$@\""])
        .start()
        .await;
    let mut crowd = Vec::new();
    let mut refused = 0;
    for _ in 0..240 {
        let (wire, status) = kept(router.public).await;
        refused += usize::from(status == 503);
        crowd.push(wire);
    }
    assert!(refused > 100, "{refused} of 240 were one too many");
    assert_eq!(router.admin_get("/healthz").await.status, 200);
    let reload = router.admin_post("/_reload").await;
    assert_eq!(reload.status, 200, "{}", reload.text());
    let page = router.admin_get("/metrics").await.text();
    let counted =
        format!("llm_router_connections_rejected_total{{reason=\"max_connections\"}} {refused}");
    assert!(page.contains(&counted), "{counted} is not in\n{page}");
    // A connection that is served reaches an engine.
    crowd[0]
        .request("POST", CHAT_PATH, &[], CHAT.as_bytes())
        .await;
    assert_eq!(crowd[0].reply("POST").await.status, 200);
    drop(crowd);
    until_answer("a new client", async || {
        (router.post(CHAT_PATH, CHAT).await.status == 200).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_take_nobodys_place() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "")
        .server("max_connections: 8")
        .start()
        .await;
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(Wire::connect(router.public).await);
    }
    assert_eq!(router.post(CHAT_PATH, CHAT).await.status, 200);
    drop(silent);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_address_has_its_share_and_a_reload_changes_it() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "")
        .server("max_connections_per_source: 2")
        .start()
        .await;
    let (first, second) = (kept(router.public).await, kept(router.public).await);
    let mut third = Wire::connect(router.public).await;
    third.request("POST", CHAT_PATH, &[], CHAT.as_bytes()).await;
    let refusal = third.reply("POST").await;
    assert_eq!(refusal.status, 503);
    assert_eq!(refusal.header("retry-after"), "1");
    assert_eq!(refusal.json()["error"]["code"], "overloaded");
    drop((first, second));
    until_answer("a place", async || {
        let answered = tokio::time::timeout(Duration::from_secs(5), kept(router.public)).await;
        answered
            .is_ok_and(|(_, status)| status != 503)
            .then_some(())
    })
    .await;
}
