//! The console without its sockets.

use proptest::prelude::*;
use router_core::pool::Evidence;

use super::*;
use crate::admin::access::{self, CONSOLE_HEADER};
use crate::admin::tests::Port;

const HOME: &str = "http://localhost:8090";
const OURS: &[(&str, &str)] = &[("origin", HOME), (CONSOLE_HEADER, "1")];

#[tokio::test]
async fn the_shell_is_small_and_loads_nothing_from_elsewhere() {
    let port = Port::chat();
    let mut bytes = 0;
    for path in [
        "/console/",
        "/console/console.js",
        "/console/console.css",
        "/console/icon.svg",
    ] {
        let reply = port.send("203.0.113.9", "GET", path, &[], "").await;
        assert_eq!(reply.status, 200, "{path}");
        assert_eq!(reply.headers["content-security-policy"], POLICY);
        assert!(reply.headers.get("access-control-allow-origin").is_none());
        assert!(!reply.text.contains("https://"), "{path}");
        bytes += reply.text.len();
    }
    assert!(bytes < 60_000, "{bytes}");
}

#[tokio::test]
async fn views_take_the_rights_of_the_json_pages() {
    let port = Port::chat();
    for path in ["/console/view?view=fleet", "/console/events?view=fleet"] {
        assert_eq!(
            port.send("203.0.113.9", "GET", path, &[], "").await.status,
            403
        );
    }
    let near = port.get("/console/view?view=fleet").await;
    assert_eq!(near.status, 200);
    assert!(
        near.text.contains("<a href=\"#/route/chat\">chat</a>"),
        "{}",
        near.text
    );
    let rebound = [("host", "evil.example:8090")];
    let reply = port
        .send("127.0.0.1", "GET", "/console/view?view=fleet", &rebound, "")
        .await;
    assert_eq!(reply.status, 403);
}

#[tokio::test]
async fn the_console_can_be_switched_off() {
    let port = Port::over(
        "server: {console: off}",
        &[("chat", super::super::tests::CHAT)],
    );
    for path in [
        "/console/",
        "/console/console.js",
        "/console/view?view=fleet",
    ] {
        assert_eq!(port.get(path).await.status, 404, "{path}");
    }
    let reply = port
        .send("127.0.0.1", "POST", "/chat/_affinity_toggle?on=0", OURS, "")
        .await;
    assert_eq!(
        reply.status, 403,
        "its requests are a page's like any other"
    );
}

#[tokio::test]
async fn only_the_console_may_write_from_a_browser() {
    let port = Port::chat();
    let write = async |headers: &[(&str, &str)]| {
        let reply = port.send(
            "127.0.0.1",
            "POST",
            "/chat/_affinity_toggle?on=0",
            headers,
            "",
        );
        reply.await.status.as_u16()
    };
    assert_eq!(write(OURS).await, 200);
    let own_site = [OURS, &[("sec-fetch-site", "same-origin")]].concat();
    assert_eq!(write(&own_site).await, 200);
    for (why, headers) in [
        (
            "another origin",
            vec![("origin", "http://evil.example"), (CONSOLE_HEADER, "1")],
        ),
        (
            "another port",
            vec![("origin", "http://localhost:3000"), (CONSOLE_HEADER, "1")],
        ),
        ("no header of the script", vec![("origin", HOME)]),
        (
            "an opaque origin",
            vec![("origin", "null"), (CONSOLE_HEADER, "1")],
        ),
        (
            "a cross-site request",
            [OURS, &[("sec-fetch-site", "cross-site")]].concat(),
        ),
        (
            "a rebound name",
            vec![
                ("host", "evil.example:8090"),
                ("origin", "http://evil.example:8090"),
                (CONSOLE_HEADER, "1"),
            ],
        ),
    ] {
        assert_eq!(write(&headers).await, 403, "{why}");
    }
}

#[tokio::test]
async fn a_route_shows_its_peers_and_their_state() {
    let port = Port::chat();
    port.observe("gpu-b", Evidence::Unreachable);
    let page = port.get("/console/view?view=route&name=chat").await.text;
    for text in [
        "gpu-a",
        "10.0.0.11:8000",
        "H100",
        "banned",
        "Turn affinity off",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    let missing = port
        .get("/console/view?view=route&name=%3Cscript%3E")
        .await
        .text;
    assert!(missing.contains("&lt;script&gt;"), "{missing}");
    assert!(!missing.contains("<script"), "{missing}");
}

#[tokio::test]
async fn an_override_is_a_banner_with_a_way_back() {
    let port = Port::chat();
    port.post("/chat/_affinity_toggle?on=0").await;
    let page = port.get("/console/view?view=fleet").await.text;
    assert!(page.contains("Set by hand"), "{page}");
    assert!(page.contains("/chat/_affinity_toggle?reset=1"), "{page}");
    port.post("/chat/_affinity_toggle?reset=1").await;
    let page = port.get("/console/view?view=fleet").await.text;
    assert!(!page.contains("Set by hand"), "{page}");
}

#[tokio::test]
async fn the_number_of_open_streams_is_bounded() {
    let port = Port::chat();
    let mut open = Vec::new();
    for _ in 0..16 {
        let reply = port.open("/console/events?view=fleet").await;
        assert_eq!(reply.status(), 200);
        open.push(reply);
    }
    assert_eq!(port.open("/console/events?view=fleet").await.status(), 503);
    open.pop();
    assert_eq!(port.open("/console/events?view=fleet").await.status(), 200);
}

#[tokio::test]
async fn bad_queries_are_refused() {
    let port = Port::chat();
    for query in ["", "view=", "view=all", "view=route", "view=fleet&x=1"] {
        for path in ["view", "events"] {
            let reply = port.get(&format!("/console/{path}?{query}")).await;
            assert_eq!(reply.status, 400, "{path} {query}");
        }
    }
}

proptest! {
    #[test]
    fn no_origin_but_the_hosts_own_is_the_console(origin in "(http://|https://|)[a-z.:0-9]{0,12}") {
        let request = http::Request::builder()
            .header("host", "localhost:8090")
            .header("origin", &origin)
            .header(CONSOLE_HEADER, "1")
            .body(())
            .unwrap();
        let (parts, ()) = request.into_parts();
        let is_ours = matches!(&*origin, "http://localhost:8090" | "https://localhost:8090");
        prop_assert_eq!(access::is_from_the_console(&parts), is_ours);
    }
}
