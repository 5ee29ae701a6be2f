//! Requests that leave HTTP for a WebSocket.

use std::time::Duration;

use system_tests::peer::Peer;
use system_tests::router::Router;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::common::over;

const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: abc\r\n\r\n";

/// An engine that greets, echoes five bytes and then waits for the end.
async fn engine() -> Peer {
    Peer::spawn(|seen, mut exchange| async move {
        if seen.headers.get("upgrade") != Some("websocket") {
            exchange.reply(426, &[], "{}").await;
            return exchange;
        }
        exchange.send(format!("{SWITCH}hello")).await;
        let heard = exchange.receive(5).await;
        exchange.send(heard).await;
        exchange.gone().await;
        exchange
    })
    .await
}

/// An engine that greets and waits for the end.
async fn greeter() -> Peer {
    Peer::spawn(|_, mut exchange| async move {
        exchange.send(format!("{SWITCH}hello")).await;
        exchange.gone().await;
        exchange
    })
    .await
}

/// Asks for a WebSocket. Returns the connection and the head of the answer.
async fn open(router: &Router, headers: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(router.public).await.unwrap();
    let request = format!(
        "GET /r/v1/realtime?model=m HTTP/1.1\r\nhost: localhost\r\nconnection: keep-alive, Upgrade\r\n\
         upgrade: WebSocket\r\nsec-websocket-key: key\r\nsec-websocket-version: 13\r\n{headers}\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    (stream, String::from_utf8(head).unwrap())
}

async fn heard(stream: &mut TcpStream) -> String {
    let mut text = [0; 5];
    stream.read_exact(&mut text).await.unwrap();
    String::from_utf8_lossy(&text).into_owned()
}

async fn is_closed(stream: &mut TcpStream) -> bool {
    let end = tokio::time::timeout(Duration::from_secs(10), stream.read_u8()).await;
    end.expect("the router closes the connection").is_err()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_websocket_is_joined_to_the_sessions_engine_and_holds_a_slot_until_it_closes() {
    let peer = engine().await;
    let router = over(&[&peer], "default_max: 1")
        .keys("sk-a:alice\n")
        .start()
        .await;
    let (_, head) = open(&router, "").await;
    assert!(head.starts_with("HTTP/1.1 401 "), "{head}");
    let key = "x-api-key: sk-a\r\nx-session-id: s\r\n";
    let (mut stream, head) = open(&router, key).await;
    let head = head.to_lowercase();
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    for line in [
        "upgrade: websocket",
        "sec-websocket-accept: abc",
        "x-routed-session: s",
    ] {
        assert!(head.contains(line), "{line}: {head}");
    }
    assert_eq!(heard(&mut stream).await, "hello");
    let (_, full) = open(&router, key).await;
    assert!(full.starts_with("HTTP/1.1 429 "), "{full}");
    stream.write_all(b"abcde").await.unwrap();
    assert_eq!(heard(&mut stream).await, "abcde");
    drop(stream);
    peer.cancelled(1).await;
    let seen = peer.requests();
    assert_eq!(seen.len(), 1);
    let is_over = |page: &serde_json::Value| page.to_string().contains("\"status\":101");
    router
        .admin_until("/_decisions?n=1", "the end of the socket", is_over)
        .await;
    let (mut again, _) = open(&router, key).await;
    assert_eq!(heard(&mut again).await, "hello");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_offers_its_key_as_a_protocol_that_the_engine_does_not_see() {
    let peer = engine().await;
    let router = over(&[&peer], "").keys("sk-a:alice\n").start().await;
    let offer = |key: &str| {
        let offered = format!("realtime, openai-insecure-api-key.{key}, openai-beta.realtime-v1");
        format!("sec-websocket-protocol: {offered}\r\n")
    };
    let (_, head) = open(&router, &offer("sk-b")).await;
    assert!(head.starts_with("HTTP/1.1 401 "), "{head}");
    let (mut stream, head) = open(&router, &offer("sk-a")).await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert_eq!(heard(&mut stream).await, "hello");
    let seen = &peer.requests()[0];
    let offered = seen.headers.get("sec-websocket-protocol");
    assert_eq!(offered, Some("realtime, openai-beta.realtime-v1"));
    assert!(!format!("{:?}", seen.headers).contains("sk-a"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_route_may_forbid_websockets() {
    let peer = engine().await;
    let router = over(&[&peer], "websockets: false").start().await;
    let (mut stream, head) = open(&router, "").await;
    assert!(head.starts_with("HTTP/1.1 501 "), "{head}");
    let mut body = vec![0; 400];
    let read = stream.read(&mut body).await.unwrap();
    let body = String::from_utf8_lossy(&body[..read]).into_owned();
    assert!(body.contains("upgrade_not_allowed"), "{body}");
    assert!(peer.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_and_a_drain_end_a_websocket() {
    let peer = greeter().await;
    let router = over(&[&peer], "").server("idle_timeout: 1s").start().await;
    let (mut stream, _) = open(&router, "").await;
    assert_eq!(heard(&mut stream).await, "hello");
    assert!(is_closed(&mut stream).await);
    peer.cancelled(1).await;
    let mut router = over(&[&peer], "").start().await;
    let (mut stream, _) = open(&router, "").await;
    assert_eq!(heard(&mut stream).await, "hello");
    router.admin_post("/_drain").await;
    assert!(is_closed(&mut stream).await);
    assert_eq!(router.program.exited().await.code(), Some(0));
}
