//! Multipart forms: uploads of audio, images and files are placed by the fields that they carry.

use serde_json::json;
use system_tests::peer::{Peer, Seen};
use system_tests::router::Router;
use system_tests::wire::{Reply, Wire, encode};

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
