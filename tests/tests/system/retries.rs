//! Retries: what is tried again, where, and what is never tried again.

use serde_json::json;
use system_tests::fault::{Fault, Proxy};
use system_tests::peer::{Blackhole, COMPLETION, Peer, Refusing};
use system_tests::wire::{Wire, encode};

use crate::common::{CHAT, CHAT_PATH, over, peers, session_at, setup};

/// A route over addresses, probed once an hour.
fn route(addresses: &[String], options: &str) -> String {
    let list: Vec<_> = addresses
        .iter()
        .map(|address| format!("{{address: {address}}}"))
        .collect();
    format!(
        "peers: [{}]\nhealth_check_interval: 1h\n{options}\n",
        list.join(", ")
    )
}

/// An engine that answers probes and breaks every other connection with RST once it has the request.
async fn killer() -> Peer {
    Peer::spawn(|_, mut exchange| async move {
        exchange.reset();
        exchange
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_connection_goes_to_the_next_candidate() {
    let (dead, sound) = (Refusing::bind(), Peer::plain().await);
    let addresses = [dead.address.to_string(), sound.address.to_string()];
    let router = setup().route("r", &route(&addresses, "")).start().await;
    let session = session_at(0, 2);
    for _ in 0..10 {
        let reply = router
            .post_with(CHAT_PATH, &[("x-session-id", &session)], CHAT)
            .await;
        assert_eq!(
            (reply.status, reply.header("x-routed-peer")),
            (200, addresses[1].as_str())
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connect_timeout_goes_on_and_never_bans() {
    let (hole, sound) = (Blackhole::open().await, Peer::plain().await);
    let addresses = [hole.address.to_string(), sound.address.to_string()];
    // Probes of the black hole always time out, which counts as busy.
    let options = "health_timeout: 100ms";
    let setup = setup()
        .server("connect_timeout: 100ms")
        .route("r", &route(&addresses, options));
    let router = setup.start().await;
    let session = session_at(0, 2);
    for _ in 0..3 {
        let reply = router
            .post_with(CHAT_PATH, &[("x-session-id", &session)], CHAT)
            .await;
        assert_eq!((reply.status, reply.header("x-routed-retries")), (200, "1"));
    }
    let health = router.admin_get("/r/_health_status").await.json();
    assert_eq!(health[&addresses[0]]["banned"], json!(false));
}

#[tokio::test(flavor = "multi_thread")]
async fn statuses_502_and_503_go_to_the_next_candidate() {
    for status in [502, 503] {
        let (broken, sound) = (Peer::fixed(status, "{}").await, Peer::plain().await);
        let router = over(&[&broken, &sound], "").start().await;
        let session = session_at(0, 2);
        let reply = router
            .post_with(CHAT_PATH, &[("x-session-id", &session)], CHAT)
            .await;
        assert_eq!(
            (reply.status, reply.header("x-routed-retries")),
            (200, "1"),
            "{status}"
        );
        assert_eq!(
            sound.requests()[0].body,
            CHAT.as_bytes(),
            "the retry carries the whole body"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_budget_bounds_the_attempts_and_the_last_answer_passes() {
    let engines = [503; 5].map(|status| Peer::fixed(status, r#"{"from":"the engine"}"#));
    let mut running = Vec::new();
    for engine in engines {
        running.push(engine.await);
    }
    let list: Vec<_> = running.iter().collect();
    for (options, attempts) in [("", 3), ("max_more_tries: 1", 2), ("max_more_tries: 0", 1)] {
        let before: usize = running.iter().map(|engine| engine.requests().len()).sum();
        let router = over(&list, options).start().await;
        let reply = router.post(CHAT_PATH, CHAT).await;
        assert_eq!(
            (reply.status, reply.text().as_str()),
            (503, r#"{"from":"the engine"}"#),
            "{options}"
        );
        assert_eq!(
            reply.header("x-routed-retries"),
            (attempts - 1).to_string(),
            "{options}"
        );
        let after: usize = running.iter().map(|engine| engine.requests().len()).sum();
        assert_eq!(after - before, attempts, "{options}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_stay_in_the_tier_unless_told() {
    let (broken, lower) = (Peer::fixed(503, "{}").await, Peer::plain().await);
    let tiers = format!(
        "peers: [{{address: {}, priority: 2}}, {{address: {}, priority: 1}}]\nhealth_check_interval: 1h\n",
        broken.address, lower.address
    );
    let setup = setup().route("stay", &tiers);
    let router = setup
        .route("cross", &format!("{tiers}cross_tier_fallback: true"))
        .start()
        .await;
    assert_eq!(
        router.post("/stay/v1/chat/completions", CHAT).await.status,
        503
    );
    assert!(lower.requests().is_empty());
    assert_eq!(
        router.post("/cross/v1/chat/completions", CHAT).await.status,
        200
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn reused_connection_that_dies_is_retried_once_on_a_fresh_one() {
    let peer = Peer::spawn(|seen, mut exchange| async move {
        if seen.nth == 0 {
            exchange.reply(200, &[], COMPLETION).await;
        } else {
            exchange.close();
        }
        exchange
    });
    let peer = peer.await;
    let router = over(&[&peer], "max_more_tries: 0").start().await;
    for n in 0..5 {
        let reply = router.post(CHAT_PATH, CHAT).await;
        assert_eq!(
            (reply.status, reply.text().as_str()),
            (200, COMPLETION),
            "request {n}"
        );
    }
    let health = router.admin_get("/r/_health_status").await.json();
    assert_eq!(health[peer.address.to_string()]["banned"], json!(false));
}

#[tokio::test(flavor = "multi_thread")]
async fn reset_on_a_fresh_connection_is_not_retried() {
    let engines = [killer().await, killer().await, killer().await];
    let [a, b, c] = &engines;
    let router = over(&[a, b, c], "").start().await;
    let reply = router.post(CHAT_PATH, CHAT).await;
    assert_eq!(
        (reply.status, &reply.json()["error"]["code"]),
        (502, &json!("upstream_error"))
    );
    assert_eq!(
        engines
            .iter()
            .map(|engine| engine.requests().len())
            .sum::<usize>(),
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_retried_after_a_response_byte() {
    let (engine, other) = (Peer::plain().await, Peer::plain().await);
    // The first probes succeed, whenever they come.
    let proxy = Proxy::spawn(engine.address, Fault::None).await;
    let addresses = [proxy.address.to_string(), other.address.to_string()];
    let router = setup()
        .route("r", &route(&addresses, "health_probe_path: /probe"))
        .start()
        .await;
    proxy.set(Fault::CutAfter(40));
    let session = session_at(0, 2);
    let reply = router
        .post_with(CHAT_PATH, &[("x-session-id", &session)], CHAT)
        .await;
    assert_eq!(reply.status, 502);
    assert!(other.requests().iter().all(|seen| seen.target == "/probe"));
}

#[tokio::test(flavor = "multi_thread")]
async fn in_flight_is_zero_after_every_kind_of_end() {
    let (broken, killed, sound) = (
        Peer::fixed(502, "{}").await,
        killer().await,
        Peer::plain().await,
    );
    let router = over(&[&broken, &killed, &sound], "").start().await;
    for n in 0..30 {
        router
            .post_with(CHAT_PATH, &[("x-session-id", &format!("s{n}"))], CHAT)
            .await;
    }
    let conns = router.admin_get("/r/_active_conns").await.json();
    for peer in [&broken, &killed, &sound] {
        assert_eq!(conns[peer.address.to_string()], json!(0), "{conns}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_to_engines_are_kept_alive() {
    let peer = Peer::plain().await;
    let router = setup().route("r", &peers(&[&peer])).start().await;
    let mut wire = Wire::connect(router.public).await;
    for _ in 0..20 {
        wire.send(encode("POST", CHAT_PATH, &[], CHAT.as_bytes()))
            .await;
        assert_eq!(wire.reply("POST").await.status, 200);
    }
    let connections: std::collections::HashSet<_> =
        peer.requests().iter().map(|seen| seen.connection).collect();
    assert_eq!(connections.len(), 1);
}
