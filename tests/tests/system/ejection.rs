//! Engines that fail their requests lose them, although their probes succeed, and get them back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::{Value, json};
use sim_engine::{Engine, EngineHandle, Options};
use system_tests::peer::{COMPLETION, Peer, Refusing};
use system_tests::router::Router;
use system_tests::wait::{until, until_answer};
use system_tests::wire::Wire;

use crate::common::{CHAT, CHAT_PATH, CHAT_STREAM, setup};

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

/// The state of each peer of the route `r` in file order, as `/_routes` shows it.
async fn states(router: &Router) -> Vec<String> {
    let routes = router.admin_get("/_routes").await.json();
    let peers = routes["routes"][0]["pools"][0]["peers"].as_array().cloned();
    let state = |peer: Value| peer["state"].as_str().unwrap_or("healthy").to_owned();
    peers.unwrap_or_default().into_iter().map(state).collect()
}

async fn until_state(router: &Router, peer: usize, wanted: &str) {
    until_answer(&format!("peer {peer} to be {wanted}"), async || {
        (states(router).await.get(peer)? == wanted).then_some(())
    })
    .await;
}

const GENERATE: &str = "health_check: {kind: generate, idle: 50ms, timeout: 200ms}\n\
    health_check_interval: 50ms\neject: {consecutive: 2, time: 1s}\nslow_start: 0s";

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_engine_is_asked_for_one_token_of_its_own_model() {
    let peer = Peer::plain().await;
    let route = format!("peers: [{{address: {}}}]\n{GENERATE}\n", peer.address);
    let _router = setup().route("r", &route).start().await;
    // A request may come before the list of models is known.
    until("a request for the model", || {
        peer.requests().iter().any(|seen| {
            let body: Value = serde_json::from_slice(&seen.body).unwrap_or_default();
            seen.target == "/v1/chat/completions"
                && (&body["max_tokens"], &body["model"]) == (&json!(1), &json!("tiny"))
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn generated_requests_find_a_hung_engine_and_bring_it_back_without_a_client() {
    let answers = Arc::new(AtomicU16::new(0));
    let bad = {
        let answers = answers.clone();
        Peer::spawn(move |_, mut exchange| {
            let answers = answers.load(Ordering::SeqCst);
            async move {
                match answers {
                    0 => exchange.gone().await,
                    status => exchange.reply(status, &[], COMPLETION).await,
                }
                exchange
            }
        })
        .await
    };
    let good = Peer::plain().await;
    let router = setup()
        .route("r", &two(&bad, &good, GENERATE))
        .start()
        .await;
    until_state(&router, 0, "ejected").await;
    let page = router.admin_get("/metrics").await.text();
    let healthy = |peer: &Peer| {
        format!(
            "llm_router_peer_healthy{{route=\"r\",peer=\"{}\"}}",
            peer.address
        )
    };
    assert!(page.contains(&format!("{} 0", healthy(&bad))), "{page}");
    assert!(page.contains(&format!("{} 1", healthy(&good))), "{page}");
    for (name, value) in [
        ("peer_attempts_total", r#"outcome="no_first_byte"} 2"#),
        ("peer_state", r#"state="ejected"} 1"#),
        ("peer_state", r#"state="healthy"} 0"#),
        ("peer_probe", r#"result="healthy"} 1"#),
    ] {
        let line = format!(
            "llm_router_{name}{{route=\"r\",peer=\"{}\",{value}",
            bad.address
        );
        assert!(page.contains(&line), "{line} in {page}");
    }
    answers.store(200, Ordering::SeqCst);
    until_state(&router, 0, "healthy").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_without_an_answer_is_a_state_and_keeps_the_engine_in() {
    let slow = Peer::spawn_with_probes(|seen, mut exchange| async move {
        match seen.is_probe() {
            true => exchange.gone().await,
            false => exchange.reply(200, &[], COMPLETION).await,
        }
        exchange
    })
    .await;
    let route = format!(
        "peers: [{{address: {}}}]\nhealth_check_interval: 50ms\nhealth_timeout: 50ms\n",
        slow.address
    );
    let router = setup().route("r", &route).start().await;
    until_state(&router, 0, "busy").await;
    let routes = router.admin_get("/_routes").await.json();
    let why = routes["routes"][0]["pools"][0]["peers"][0]["why"].to_string();
    assert!(why.contains("probe silent 0 s"), "{why}");
    assert_eq!(router.post(CHAT_PATH, CHAT).await.status, 200);
}

async fn engines(count: usize) -> Vec<EngineHandle> {
    let mut engines = Vec::new();
    for _ in 0..count {
        engines.push(Engine::local(Options::default()).await.unwrap());
    }
    engines
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_hangs_for_ever_loses_its_requests_and_returns_once_it_generates() {
    let engines = engines(3).await;
    let list: Vec<_> = engines
        .iter()
        .map(|engine| format!("{{address: {}}}", engine.addr))
        .collect();
    let options = "balance: round_robin\nhang_after: 1s\neject: {time: 1s}\nslow_start: 0s\n\
        health_check_interval: 50ms\nhealth_check: {kind: generate, timeout: 500ms}";
    let route = format!("peers: [{}]\n{options}\n", list.join(", "));
    let router = setup().route("r", &route).start().await;
    engines[0].set_faults(vec!["hang".parse().unwrap()]);
    let mut waiting = Vec::new();
    let body = CHAT_STREAM.as_bytes();
    for _ in 0..15 {
        let mut wire = Wire::connect(router.public).await;
        wire.request("POST", CHAT_PATH, &[], body).await;
        waiting.push(wire);
    }
    until_state(&router, 0, "ejected").await;
    for _ in 0..6 {
        assert_eq!(router.post(CHAT_PATH, CHAT).await.status, 200);
    }
    engines[0].set_faults(Vec::new());
    drop(waiting);
    until_state(&router, 0, "healthy").await;
}
