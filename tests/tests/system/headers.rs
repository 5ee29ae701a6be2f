//! Headers that the router adds, removes and keeps.

use system_tests::peer::Peer;
use system_tests::wire::{Reply, call};

use crate::common::{CHAT, CHAT_PATH, over, session_at, setup};

const ROUTING: [&str; 6] = [
    "x-routed-session",
    "x-routed-source",
    "x-routed-mode",
    "x-routed-peer",
    "x-routed-retries",
    "x-proxy-backend",
];

fn routing(reply: &Reply) -> [&str; 6] {
    ROUTING.map(|name| reply.header(name))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_v1_response_says_where_it_came_from() {
    let peer = Peer::plain().await;
    let address = peer.address.to_string();
    let router = setup()
        .route(
            "r",
            &format!("peers: [{{address: {address}, name: gpu-a}}]"),
        )
        .start()
        .await;
    let reply = router
        .post_with(CHAT_PATH, &[("x-session-id", "s1")], CHAT)
        .await;
    assert_eq!(
        routing(&reply),
        ["s1", "header.x-session-id", "hash", &address, "0", "gpu-a"]
    );
    assert!(!reply.header("x-request-id").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn before_a_peer_is_chosen_they_are_dashes() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").keys("sk-a:alice\n").start().await;
    let reply = router.post(CHAT_PATH, CHAT).await;
    assert_eq!(reply.status, 401);
    assert_eq!(routing(&reply), ["-", "none", "-", "-", "0", "-"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_peer_sends_under_these_names_is_replaced() {
    let peer = Peer::spawn(|_, mut exchange| async move {
        let mut headers = ROUTING.map(|name| (name, "forged")).to_vec();
        headers.push(("x-request-id", "engine-id"));
        exchange.reply(200, &headers, "{}").await;
        exchange
    });
    let peer = peer.await;
    let router = over(&[&peer], "").start().await;
    let reply = router
        .post_with(CHAT_PATH, &[("x-request-id", "mine")], CHAT)
        .await;
    for name in ROUTING {
        let all: Vec<_> = reply.headers.all(name).collect();
        assert!(all.len() == 1 && all[0] != "forged", "{name}: {all:?}");
    }
    assert_eq!(
        reply.headers.all("x-request-id").collect::<Vec<_>>(),
        ["mine"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn session_is_percent_encoded_and_then_cut_to_128_bytes() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    let shown = async |session: &str| {
        let body = serde_json::json!({"user": session}).to_string();
        router
            .post(CHAT_PATH, &body)
            .await
            .header("x-routed-session")
            .to_owned()
    };
    assert_eq!(shown("a b\tc\r\nd").await, "a%20b%09c%0D%0Ad");
    assert_eq!(shown("会话").await, "%E4%BC%9A%E8%AF%9D");
    assert_eq!(shown(" padded ").await, "%20padded%20");
    assert_eq!(shown(&"a".repeat(128)).await, "a".repeat(128));
    assert_eq!(shown(&"a".repeat(300)).await, "a".repeat(128));
    assert_eq!(shown(&"é".repeat(100)).await.len(), 128);
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_are_counted() {
    let (broken, sound) = (Peer::fixed(503, "{}").await, Peer::plain().await);
    let router = over(&[&broken, &sound], "").start().await;
    let session = session_at(0, 2);
    let reply = router
        .post_with(CHAT_PATH, &[("x-session-id", &session)], CHAT)
        .await;
    assert_eq!((reply.status, reply.header("x-routed-retries")), (200, "1"));
    assert_eq!(reply.header("x-routed-peer"), sound.address.to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn request_id_is_the_clients_or_generated() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    let id = async |sent: &[(&str, &str)]| {
        router
            .post_with(CHAT_PATH, sent, CHAT)
            .await
            .header("x-request-id")
            .to_owned()
    };
    let longest = "i".repeat(128);
    for sent in ["abc-123", "~!@#", &longest] {
        assert_eq!(id(&[("x-request-id", sent)]).await, sent);
    }
    let (first, second) = (id(&[]).await, id(&[]).await);
    assert!(!first.is_empty() && first != second);
    let too_long = "i".repeat(129);
    for sent in [too_long.as_str(), "two words", "näme", ""] {
        let got = id(&[("x-request-id", sent)]).await;
        assert!(
            !got.is_empty() && got != sent,
            "{sent:?} was echoed as {got:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_also_carry_the_request_id_in_anthropics_header() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    let headers = [("x-request-id", "req-1")];
    let messages = router.post_with("/r/v1/messages", &headers, "{}").await;
    assert_eq!(
        (
            messages.header("request-id"),
            messages.header("x-request-id")
        ),
        ("req-1", "req-1")
    );
    assert_eq!(
        router
            .post_with(CHAT_PATH, &headers, CHAT)
            .await
            .header("request-id"),
        ""
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn expose_routing_headers_off_leaves_the_request_id_alone() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "expose_routing_headers: false")
        .start()
        .await;
    let reply = router
        .post_with(CHAT_PATH, &[("x-session-id", "s1")], CHAT)
        .await;
    assert_eq!(routing(&reply), [""; 6]);
    assert!(!reply.header("x-request-id").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn hop_by_hop_headers_are_stripped_toward_the_engine() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    let headers = [
        ("connection", "keep-alive, X-Private"),
        ("x-private", "1"),
        ("keep-alive", "timeout=5"),
        ("proxy-authorization", "Basic eA=="),
        ("proxy-connection", "keep-alive"),
        ("te", "trailers"),
        ("upgrade", "h2c"),
        ("x-kept", "yes"),
    ];
    assert_eq!(
        router.post_with(CHAT_PATH, &headers, CHAT).await.status,
        200
    );
    let seen = &peer.arrived(1).await[0].headers;
    for name in [
        "x-private",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "upgrade",
    ] {
        assert_eq!(seen.get(name), None, "{name}");
    }
    assert_eq!(seen.get("x-kept"), Some("yes"));
}

#[tokio::test(flavor = "multi_thread")]
async fn hop_by_hop_headers_are_stripped_toward_the_client() {
    let peer = Peer::spawn(|_, mut exchange| async move {
        let headers = [
            ("connection", "keep-alive, X-Private"),
            ("x-private", "1"),
            ("keep-alive", "timeout=5, max=100"),
            ("proxy-authenticate", "Basic"),
            ("upgrade", "h2c"),
            ("x-kept", "yes"),
        ];
        exchange.reply(200, &headers, "{}").await;
        exchange
    });
    let peer = peer.await;
    let router = over(&[&peer], "").start().await;
    let reply = router.post(CHAT_PATH, CHAT).await;
    for name in ["x-private", "keep-alive", "proxy-authenticate", "upgrade"] {
        assert_eq!(reply.headers.get(name), None, "{name}");
    }
    assert_eq!(reply.header("x-kept"), "yes");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_body_is_said_to_be_empty() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    for (method, length) in [("POST", Some("0")), ("GET", None)] {
        call(router.public, method, "/r/v1/engines", &[], "").await;
        let seen = peer.requests().pop().unwrap();
        assert_eq!(seen.headers.get("content-length"), length, "{method}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn engine_sees_its_own_host_and_the_clients_address() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    let headers = [
        ("host", "api.example"),
        ("x-forwarded-for", "203.0.113.9"),
        ("x-real-ip", "203.0.113.9"),
    ];
    router.post_with(CHAT_PATH, &headers, CHAT).await;
    let seen = &peer.arrived(1).await[0].headers;
    assert_eq!(
        seen.all("host").collect::<Vec<_>>(),
        [peer.address.to_string()]
    );
    assert_eq!(seen.get("x-real-ip"), Some("127.0.0.1"));
    assert_eq!(seen.get("x-forwarded-proto"), Some("http"));
    let forwarded = seen.get("x-forwarded-for").unwrap();
    assert!(forwarded.ends_with("127.0.0.1"), "{forwarded}");
}

#[tokio::test(flavor = "multi_thread")]
async fn trusted_proxies_name_the_client() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "")
        .server("trusted_proxies: [127.0.0.0/8]")
        .start()
        .await;
    router
        .post_with(CHAT_PATH, &[("x-forwarded-for", "203.0.113.9")], CHAT)
        .await;
    let seen = &peer.arrived(1).await[0].headers;
    assert_eq!(seen.get("x-real-ip"), Some("203.0.113.9"));
}

#[tokio::test(flavor = "multi_thread")]
async fn trace_context_and_encodings_pass_both_ways() {
    let compressed: &[u8] = b"\x1f\x8b\x08\x00 not really gzip \xff\x00";
    let peer = Peer::spawn(move |_, mut exchange| async move {
        exchange
            .reply(
                200,
                &[("content-encoding", "gzip"), ("etag", "\"x\"")],
                compressed,
            )
            .await;
        exchange
    });
    let peer = peer.await;
    let router = over(&[&peer], "").start().await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let headers = [
        ("accept-encoding", "gzip, br;q=0.5"),
        ("traceparent", trace),
        ("tracestate", "a=b"),
    ];
    let reply = call(router.public, "POST", CHAT_PATH, &headers, CHAT).await;
    assert_eq!(
        (reply.header("content-encoding"), reply.body.as_slice()),
        ("gzip", compressed)
    );
    let seen = &peer.arrived(1).await[0].headers;
    // Only what the router can read is asked for.
    assert_eq!(seen.get("accept-encoding"), Some("gzip"));
    for (name, value) in &headers[1..] {
        assert_eq!(seen.get(name), Some(*value));
    }
}
