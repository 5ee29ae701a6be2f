//! Answer handlers: what a client sees of an engine's answer, and what the router keeps.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use system_tests::bodylog::{Listener, Start};
use system_tests::peer::{Exchange, Gate, Peer};
use system_tests::router::Router;
use system_tests::wait::until_answer;
use system_tests::wire::{End, Wire, call};

use crate::common::{CHAT, CHAT_PATH, CHAT_STREAM, curl_h2, over};

const VLLM: &str = "postprocess: vllm_format";
const STRIP: &str = "postprocess: strip_actual_usage";

/// A stream of vLLM, and the output of `vllm_format` for a client that asked for the usage.
const FRAMES: &str = concat!(
    "data: {\"id\":\"c\",\"model\":\"tiny\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"reasoning\":\"hm\"},\"logprobs\":null,\"finish_reason\":null}],\"prompt_token_ids\":null}\r\n\r\n",
    ": ping\n\n",
    "data: {\"choices\":[{\"delta\":{\"content\":\"\\ud83d\\ude00\"},\"finish_reason\":\"stop\",\"stop_reason\":null,\"token_ids\":null}]}\n\n",
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2,\"prompt_tokens_details\":{\"created_cache_tokens\":5}},\"system_fingerprint\":\"vllm-0.32\"}\n\n",
    "data: [DONE]\n\n",
);
const FORMATTED: &str = concat!(
    "data: {\"id\":\"c\",\"model\":\"tiny\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"reasoning_content\":\"hm\"},\"finish_reason\":null}]}\r\n\r\n",
    ": ping\n\n",
    "data: {\"choices\":[{\"delta\":{\"content\":\"\\ud83d\\ude00\"},\"finish_reason\":\"stop\"}]}\n\n",
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2,\"prompt_tokens_details\":{\"cache_write_tokens\":5}}}\n\n",
    "data: [DONE]\n\n",
);

/// A document of SGLang with its second count, and the output of `strip_actual_usage`.
const SGLANG: &str = "{\"choices\": [], \"usage\": {\"prompt_tokens\": 3, \"completion_tokens\": 1},\n \"actual_usage\": {\"prompt_tokens\": 1}, \"x\": 1.50}";
const STRIPPED: &str =
    "{\"choices\": [], \"usage\": {\"prompt_tokens\": 3, \"completion_tokens\": 1},\n \"x\": 1.50}";

const JSON: (&str, &str) = ("content-type", "application/json");

fn asking() -> String {
    CHAT_STREAM.replace(
        "\"stream\":true",
        "\"stream\":true,\"stream_options\":{\"include_usage\":true}",
    )
}

/// An engine that answers everything with these bytes.
async fn sends(status: u16, headers: &'static [(&'static str, &'static str)], body: &[u8]) -> Peer {
    let body = body.to_vec();
    Peer::spawn(move |_, mut exchange| {
        let body = body.clone();
        async move {
            exchange.reply(status, headers, body).await;
            exchange
        }
    })
    .await
}

/// An engine that streams these bytes, `step` bytes at a time.
async fn streams(bytes: &[u8], step: usize, encoding: &'static str) -> Peer {
    let bytes = bytes.to_vec();
    Peer::spawn(move |_, mut exchange| {
        let bytes = bytes.clone();
        async move {
            open(&mut exchange, encoding).await;
            for part in bytes.chunks(step) {
                exchange.chunk(part).await;
            }
            exchange.end_chunks().await;
            exchange
        }
    })
    .await
}

