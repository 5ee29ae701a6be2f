//! HTTP as real engines and clients use it.

use system_tests::peer::{Gate, Peer};
use system_tests::wire::{Wire, call};

use crate::common::{CHAT, CHAT_PATH, curl_h2, over};

#[tokio::test(flavor = "multi_thread")]
async fn expect_100_continue_is_answered_before_the_body() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    let mut wire = Wire::connect(router.public).await;
    let head = format!(
        "POST {CHAT_PATH} HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n",
        CHAT.len()
    );
    wire.send(head).await;
    assert_eq!(wire.try_head("POST").await.unwrap().status, 100);
    wire.send(CHAT).await;
    assert_eq!(wire.reply("POST").await.status, 200);
    let seen = peer.arrived(1).await.remove(0);
    assert_eq!(
        (seen.body.as_slice(), seen.headers.get("expect")),
        (CHAT.as_bytes(), None)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn expect_100_continue_of_a_refused_request_gets_the_refusal() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "max_body_size: 1k")
        .keys("sk-a:alice\n")
        .start()
        .await;
    for (key, expected) in [("sk-a", 413), ("wrong", 401)] {
        let mut wire = Wire::connect(router.public).await;
        let head = format!(
            "POST {CHAT_PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\nexpect: 100-continue\r\ncontent-length: 5000\r\n\r\n"
        );
        wire.send(head).await;
        assert_eq!(wire.try_head("POST").await.unwrap().status, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn head_is_forwarded_and_has_no_body() {
    let peer = Peer::spawn(|seen, mut exchange| async move {
        let body = if seen.method == "HEAD" { "" } else { "hello" };
        exchange
            .send(format!(
                "HTTP/1.1 200 OK\r\nx-method: {}\r\ncontent-length: 5\r\n\r\n{body}",
                seen.method
            ))
            .await;
        exchange
    });
    let peer = peer.await;
    let router = over(&[&peer], "").start().await;
    let mut wire = Wire::connect(router.public).await;
    for method in ["HEAD", "GET", "HEAD", "GET"] {
        wire.request(method, "/r/v1/files/1", &[], b"").await;
        let reply = wire.reply(method).await;
        assert_eq!(
            (
                reply.status,
                reply.header("x-method"),
                reply.header("content-length")
            ),
            (200, method, "5")
        );
        assert_eq!(reply.text(), if method == "GET" { "hello" } else { "" });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn options_and_other_methods_are_forwarded() {
    let peer = Peer::spawn(|seen, mut exchange| async move {
        exchange
            .send(format!(
                "HTTP/1.1 204 No Content\r\nallow: {}\r\n\r\n",
                seen.method
            ))
            .await;
        exchange
    });
    let peer = peer.await;
    let router = over(&[&peer], "").start().await;
    for method in ["OPTIONS", "DELETE", "PUT", "PATCH"] {
        let reply = call(router.public, method, "/r/v1/files/1", &[], "").await;
        assert_eq!((reply.status, reply.header("allow")), (204, method));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_mebibytes_pass_both_ways_unchanged() {
    let peer = Peer::spawn(|seen, mut exchange| async move {
        exchange
            .reply(
                200,
                &[("content-type", "application/octet-stream")],
                seen.body,
            )
            .await;
        exchange
    });
    let peer = peer.await;
    let router = over(&[&peer], "").start().await;
    let body: Vec<u8> = (0..8u32 << 20)
        .map(|n| u8::try_from(n % 251).unwrap())
        .collect();
    let reply = call(router.public, "POST", CHAT_PATH, &[], &body).await;
    assert_eq!(reply.status, 200);
    assert!(reply.body == body, "the body came back changed");
    let mut wire = Wire::connect(router.public).await;
    wire.send(format!(
        "POST {CHAT_PATH} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    ))
    .await;
    for piece in body.chunks(100_000) {
        wire.send([format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat())
            .await;
    }
    wire.send("0\r\n\r\n").await;
    assert!(
        wire.reply("POST").await.body == body,
        "the chunked body came back changed"
    );
    assert!(peer.requests().iter().all(|seen| seen.body == body));
}

#[tokio::test(flavor = "multi_thread")]
async fn pipelined_requests_are_answered_in_order() {
    let peer = Peer::spawn(|seen, mut exchange| async move {
        exchange.reply(200, &[], seen.target).await;
        exchange
    });
    let peer = peer.await;
    let router = over(&[&peer], "").start().await;
    let mut wire = Wire::connect(router.public).await;
    let requests: String = (0..5)
        .map(|n| format!("GET /r/v1/n{n} HTTP/1.1\r\nhost: x\r\n\r\n"))
        .collect();
    wire.send(requests).await;
    for n in 0..5 {
        assert_eq!(wire.reply("GET").await.text(), format!("/v1/n{n}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn http_1_0_clients_are_served_and_closed() {
    let gate = Gate::default();
    gate.open(1);
    let peer = Peer::streaming(&gate, "data: 1\n\n", &["data: [DONE]\n\n"]).await;
    let router = over(&[&peer], "").start().await;
    let mut wire = Wire::connect(router.public).await;
    wire.send("POST /r/v1/chat/completions HTTP/1.0\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}")
        .await;
    let head = wire.head("POST").await;
    assert_eq!(
        (head.status, head.headers.get("transfer-encoding")),
        (200, None)
    );
    assert_eq!(wire.body().await.0, b"data: 1\n\ndata: [DONE]\n\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn interim_responses_of_the_engine_do_not_end_the_request() {
    let peer = Peer::spawn(|_, mut exchange| async move {
        exchange
            .send("HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n")
            .await;
        exchange.reply(200, &[], "{}").await;
        exchange
    });
    let peer = peer.await;
    let router = over(&[&peer], "").start().await;
    let reply = router.post(CHAT_PATH, CHAT).await;
    assert_eq!((reply.status, reply.text().as_str()), (200, "{}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_switches_protocols_unasked_is_502() {
    let peer = Peer::spawn(|_, mut exchange| async move {
        exchange
            .send("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n")
            .await;
        exchange
    });
    let peer = peer.await;
    let router = over(&[&peer], "").start().await;
    let upgrade = [("connection", "upgrade"), ("upgrade", "x")];
    let reply = router.post_with(CHAT_PATH, &upgrade, CHAT).await;
    assert_eq!(
        (reply.status, reply.json()["error"]["code"].as_str()),
        (502, Some("upstream_error"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn prior_knowledge_http2_is_served() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    let arguments = ["-w", "\n%{http_code} %{http_version}", "-d", CHAT];
    let output = curl_h2(&router, &arguments, CHAT_PATH).await;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.ends_with("\n200 2"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn head_over_http2_has_no_body_where_the_router_answers() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    let length = router.get("/health").await.body.len();
    let output = curl_h2(&router, &["-I"], "/health").await;
    let head = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    assert!(
        head.contains(&format!("content-length: {length}\r\n")),
        "{head}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_refused_unread_can_be_sent_to_its_end_and_the_answer_read() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "max_body_size: 1k")
        .keys("sk-a:alice\n")
        .start()
        .await;
    let body = vec![b'x'; 9 << 20];
    for (key, status) in [("wrong", 401), ("sk-a", 413)] {
        let key = format!("Bearer {key}");
        let mut wire = Wire::connect(router.public).await;
        wire.request("POST", CHAT_PATH, &[("authorization", &key)], &body)
            .await;
        assert_eq!(wire.reply("POST").await.status, status);
        assert!(wire.is_closed_by_server().await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_in_two_pieces_is_one_request() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    let mut wire = Wire::connect(router.public).await;
    wire.send("GET /r/v1/models HTTP/1.1\r\nhost:").await;
    // The rest arrives late, but it arrives. The half head is neither answered nor taken for a
    // request.
    router.get("/health").await;
    wire.send(" x\r\n\r\n").await;
    assert_eq!(wire.head("GET").await.status, 200);
}
