//! Multipart forms: uploads of audio, images and files are placed by the fields that they carry.

use serde_json::json;
use system_tests::peer::{Peer, Seen};
use system_tests::router::Router;
use system_tests::wire::{Reply, Wire, encode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::common::{over, setup};

const TYPE: &str = "multipart/form-data; boundary=b0undary";

/// A file part, with text in it that looks like a field.
fn file(bytes: &[u8]) -> Vec<u8> {
    let head = "--b0undary\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav\r\n\r\n";
    [head.as_bytes(), bytes, b"\r\n--b0undar\r\n\r\n"].concat()
}

fn field(name: &str, value: &str) -> Vec<u8> {
    format!("--b0undary\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
        .into_bytes()
}

fn form(parts: &[Vec<u8>]) -> Vec<u8> {
    [&parts.concat(), &b"--b0undary--\r\n"[..]].concat()
}

async fn upload(router: &Router, path: &str, body: &[u8]) -> Reply {
    let mut wire = Wire::connect(router.public).await;
    wire.send(encode("POST", path, &[("content-type", TYPE)], body))
        .await;
    wire.reply("POST").await
}

fn bodies(peer: &Peer) -> Vec<Vec<u8>> {
    let requests = peer.requests();
    requests
        .iter()
        .map(|seen: &Seen| seen.body.to_vec())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_model_decides_route_and_pool_before_and_behind_a_large_file() {
    let (a, b) = (Peer::plain().await, Peer::plain().await);
    let of = |model: &str, peer: &Peer| format!("peers_by_model: {{{model}: [{}]}}", peer.yaml());
    let router = setup()
        .route("a", &of("whisper-a", &a))
        .route("b", &of("whisper-b", &b))
        .start()
        .await;
    let large = vec![b'-'; 3 << 20];
    let before = form(&[field("model", "whisper-b"), file(&large)]);
    let behind = form(&[file(&large), field("model", "whisper-b")]);
    for path in ["/v1/audio/transcriptions", "/b/v1/audio/transcriptions"] {
        for body in [&before, &behind] {
            assert_eq!(upload(&router, path, body).await.status, 200, "{path}");
        }
    }
    assert_eq!(bodies(&a), Vec::<Vec<u8>>::new());
    assert_eq!(bodies(&b), [&*before, &behind, &before, &behind]);
    let reply = upload(&router, "/a/v1/audio/transcriptions", &before).await;
    assert_eq!(reply.status, 400);
    assert_eq!(reply.json()["error"]["code"], "model_not_supported");
    let no_model = form(&[field("language", "en"), file(b"x")]);
    let reply = upload(&router, "/a/v1/audio/transcriptions", &no_model).await;
    assert_eq!(reply.status, 400);
    let message = reply.json()["error"]["message"].to_string();
    assert!(message.contains("a field of a form"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alias_is_replaced_in_the_form_and_nothing_else_is() {
    let peer = Peer::spawn(|_, mut exchange| async move {
        let kind = [("content-type", "application/json")];
        let answer = r#"{"text":"hi","model":"whisper-large"}"#;
        exchange.reply(200, &kind, answer).await;
        exchange
    })
    .await;
    let router = over(&[&peer], "models: {whisper-1: whisper-large}")
        .start()
        .await;
    let named = |model: &str| form(&[file(b"model whisper-1"), field("model", model)]);
    let path = "/r/v1/audio/transcriptions";
    let reply = upload(&router, path, &named("whisper-1")).await;
    assert_eq!(reply.json()["model"], "whisper-1");
    upload(&router, path, &named("other")).await;
    assert_eq!(bodies(&peer), [named("whisper-large"), named("other")]);
    let seen = &peer.requests()[0];
    assert_eq!(
        seen.headers.get("content-length"),
        Some(&*named("whisper-large").len().to_string())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_and_sessions_read_the_fields_of_a_form() {
    let peers = [Peer::plain().await, Peer::plain().await];
    let rules = "reject_rules: [{name: many, field: n, op: gt, value: 2}]";
    let router = over(&[&peers[0], &peers[1]], rules).start().await;
    let path = "/r/v1/images/edits";
    let reply = upload(&router, path, &form(&[file(b"x"), field("n", "3")])).await;
    assert_eq!(reply.json()["error"]["code"], "rejected_by_rule");
    let body = form(&[field("user", "u-1"), field("n", "2"), file(b"x")]);
    let reply = upload(&router, path, &body).await;
    assert_eq!(
        (reply.status, reply.header("x-routed-source")),
        (200, "body.user")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_that_the_engine_may_read_otherwise_is_refused_where_its_fields_decide() {
    let peer = Peer::plain().await;
    let router = setup()
        .route("r", &format!("peers_by_model: {{m: [{}]}}", peer.yaml()))
        .route("plain", &format!("peers: [{}]", peer.yaml()))
        .start()
        .await;
    let two = form(&[field("model", "m"), field("model", "x")]);
    let huge = form(&[field(&"x".repeat(9000), "y"), field("model", "m")]);
    for (body, says) in [
        (&two, "two fields `model`"),
        (&huge, "a head of more than 8192 bytes"),
        (&field("model", "m"), "ends before its closing boundary"),
        (
            &b"{\"model\":\"m\"}".to_vec(),
            "does not begin with the boundary",
        ),
    ] {
        let reply = upload(&router, "/r/v1/audio/transcriptions", body).await;
        assert_eq!(reply.status, 400, "{says}");
        let error = &reply.json()["error"];
        assert_eq!(error["code"], "unreadable_body");
        assert!(error["message"].as_str().unwrap().contains(says), "{error}");
        let reply = upload(&router, "/plain/v1/audio/transcriptions", body).await;
        assert_eq!(reply.status, 200, "the engine judges: {says}");
    }
    assert_eq!(peer.requests().len(), 4);
    let reply = upload(&router, "/r/v1/messages", &two).await;
    assert_eq!(reply.json()["type"], json!("error"));
}

/// An engine of which the test reads every byte by itself.
async fn raw_engine() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let peer = format!("{{address: '{}'}}", listener.local_addr().unwrap());
    (listener, peer)
}

/// The connection of the next form, and its head. Probes get an answer.
async fn accept(engine: &TcpListener) -> (TcpStream, String) {
    loop {
        let (mut stream, _) = engine.accept().await.unwrap();
        let head = read_to(&mut stream, b"\r\n\r\n").await;
        let head = String::from_utf8(head).unwrap();
        if head.starts_with("POST") {
            return (stream, head);
        }
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
        stream.write_all(answer).await.unwrap();
    }
}

/// Reads until `end` has arrived.
async fn read_to(stream: &mut TcpStream, end: &[u8]) -> Vec<u8> {
    let mut read = Vec::new();
    while !read.ends_with(end) {
        let byte = stream.read_u8().await;
        read.push(byte.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&read))));
    }
    read
}

const OPTIONS: &str = "models: {whisper-1: large}\nhealth_check_interval: 1h\n";

/// A form above the length up to which forms are held, in two pieces: the file begins in the first.
fn large(model: &str, behind: &[Vec<u8>]) -> (Vec<u8>, Vec<u8>) {
    let begin = [field("model", model), file(b"RIFF")].concat();
    let begin = begin[..begin.len() - b"\r\n--b0undar\r\n\r\n".len()].to_vec();
    let rest = [&vec![b'-'; 2 << 20], &b"\r\n"[..], &form(behind)].concat();
    (begin, rest)
}

fn head(path: &str, length: usize) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {TYPE}\r\ncontent-length: {length}\r\n\r\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_form_goes_to_the_engine_while_it_arrives() {
    let (engine, peer) = raw_engine().await;
    // Nobody listens on port 9, so the form is sent to the next peer from its beginning.
    let peers = format!("peers: [{{address: '127.0.0.1:9'}}, {peer}]\naffinity: none\n");
    let router = setup()
        .route("r", &format!("{peers}balance: round_robin\n{OPTIONS}"))
        .start()
        .await;
    for _ in 0..2 {
        let (begin, rest) = large("whisper-1", &[field("user", "u")]);
        let mut client = Wire::connect(router.public).await;
        let head = head("/r/v1/audio/transcriptions", begin.len() + rest.len());
        client.send([head.as_bytes(), &begin].concat()).await;
        let (mut stream, head) = accept(&engine).await;
        let (expected, _) = large("large", &[]);
        assert_eq!(read_to(&mut stream, b"RIFF").await, expected);
        let length = format!("content-length: {}\r\n", expected.len() + rest.len());
        assert!(head.contains(&length), "{head}");
        client.send(rest.clone()).await;
        let mut read = vec![0; rest.len()];
        stream.read_exact(&mut read).await.unwrap();
        assert!(read == rest, "the rest arrives as it was sent");
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi")
            .await
            .unwrap();
        assert_eq!(client.reply("POST").await.text(), "hi");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_model_behind_a_large_file_ends_the_upload() {
    let (engine, peer) = raw_engine().await;
    let router = setup()
        .route("r", &format!("peers: [{peer}]\n{OPTIONS}"))
        .start()
        .await;
    let (begin, rest) = large("m", &[field("model", "other")]);
    let mut client = Wire::connect(router.public).await;
    let head = head("/r/v1/audio/transcriptions", begin.len() + rest.len());
    let sent = async {
        client.send([head.as_bytes(), &begin, &rest].concat()).await;
        client.reply("POST").await
    };
    let received = async {
        let (mut stream, _) = accept(&engine).await;
        let mut read = Vec::new();
        let _ = stream.read_to_end(&mut read).await;
        read
    };
    let (reply, read) = tokio::join!(sent, received);
    assert!(!String::from_utf8_lossy(&read).contains("other"));
    assert_eq!(reply.status, 400);
    let error = &reply.json()["error"];
    assert_eq!(error["code"], "unreadable_body");
    let attempts = router.admin_get("/metrics").await.text();
    let failed = attempts
        .lines()
        .filter(|line| line.starts_with("llm_router_peer_attempts") && !line.ends_with(" 0"));
    assert_eq!(failed.collect::<Vec<_>>(), Vec::<&str>::new());
}
