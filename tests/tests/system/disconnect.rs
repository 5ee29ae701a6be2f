//! A client that disconnects ends the upstream request at once, in every phase, and frees its slot.

use system_tests::peer::{Gate, Peer};
use system_tests::router::Router;
use system_tests::wire::Wire;

use crate::common::{CHAT, CHAT_PATH, CHAT_STREAM, setup};

const FIRST: &str = "data: {\"choices\":[]}\n\n";

async fn single_slot(peer: &Peer) -> Router {
    let route = format!(
        "peers: [{{address: {}, max_concurrency: 1}}]\nhealth_check_interval: 1h",
        peer.address
    );
    setup().route("r", &route).start().await
}

/// How a client disconnects.
#[derive(Clone, Copy, Debug)]
enum Leave {
    Fin,
    Rst,
}

fn leave(wire: Wire, how: Leave) {
    match how {
        Leave::Fin => drop(wire),
        Leave::Rst => wire.reset(),
    }
}

async fn slot_is_free(router: &Router, peer: &Peer) {
    let target = peer.address.to_string();
    router
        .admin_until("/r/_active_conns", "the slot to be free", |json| {
            json[&target] == 0
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn during_the_upload_nothing_reaches_the_engine() {
    let peer = Peer::plain().await;
    let router = single_slot(&peer).await;
    for how in [Leave::Fin, Leave::Rst] {
        let mut wire = Wire::connect(router.public).await;
        wire.send(format!(
            "POST {CHAT_PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n"
        ))
        .await;
        wire.send("x".repeat(50_000)).await;
        leave(wire, how);
    }
    slot_is_free(&router, &peer).await;
    assert_eq!(router.post(CHAT_PATH, CHAT).await.status, 200);
    assert_eq!(peer.requests().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn during_a_chunked_upload_nothing_reaches_the_engine() {
    let peer = Peer::plain().await;
    let router = single_slot(&peer).await;
    let mut wire = Wire::connect(router.public).await;
    wire.send(format!(
        "POST {CHAT_PATH} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    ))
    .await;
    wire.send("5\r\nhello\r\n").await;
    leave(wire, Leave::Fin);
    assert_eq!(router.post(CHAT_PATH, CHAT).await.status, 200);
    assert_eq!(peer.requests().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn while_waiting_for_headers_the_engine_sees_the_cancel() {
    let gate = Gate::default();
    let peer = Peer::gated(&gate).await;
    let router = single_slot(&peer).await;
    for (n, how) in [Leave::Fin, Leave::Rst].into_iter().enumerate() {
        let mut wire = Wire::connect(router.public).await;
        wire.request("POST", CHAT_PATH, &[], CHAT.as_bytes()).await;
        peer.running(1).await;
        leave(wire, how);
        peer.cancelled(n + 1).await;
        slot_is_free(&router, &peer).await;
    }
    gate.open(1);
    assert_eq!(router.post(CHAT_PATH, CHAT).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn mid_stream_the_engine_sees_the_cancel() {
    let gate = Gate::default();
    let peer = Peer::streaming(&gate, FIRST, &[FIRST]).await;
    let router = single_slot(&peer).await;
    for (n, how) in [Leave::Fin, Leave::Rst].into_iter().enumerate() {
        let mut wire = Wire::connect(router.public).await;
        wire.request("POST", CHAT_PATH, &[], CHAT_STREAM.as_bytes())
            .await;
        wire.head("POST").await;
        wire.body_until(FIRST).await;
        leave(wire, how);
        peer.cancelled(n + 1).await;
        slot_is_free(&router, &peer).await;
    }
}

/// A peer that streams more than all socket buffers between it and the client can hold.
async fn flooding() -> Peer {
    Peer::spawn(|_, mut exchange| async move {
        exchange.open_stream().await;
        let block = format!("data: {}\n\n", "x".repeat(64 << 10));
        for _ in 0..512 {
            exchange.chunk(&block).await;
        }
        exchange.gone().await;
        exchange
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_stream_unread_and_full_the_engine_sees_the_cancel() {
    let peer = flooding().await;
    let router = single_slot(&peer).await;
    let mut wire = Wire::connect(router.public).await;
    wire.request("POST", CHAT_PATH, &[], CHAT_STREAM.as_bytes())
        .await;
    wire.head("POST").await;
    wire.piece().await.unwrap();
    leave(wire, Leave::Rst);
    slot_is_free(&router, &peer).await;
    peer.running(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_stays_but_does_not_read_gives_its_slot_back_at_request_timeout() {
    let peer = flooding().await;
    let route = format!("peers: [{}]\nrequest_timeout: 300ms", peer.yaml());
    let router = setup().route("r", &route).start().await;
    let mut wire = Wire::connect(router.public).await;
    wire.request("POST", CHAT_PATH, &[], CHAT_STREAM.as_bytes())
        .await;
    wire.head("POST").await;
    slot_is_free(&router, &peer).await;
    peer.running(0).await;
    drop(wire);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_disconnects_leak_no_slot() {
    let gate = Gate::default();
    let peer = Peer::gated(&gate).await;
    let router = single_slot(&peer).await;
    for n in 0..20 {
        let mut wire = Wire::connect(router.public).await;
        wire.request("POST", CHAT_PATH, &[], CHAT.as_bytes()).await;
        peer.arrived(n + 1).await;
        leave(wire, Leave::Rst);
        slot_is_free(&router, &peer).await;
        // The engine notices a moment later. Until then it would count both requests.
        peer.cancelled(n + 1).await;
    }
    gate.open(1);
    assert_eq!(router.post(CHAT_PATH, CHAT).await.status, 200);
    assert_eq!(peer.tally().peak, 1);
}
