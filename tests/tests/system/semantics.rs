//! HTTP according to RFC 9110 and RFC 9112: methods, hosts, redirects, framing, slashes and broken
//! ends.

use std::io::ErrorKind;

use system_tests::peer::{Gate, Peer};
use system_tests::wire::{Wire, exchange};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::common::{CHAT, CHAT_PATH, over};

/// The status of the answer to raw bytes.
async fn status_of(address: std::net::SocketAddr, bytes: &str) -> u16 {
    let head = exchange(address, bytes.as_bytes()).await.unwrap();
    head.expect("an answer").status
}

#[tokio::test(flavor = "multi_thread")]
async fn connect_and_trace_are_refused_in_any_form() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    for line in [
        "CONNECT /r/v1/x",
        "CONNECT engine.example:443",
        "TRACE /r/v1/x",
        "TRACE /health",
    ] {
        let request = format!("{line} HTTP/1.1\r\nhost: x\r\n\r\n");
        assert_eq!(status_of(router.public, &request).await, 405, "{line}");
    }
    assert!(peer.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_none_is_refused() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    for host in ["", "a b", "a/b", "user@a", "a:99999"] {
        let request = format!("GET /r/v1/x HTTP/1.1\r\nhost: {host}\r\n\r\n");
        assert_eq!(status_of(router.public, &request).await, 400, "{host}");
    }
    assert!(peer.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_cannot_be_parsed_gets_an_answer_that_arrives() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    let rest = "x".repeat(200_000);
    let length = "content-length: 99999999999999999999999";
    for (request, status) in [
        (
            format!("POST /r/v1/x HTTP/1.1\r\nhost: x\r\n{length}\r\n\r\n{rest}"),
            400,
        ),
        (
            format!(
                "GET /{} HTTP/1.1\r\nhost: x\r\n\r\n{rest}",
                "a".repeat(70_000)
            ),
            414,
        ),
        (format!("GET /{}", "a".repeat(2_000_000)), 431),
    ] {
        let mut stream = TcpStream::connect(router.public).await.unwrap();
        // The router may stop reading before all bytes are sent.
        let _ = stream.write_all(request.as_bytes()).await;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let line = format!("HTTP/1.1 {status} ");
        assert!(answer.starts_with(&line), "{answer}");
        assert!(answer.contains("\"error\""), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_to_the_engine_leads_below_the_route() {
    let peer = Peer::spawn(|seen, mut exchange| async move {
        let own = seen.headers.get("host").unwrap().to_owned();
        let location = match seen.target.as_str() {
            "/v1/own" => format!("http://{own}/v1/moved?a=1"),
            "/v1/path" => "/v1/moved".to_owned(),
            _ => "https://elsewhere.example/v1/moved".to_owned(),
        };
        let headers = [("location", location.as_str())];
        exchange.reply(307, &headers, "").await;
        exchange
    });
    let peer = peer.await;
    let router = over(&[&peer], "").start().await;
    for (target, expected) in [
        ("/r/v1/own", "/r/v1/moved?a=1"),
        ("//r//v1/own", "/r/v1/moved?a=1"),
        ("/v1/own", "/v1/moved?a=1"),
        ("/r/v1/path", "/r/v1/moved"),
        ("/r/v1/other", "https://elsewhere.example/v1/moved"),
    ] {
        let reply = router.get(target).await;
        assert_eq!(reply.header("location"), expected, "{target}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_of_an_engine_to_its_proxy_end_at_the_router() {
    const ORDERS: [&str; 5] = [
        "x-accel-redirect",
        "x-accel-limit-rate",
        "x-accel-expires",
        "x-accel-charset",
        "x-sendfile",
    ];
    let peer = Peer::spawn(|_, mut exchange| async move {
        let mut headers: Vec<_> = ORDERS.iter().map(|name| (*name, "/internal")).collect();
        headers.push(("x-accel-buffering", "yes"));
        exchange.reply(200, &headers, "{}").await;
        exchange
    });
    let peer = peer.await;
    let router = over(&[&peer], "").start().await;
    let reply = router.get("/r/v1/x").await;
    for name in ORDERS {
        assert_eq!(reply.headers.get(name), None, "{name}");
    }
    assert_eq!(reply.header("x-accel-buffering"), "yes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_length_beside_chunks_does_not_cut_the_body() {
    let peer = Peer::spawn(|_, mut exchange| async move {
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n";
        exchange
            .send(format!("{head}5\r\nhello\r\n0\r\n\r\n"))
            .await;
        exchange
    });
    let peer = peer.await;
    let router = over(&[&peer], "").start().await;
    assert_eq!(router.get("/r/v1/x").await.text(), "hello");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_http_1_0_client_sees_a_reset_where_an_answer_breaks() {
    let peer = Peer::spawn(|_, mut exchange| async move {
        exchange
            .send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n")
            .await;
        exchange.reset();
        exchange
    });
    let peer = peer.await;
    let router = over(&[&peer], "").start().await;
    let mut stream = TcpStream::connect(router.public).await.unwrap();
    let request = "GET /r/v1/x HTTP/1.0\r\nhost: x\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let error = stream.read_to_end(&mut answer).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[tokio::test(flavor = "multi_thread")]
async fn doubled_slashes_are_merged_before_the_api_path_and_kept_in_it() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    for (sent, seen) in [
        ("//v1/x", "/v1/x"),
        ("//r//v1/x", "/v1/x"),
        ("/r/v1//x/", "/v1//x/"),
    ] {
        assert_eq!(router.get(sent).await.status, 200, "{sent}");
        assert_eq!(peer.requests().last().unwrap().target, seen);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slash_at_the_end_means_the_same_api() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "include_usage: true").start().await;
    let stream = r#"{"stream":true,"messages":[]}"#;
    for path in ["/r/v1/chat/completions", "/r/v1/chat/completions/"] {
        router.post(path, stream).await;
        let seen = peer.requests().pop().unwrap();
        let body = String::from_utf8(seen.body.clone()).unwrap();
        assert!(body.contains("include_usage"), "{path}: {body}");
        assert_eq!(seen.target, path.trim_start_matches("/r"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_key_no_name_of_a_route_is_told_from_another() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").keys("sk-a:alice\n").start().await;
    for target in ["/r/v1/x", "/none/v1/x", "/r/other", "/none/other", "/none"] {
        assert_eq!(router.get(target).await.status, 401, "{target}");
    }
    let key = [("authorization", "Bearer sk-a")];
    let reply = router.post_with("/none/v1/x", &key, CHAT).await;
    assert_eq!(reply.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_file_with_errors_changes_nothing_for_the_one_route() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").route("new", "peers: 7\n").start().await;
    assert_eq!(router.post("/v1/chat/completions", CHAT).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_stops_reading_gives_its_slot_back() {
    let gate = Gate::default();
    let peer = Peer::spawn({
        let gate = gate.clone();
        move |_, mut exchange| {
            let gate = gate.clone();
            async move {
                exchange.open_stream().await;
                let event = format!("data: {}\n\n", "x".repeat(60_000));
                for _ in 0..1000 {
                    exchange.chunk(&event).await;
                }
                exchange.step(&gate).await;
                exchange
            }
        }
    });
    let peer = peer.await;
    let router = over(&[&peer], "client_write_timeout: 1s").start().await;
    let mut wire = Wire::connect(router.public).await;
    wire.request("POST", CHAT_PATH, &[], CHAT.as_bytes()).await;
    wire.head("POST").await;
    peer.cancelled(1).await;
}
