//! Streams arrive unchanged, byte for byte, and a broken stream never ends cleanly.

use system_tests::fault::{Fault, Proxy};
use system_tests::http2::{self, StreamEnd};
use system_tests::peer::{Gate, Peer};
use system_tests::wire::{End, Wire, encode, find};

use crate::common::{CHAT_PATH, CHAT_STREAM, over, setup};

const FIRST: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"one\"}}]}\n\n";
const SECOND: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"two\"}}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";

#[tokio::test(flavor = "multi_thread")]
async fn each_chunk_arrives_before_the_engine_sends_the_next() {
    let gate = Gate::default();
    let peer = Peer::streaming(&gate, FIRST, &[SECOND, DONE]).await;
    let router = over(&[&peer], "").start().await;
    let mut wire = Wire::connect(router.public).await;
    wire.request("POST", CHAT_PATH, &[], CHAT_STREAM.as_bytes())
        .await;
    assert_eq!(wire.head("POST").await.status, 200);
    for expected in [FIRST, SECOND, DONE] {
        assert_eq!(
            String::from_utf8_lossy(&wire.body_until("\n\n").await),
            expected
        );
        gate.open(1);
    }
    assert_eq!(wire.body().await, (Vec::new(), End::Clean));
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_arrive_before_the_first_chunk() {
    let gate = Gate::default();
    let opened = gate.clone();
    let peer = Peer::spawn(move |_, mut exchange| {
        let gate = opened.clone();
        async move {
            exchange.open_stream().await;
            exchange.step(&gate).await;
            exchange.chunk(DONE).await;
            exchange.end_chunks().await;
            exchange
        }
    });
    let peer = peer.await;
    let router = over(&[&peer], "").start().await;
    let mut wire = Wire::connect(router.public).await;
    wire.request("POST", CHAT_PATH, &[], CHAT_STREAM.as_bytes())
        .await;
    let head = wire.head("POST").await;
    assert_eq!(
        (head.status, head.headers.get("content-type")),
        (200, Some("text/event-stream"))
    );
    gate.open(1);
    assert_eq!(wire.body().await, (DONE.into(), End::Clean));
}

#[tokio::test(flavor = "multi_thread")]
async fn event_streams_are_marked_unbuffered_unless_the_engine_says_otherwise() {
    let said: [&[(&str, &str)]; 2] = [
        &[],
        &[
            ("cache-control", "private, no-store"),
            ("x-accel-buffering", "yes"),
        ],
    ];
    let expected = [("no-cache", "no"), ("private, no-store", "yes")];
    for (headers, (cache, buffering)) in said.into_iter().zip(expected) {
        let peer = Peer::spawn(move |_, mut exchange| async move {
            let headers = [
                &[("content-type", "text/event-stream; charset=utf-8")],
                headers,
            ]
            .concat();
            exchange.reply(200, &headers, DONE).await;
            exchange
        });
        let peer = peer.await;
        let router = over(&[&peer], "").start().await;
        let reply = router.post(CHAT_PATH, CHAT_STREAM).await;
        let all = |name| reply.headers.all(name).collect::<Vec<_>>();
        assert_eq!(
            (all("cache-control"), all("x-accel-buffering")),
            (vec![cache], vec![buffering])
        );
    }
    let plain = Peer::plain().await;
    let router = over(&[&plain], "").start().await;
    let reply = router.post(CHAT_PATH, "{}").await;
    assert_eq!(reply.headers.get("x-accel-buffering"), None);
}

/// A stream with everything that could confuse a splitter: CRLF and LF, comments, several data
/// lines, multi-byte characters, an empty event, no newline at its end.
const ODD_STREAM: &str = ": ping\r\n\r\nevent: message\r\ndata: {\"a\":\"é会😀\"}\r\n\r\ndata: one\ndata: two\n\n\n\
id: 7\nretry: 10\ndata:no-blank\n\ndata: {\"usage\":null,\"choices\":[]}\n\ndata: [DONE]\n\n: bye";

#[tokio::test(flavor = "multi_thread")]
async fn relay_is_byte_identical_for_splits_at_every_offset() {
    let peer = Peer::spawn(|seen, mut exchange| async move {
        let at: usize = seen.headers.get("x-split").unwrap().parse().unwrap();
        let (first, second) = ODD_STREAM.as_bytes().split_at(at);
        exchange.open_stream().await;
        for part in [first, second] {
            if !part.is_empty() {
                exchange.chunk(part).await;
            }
        }
        exchange.end_chunks().await;
        exchange
    });
    let peer = peer.await;
    let router = over(&[&peer], "").start().await;
    let mut wire = Wire::connect(router.public).await;
    for at in 0..=ODD_STREAM.len() {
        let split = at.to_string();
        wire.request(
            "POST",
            CHAT_PATH,
            &[("x-split", &split)],
            CHAT_STREAM.as_bytes(),
        )
        .await;
        wire.head("POST").await;
        let (body, end) = wire.body().await;
        assert_eq!(
            (String::from_utf8_lossy(&body).as_ref(), end),
            (ODD_STREAM, End::Clean),
            "split at {at}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn relay_is_byte_identical_one_byte_at_a_time() {
    let peer = Peer::spawn(|_, mut exchange| async move {
        exchange.open_stream().await;
        for byte in ODD_STREAM.as_bytes() {
            exchange.chunk([*byte]).await;
        }
        exchange.end_chunks().await;
        exchange
    });
    let peer = peer.await;
    let router = over(&[&peer], "").start().await;
    let reply = router.post(CHAT_PATH, CHAT_STREAM).await;
    assert_eq!((reply.text().as_str(), reply.end), (ODD_STREAM, End::Clean));
}

/// What a client receives of a stream that breaks after `before`.
async fn broken_stream(path: &str, before: &'static str) -> (String, End) {
    let gate = Gate::default();
    let peer = Peer::streaming(&gate, before, &[DONE]).await;
    let proxy = Proxy::spawn(peer.address, Fault::None).await;
    let route = format!(
        "peers: [{{address: {}}}]\nhealth_check_interval: 1h",
        proxy.address
    );
    let router = setup().route("r", &route).start().await;
    let mut wire = Wire::connect(router.public).await;
    wire.request("POST", path, &[], CHAT_STREAM.as_bytes())
        .await;
    wire.head("POST").await;
    let mut text = String::from_utf8(wire.body_until(before).await).unwrap();
    proxy.set(Fault::ResetAfter(0));
    let (rest, end) = wire.body().await;
    text += &String::from_utf8(rest).unwrap();
    (text, end)
}

/// The last complete event of a stream.
fn last_event(stream: &str) -> &str {
    stream.trim_end_matches('\n').rsplit("\n\n").next().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_openai_stream_ends_with_an_error_object_and_an_abort() {
    let (stream, end) = broken_stream(CHAT_PATH, FIRST).await;
    assert_eq!(end, End::Broken);
    let event = last_event(&stream);
    let data = event
        .strip_prefix("data: ")
        .unwrap_or_else(|| panic!("{stream}"));
    let json: serde_json::Value = serde_json::from_str(data).unwrap();
    assert_eq!(json["error"]["code"], "upstream_error", "{stream}");
    assert!(json["error"]["message"].is_string(), "{stream}");
    assert!(!stream.contains("[DONE]"));
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_anthropic_stream_ends_with_an_error_event_and_an_abort() {
    let before = "event: message_start\ndata: {\"type\":\"message_start\"}\n\n";
    let (stream, end) = broken_stream("/r/v1/messages", before).await;
    assert_eq!(end, End::Broken);
    let data = last_event(&stream)
        .strip_prefix("event: error\ndata: ")
        .unwrap_or_else(|| panic!("{stream}"));
    let json: serde_json::Value = serde_json::from_str(data).unwrap();
    assert_eq!(json["type"], "error", "{stream}");
    assert!(
        json["error"]["type"].is_string() && json["error"]["message"].is_string(),
        "{stream}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_responses_stream_ends_with_its_error_event_and_an_abort() {
    let before =
        "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0}\n\n";
    let (stream, end) = broken_stream("/r/v1/responses", before).await;
    assert_eq!(end, End::Broken);
    let data = last_event(&stream)
        .strip_prefix("event: error\ndata: ")
        .unwrap_or_else(|| panic!("{stream}"));
    let json: serde_json::Value = serde_json::from_str(data).unwrap();
    assert_eq!(
        (&json["type"], &json["sequence_number"]),
        (&"error".into(), &1.into())
    );
    assert_eq!(json["code"], "upstream_error", "{stream}");
    // The members by which the SDKs recognise an error.
    assert_eq!(json["error"]["message"], json["message"], "{stream}");
}

#[tokio::test(flavor = "multi_thread")]
async fn error_event_is_its_own_event_after_half_a_line() {
    for half in [
        "data: {\"choices\":[{\"delta\":{\"content\":\"ha",
        "data: whole\n",
        "data: whole\r\n",
        ": comment",
    ] {
        let (stream, end) = broken_stream(CHAT_PATH, half).await;
        assert_eq!(end, End::Broken);
        let normal = stream.replace("\r\n", "\n");
        let event = last_event(&normal);
        assert!(
            event.starts_with("data: {\"error\""),
            "after {half:?}: {stream:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_body_that_is_no_stream_is_aborted_without_additions() {
    let peer = Peer::spawn(|_, mut exchange| async move {
        exchange.send("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{\"half\":").await;
        exchange.reset();
        exchange
    });
    let peer = peer.await;
    let router = over(&[&peer], "").start().await;
    let mut wire = Wire::connect(router.public).await;
    wire.request("POST", CHAT_PATH, &[], CHAT_STREAM.as_bytes())
        .await;
    // The reset may overtake the bytes. A prefix arrives, and never a clean end.
    if let Some(head) = wire.try_head("POST").await
        && head.status == 200
    {
        let (body, end) = wire.body().await;
        assert_eq!(end, End::Broken);
        assert!(
            b"{\"half\":".starts_with(body.as_slice()),
            "{}",
            String::from_utf8_lossy(&body)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_came_before_the_break_arrives() {
    let peer = Peer::spawn(|_, mut exchange| async move {
        exchange
            .send("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{\"half\":")
            .await;
        exchange.close();
        exchange
    });
    let peer = peer.await;
    let router = over(&[&peer], "max_more_tries: 0").start().await;
    // The end of the peer's connection may be read together with its head. Whatever the timing, the
    // head arrives.
    for _ in 0..300 {
        let mut wire = Wire::connect(router.public).await;
        wire.request("POST", CHAT_PATH, &[], b"{}").await;
        assert_eq!(wire.head("POST").await.status, 200);
        assert_eq!(wire.body().await.1, End::Broken);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_named_its_length_breaks_like_any_other() {
    let peer = Peer::spawn(|_, mut exchange| async move {
        let head =
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 1000\r\n\r\n";
        exchange.send([head, FIRST].concat()).await;
        exchange.close();
        exchange
    });
    let peer = peer.await;
    let router = over(&[&peer], "").start().await;
    for path in [CHAT_PATH, "/r/v1/messages"] {
        let mut wire = Wire::connect(router.public).await;
        wire.request("POST", path, &[], b"{}").await;
        assert_eq!(wire.head("POST").await.headers.get("content-length"), None);
        let (body, end) = wire.body().await;
        let body = String::from_utf8(body).unwrap();
        assert!(body.starts_with(FIRST), "{body}");
        assert!(last_event(&body).contains("upstream_error"), "{body}");
        assert_eq!(end, End::Broken, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_beyond_idle_timeout_breaks_the_stream() {
    let gate = Gate::default();
    let peer = Peer::streaming(&gate, FIRST, &[DONE]).await;
    let router = over(&[&peer], "")
        .server("idle_timeout: 200ms")
        .start()
        .await;
    let reply = router.post(CHAT_PATH, CHAT_STREAM).await;
    assert_eq!(reply.end, End::Broken);
    assert!(
        last_event(&reply.text()).starts_with("data: {\"error\""),
        "{}",
        reply.text()
    );
    peer.cancelled(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_stream_over_http2_ends_with_the_event_and_a_reset() {
    let gate = Gate::default();
    let peer = Peer::streaming(&gate, FIRST, &[DONE]).await;
    for _ in 0..10 {
        let proxy = Proxy::spawn(peer.address, Fault::None).await;
        let route = format!(
            "peers: [{{address: {}}}]\nhealth_check_interval: 1h",
            proxy.address
        );
        let router = setup().route("r", &route).start().await;
        let mut stream = http2::Stream::post(router.public, CHAT_PATH, CHAT_STREAM).await;
        stream.body_until(FIRST).await;
        proxy.set(Fault::ResetAfter(0));
        assert_eq!(stream.end().await, StreamEnd::Reset);
        let text = String::from_utf8(stream.body).unwrap();
        assert!(last_event(&text).contains("upstream_error"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn request_timeout_after_headers_is_an_in_band_error() {
    let gate = Gate::default();
    let peer = Peer::streaming(&gate, FIRST, &[DONE]).await;
    let router = over(&[&peer], "request_timeout: 300ms").start().await;
    let reply = router.post(CHAT_PATH, CHAT_STREAM).await;
    assert_eq!((reply.status, reply.end), (200, End::Broken));
    let text = reply.text();
    let json: serde_json::Value =
        serde_json::from_str(last_event(&text).strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!(json["error"]["code"], "upstream_timeout", "{text}");
    peer.cancelled(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_without_a_length_or_chunks_is_relayed_to_its_end() {
    let peer = Peer::spawn(|_, mut exchange| async move {
        exchange
            .send("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
            .await;
        exchange.send(FIRST).await;
        exchange.send(DONE).await;
        exchange.close();
        exchange
    });
    let peer = peer.await;
    let router = over(&[&peer], "").start().await;
    let reply = router.post(CHAT_PATH, CHAT_STREAM).await;
    assert_eq!(
        (reply.text(), reply.end),
        (format!("{FIRST}{DONE}"), End::Clean)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_streams_do_not_mix() {
    let peer = Peer::spawn(|seen, mut exchange| async move {
        let tag = seen.headers.get("x-tag").unwrap().to_owned();
        exchange.open_stream().await;
        for n in 0..20 {
            exchange.chunk(format!("data: {tag}-{n}\n\n")).await;
        }
        exchange.end_chunks().await;
        exchange
    });
    let peer = peer.await;
    let router = over(&[&peer], "default_max: 200").start().await;
    let mut clients = tokio::task::JoinSet::new();
    for tag in 0..200 {
        let public = router.public;
        clients.spawn(async move {
            let tag = format!("tag{tag}");
            let mut wire = Wire::connect(public).await;
            wire.send(encode(
                "POST",
                CHAT_PATH,
                &[("x-tag", &tag)],
                CHAT_STREAM.as_bytes(),
            ))
            .await;
            wire.head("POST").await;
            let expected: String = (0..20).map(|n| format!("data: {tag}-{n}\n\n")).collect();
            assert_eq!(wire.body().await, (expected.into_bytes(), End::Clean));
        });
    }
    while let Some(done) = clients.join_next().await {
        done.unwrap();
    }
    assert!(find(router.log().as_bytes(), b"panicked").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn large_answers_arrive_whole() {
    const BLOCK: usize = 100_000;
    const BLOCKS: usize = 100;
    let peer = Peer::spawn(|seen, mut exchange| async move {
        let block = "x".repeat(BLOCK);
        if seen.headers.get("x-chunked") == Some("1") {
            exchange.open_stream().await;
            for _ in 0..BLOCKS {
                exchange.chunk(&block).await;
            }
            exchange.end_chunks().await;
        } else {
            exchange.reply(200, &[], block.repeat(BLOCKS)).await;
        }
        exchange
    })
    .await;
    let router = over(&[&peer], "").start().await;
    for chunked in ["0", "1"] {
        let headers = [("x-chunked", chunked)];
        let reply = router.post_with(CHAT_PATH, &headers, CHAT_STREAM).await;
        assert_eq!(reply.end, End::Clean, "chunked {chunked}");
        assert_eq!(reply.body.len(), BLOCK * BLOCKS, "chunked {chunked}");
    }
}
