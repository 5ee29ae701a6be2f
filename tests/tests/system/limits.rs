//! Concurrency, body and header limits.

use serde_json::json;
use system_tests::peer::{Gate, Peer};
use system_tests::router::Router;
use system_tests::wait::{until, until_answer};
use system_tests::wire::{Wire, call};
use tokio::task::JoinSet;

use crate::common::{CHAT, CHAT_PATH, over, setup};

#[tokio::test(flavor = "multi_thread")]
async fn burst_of_500_at_a_limit_of_64_never_runs_65() {
    let gate = Gate::default();
    let engines = [Peer::gated(&gate).await, Peer::gated(&gate).await];
    let [a, b] = &engines;
    let route = format!(
        "peers: [{{address: {}, max_concurrency: 24}}, {{address: {}, max_concurrency: 40}}]\nhealth_check_interval: 1h",
        a.address, b.address
    );
    let router = setup().route("r", &route).start().await;
    let mut clients = JoinSet::new();
    for n in 0..500 {
        let public = router.public;
        clients.spawn(async move {
            let session = format!("burst-{n}");
            // Every second request has a session, so that homes and fallbacks race too.
            let headers = [("x-session-id", session.as_str())];
            let headers = if n % 2 == 0 { &headers[..] } else { &[] };
            call(public, "POST", CHAT_PATH, headers, CHAT).await.status
        });
    }
    for _ in 0..436 {
        assert_eq!(clients.join_next().await.unwrap().unwrap(), 429);
    }
    until("64 running requests", || {
        a.tally().running + b.tally().running == 64
    })
    .await;
    gate.open(64);
    while let Some(status) = clients.join_next().await {
        assert_eq!(status.unwrap(), 200);
    }
    assert_eq!((a.tally().peak, b.tally().peak), (24, 40));
    assert_eq!(a.requests().len() + b.requests().len(), 64);
}

