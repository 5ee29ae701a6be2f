//! `sse_keepalive`: signs of life for clients while an engine is silent.

use system_tests::peer::{Gate, Peer};
use system_tests::wire::{End, Wire};

use crate::common::{CHAT, CHAT_PATH, CHAT_STREAM, over};

const EVENT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\ndata: [DONE]\n\n";

/// What a silent engine does before and after its silence.
#[derive(Clone, Copy)]
enum Silence {
    /// The head of a stream, then its events.
    AfterTheHead,
    /// Nothing, then a stream.
    Whole,
    /// Nothing, then 400.
    BeforeAnError,
}

async fn engine(gate: &Gate, silence: Silence) -> Peer {
    let gate = gate.clone();
    Peer::spawn(move |_, mut exchange| {
        let gate = gate.clone();
        async move {
            if matches!(silence, Silence::AfterTheHead) {
                exchange.open_stream().await;
            }
            exchange.step(&gate).await;
            match silence {
                Silence::BeforeAnError => {
                    let kind = [("content-type", "application/json")];
                    let body = r#"{"error":{"message":"too long","type":"invalid_request_error"}}"#;
                    exchange.reply(400, &kind, body).await;
                    return exchange;
                }
                Silence::Whole => exchange.open_stream().await,
                Silence::AfterTheHead => {}
            }
            exchange.chunk(EVENT).await;
            exchange.end_chunks().await;
            exchange
        }
    })
    .await
}

async fn asked(router: &system_tests::router::Router) -> Wire {
    let mut wire = Wire::connect(router.public).await;
    wire.request("POST", CHAT_PATH, &[], CHAT_STREAM.as_bytes())
        .await;
    wire
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_hears_pings_until_the_engine_speaks() {
    for silence in [Silence::AfterTheHead, Silence::Whole] {
        let gate = Gate::default();
        let peer = engine(&gate, silence).await;
        let router = over(&[&peer], "sse_keepalive: 100ms").start().await;
        let mut wire = asked(&router).await;
        let head = wire.head("POST").await;
        assert_eq!(head.status, 200);
        let kind = head.headers.get("content-type").unwrap();
        assert!(kind.starts_with("text/event-stream"), "{kind}");
        assert_eq!(
            head.headers.get("x-routed-peer"),
            Some(&*peer.address.to_string())
        );
        wire.body_until(": ping\n\n: ping\n\n").await;
        gate.open(1);
        let (rest, end) = wire.body().await;
        assert!(String::from_utf8_lossy(&rest).ends_with(EVENT));
        assert_eq!(end, End::Clean);
        let is_marked = |page: &serde_json::Value| page.to_string().contains("\"pings\":");
        router
            .admin_until("/_decisions?n=1", "the receipt", is_marked)
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_after_the_head_is_an_event_and_the_stream_breaks_off() {
    let gate = Gate::default();
    let peer = engine(&gate, Silence::BeforeAnError).await;
    let router = over(&[&peer], "sse_keepalive: 100ms").start().await;
    let mut wire = asked(&router).await;
    assert_eq!(wire.head("POST").await.status, 200);
    wire.body_until(": ping\n\n").await;
    gate.open(1);
    let (rest, end) = wire.body().await;
    let rest = String::from_utf8_lossy(&rest).into_owned();
    assert!(
        rest.contains("data: {\"error\":{\"message\":\"too long\""),
        "{rest}"
    );
    assert_eq!(end, End::Broken);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_without_a_stream_and_errors_in_time_keep_their_status() {
    let gate = Gate::default();
    gate.open(2);
    let peer = engine(&gate, Silence::BeforeAnError).await;
    let router = over(&[&peer], "sse_keepalive: 10s").start().await;
    for body in [CHAT, CHAT_STREAM] {
        let reply = router.post(CHAT_PATH, body).await;
        assert_eq!(reply.status, 400);
        assert!(reply.text().contains("too long"));
    }
}
