//! Draining: readiness goes first, then new requests are refused, running ones finish, and a time
//! limit ends the rest.

use rustix::process::Signal;
use system_tests::peer::{Gate, Peer};
use system_tests::router::Router;
use system_tests::wait::until_answer;
use system_tests::wire::{End, Wire};

use crate::common::{CHAT, CHAT_PATH, CHAT_STREAM, over};

const FIRST: &str = "data: {\"choices\":[]}\n\n";
const DONE: &str = "data: [DONE]\n\n";

async fn open(router: &Router) -> Wire {
    let mut wire = Wire::connect(router.public).await;
    wire.request("POST", CHAT_PATH, &[], CHAT_STREAM.as_bytes())
        .await;
    assert_eq!(wire.head("POST").await.status, 200);
    wire.body_until(FIRST).await;
    wire
}

async fn not_ready(router: &Router) {
    until_answer("readiness to go off", async || {
        (router.admin_get("/readyz").await.status == 503).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drain_under_load_cuts_no_stream_and_ends_with_zero() {
    for signal in [Signal::TERM, Signal::INT, Signal::QUIT] {
        let gate = Gate::default();
        let peer = Peer::streaming(&gate, FIRST, &[DONE]).await;
        let mut router = over(&[&peer], "default_max: 100").start().await;
        let mut wires = Vec::new();
        for _ in 0..50 {
            wires.push(open(&router).await);
        }
        router.program.signal(signal);
        until_answer("the public port to close", async || {
            tokio::net::TcpStream::connect(router.public)
                .await
                .is_err()
                .then_some(())
        })
        .await;
        assert!(!router.program.has_exited());
        gate.open(50);
        for mut wire in wires {
            assert_eq!(wire.body().await, (DONE.into(), End::Clean));
        }
        assert_eq!(router.program.exited().await.code(), Some(0));
        assert_eq!(peer.tally().cancelled, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn during_the_delay_readiness_is_off_and_requests_are_served() {
    let peer = Peer::plain().await;
    let mut router = over(&[&peer], "").server("drain_delay: 2s").start().await;
    assert_eq!(router.admin_get("/readyz").await.status, 200);
    assert_eq!(router.admin_get("/healthz").await.status, 200);
    router.program.signal(Signal::TERM);
    not_ready(&router).await;
    assert_eq!(router.admin_get("/healthz").await.status, 200);
    assert_eq!(router.get("/ready").await.status, 503);
    assert_eq!(router.post(CHAT_PATH, CHAT).await.status, 200);
    assert_eq!(router.program.exited().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_stays_off_and_health_on_while_streams_end() {
    let gate = Gate::default();
    let peer = Peer::streaming(&gate, FIRST, &[DONE]).await;
    let mut router = over(&[&peer], "").start().await;
    let mut wire = open(&router).await;
    router.program.signal(Signal::TERM);
    not_ready(&router).await;
    assert_eq!(router.admin_get("/healthz").await.status, 200);
    gate.open(1);
    assert_eq!(wire.body().await, (DONE.into(), End::Clean));
    assert_eq!(router.program.exited().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn second_signal_exits_at_once() {
    let gate = Gate::default();
    let peer = Peer::streaming(&gate, FIRST, &[DONE]).await;
    let mut router = over(&[&peer], "").start().await;
    let mut wire = open(&router).await;
    router.program.signal(Signal::TERM);
    not_ready(&router).await;
    router.program.signal(Signal::TERM);
    router.program.exited().await;
    assert_eq!(wire.body().await.1, End::Broken);
}

#[tokio::test(flavor = "multi_thread")]
async fn drain_timeout_bounds_the_wait_and_the_client_learns_it() {
    let gate = Gate::default();
    let peer = Peer::streaming(&gate, FIRST, &[DONE]).await;
    let mut router = over(&[&peer], "")
        .server("drain_timeout: 300ms")
        .start()
        .await;
    let mut wire = open(&router).await;
    router.program.signal(Signal::TERM);
    let (rest, end) = wire.body().await;
    assert_eq!(end, End::Broken);
    let rest = String::from_utf8(rest).unwrap();
    let event = rest
        .strip_prefix("data: ")
        .unwrap_or_else(|| panic!("{rest}"));
    let event: serde_json::Value = serde_json::from_str(event).unwrap();
    assert_eq!(event["error"]["code"], "draining", "{event}");
    router.program.exited().await;
    peer.cancelled(1).await;
    assert!(!router.log().contains("broken by the peer"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_still_without_an_answer_is_told_of_the_end() {
    let gate = Gate::default();
    let peer = Peer::gated(&gate).await;
    let router = over(&[&peer], "")
        .server("drain_timeout: 300ms")
        .start()
        .await;
    let (reply, ()) = tokio::join!(router.post(CHAT_PATH, CHAT), async {
        peer.running(1).await;
        router.program.signal(Signal::TERM);
    });
    assert_eq!(
        (reply.status, reply.json()["error"]["code"].as_str()),
        (503, Some("draining"))
    );
    peer.cancelled(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drain_by_the_admin_port_turns_readiness_off() {
    let peer = Peer::plain().await;
    let mut router = over(&[&peer], "").server("drain_delay: 1s").start().await;
    let reply = router.admin_post("/_drain").await;
    assert!((200..300).contains(&reply.status), "{}", reply.status);
    not_ready(&router).await;
    assert_eq!(router.program.exited().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_keep_alive_connections_do_not_hold_the_drain() {
    let peer = Peer::plain().await;
    let mut router = over(&[&peer], "").start().await;
    let mut wire = Wire::connect(router.public).await;
    wire.request("POST", CHAT_PATH, &[], CHAT.as_bytes()).await;
    assert_eq!(wire.reply("POST").await.status, 200);
    router.program.signal(Signal::TERM);
    assert!(wire.is_closed_by_server().await);
    assert_eq!(router.program.exited().await.code(), Some(0));
}
