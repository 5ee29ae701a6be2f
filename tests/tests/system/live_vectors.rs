//! Numbered vectors from the written specification of live load and sessions, as far as they need
//! sockets.

use std::sync::atomic::Ordering;

use serde_json::json;
use system_tests::peer::{Gate, Peer};
use system_tests::router::Router;
use system_tests::wait::until;
use system_tests::wire::{Wire, call};
use tokio::task::JoinSet;

use crate::common::{CHAT, CHAT_PATH, CHAT_STREAM, setup};
use crate::gpu::{FAST, Gpu, SAYS, Says, chat, is_chat, placed, until_counted};

/// An engine whose model pins nothing.
const OTHER: Says = Says {
    model: "other",
    ..SAYS
};

#[tokio::test(flavor = "multi_thread")]
async fn equal_loads_are_decided_by_weight_and_then_by_name() {
    let loaded = |others| Gpu::open(Says { others, ..OTHER });
    let gpus = [loaded(2).await, loaded(2).await, loaded(3).await];
    let route = |weights: [u32; 3]| {
        let peers = ["a", "b", "c"].into_iter().zip(&gpus).zip(weights);
        let peers: Vec<_> = peers
            .map(|((name, gpu), weight)| {
                format!(
                    "{{name: {name}, address: '{}', max_concurrency: 9, weight: {weight}}}",
                    gpu.address()
                )
            })
            .collect();
        format!("peers: [{}]\n{FAST}", peers.join(", "))
    };
    let router = setup()
        .route("weights", &route([1, 2, 9]))
        .route("equal", &route([2, 2, 2]))
        .start()
        .await;
    let served = async |route: &str| {
        let path = format!("/{route}/v1/chat/completions");
        placed(&router.post(&path, CHAT).await).0
    };
    assert_eq!(
        served("weights").await,
        "b",
        "c's weight is no share of traffic"
    );
    assert_eq!(served("equal").await, "a");
    gpus[2].others.store(2, Ordering::SeqCst);
    let c = ["route=\"equal\"", "backend=\"c\""];
    until_counted(&router, "proxy_backend_load", &c, 2.0).await;
    assert_eq!(served("equal").await, "a");
}

