//! Probes and bans: what takes a peer out, what does not, and how it returns.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::json;
use system_tests::peer::{COMPLETION, Gate, Peer, Refusing};
use system_tests::router::Router;
use system_tests::wait::{until, until_answer};
use system_tests::wire::Wire;

use crate::common::{CHAT, CHAT_PATH, setup};

/// An engine whose probes answer with a status that the test changes.
async fn moody(status: &Arc<AtomicU16>) -> Peer {
    let status = status.clone();
    Peer::spawn_with_probes(move |seen, mut exchange| {
        let status = status.load(Ordering::SeqCst);
        async move {
            let status = if seen.method == "GET" { status } else { 200 };
            exchange
                .reply(status, &[("content-type", "application/json")], COMPLETION)
                .await;
            exchange
        }
    })
    .await
}

fn route(address: &str, options: &str) -> String {
    format!("peers: [{{address: {address}}}]\n{options}\n")
}

async fn banned(router: &Router, address: &str, expected: bool) {
    let what = format!("banned = {expected} for {address}");
    router
        .admin_until("/r/_health_status", &what, |json| {
            json[address]["banned"] == json!(expected)
        })
        .await;
}

fn probes(peer: &Peer) -> usize {
    peer.tally()
        .seen
        .iter()
        .filter(|seen| seen.method == "GET")
        .count()
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_probe_bans_and_a_good_one_lifts_the_ban() {
    let status = Arc::new(AtomicU16::new(500));
    let peer = moody(&status).await;
    let address = peer.address.to_string();
    let router = setup()
        .route("r", &route(&address, "health_check_interval: 50ms"))
        .start()
        .await;
    banned(&router, &address, true).await;
    let reply = router.post(CHAT_PATH, CHAT).await;
    assert_eq!(
        (reply.status, &reply.json()["error"]["code"]),
        (503, &json!("no_healthy_peer"))
    );
    assert_eq!(router.get("/ready").await.status, 503);
    status.store(200, Ordering::SeqCst);
    banned(&router, &address, false).await;
    assert_eq!(router.post(CHAT_PATH, CHAT).await.status, 200);
    assert_eq!(router.get("/ready").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn probe_answers_that_ban_and_those_that_do_not() {
    for (answer, expected) in [
        (204, false),
        (429, false),
        (404, true),
        (401, true),
        (503, true),
        (302, true),
    ] {
        let status = Arc::new(AtomicU16::new(answer));
        let peer = moody(&status).await;
        let address = peer.address.to_string();
        let router = setup()
            .route("r", &route(&address, "health_check_interval: 50ms"))
            .start()
            .await;
        if expected {
            banned(&router, &address, true).await;
        } else {
            until("five probes", || probes(&peer) >= 5).await;
            banned(&router, &address, false).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn busy_answers_leave_a_ban_as_it_is() {
    let status = Arc::new(AtomicU16::new(500));
    let peer = moody(&status).await;
    let address = peer.address.to_string();
    let router = setup()
        .route("r", &route(&address, "health_check_interval: 50ms"))
        .start()
        .await;
    banned(&router, &address, true).await;
    status.store(429, Ordering::SeqCst);
    let before = probes(&peer);
    until("five more probes", || probes(&peer) >= before + 5).await;
    banned(&router, &address, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_probe_means_busy() {
    let gate = Gate::default();
    let held = gate.clone();
    let peer = Peer::spawn_with_probes(move |seen, mut exchange| {
        let gate = held.clone();
        async move {
            if seen.method == "GET" {
                exchange.step(&gate).await;
            }
            exchange.reply(200, &[], COMPLETION).await;
            exchange
        }
    });
    let peer = peer.await;
    let address = peer.address.to_string();
    let options = "health_check_interval: 50ms\nhealth_timeout: 50ms";
    let router = setup().route("r", &route(&address, options)).start().await;
    until("three slow probes", || probes(&peer) >= 3).await;
    banned(&router, &address, false).await;
    assert_eq!(router.post(CHAT_PATH, CHAT).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_request_bans_at_once_and_the_ban_expires() {
    let dead = Refusing::bind();
    let address = dead.address.to_string();
    let options = "health_check_interval: 1h\nhealth_ban_ttl: 1s";
    let router = setup().route("r", &route(&address, options)).start().await;
    router.post(CHAT_PATH, CHAT).await;
    banned(&router, &address, true).await;
    let peer = dead.recover().await;
    let reply = until_answer("the ban to expire", async || {
        let reply = router.post(CHAT_PATH, CHAT).await;
        (reply.status == 200).then_some(reply)
    })
    .await;
    assert_eq!(reply.header("x-routed-peer"), peer.address.to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn peer_that_is_down_at_the_start_joins_when_it_comes() {
    let (dead, sound) = (Refusing::bind(), Peer::plain().await);
    let address = dead.address.to_string();
    let text = format!(
        "peers: [{{address: {address}}}, {{address: {}}}]\nhealth_check_interval: 50ms",
        sound.address
    );
    let router = setup().route("r", &text).start().await;
    banned(&router, &address, true).await;
    assert_eq!(router.get("/ready").await.status, 200);
    let revived = dead.recover().await;
    banned(&router, &address, false).await;
    until_answer("a request at the revived peer", async || {
        router.post(CHAT_PATH, CHAT).await;
        (!revived.requests().is_empty()).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn probe_path_is_the_peers_else_the_routes_and_carries_the_peers_key() {
    let (own, general) = (Peer::plain().await, Peer::plain().await);
    let text = format!(
        "peers: [{{address: {}, probe: /own/probe, api_key: engine-key}}, {{address: {}}}]\nhealth_probe_path: /general\n",
        own.address, general.address
    );
    let _router = setup().route("r", &text).start().await;
    let probe = own.arrived(1).await.remove(0);
    assert_eq!(
        (probe.method.as_str(), probe.target.as_str()),
        ("GET", "/own/probe")
    );
    assert_eq!(
        probe.headers.get("authorization"),
        Some("Bearer engine-key")
    );
    let probe = general.arrived(1).await.remove(0);
    assert_eq!(
        (probe.target.as_str(), probe.headers.get("authorization")),
        ("/general", None)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn disabled_peer_is_neither_probed_nor_chosen() {
    let (off, on) = (Peer::plain().await, Peer::plain().await);
    let text = format!(
        "peers: [{{address: {}, enabled: false}}, {{address: {}}}]\nhealth_check_interval: 50ms",
        off.address, on.address
    );
    let router = setup().route("r", &text).start().await;
    for n in 0..10 {
        let reply = router
            .post_with(CHAT_PATH, &[("x-session-id", &format!("s{n}"))], CHAT)
            .await;
        assert_eq!(reply.header("x-routed-peer"), on.address.to_string());
    }
    until("three probes of the other", || probes(&on) >= 3).await;
    assert!(off.tally().seen.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn lower_tier_serves_only_while_the_higher_is_banned() {
    let status = Arc::new(AtomicU16::new(200));
    let (high, low) = (moody(&status).await, Peer::plain().await);
    let (h, l) = (high.address.to_string(), low.address.to_string());
    let text = format!(
        "peers: [{{address: {l}}}, {{address: {h}, priority: 5}}]\nhealth_check_interval: 50ms"
    );
    let router = setup().route("r", &text).start().await;
    let served = async || {
        router
            .post(CHAT_PATH, CHAT)
            .await
            .header("x-routed-peer")
            .to_owned()
    };
    for _ in 0..5 {
        assert_eq!(served().await, h);
    }
    status.store(500, Ordering::SeqCst);
    banned(&router, &h, true).await;
    assert_eq!(served().await, l);
    status.store(200, Ordering::SeqCst);
    banned(&router, &h, false).await;
    assert_eq!(served().await, h);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_router_out_of_descriptors_bans_no_peer() {
    // Each probe needs a connection of its own.
    let peer = Peer::spawn_with_probes(|_, mut exchange| async move {
        exchange
            .reply(200, &[("connection", "close")], COMPLETION)
            .await;
        exchange.close();
        exchange
    })
    .await;
    let options = "health_check_interval: 50ms\nmax_more_tries: 0";
    let router = setup()
        .route("r", &route(&peer.address.to_string(), options))
        .server("max_connections: 1000")
        .under("sh", &["-c", "ulimit -n 64; exec \"$0\" \"$@\""])
        .start()
        .await;
    let mut before = Wire::connect(router.public).await;
    let mut crowd = Vec::new();
    for _ in 0..80 {
        crowd.push(Wire::connect(router.public).await);
    }
    router
        .program
        .logged("accepting connections is failing")
        .await;
    router.program.logged("its health stays as it was").await;
    before
        .request("POST", CHAT_PATH, &[], CHAT.as_bytes())
        .await;
    let status = before.reply("POST").await.status;
    // A probe that has just ended may have freed its descriptor for the request.
    assert!(matches!(status, 200 | 503), "{status}");
    drop(crowd);
    until_answer("the router to recover", async || {
        (router.post(CHAT_PATH, CHAT).await.status == 200).then_some(())
    })
    .await;
    assert!(!router.log().contains("peer banned"), "{}", router.log());
}
