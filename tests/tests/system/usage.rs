//! `include_usage`: every stream reports its usage to the router, and also to the client if it
//! asked.

use system_tests::peer::Peer;
use system_tests::router::Router;
use system_tests::wire::End;

use crate::common::{CHAT_PATH, CHAT_STREAM, over};

const FIRST: &str = "data: {\"id\":\"c\",\"model\":\"tiny\",\"choices\":[{\"delta\":{\"content\":\"hi\"}}],\"usage\":null}\r\n\r\n";
const USAGE: &str =
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2}}\r\n\r\n";
const LAST: &str = ": bye\n\ndata: [DONE]\n\n";

/// An engine that reports its usage whether asked or not, a few bytes at a time.
async fn talkative(step: usize) -> Peer {
    Peer::spawn(move |_, mut exchange| async move {
        exchange.open_stream().await;
        let stream = [FIRST, USAGE, LAST].concat();
        for part in stream.as_bytes().chunks(step) {
            exchange.chunk(part).await;
        }
        exchange.end_chunks().await;
        exchange
    })
    .await
}

fn asking(body: &str, options: &str) -> String {
    format!(
        "{},\"stream_options\":{options}}}",
        body.strip_suffix('}').unwrap()
    )
}

async fn counted(router: &Router) -> bool {
    let series =
        "llm_router_tokens_total{route=\"r\",model=\"tiny\",owner=\"-\",kind=\"prompt\"} 7";
    system_tests::wait::until_answer("the request to be counted", async || {
        let page = router.admin_get("/metrics").await.text();
        let done = page.lines().any(|line| {
            line.starts_with("llm_router_requests_total{route=\"r\",model=\"tiny\"")
                && line.ends_with(" 1")
        });
        done.then(|| page.contains(series))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn unasked_usage_is_counted_and_kept_from_the_client() {
    for step in [1, 7, 4096] {
        let peer = talkative(step).await;
        let router = over(&[&peer], "").start().await;
        let reply = router.post(CHAT_PATH, CHAT_STREAM).await;
        assert_eq!((reply.status, reply.end), (200, End::Clean));
        assert_eq!(reply.text(), [FIRST, LAST].concat(), "{step} bytes a chunk");
        let seen = peer.arrived(1).await;
        assert_eq!(
            String::from_utf8_lossy(&seen[0].body),
            asking(CHAT_STREAM, "{\"include_usage\":true}")
        );
        assert!(counted(&router).await);
        let toggle = router.admin_get("/r/_include_usage_toggle").await.json();
        assert_eq!(toggle["counters"]["injected_total"], 1, "{toggle}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_may_see_the_usage_sees_every_byte() {
    let asked = asking(CHAT_STREAM, "{\"include_usage\":true}");
    for (options, body, path) in [
        ("", &*asked, CHAT_PATH),
        ("include_usage: false", CHAT_STREAM, CHAT_PATH),
        ("transparent: true", CHAT_STREAM, CHAT_PATH),
        ("", CHAT_STREAM, "/r/v1/responses"),
    ] {
        let peer = talkative(4096).await;
        let router = over(&[&peer], options).start().await;
        let reply = router.post(path, body).await;
        assert_eq!(reply.text(), [FIRST, USAGE, LAST].concat(), "{options}");
        let seen = peer.arrived(1).await;
        assert_eq!(String::from_utf8_lossy(&seen[0].body), body, "{options}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_switch_acts_on_the_next_request() {
    let peer = talkative(4096).await;
    let router = over(&[&peer], "").start().await;
    let off = router.admin_post("/r/_include_usage_toggle?on=0").await;
    assert_eq!(off.json()["after"], false);
    let reply = router.post(CHAT_PATH, CHAT_STREAM).await;
    assert_eq!(reply.text(), [FIRST, USAGE, LAST].concat());
    router.admin_post("/r/_include_usage_toggle?reset=1").await;
    let reply = router.post(CHAT_PATH, CHAT_STREAM).await;
    assert_eq!(reply.text(), [FIRST, LAST].concat());
    let reset = router
        .admin_post("/r/_include_usage_toggle?reset_counters=1")
        .await;
    assert_eq!(reset.status, 200, "{}", reset.text());
    let shown = router.admin_get("/r/_include_usage_toggle").await.json();
    assert_eq!(
        (&shown["enabled"], &shown["counters"]["injected_total"]),
        (&true.into(), &0.into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_breaks_off_in_a_line_ends_with_the_error_event() {
    let peer = Peer::spawn(|_, mut exchange| async move {
        exchange.open_stream().await;
        exchange.chunk(FIRST).await;
        exchange.chunk("data: {\"choi").await;
        exchange.close();
        exchange
    })
    .await;
    let router = over(&[&peer], "").start().await;
    let reply = router.post(CHAT_PATH, CHAT_STREAM).await;
    assert_eq!(reply.end, End::Broken);
    let text = reply.text();
    let (head, error) = text.split_once("data: {\"choi\n\n").unwrap();
    assert_eq!(head, FIRST);
    assert!(error.starts_with("data: {\"error\""), "{text}");
}
