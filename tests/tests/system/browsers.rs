//! Web pages that call the router from a browser.

use system_tests::peer::Peer;
use system_tests::wire::{Reply, call};

use crate::common::{CHAT, CHAT_PATH, over};

const PAGE: (&str, &str) = ("origin", "https://chat.example");

async fn preflight(router: &system_tests::router::Router, origin: &str) -> Reply {
    let headers = [
        ("origin", origin),
        ("access-control-request-method", "POST"),
        (
            "access-control-request-headers",
            "authorization,x-session-id",
        ),
    ];
    call(router.public, "OPTIONS", CHAT_PATH, &headers, "").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preflight_is_answered_before_the_key_is_asked_for() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "")
        .keys("sk-a:alice\n")
        .server("cors: {origins: [https://chat.example]}")
        .start()
        .await;
    let reply = preflight(&router, PAGE.1).await;
    assert_eq!(reply.status, 204);
    assert_eq!(reply.header("access-control-allow-origin"), PAGE.1);
    assert_eq!(
        reply.header("access-control-allow-headers"),
        "authorization,x-session-id"
    );
    assert!(
        reply
            .header("access-control-allow-methods")
            .contains("POST")
    );
    let refused = preflight(&router, "https://other.example").await;
    assert_eq!(refused.status, 403);
    assert!(refused.text().contains("origin_not_allowed"));
    assert!(refused.text().contains("https://other.example"));
    assert_eq!(refused.header("access-control-allow-origin"), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_may_read_answers_and_errors_and_the_engines_headers_are_replaced() {
    let peer = Peer::spawn(|_, mut exchange| async move {
        let headers = [
            ("access-control-allow-origin", "https://engine.example"),
            ("access-control-allow-credentials", "true"),
        ];
        exchange.reply(200, &headers, "{}").await;
        exchange
    });
    let peer = peer.await;
    let router = over(&[&peer], "")
        .keys("sk-a:alice\n")
        .server("cors: {origins: [https://chat.example]}")
        .start()
        .await;
    let good = router
        .post_with(CHAT_PATH, &[PAGE, ("x-api-key", "sk-a")], CHAT)
        .await;
    let without_key = router.post_with(CHAT_PATH, &[PAGE], CHAT).await;
    let nowhere = router
        .post_with("/nowhere/v1/x", &[PAGE, ("x-api-key", "sk-a")], CHAT)
        .await;
    for (reply, status) in [(good, 200), (without_key, 401), (nowhere, 404)] {
        assert_eq!(reply.status, status);
        let all: Vec<_> = reply.headers.all("access-control-allow-origin").collect();
        assert_eq!(all, [PAGE.1], "{status}");
        assert_eq!(reply.header("access-control-allow-credentials"), "");
        assert_eq!(reply.header("access-control-expose-headers"), "*");
        assert_eq!(reply.header("vary"), "Origin");
    }
    let foreign = [("origin", "https://other.example"), ("x-api-key", "sk-a")];
    let reply = router.post_with(CHAT_PATH, &foreign, CHAT).await;
    assert_eq!(
        (reply.status, reply.header("access-control-allow-origin")),
        (200, "")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn status_pages_are_closed_to_pages_and_without_the_option_nothing_changes() {
    let peer = Peer::fixed(405, "{}").await;
    let open = over(&[&peer], "")
        .server("cors: {origins: [\"*\"]}")
        .start()
        .await;
    let reply = call(open.public, "GET", "/r/_route_opts", &[PAGE], "").await;
    assert_eq!(
        (reply.status, reply.header("access-control-allow-origin")),
        (200, "")
    );
    let reply = call(open.public, "GET", "/health", &[PAGE], "").await;
    assert_eq!(reply.header("access-control-allow-origin"), "*");
    let off = over(&[&peer], "").start().await;
    assert_eq!(preflight(&off, PAGE.1).await.status, 405);
}
