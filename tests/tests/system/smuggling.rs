//! Requests that two readers could read differently are refused, and no part of them is forwarded.

use system_tests::peer::Peer;
use system_tests::wire::Wire;

use crate::common::over;

/// The smuggled request. If any reader takes it for a separate request, the engine records it.
const HIDDEN: &str = "GET /r/v1/smuggled HTTP/1.1\r\nhost: x\r\n\r\n";

/// Header lines of a POST, then what follows the blank line.
const CORPUS: &[(&str, &str, &str)] = &[
    (
        "CL.TE",
        "content-length: 6\r\ntransfer-encoding: chunked",
        "0\r\n\r\n",
    ),
    (
        "TE.CL",
        "transfer-encoding: chunked\r\ncontent-length: 4",
        "5c\r\n",
    ),
    (
        "CL.TE, names in capitals",
        "Content-Length: 5\r\nTransfer-Encoding: CHUNKED",
        "0\r\n\r\n",
    ),
    (
        "two equal lengths",
        "content-length: 2\r\ncontent-length: 2",
        "{}",
    ),
    (
        "two different lengths",
        "content-length: 2\r\ncontent-length: 40",
        "{}",
    ),
    ("length list", "content-length: 2, 2", "{}"),
    (
        "length list of different values",
        "content-length: 2, 40",
        "{}",
    ),
    ("signed length", "content-length: +2", "{}"),
    ("negative length", "content-length: -1", "{}"),
    ("hexadecimal length", "content-length: 0x2", "{}"),
    ("length with a space inside", "content-length: 2 0", "{}"),
    ("empty length", "content-length:", "{}"),
    (
        "length beyond 64 bits",
        "content-length: 99999999999999999999999",
        "{}",
    ),
    ("obs-fold", "x-a: 1\r\n 2\r\ncontent-length: 2", "{}"),
    ("obs-fold in the length", "content-length:\r\n 2", "{}"),
    (
        "obs-fold in the encoding",
        "transfer-encoding:\r\n chunked",
        "0\r\n\r\n",
    ),
    (
        "space before the colon of the length",
        "content-length : 2",
        "{}",
    ),
    (
        "space before the colon of the encoding",
        "transfer-encoding : chunked",
        "0\r\n\r\n",
    ),
    (
        "tab before the colon",
        "transfer-encoding\t: chunked",
        "0\r\n\r\n",
    ),
    (
        "space before the first name",
        " transfer-encoding: chunked",
        "0\r\n\r\n",
    ),
    ("identity", "transfer-encoding: identity", "{}"),
    (
        "identity with a length",
        "transfer-encoding: identity\r\ncontent-length: 2",
        "{}",
    ),
    (
        "chunked, identity",
        "transfer-encoding: chunked, identity",
        "0\r\n\r\n",
    ),
    (
        "identity, chunked",
        "transfer-encoding: identity, chunked",
        "0\r\n\r\n",
    ),
    (
        "chunked twice in one line",
        "transfer-encoding: chunked, chunked",
        "0\r\n\r\n",
    ),
    (
        "chunked twice in two lines",
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked",
        "0\r\n\r\n",
    ),
    (
        "chunked then identity in two lines",
        "transfer-encoding: chunked\r\ntransfer-encoding: identity",
        "0\r\n\r\n",
    ),
    ("xchunked", "transfer-encoding: xchunked", "0\r\n\r\n"),
    (
        "chunked with a parameter",
        "transfer-encoding: chunked;q=1",
        "0\r\n\r\n",
    ),
    (
        "chunked in quotes",
        "transfer-encoding: \"chunked\"",
        "0\r\n\r\n",
    ),
    (
        "chunked after a vertical tab",
        "transfer-encoding: \u{b}chunked",
        "0\r\n\r\n",
    ),
    ("gzip", "transfer-encoding: gzip", "{}"),
    ("empty encoding", "transfer-encoding:", "0\r\n\r\n"),
    (
        "chunk size with 0x",
        "transfer-encoding: chunked",
        "0x2\r\n{}\r\n0\r\n\r\n",
    ),
    (
        "chunk size with a sign",
        "transfer-encoding: chunked",
        "+2\r\n{}\r\n0\r\n\r\n",
    ),
    (
        "negative chunk size",
        "transfer-encoding: chunked",
        "-2\r\n{}\r\n0\r\n\r\n",
    ),
    (
        "chunk size that is no number",
        "transfer-encoding: chunked",
        "zz\r\n{}\r\n0\r\n\r\n",
    ),
    (
        "empty chunk size",
        "transfer-encoding: chunked",
        "\r\n{}\r\n0\r\n\r\n",
    ),
    (
        "chunk size beyond 64 bits",
        "transfer-encoding: chunked",
        "10000000000000002\r\n{}\r\n0\r\n\r\n",
    ),
    (
        "chunk longer than its size",
        "transfer-encoding: chunked",
        "1\r\n{}\r\n0\r\n\r\n",
    ),
    ("name with a space", "x a: 1\r\ncontent-length: 2", "{}"),
    ("no name", ": 1\r\ncontent-length: 2", "{}"),
    (
        "line without a colon",
        "nonsense\r\ncontent-length: 2",
        "{}",
    ),
    (
        "control character in a value",
        "x-a: a\u{1}b\r\ncontent-length: 2",
        "{}",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn ambiguous_requests_are_400_and_end_the_connection() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    let mut wrong = Vec::new();
    for (name, headers, rest) in CORPUS {
        let mut wire = Wire::connect(router.public).await;
        wire.send(format!(
            "POST /r/v1/x HTTP/1.1\r\nhost: x\r\n{headers}\r\n\r\n{rest}{HIDDEN}"
        ))
        .await;
        let head = wire.try_head("POST").await;
        let status = head.map(|head| head.status);
        let _answer = wire.body().await;
        let closed = wire.is_closed_by_server().await;
        if status != Some(400) || !closed {
            wrong.push(format!("{name}: status {status:?}, closed {closed}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let seen: Vec<_> = peer
        .requests()
        .iter()
        .map(|seen| seen.target.clone())
        .collect();
    assert!(seen.is_empty(), "forwarded: {seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nul_and_bare_returns_in_the_head_are_refused() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    let heads = [
        "POST /r/v1/x HTTP/1.1\r\nhost: x\r\nx-a: b\0c\r\ncontent-length: 2\r\n\r\n{}",
        "POST /r/v1/x HTTP/1.1\r\nhost: x\r\nx-a: b\rtransfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n{}",
        "POST /r/v1/x\0 HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}",
        "POST  /r/v1/x HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}",
        "POST /r/v1/x HTTP/1.7\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}",
        "POST /r/v1/x\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}",
    ];
    for head in heads {
        let mut wire = Wire::connect(router.public).await;
        wire.send(head).await;
        let status = wire.try_head("POST").await.map(|head| head.status);
        assert!(
            status.is_none_or(|status| status == 400 || status == 505),
            "{head:?}: {status:?}"
        );
    }
    assert!(peer.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hosts_or_none_are_refused() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    for hosts in ["host: a\r\nhost: b\r\n", "host: a\r\nhost: a\r\n", ""] {
        let mut wire = Wire::connect(router.public).await;
        wire.send(format!(
            "POST /r/v1/x HTTP/1.1\r\n{hosts}content-length: 2\r\n\r\n{{}}"
        ))
        .await;
        assert_eq!(wire.head("POST").await.status, 400, "{hosts:?}");
    }
    assert!(peer.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_sound_is_not_refused() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    let sound = [
        ("length", "content-length: 2", "{}"),
        ("length with blanks around", "content-length: \t 2 \t", "{}"),
        ("leading zeros", "content-length: 0002", "{}"),
        (
            "chunked",
            "transfer-encoding: chunked",
            "2\r\n{}\r\n0\r\n\r\n",
        ),
        (
            "chunked in capitals",
            "Transfer-Encoding: Chunked",
            "2\r\n{}\r\n0\r\n\r\n",
        ),
        (
            "chunk extension",
            "transfer-encoding: chunked",
            "2;a=b\r\n{}\r\n0\r\n\r\n",
        ),
        (
            "trailers",
            "transfer-encoding: chunked",
            "2\r\n{}\r\n0\r\nx-t: 1\r\n\r\n",
        ),
    ];
    for (name, headers, body) in sound {
        let mut wire = Wire::connect(router.public).await;
        wire.send(format!(
            "POST /r/v1/x HTTP/1.1\r\nhost: x\r\n{headers}\r\n\r\n{body}"
        ))
        .await;
        assert_eq!(wire.reply("POST").await.status, 200, "{name}");
        wire.request("GET", "/r/v1/next", &[], b"").await;
        assert_eq!(
            wire.reply("GET").await.status,
            200,
            "{name}, next request on the connection"
        );
    }
    let bodies: Vec<_> = peer
        .requests()
        .into_iter()
        .filter(|r| r.method == "POST")
        .map(|r| r.body)
        .collect();
    assert!(bodies.iter().all(|body| body == b"{}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn ambiguous_answers_of_an_engine_are_not_relayed() {
    let answers: [&str; 4] = [
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 5\r\n\r\n{}abc",
        "HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\nx a: 1\r\ncontent-length: 2\r\n\r\n{}",
        "garbage\r\n\r\n",
    ];
    for answer in answers {
        let peer = Peer::spawn(move |_, mut exchange| async move {
            exchange.send(answer).await;
            exchange.close();
            exchange
        });
        let peer = peer.await;
        let router = over(&[&peer], "").start().await;
        let reply = router.post("/r/v1/x", "{}").await;
        assert_eq!(
            (reply.status, reply.json()["error"]["code"].clone()),
            (502, "upstream_error".into()),
            "{answer:?}"
        );
    }
}

/// A head with two statements of its length.
const DOUBTFUL: &str = "content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";

#[tokio::test(flavor = "multi_thread")]
async fn an_ambiguous_request_behind_a_sound_one_is_400_too() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    for first in [
        "content-length: 2\r\n\r\n{}",
        "transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    ] {
        let mut wire = Wire::connect(router.public).await;
        let post = "POST /r/v1/x HTTP/1.1\r\nhost: x\r\n";
        wire.send(format!("{post}{first}{post}{DOUBTFUL}{HIDDEN}"))
            .await;
        assert_eq!(wire.head("POST").await.status, 200, "{first}");
        let _answer = wire.body().await;
        assert_eq!(wire.head("POST").await.status, 400, "{first}");
        let _answer = wire.body().await;
        assert!(wire.is_closed_by_server().await, "{first}");
    }
    assert_eq!(peer.requests().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ambiguous_request_to_the_admin_port_is_400() {
    let peer = Peer::plain().await;
    let router = over(&[&peer], "").start().await;
    for before in ["", "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"] {
        for lines in [DOUBTFUL, "content-length: 2\r\ncontent-length: 2\r\n\r\n{}"] {
            let mut wire = Wire::connect(router.admin).await;
            wire.send(format!(
                "{before}POST /_reload HTTP/1.1\r\nhost: x\r\n{lines}"
            ))
            .await;
            if !before.is_empty() {
                assert_eq!(wire.head("GET").await.status, 200);
                let _answer = wire.body().await;
            }
            assert_eq!(wire.head("POST").await.status, 400, "{before:?} {lines:?}");
            let _answer = wire.body().await;
            assert!(wire.is_closed_by_server().await, "{lines}");
        }
    }
}