#[tokio::test(flavor = "multi_thread")]
async fn own_requests_count_once_when_corrected_and_twice_when_added() {
    let (one, two) = (Gpu::new(OTHER).await, Gpu::new(OTHER).await);
    let route = |gpu: &Gpu, model: &str| {
        format!(
            "peers: [{{name: a, address: '{}', slots: 4}}]\n{FAST}full_policy: overflow\nload_model: {model}\n",
            gpu.address()
        )
    };
    let router = setup()
        .route("corrected", &route(&one, "corrected"))
        .route("additive", &route(&two, "additive"))
        .start()
        .await;
    let mut own = JoinSet::new();
    for path in [
        "/corrected/v1/chat/completions",
        "/additive/v1/chat/completions",
    ] {
        for _ in 0..2 {
            let public = router.public;
            own.spawn(async move { call(public, "POST", path, &[], CHAT).await.status });
        }
    }
    until("two own requests on each", || {
        (one.chats(), two.chats()) == (2, 2)
    })
    .await;
    let corrected = |name: &'static str, value| {
        let router = &router;
        async move { until_counted(router, name, &["route=\"corrected\""], value).await }
    };
    for gpu in [&one, &two] {
        gpu.others.store(2, Ordering::SeqCst);
    }
    corrected("proxy_backend_busy", 2.0).await;
    corrected("proxy_backend_external", 0.0).await;
    corrected("proxy_backend_load", 2.0).await;
    until_counted(&router, "proxy_backend_load", &["route=\"additive\""], 4.0).await;
    one.others.store(4, Ordering::SeqCst);
    corrected("proxy_backend_external", 2.0).await;
    corrected("proxy_backend_load", 4.0).await;
    one.gate.open(9);
    two.gate.open(9);
    while let Some(status) = own.join_next().await {
        assert_eq!(status.unwrap(), 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_is_free_however_its_stream_ends() {
    let gate = Gate::default();
    let resets = gate.clone();
    let peer = Peer::spawn(move |seen, mut exchange| {
        let gate = resets.clone();
        async move {
            exchange.open_stream().await;
            exchange.chunk("data: {\"choices\":[]}\n\n").await;
            if String::from_utf8_lossy(&seen.body).contains("resets") {
                exchange.step(&gate).await;
                exchange.reset();
            } else {
                exchange.gone().await;
            }
            exchange
        }
    })
    .await;
    let route = |options: &str| {
        format!(
            "{}health_check_interval: 1h\n{options}",
            crate::common::peers(&[&peer])
        )
    };
    let router = setup()
        .route("r", &route(""))
        .route("t", &route("request_timeout: 2s\n"))
        .start()
        .await;
    let stream = async |path: &str, user: &str| {
        let body = CHAT_STREAM.replace("\"stream\"", &format!("\"user\":\"{user}\",\"stream\""));
        let mut wire = Wire::connect(router.public).await;
        wire.request("POST", path, &[], body.as_bytes()).await;
        assert_eq!(wire.head("POST").await.status, 200);
        wire.body_until("choices").await;
        wire
    };
    let leaves = stream(CHAT_PATH, "leaves").await;
    let _resets = stream(CHAT_PATH, "resets").await;
    let _late = stream("/t/v1/chat/completions", "late").await;
    let free = async |route: &str| {
        let route = format!("route=\"{route}\"");
        until_counted(&router, "proxy_backend_in_flight", &[&route], 0.0).await;
    };
    until_counted(&router, "proxy_backend_in_flight", &["route=\"r\""], 2.0).await;
    drop(leaves);
    gate.open(1);
    free("r").await;
    free("t").await;
    drop(peer);
    assert_eq!(router.post(CHAT_PATH, CHAT).await.status, 502);
    free("r").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_are_expanded_in_values_and_never_to_nothing() {
    let check = async |yaml: &str, vars: &[(&str, &str)]| {
        let mut setup = setup().route("r", yaml);
        for (name, value) in vars {
            setup = setup.env(name, value);
        }
        setup.run(&["--check"]).await
    };
    let peer = "peers: [{address: '10.0.0.1:80', name: NAME, max_concurrency: '${V16_P:-4000}'}]\n";
    for vars in [&[][..], &[("V16_P", "")]] {
        let finished = check(&peer.replace("NAME", "'$$x'"), vars).await;
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    }
    let no_host = "peers: [{url: 'http://${V16_H}:80'}]\n";
    let finished = check(no_host, &[]).await;
    let report = format!("{}{}", finished.stdout, finished.stderr);
    assert_eq!(finished.code, Some(1), "{report}");
    for text in ["V16_H", "peers[0].url", "r.yaml:1"] {
        assert!(report.contains(text), "{text} is missing in\n{report}");
    }
    let empty = "peers: [{address: '10.0.0.1:80', api_key: '${V16_K:-}'}]\n";
    for broken in [empty.to_owned(), peer.replace("NAME", "'$$x ${'")] {
        let finished = check(&broken, &[]).await;
        assert_eq!(finished.code, Some(1), "{broken}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_routers_key_opens_and_never_reaches_an_engine() {
    let (plain, keyed) = (Gpu::open(OTHER).await, Gpu::open(OTHER).await);
    let route = format!(
        "peers: [{{name: plain, address: '{}'}}, {{name: keyed, address: '{}', api_key: B}}]\n{FAST}balance: round_robin\nload_signal: engine\n",
        plain.address(),
        keyed.address()
    )
    .replace("balance: least_busy\n", "");
    let router = setup()
        .keys("sk-one:team\n")
        .route("r", &route)
        .start()
        .await;
    for (path, status) in [
        ("/health", 200),
        ("/ready", 200),
        ("/proxy/metrics", 401),
        ("/v1/models", 401),
        ("/r/v1/models", 401),
    ] {
        assert_eq!(router.get(path).await.status, status, "{path}");
    }
    for header in ["authorization", "x-api-key"] {
        let value = if header == "authorization" {
            "Bearer sk-one"
        } else {
            "sk-one"
        };
        for _ in 0..2 {
            placed(&router.post_with(CHAT_PATH, &[(header, value)], CHAT).await);
        }
    }
    for (gpu, credential) in [(&plain, None), (&keyed, Some("Bearer B"))] {
        let seen = gpu.peer.requests();
        assert_eq!(seen.iter().filter(|seen| is_chat(seen)).count(), 2);
        // Polls and probes of an engine carry its key too.
        for request in &seen {
            let shown = (
                request.headers.get("authorization"),
                request.headers.get("x-api-key"),
            );
            assert_eq!(shown, (credential, None), "{}", request.target);
        }
    }
}

/// The router's findings on a request's session.
async fn session_of(router: &Router, headers: &[(&str, &str)], body: &str) -> String {
    let reply = router.post_with(CHAT_PATH, headers, body).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.header("x-routed-session").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_come_from_the_listed_sources_and_nothing_else_is_a_session() {
    let gpu = Gpu::open(SAYS).await;
    let route = |sources: &str| {
        format!(
            "peers: [{{address: '{}'}}]\nhealth_check_interval: 1h\naffinity: sticky_least_loaded\n{sources}",
            gpu.address()
        )
    };
    let router = setup().route("r", &route("")).start().await;
    let headers = [("x-session-id", ""), ("x-user-id", "u")];
    let coarse = r#"{"user":null,"session_id":7,"user_id":"z"}"#;
    let prompt = r#"{"metadata":{"session_id":"m"},"prompt":"\"user\": \"x\""}"#;
    assert_eq!(session_of(&router, &headers, "{}").await, "-");
    assert_eq!(session_of(&router, &[], r#"{"user":null}"#).await, "-");
    assert_eq!(session_of(&router, &[], coarse).await, "7");
    assert_eq!(session_of(&router, &[], prompt).await, "m");
    gpu.gate.open(1000);
    for _ in 0..1000 {
        assert_eq!(router.post(CHAT_PATH, CHAT).await.status, 200);
    }
    let sessions = router.admin_get("/r/_sessions").await.json();
    let both = json!({"sessions": 2, "evicted": 0, "expired": 0});
    assert_eq!(
        sessions["pools"]
            .as_object()
            .unwrap()
            .values()
            .collect::<Vec<_>>(),
        [&both]
    );
    // The session sources of vllm-router, for users who migrate from it.
    let upstream = route("session_sources: vllm-router\n");
    let router = setup().route("r", &upstream).start().await;
    assert_eq!(session_of(&router, &headers, "{}").await, "u");
    assert_eq!(session_of(&router, &[], coarse).await, "7");
    assert_eq!(session_of(&router, &[], prompt).await, "-");
    chat(&router).await;
}
