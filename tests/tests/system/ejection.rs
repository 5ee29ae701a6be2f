//! Engines that fail their requests lose them, although their probes succeed, and get them back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use system_tests::peer::{COMPLETION, Peer, Refusing};
use system_tests::wait::until_answer;

use crate::common::{CHAT, CHAT_PATH, setup};

/// An engine whose generation answers with a status that the test changes; its probes succeed.
async fn moody(status: &Arc<AtomicU16>) -> Peer {
    let status = status.clone();
    Peer::spawn(move |_, mut exchange| {
        let status = status.load(Ordering::SeqCst);
        async move {
            exchange
                .reply(status, &[("content-type", "application/json")], COMPLETION)
                .await;
            exchange
        }
    })
    .await
}

fn two(one: &Peer, other: &Peer, options: &str) -> String {
    format!(
        "peers: [{{address: {}}}, {{address: {}}}]\nbalance: round_robin\n{options}\n",
        one.address, other.address
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_answers_500_costs_five_requests() {
    let bad = moody(&Arc::new(AtomicU16::new(500))).await;
    let good = Peer::plain().await;
    let router = setup().route("r", &two(&bad, &good, "")).start().await;
    let mut failed = 0;
    for _ in 0..30 {
        failed += u32::from(router.post(CHAT_PATH, CHAT).await.status == 500);
    }
    assert_eq!(failed, 5);
    assert_eq!(bad.requests().len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn ejection_switched_off_leaves_the_engine_in() {
    let bad = moody(&Arc::new(AtomicU16::new(500))).await;
    let good = Peer::plain().await;
    let route = two(&bad, &good, "eject: off");
    let router = setup().route("r", &route).start().await;
    for _ in 0..30 {
        router.post(CHAT_PATH, CHAT).await;
    }
    assert_eq!(bad.requests().len(), 15);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ejected_engine_is_tried_with_one_request_and_comes_back() {
    let status = Arc::new(AtomicU16::new(500));
    let bad = moody(&status).await;
    let good = Peer::plain().await;
    let options = "eject: {consecutive: 2, time: 1s}\nslow_start: 0s";
    let router = setup().route("r", &two(&bad, &good, options)).start().await;
    for _ in 0..10 {
        router.post(CHAT_PATH, CHAT).await;
    }
    assert_eq!(bad.requests().len(), 2);
    status.store(200, Ordering::SeqCst);
    let served = until_answer("the engine to be back", async || {
        let before = bad.requests().len();
        for _ in 0..2 {
            assert_eq!(router.post(CHAT_PATH, CHAT).await.status, 200);
        }
        (bad.requests().len() > before).then_some(())
    });
    served.await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_engine_is_back_with_its_first_good_poll() {
    let gone = Refusing::bind();
    let address = gone.address;
    let route = format!(
        "peers: [{{address: {address}}}]\nbalance: idle_aware\nhealth_check_interval: 60s\nhealth_ban_ttl: 300s\n"
    );
    let router = setup().route("r", &route).start().await;
    assert_eq!(router.post(CHAT_PATH, CHAT).await.status, 503);
    let _peer = gone.recover().await;
    until_answer(
        "the engine to serve long before its next probe",
        async || {
            let reply = router.post(CHAT_PATH, CHAT).await;
            (reply.status == 200).then_some(())
        },
    )
    .await;
}

/// An engine that sends its headers at once and then nothing.
async fn mute() -> Peer {
    Peer::spawn(|_, mut exchange| async move {
        exchange.open_stream().await;
        exchange.gone().await;
        exchange
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_gets_no_first_byte_in_time_goes_elsewhere() {
    let (bad, good) = (mute().await, Peer::plain().await);
    let route = two(&bad, &good, "first_byte_timeout: 100ms");
    let router = setup().route("r", &route).start().await;
    for _ in 0..8 {
        assert_eq!(router.post(CHAT_PATH, CHAT).await.status, 200);
    }
    bad.cancelled(4).await;
    let found = router.admin_get("/r/_decisions?n=8").await.json();
    assert_eq!(
        found
            .to_string()
            .matches("no first byte within 100ms")
            .count(),
        4
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_engine_that_is_the_only_one_is_a_504() {
    let bad = mute().await;
    let route = format!(
        "peers: [{{address: {}}}]\nfirst_byte_timeout: 100ms\n",
        bad.address
    );
    let router = setup().route("r", &route).start().await;
    let reply = router.post(CHAT_PATH, CHAT).await;
    assert_eq!(reply.status, 504, "{}", reply.text());
    let error = &reply.json()["error"];
    assert_eq!(error["code"], "upstream_timeout");
    assert_eq!(error["timeout"], "first_byte_timeout");
    assert_eq!(error["limit_s"], 0.1);
}