#[tokio::test(flavor = "multi_thread")]
async fn sustained_overload_never_exceeds_the_limit_at_the_engine() {
    let peer = Peer::plain().await;
    let route = format!("peers: [{{address: {}, max_concurrency: 5}}]", peer.address);
    let router = setup().route("r", &route).start().await;
    let mut clients = JoinSet::new();
    for _ in 0..40 {
        let public = router.public;
        clients.spawn(async move {
            for _ in 0..25 {
                let status = call(public, "POST", CHAT_PATH, &[], CHAT).await.status;
                assert!(status == 200 || status == 429, "{status}");
            }
        });
    }
    while let Some(done) = clients.join_next().await {
        done.unwrap();
    }
    assert!(peer.tally().peak <= 5, "{} ran at once", peer.tally().peak);
    let conns = router.admin_get("/r/_active_conns").await.json();
    assert_eq!(conns[peer.address.to_string()], json!(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn overflow_and_factor_scale_the_limit() {
    let gate = Gate::default();
    let peer = Peer::gated(&gate).await;
    let route = |options: &str| {
        format!(
            "peers: [{{address: {}, max_concurrency: 2}}]\n{options}",
            peer.address
        )
    };
    let setup = setup()
        .route("factor", &route("rt_limit_factor: 1.5"))
        .route("over", &route("full_policy: overflow"));
    let router = setup.start().await;
    let run = async |name: &str, count: usize, admitted: usize| {
        let mut clients = JoinSet::new();
        for _ in 0..count {
            let (public, path) = (router.public, format!("/{name}/v1/chat/completions"));
            clients.spawn(async move { call(public, "POST", &path, &[], CHAT).await.status });
        }
        peer.running(admitted).await;
        for _ in admitted..count {
            assert_eq!(clients.join_next().await.unwrap().unwrap(), 429, "{name}");
        }
        gate.open(admitted);
        while let Some(status) = clients.join_next().await {
            assert_eq!(status.unwrap(), 200, "{name}");
        }
        peer.running(0).await;
    };
    run("factor", 5, 3).await;
    run("over", 5, 5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn declared_length_beyond_the_limit_is_413_before_the_body() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "max_body_size: 1k").start().await;
    let mut wire = Wire::connect(router.public).await;
    wire.send(format!(
        "POST {CHAT_PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: 1025\r\n\r\n"
    ))
    .await;
    let reply = wire.reply("POST").await;
    let error = &reply.json()["error"];
    assert_eq!(
        (reply.status, &error["code"], &error["limit"]),
        (413, &json!("body_too_large"), &json!(1024))
    );
    assert_eq!(reply.header("x-should-retry"), "false");
    assert_eq!(router.post(CHAT_PATH, &"x".repeat(1024)).await.status, 200);
    assert_eq!(peer.requests().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn chunked_body_beyond_the_limit_is_413() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "max_body_size: 1k").start().await;
    let mut wire = Wire::connect(router.public).await;
    wire.send(format!(
        "POST {CHAT_PATH} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    ))
    .await;
    wire.send(format!("258\r\n{0}\r\n258\r\n{0}\r\n", "x".repeat(600)))
        .await;
    assert_eq!(wire.reply("POST").await.status, 413);
    assert!(peer.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_servers_ceiling_caps_the_route() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "max_body_size: 1m")
        .server("max_body_size: 2k")
        .start()
        .await;
    assert_eq!(router.post(CHAT_PATH, &"x".repeat(2048)).await.status, 200);
    assert_eq!(router.post(CHAT_PATH, &"x".repeat(2049)).await.status, 413);
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_beyond_the_global_budget_are_503_and_the_budget_comes_back() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "")
        .server("max_buffered_bytes: 1m")
        .start()
        .await;
    let body = "x".repeat(700_000);
    let mut holder = Wire::connect(router.public).await;
    holder
        .send(format!(
            "POST {CHAT_PATH} HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 700000\r\n\r\n"
        ))
        .await;
    assert_eq!(holder.try_head("POST").await.unwrap().status, 100);
    holder.send(&body[1..]).await;
    buffered(&router, 699_999).await;
    let refused = router.post(CHAT_PATH, &body).await;
    assert_eq!(
        (refused.status, &refused.json()["error"]["code"]),
        (503, &json!("overloaded"))
    );
    assert!(
        !refused.header("retry-after").is_empty() && !refused.header("retry-after-ms").is_empty()
    );
    holder.send("x").await;
    assert_eq!(holder.reply("POST").await.status, 200);
    assert_eq!(router.post(CHAT_PATH, &body).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn announced_lengths_take_no_room_from_the_bodies_of_others() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "")
        .server("max_buffered_bytes: 1m")
        .start()
        .await;
    let mut promises = Vec::new();
    for _ in 0..50 {
        let mut wire = Wire::connect(router.public).await;
        wire.send(format!(
            "POST {CHAT_PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: 900000\r\n\r\nx"
        ))
        .await;
        promises.push(wire);
    }
    buffered(&router, 50).await;
    let body = "x".repeat(900_000);
    assert_eq!(router.post(CHAT_PATH, &body).await.status, 200);
    buffered(&router, 50).await;
    promises.into_iter().for_each(Wire::reset);
    buffered(&router, 0).await;
}

/// Waits until the router holds exactly so many bytes of bodies.
async fn buffered(router: &Router, bytes: u32) {
    let line = format!("\nllm_router_buffered_bytes {bytes}.0\n");
    until_answer("the bytes in memory", async || {
        let page = router.admin_get("/metrics").await.text();
        page.contains(&line).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn abandoned_uploads_give_their_bytes_back() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "")
        .server("max_buffered_bytes: 1m")
        .start()
        .await;
    for _ in 0..5 {
        let mut wire = Wire::connect(router.public).await;
        wire.send(format!(
            "POST {CHAT_PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: 900000\r\n\r\n"
        ))
        .await;
        wire.send("x".repeat(800_000)).await;
        wire.reset();
    }
    let body = "x".repeat(900_000);
    until_answer("the bytes of the abandoned uploads", async || {
        (router.post(CHAT_PATH, &body).await.status == 200).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn header_limits_answer_431() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    let crowd: String = (0..129).map(|n| format!("x-{n}: 1\r\n")).collect();
    let block: String = (0..9)
        .map(|n| format!("x-{n}: {}\r\n", "v".repeat(8 << 10)))
        .collect();
    let mob: String = (0..1000).map(|n| format!("x-{n}: 1\r\n")).collect();
    let wall = format!("x-wall: {}\r\n", "v".repeat(600 << 10));
    let beyond = [
        ("129 headers", crowd),
        ("72 KiB", block),
        ("1000 headers", mob),
        ("600 KiB", wall),
    ];
    for (name, headers) in beyond {
        let mut wire = Wire::connect(router.public).await;
        wire.send(format!(
            "GET /r/v1/models HTTP/1.1\r\nhost: x\r\n{headers}\r\n"
        ))
        .await;
        let reply = wire.reply("GET").await;
        assert_eq!(reply.status, 431, "{name}");
        assert_eq!(reply.json()["error"]["code"], "headers_too_large", "{name}");
        assert!(!reply.header("x-request-id").is_empty(), "{name}");
    }
    let crowd: String = (0..100).map(|n| format!("x-{n}: 1\r\n")).collect();
    let block: String = (0..7)
        .map(|n| format!("x-{n}: {}\r\n", "v".repeat(8 << 10)))
        .collect();
    for (name, headers) in [("101 headers", crowd), ("56 KiB", block)] {
        let mut wire = Wire::connect(router.public).await;
        wire.send(format!(
            "GET /r/v1/engines HTTP/1.1\r\nhost: x\r\n{headers}\r\n"
        ))
        .await;
        assert_eq!(wire.head("GET").await.status, 200, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn request_line_is_bounded() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    for (length, fine) in [(15 << 10, true), (17 << 10, false), (70 << 10, false)] {
        let target = format!("/r/v1/engines?q={}", "x".repeat(length));
        let reply = router.get(&target).await;
        let status = reply.status;
        if fine {
            assert_eq!(status, 200, "{length}");
        } else {
            assert!(status == 414 || status == 431, "{length}: {status}");
            assert!(reply.json()["error"]["code"].is_string(), "{length}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_remembered_of_a_huge_model_name_is_bounded() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    let body = format!(r#"{{"model":"{}"}}"#, "m".repeat(1 << 20));
    assert_eq!(router.post(CHAT_PATH, &body).await.status, 200);
    let receipt = until_answer("the receipt", async || {
        let decisions = router.admin_get("/r/_decisions").await.json();
        decisions["decisions"].get(0).cloned()
    })
    .await;
    assert_eq!(receipt["model"].as_str().map(str::len), Some(128));
}
