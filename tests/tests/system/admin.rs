//! Access to status pages and switches on both ports.

use serde_json::json;
use system_tests::peer::Peer;
use system_tests::router::Router;
use system_tests::wire::{Reply, call};

use crate::common::{CHAT, CHAT_PATH, over};

const FORGED: [&[(&str, &str)]; 7] = [
    &[("x-forwarded-for", "127.0.0.1")],
    &[("x-forwarded-host", "localhost")],
    &[("x-forwarded-proto", "http")],
    &[("x-real-ip", "127.0.0.1")],
    &[("forwarded", "for=127.0.0.1")],
    &[("via", "1.1 proxy")],
    &[("host", "router.example")],
];

fn is_refusal(reply: &Reply, peer: &Peer) -> bool {
    matches!(reply.status, 401 | 403 | 404) && !reply.text().contains(&peer.address.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn status_on_the_public_port_is_for_loopback_alone() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    for host in [
        "localhost",
        "localhost:8080",
        "127.0.0.1",
        "127.0.0.1:8080",
        "[::1]",
        "[::1]:8080",
    ] {
        let reply = call(
            router.public,
            "GET",
            "/r/_route_state",
            &[("host", host)],
            "",
        )
        .await;
        assert_eq!(reply.status, 200, "{host}");
    }
    for headers in FORGED {
        let reply = call(router.public, "GET", "/r/_route_state", headers, "").await;
        assert!(
            is_refusal(&reply, &peer),
            "{headers:?}: {} {}",
            reply.status,
            reply.text()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn status_access_classes() {
    let peer = Peer::plain().await;
    let through_a_proxy = |key: Option<&'static str>| {
        let mut headers = vec![("x-forwarded-for", "203.0.113.9")];
        headers.extend(key.map(|key| ("authorization", key)));
        headers
    };
    let (key, no_key) = (through_a_proxy(Some("Bearer sk-a")), through_a_proxy(None));
    for (class, with_key, without) in [("open", 200, 200), ("key", 200, 401), ("off", 404, 404)] {
        let setup = over(&[&peer], "")
            .server(&format!("status_access: {class}"))
            .keys("sk-a:alice\n");
        let router = setup.start().await;
        let status = async |headers: &[(&str, &str)]| {
            call(router.public, "GET", "/r/_route_state", headers, "")
                .await
                .status
        };
        assert_eq!(status(&key).await, with_key, "{class} with a key");
        assert_eq!(status(&no_key).await, without, "{class} without a key");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn health_ready_and_metrics_of_the_admin_port_are_open() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    for target in ["/healthz", "/readyz", "/metrics"] {
        let reply = call(
            router.admin,
            "GET",
            target,
            &[("host", "router.example")],
            "",
        )
        .await;
        assert_eq!(reply.status, 200, "{target}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rest_of_the_admin_port_takes_loopback_or_the_token() {
    let peer = Peer::plain().await;
    let setup = over(&[&peer], "").server("admin_token_file: admin-token");
    setup.write("admin-token", "tok-1\n");
    let router = setup.start().await;
    let status = async |method, target, headers: &[(&str, &str)]| {
        call(router.admin, method, target, headers, "").await.status
    };
    assert_eq!(status("GET", "/_routes", &[]).await, 200);
    assert_eq!(status("POST", "/_reload", &[]).await, 200);
    let far = ("host", "router.example");
    for (method, target) in [
        ("GET", "/_routes"),
        ("GET", "/r/_route_state"),
        ("POST", "/_reload"),
        ("POST", "/_drain"),
    ] {
        let refused = status(method, target, &[far]).await;
        assert!(matches!(refused, 401 | 403), "{target}: {refused}");
        let wrong = status(method, target, &[far, ("authorization", "Bearer tok-2")]).await;
        assert!(matches!(wrong, 401 | 403), "{target}: {wrong}");
    }
    assert_eq!(
        status("GET", "/_routes", &[far, ("authorization", "Bearer tok-1")]).await,
        200
    );
    for headers in FORGED {
        let refused = status("GET", "/_routes", headers).await;
        assert!(matches!(refused, 401 | 403), "{headers:?}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn admin_read_open_opens_reads_and_no_writes() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").server("admin_read: open").start().await;
    let far = [("host", "router.example")];
    assert_eq!(
        call(router.admin, "GET", "/_routes", &far, "").await.status,
        200
    );
    let refused = call(router.admin, "POST", "/r/_affinity_toggle?on=0", &far, "")
        .await
        .status;
    assert!(matches!(refused, 401 | 403), "{refused}");
    assert_eq!(mode(&router).await, "hash");
}

async fn mode(router: &Router) -> String {
    let reply = router
        .post_with(CHAT_PATH, &[("x-session-id", "s")], CHAT)
        .await;
    reply.header("x-routed-mode").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_web_page_can_flip_a_switch() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    let pages: [&[(&str, &str)]; 5] = [
        &[("origin", "https://evil.example")],
        &[("origin", "null")],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
        &[("host", "evil.example")],
    ];
    for port in [router.public, router.admin] {
        for headers in pages {
            let reply = call(port, "POST", "/r/_affinity_toggle?on=0", headers, "").await;
            assert!(
                matches!(reply.status, 401 | 403 | 404),
                "{headers:?}: {}",
                reply.status
            );
            assert_eq!(mode(&router).await, "hash", "{headers:?}");
        }
    }
    let reply = call(router.admin, "POST", "/_reload", pages[0], "").await;
    assert!(matches!(reply.status, 401 | 403), "{}", reply.status);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_post_writes() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    for port in [router.public, router.admin] {
        for method in ["PUT", "DELETE", "PATCH"] {
            let reply = call(port, method, "/r/_affinity_toggle?on=0", &[], "").await;
            assert_eq!(reply.status, 405, "{method}");
        }
        let shown = call(port, "GET", "/r/_affinity_toggle", &[], "").await;
        assert_eq!(shown.status, 200);
        let _either_is_fine = call(port, "GET", "/r/_affinity_toggle?on=0", &[], "").await;
        assert_eq!(mode(&router).await, "hash");
    }
    assert_eq!(router.admin_get("/_reload").await.status, 405);
    assert_eq!(router.admin_get("/_drain").await.status, 405);
}

#[tokio::test(flavor = "multi_thread")]
async fn toggle_on_the_public_port_works_for_loopback() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    assert_eq!(
        call(router.public, "POST", "/r/_affinity_toggle?on=0", &[], "")
            .await
            .status,
        200
    );
    assert_eq!(mode(&router).await, "least_conn");
}

#[tokio::test(flavor = "multi_thread")]
async fn status_pages_show_the_route() {
    let peer = Peer::plain().await;
    let address = peer.address.to_string();
    let router = over(&[&peer], "default_max: 9").start().await;
    router
        .post_with(
            CHAT_PATH,
            &[("x-session-id", "s"), ("x-request-id", "rid-1")],
            CHAT,
        )
        .await;
    let routes = router.admin_get("/_routes").await;
    assert!(routes.text().contains(&address), "{}", routes.text());
    let state = router.admin_get("/r/_route_state").await.json();
    assert_eq!((&state["route"], &state["limit"]), (&json!("r"), &json!(9)));
    let debug = router.admin_get("/r/_route_debug?sid=s").await;
    assert!(
        debug.status == 200 && debug.text().contains(&address),
        "{}",
        debug.text()
    );
    let inspect = call(
        router.admin,
        "POST",
        "/r/_route_inspect",
        &[("x-session-id", "s")],
        CHAT,
    )
    .await;
    assert_eq!(inspect.json()["mode"], json!("hash"), "{}", inspect.text());
    let decisions = router.admin_get("/r/_decisions?n=5").await;
    assert!(decisions.text().contains("rid-1"), "{}", decisions.text());
    assert_eq!(router.admin_get("/_decisions").await.status, 200);
    assert_eq!(peer.requests().len(), 1, "looking sends nothing");
}