async fn open(exchange: &mut Exchange, encoding: &str) {
    let encoding = match encoding {
        "" => String::new(),
        name => format!("content-encoding: {name}\r\n"),
    };
    exchange
        .send(format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{encoding}transfer-encoding: chunked\r\n\r\n"))
        .await;
}

/// Whether the router reports `count` answers with this outcome, after it reports the answer
/// itself.
async fn outcome(router: &Router, result: &str, count: u64) -> bool {
    let series =
        format!("llm_router_postprocessed_total{{route=\"r\",result=\"{result}\"}} {count}");
    until_answer("the answer to be counted", async || {
        let page = router.admin_get("/metrics").await.text();
        let done = page.lines().any(|line| {
            line.starts_with("llm_router_requests_total{route=\"r\"") && !line.ends_with(" 0")
        });
        done.then(|| page.contains(&series))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_rewritten_however_it_is_cut() {
    for step in [1, 7, 4096] {
        let peer = streams(FRAMES.as_bytes(), step, "").await;
        let router = over(&[&peer], VLLM).start().await;
        let reply = router.post(CHAT_PATH, &asking()).await;
        assert_eq!((reply.status, reply.end), (200, End::Clean));
        assert_eq!(reply.text(), FORMATTED, "{step} bytes a chunk");
        assert!(outcome(&router, "changed", 1).await);
        let page = router.admin_get("/metrics").await.text();
        let tokens =
            "llm_router_tokens_total{route=\"r\",model=\"tiny\",owner=\"-\",kind=\"prompt\"} 7";
        assert!(page.contains(tokens), "{page}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_usage_chunk_nobody_asked_for_is_left_out_as_well() {
    let peer = streams(FRAMES.as_bytes(), 5, "").await;
    let router = over(&[&peer], VLLM).start().await;
    let reply = router.post(CHAT_PATH, CHAT_STREAM).await;
    let usage = FORMATTED
        .lines()
        .find(|line| line.contains("usage"))
        .unwrap();
    assert_eq!(reply.text(), FORMATTED.replace(&format!("{usage}\n\n"), ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_leaves_before_the_next_one_comes() {
    let gate = Gate::default();
    let (first, rest) = FRAMES.split_at(FRAMES.find(": ping").unwrap());
    let rest: &'static [&str] = Box::leak(Box::new([rest]));
    let peer = Peer::streaming(&gate, first, rest).await;
    let router = over(&[&peer], VLLM).start().await;
    let mut wire = Wire::connect(router.public).await;
    wire.request("POST", CHAT_PATH, &[], asking().as_bytes())
        .await;
    wire.head("POST").await;
    let seen = wire.body_until("\r\n\r\n").await;
    assert!(FORMATTED.as_bytes().starts_with(&seen));
    gate.open(1);
    let (rest, end) = wire.body().await;
    assert_eq!(
        (String::from_utf8([seen, rest].concat()).unwrap(), end),
        (FORMATTED.into(), End::Clean)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_is_rewritten_and_its_headers_tell_nothing_wrong() {
    let headers = &[
        JSON,
        ("etag", "\"abc\""),
        ("content-digest", "sha-256=:x:"),
        ("accept-ranges", "bytes"),
        ("x-kept", "yes"),
    ];
    let peer = sends(200, headers, SGLANG.as_bytes()).await;
    let router = over(&[&peer], STRIP).start().await;
    let reply = router.post(CHAT_PATH, CHAT).await;
    assert_eq!(
        (reply.status, reply.end, reply.text().as_str()),
        (200, End::Clean, STRIPPED)
    );
    for gone in ["content-length", "etag", "content-digest", "accept-ranges"] {
        assert_eq!(reply.headers.get(gone), None, "{gone}");
    }
    assert_eq!(
        (reply.header("x-kept"), reply.header("content-type")),
        ("yes", "application/json")
    );
    assert!(outcome(&router, "changed", 1).await);
    let http2 = curl_h2(&router, &["-d", CHAT], CHAT_PATH).await;
    assert_eq!(String::from_utf8_lossy(&http2.stdout), STRIPPED);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_none_of_a_handlers_business_passes_with_its_headers() {
    let text = ("content-type", "text/plain");
    let etag = ("etag", "\"abc\"");
    for (status, headers, options) in [
        (500, &[JSON, etag], STRIP),
        (404, &[JSON, etag], STRIP),
        (206, &[JSON, etag], STRIP),
        (200, &[text, etag], STRIP),
        (200, &[JSON, etag], ""),
        (200, &[JSON, etag], "postprocess: none"),
        (
            200,
            &[JSON, etag],
            "postprocess: strip_actual_usage\ntransparent: true",
        ),
    ] {
        let headers: &'static [(&str, &str)] = Box::leak(Box::new(*headers));
        let peer = sends(status, headers, SGLANG.as_bytes()).await;
        let router = over(&[&peer], options).start().await;
        let reply = router.post(CHAT_PATH, CHAT).await;
        assert_eq!(
            (reply.status, reply.text().as_str()),
            (status, SGLANG),
            "{options}"
        );
        assert_eq!(reply.header("content-length"), SGLANG.len().to_string());
        assert_eq!(reply.header("etag"), "\"abc\"");
        assert!(outcome(&router, "changed", 0).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_global_layer_names_a_handler_and_a_route_can_refuse_it() {
    let peer = sends(200, &[JSON], SGLANG.as_bytes()).await;
    let router = over(&[&peer], "")
        .main("defaults: {postprocess: strip_actual_usage}")
        .route(
            "raw",
            &format!("peers: [{}]\npostprocess: none", peer.yaml()),
        )
        .start()
        .await;
    assert_eq!(router.post(CHAT_PATH, CHAT).await.text(), STRIPPED);
    assert_eq!(
        router.post("/raw/v1/chat/completions", CHAT).await.text(),
        SGLANG
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_beyond_the_bound_passes_untouched() {
    let long = format!(
        "{{\"choices\":[],\"stop\":\"{}\",\"service_tier\":1}}",
        "x".repeat(8 << 20)
    );
    let peer = sends(200, &[JSON], long.as_bytes()).await;
    let router = over(&[&peer], VLLM).start().await;
    let reply = router.post(CHAT_PATH, CHAT).await;
    assert!(reply.text() == long && reply.end == End::Clean);
    assert_eq!(reply.header("content-length"), long.len().to_string());
    assert!(outcome(&router, "passed", 1).await);
    let peer = Peer::spawn(move |_, mut exchange| {
        let long = long.clone();
        async move {
            exchange.send("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n").await;
            exchange.chunk(&long).await;
            exchange.end_chunks().await;
            exchange
        }
    })
    .await;
    let router = over(&[&peer], VLLM).start().await;
    let reply = router.post(CHAT_PATH, CHAT).await;
    assert!(reply.text().ends_with("\"service_tier\":1}") && reply.end == End::Clean);
    assert!(outcome(&router, "passed", 1).await);
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    for event in text.split_inclusive("\n\n") {
        encoder.write_all(event.as_bytes()).unwrap();
        encoder.flush().unwrap();
    }
    encoder.finish().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compressed_answer_is_decoded_and_its_encoding_goes() {
    for step in [1, 4096] {
        let peer = streams(&gzip(FRAMES), step, "gzip").await;
        let router = over(&[&peer], VLLM).start().await;
        let reply = router.post(CHAT_PATH, &asking()).await;
        assert_eq!((reply.text().as_str(), reply.end), (FORMATTED, End::Clean));
        assert_eq!(reply.headers.get("content-encoding"), None);
        assert!(outcome(&router, "changed", 1).await);
        let page = router.admin_get("/metrics").await.text();
        assert!(
            page.contains("model=\"tiny\",owner=\"-\",kind=\"prompt\"} 7"),
            "{page}"
        );
    }
    let peer = sends(200, &[JSON, ("content-encoding", "gzip")], &gzip(SGLANG)).await;
    let router = over(&[&peer], STRIP).start().await;
    let reply = router.post(CHAT_PATH, CHAT).await;
    assert_eq!((reply.text().as_str(), reply.end), (STRIPPED, End::Clean));
    assert_eq!(reply.headers.get("content-encoding"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_handler_a_compressed_stream_loses_nothing_but_the_unasked_usage() {
    let peer = streams(&gzip(FRAMES), 4096, "gzip").await;
    let router = over(&[&peer], "").start().await;
    let reply = router.post(CHAT_PATH, CHAT_STREAM).await;
    assert!(!reply.text().contains("usage") && reply.text().ends_with("[DONE]\n\n"));
    let reply = router.post(CHAT_PATH, &asking()).await;
    assert_eq!(reply.header("content-encoding"), "gzip");
    assert_eq!(reply.body, gzip(FRAMES));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_encoding_that_is_not_decoded_passes_untouched() {
    for encoding in ["br", "zstd", "gzip, br"] {
        let headers: &'static [_] = Box::leak(Box::new([JSON, ("content-encoding", encoding)]));
        let peer = sends(200, headers, b"\x0b\x02packed").await;
        let router = over(&[&peer], STRIP).start().await;
        let reply = router.post(CHAT_PATH, CHAT).await;
        assert_eq!(reply.body, b"\x0b\x02packed");
        assert_eq!(reply.header("content-encoding"), encoding);
        assert_eq!(reply.header("content-length"), "8");
        assert!(outcome(&router, "passed", 1).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_not_what_its_encoding_says_never_ends_clean() {
    let packed = gzip(FRAMES);
    for broken in [&packed[..packed.len() - 9], &b"data: plain\n\n"[..]] {
        let peer = streams(broken, 4096, "gzip").await;
        let router = over(&[&peer], VLLM).start().await;
        let reply = router.post(CHAT_PATH, &asking()).await;
        assert_eq!(reply.end, End::Broken);
        assert!(
            reply.text().contains("data: {\"error\""),
            "{}",
            reply.text()
        );
        let headers = &[JSON, ("content-encoding", "gzip")];
        let peer = sends(200, headers, broken).await;
        let router = over(&[&peer], VLLM).start().await;
        let reply = router.post(CHAT_PATH, CHAT).await;
        assert_eq!(
            (reply.status, &reply.json()["error"]["code"]),
            (502, &"upstream_error".into())
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_body_that_breaks_or_stops_is_an_error_with_a_status() {
    let gate = Gate::default();
    for (closes, status, code) in [
        (true, 502, "upstream_error"),
        (false, 504, "upstream_timeout"),
    ] {
        let gate = gate.clone();
        let peer = Peer::spawn(move |_, mut exchange| {
            let gate = gate.clone();
            async move {
                exchange.send("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-engine: 1\r\ntransfer-encoding: chunked\r\n\r\n").await;
                exchange.chunk(SGLANG.split_at(9).0).await;
                match closes {
                    true => exchange.close(),
                    false => exchange.step(&gate).await,
                }
                exchange
            }
        })
        .await;
        let router = over(&[&peer], STRIP)
            .server("idle_timeout: 200ms")
            .start()
            .await;
        let reply = router.post(CHAT_PATH, CHAT).await;
        let error = &reply.json()["error"];
        assert_eq!((reply.status, reply.end), (status, End::Clean));
        assert_eq!(
            (&error["code"], &error["route"]),
            (&code.into(), &"r".into())
        );
        assert_eq!(reply.header("x-routed-peer"), peer.address.to_string());
        assert_eq!(reply.header("content-type"), "application/json");
        assert_eq!(reply.headers.get("x-engine"), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_without_room_to_be_held_passes_unchanged() {
    let long = format!("{{\"actual_usage\":1,\"x\":\"{}\"}}", "x".repeat(200 << 10));
    let line = format!("data: {long}\n\n");
    for (limit, is_held) in [("100k", false), ("2g", true)] {
        let peer = sends(200, &[JSON], long.as_bytes()).await;
        let router = over(&[&peer], STRIP)
            .server(&format!("max_buffered_bytes: {limit}"))
            .start()
            .await;
        let document = router.post(CHAT_PATH, CHAT).await.text();
        let result = if is_held { "changed" } else { "passed" };
        assert!(outcome(&router, result, 1).await, "{limit}");
        let peer = streams(line.as_bytes(), 16 << 10, "").await;
        let router = over(&[&peer], STRIP)
            .server(&format!("max_buffered_bytes: {limit}"))
            .start()
            .await;
        let stream = router.post(CHAT_PATH, &asking()).await.text();
        let stripped = |text: &str| text.replace("\"actual_usage\":1,", "");
        match is_held {
            true => {
                assert!(document == stripped(&long), "{}", document.len());
                assert!(stream == stripped(&line), "{}", stream.len());
            }
            false => {
                assert!(document == long, "{}", document.len());
                assert!(stream == line, "{}", stream.len());
            }
        }
        until_answer("the room to be given back", async || {
            let page = router.admin_get("/metrics").await.text();
            page.contains("\nllm_router_buffered_bytes 0.0\n")
                .then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_while_a_body_is_held_ends_the_request() {
    let gate = Gate::default();
    let peer = Peer::spawn(move |_, mut exchange| {
        let gate = gate.clone();
        async move {
            exchange.send("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n").await;
            exchange.chunk(SGLANG.split_at(9).0).await;
            exchange.step(&gate).await;
            exchange
        }
    })
    .await;
    let router = over(&[&peer], STRIP).start().await;
    let mut wire = Wire::connect(router.public).await;
    wire.request("POST", CHAT_PATH, &[], CHAT.as_bytes()).await;
    peer.running(1).await;
    drop(wire);
    peer.cancelled(1).await;
    router.program.logged("-> 499").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_breaks_in_a_line_shows_the_line_and_the_error_event() {
    let peer = Peer::spawn(|_, mut exchange| async move {
        exchange.open_stream().await;
        exchange.chunk(FRAMES.split_at(20).0).await;
        exchange.close();
        exchange
    })
    .await;
    let router = over(&[&peer], VLLM).start().await;
    let reply = router.post(CHAT_PATH, &asking()).await;
    assert_eq!(reply.end, End::Broken);
    let text = reply.text();
    let error = text
        .strip_prefix(&format!("{}\n\n", FRAMES.split_at(20).0))
        .unwrap();
    assert!(error.starts_with("data: {\"error\""), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_follows_a_body_comes_after_what_was_held_of_it() {
    let peer = Peer::spawn(|_, mut exchange| async move {
        exchange.send("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntrailer: x-late\r\ntransfer-encoding: chunked\r\n\r\n").await;
        exchange.chunk(SGLANG).await;
        exchange.send("0\r\nx-late: 1\r\n\r\n").await;
        exchange
    })
    .await;
    let router = over(&[&peer], STRIP).start().await;
    let reply = curl_h2(&router, &["-d", CHAT], CHAT_PATH).await;
    assert_eq!(String::from_utf8_lossy(&reply.stdout), STRIPPED);
    let reply = router.post(CHAT_PATH, CHAT).await;
    assert_eq!((reply.text().as_str(), reply.end), (STRIPPED, End::Clean));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_body_log_keeps_what_the_engine_sent() {
    let dir = tempfile::tempdir().unwrap();
    let executable = env!("CARGO_BIN_EXE_bodylog-listener-under-test");
    let listener = Listener::start(Start::new(executable, dir.path())).await;
    let peer = sends(200, &[JSON], SGLANG.as_bytes()).await;
    let router = over(&[&peer], STRIP)
        .main(&format!("bodylog: {{listener: \"{}\"}}", listener.frames))
        .start()
        .await;
    let reply = call(
        router.public,
        "POST",
        CHAT_PATH,
        &[("content-type", "application/json")],
        CHAT,
    )
    .await;
    assert_eq!(reply.text(), STRIPPED);
    let record = until_answer("the record", async || listener.records().pop()).await;
    let meta = &record["resp_meta"];
    assert_eq!(meta["usage"]["prompt_tokens"], 3, "{record}");
    assert_eq!(meta["actual_usage"]["prompt_tokens"], 1, "{record}");
}
