//! The body log end to end: router, listener and exporter as real processes over a simulated
//! engine. The records are read back from the files, the listener and the exporter.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use sim_engine::{Engine, EngineHandle, Options};
use system_tests::PATIENCE;
use system_tests::bodylog::{Exporter, Listener, Start, sum};
use system_tests::router::{Router, Setup};
use system_tests::wait::{until, until_answer};
use system_tests::wire::{End, Wire, call};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::common::setup;

mod api_server;
mod bad_input;
mod clock;
mod cluster;
mod disk;
mod kills;
mod port;
mod tailed;
mod tls;

const PATH: &str = "/r/v1/chat/completions";
const KEY: &str = "sk-0123-the-key";
const WRONG_KEY: &str = "sk-9876-no-key";
const TOKEN: &str = "the-token-of-the-listener";

fn listener_over(dir: &Path) -> Start {
    Start::new(env!("CARGO_BIN_EXE_bodylog-listener-under-test"), dir)
}

fn exporter_over(dir: &Path) -> Start {
    Start::new(env!("CARGO_BIN_EXE_bodylog-exporter-under-test"), dir)
}

async fn listener(dir: &TempDir) -> Listener {
    Listener::start(listener_over(dir.path())).await
}

async fn exporter(dir: &TempDir) -> Exporter {
    Exporter::start(exporter_over(dir.path())).await
}

fn directory() -> TempDir {
    tempfile::tempdir().unwrap()
}

async fn engine(options: Options) -> EngineHandle {
    Engine::local(options).await.unwrap()
}

/// A route over one engine.
fn over(engine: &EngineHandle, options: &str) -> Setup {
    let peer = format!("peers: [{{address: {}, name: sim-1", engine.addr);
    setup().route(
        "r",
        &format!("{peer}, max_concurrency: 32}}]\nhealth_check_interval: 1h\n{options}\n"),
    )
}

/// `bodylog:` for a listener at `address`, with a spool in the router's directory.
fn spooled(address: SocketAddr) -> String {
    format!("bodylog: {{listener: \"{address}\", spool: {{dir: spool, max_bytes: 64m}}}}")
}

/// An address without a listener, for a listener that starts later.
async fn absent(dir: &TempDir) -> Listener {
    let mut listener = listener(dir).await;
    listener.kill().await;
    listener
}

fn chat(prompt: &str, max_tokens: u32) -> Value {
    json!({"model": "sim", "max_tokens": max_tokens,
        "messages": [{"role": "user", "content": prompt}]})
}

/// Sends one request with this id, which must succeed.
async fn ask(public: SocketAddr, id: &str, body: &str) {
    let headers = [("content-type", "application/json"), ("x-request-id", id)];
    let reply = call(public, "POST", PATH, &headers, body).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
}

/// Sends `count` requests and returns their ids.
async fn ask_many(router: &Router, name: &str, count: usize) -> BTreeSet<String> {
    let ids: BTreeSet<_> = (0..count).map(|n| format!("{name}-{n}")).collect();
    for id in &ids {
        ask(router.public, id, &chat("hi", 2).to_string()).await;
    }
    ids
}

/// A metric of the router's body log.
async fn metric(router: &Router, series: &str) -> u64 {
    let page = router.admin_get("/metrics").await.text();
    sum(&page, &format!("llm_router_bodylog_capture_{series}"))
}

async fn acked(router: &Router) -> u64 {
    metric(router, "frames_total{result=\"acked\"}").await
}

/// Waits until the router's own metrics satisfy `condition`, which gets a function to read one.
async fn router_says(
    router: &Router,
    what: &str,
    condition: impl Fn(&dyn Fn(&str) -> u64) -> bool,
) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let page = router.admin_get("/metrics").await.text();
        let read = |series: &str| sum(&page, &format!("llm_router_bodylog_capture_{series}"));
        if condition(&read) {
            return;
        }
        let lines = page
            .lines()
            .filter(|line| line.starts_with("llm_router_bodylog") && !line.contains("_bucket"));
        assert!(
            tokio::time::Instant::now() < deadline,
            "waited in vain for {what}:\n{}",
            lines.collect::<Vec<_>>().join("\n")
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until all records of `count` exchanges are stored or lost.
async fn settled(router: &Router, count: usize) {
    let what = format!("{count} records to be stored or lost");
    router_says(router, &what, |read| {
        read("frames_total{result=\"acked\"}") + read("dropped_total{") == count as u64
    })
    .await;
}

/// Waits until `count` records of this run are on disk and none in memory.
async fn spilled(router: &Router, count: u64) {
    router_says(router, "records to wait on disk", |read| {
        read("frames_total{result=\"queued\"}") == count && read("memory_bytes") == 0
    })
    .await;
}

/// Waits until no record is left in the spool.
async fn spool_is_empty(router: &Router) {
    router_says(router, "the spool to be empty", |read| {
        read("spool_bytes") == 0
    })
    .await;
}

fn ids(lines: &[Value]) -> Vec<String> {
    let id = |line: &Value| line["request_id"].as_str().unwrap().to_owned();
    lines.iter().map(id).collect()
}

/// Asserts that each of these exchanges is on disk exactly once, as a record and as a row.
fn assert_once(listener: &Listener, expected: &BTreeSet<String>) {
    for (kind, lines) in [("records", listener.records()), ("rows", listener.rows())] {
        let found = ids(&lines);
        let distinct: BTreeSet<_> = found.iter().cloned().collect();
        let missing: Vec<_> = expected.difference(&distinct).collect();
        assert!(missing.is_empty(), "missing {kind}: {missing:?}");
        assert_eq!(distinct.len(), expected.len(), "{kind} nobody asked for");
        assert_eq!(found.len(), distinct.len(), "{kind} stored more than once");
    }
}

/// Waits until the exporter has counted `count` rows.
async fn exported(exporter: &Exporter, count: u64) -> String {
    until_answer("the exporter to have counted every row", async || {
        let page = exporter.page().await;
        (sum(&page, "bodylog_requests_total{") == count).then_some(page)
    })
    .await
}

/// The text of a chat stream as its client reads it.
fn streamed_text(events: &str) -> String {
    let data = events
        .lines()
        .filter_map(|line| line.strip_prefix("data: "));
    let chunks = data.filter_map(|data| serde_json::from_str::<Value>(data).ok());
    let texts = chunks.filter_map(|chunk| {
        let text = chunk["choices"][0]["delta"]["content"].as_str()?;
        Some(text.to_owned())
    });
    texts.collect()
}

/// Only these members of an object, so that a failed comparison shows all of them.
fn only(object: &Value, names: &Value) -> Value {
    let names = names.as_object().unwrap().keys();
    names
        .map(|name| (name.clone(), object[name].clone()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_exchange_is_recorded_found_and_counted() {
    let mut options = Options::default();
    options.pace.itl = Duration::from_millis(40);
    let engine = engine(options).await;
    let dir = directory();
    let token = dir.path().join("token");
    std::fs::write(&token, TOKEN).unwrap();
    let store = directory();
    let with_token = listener_over(store.path()).option("--token-file", &token.display());
    let listener = Listener::start(with_token).await;
    let exporter = exporter(&store).await;
    let peer = engine.addr.to_string();
    let router = setup()
        .keys(&format!("{KEY}:team\n"))
        .route(
            "r",
            &format!("peers: [{{address: {peer}, name: sim-1, max_concurrency: 1}}]\nhealth_check_interval: 1h\n"),
        )
        .main(&format!(
            "bodylog: {{listener: \"{}\", token_file: {}}}",
            listener.frames,
            token.display()
        ))
        .start()
        .await;
    let bearer = format!("Bearer {KEY}");
    let with = |id: &'static str| {
        [
            ("content-type", "application/json"),
            ("authorization", bearer.as_str()),
            ("x-session-id", "conversation-1"),
            ("x-request-id", id),
        ]
    };

    // The refusal happens while the stream holds the only slot.
    let mut asked = chat("tell me", 25);
    asked["stream"] = json!(true);
    let stream_body = asked.to_string();
    let mut stream = Wire::connect(router.public).await;
    stream
        .request("POST", PATH, &with("streamed"), stream_body.as_bytes())
        .await;
    assert_eq!(stream.head("POST").await.status, 200);
    let whole_body = chat("and again", 3).to_string();
    let refused = router.post_with(PATH, &with("refused"), &whole_body).await;
    assert_eq!(refused.status, 429, "{}", refused.text());
    let (events, end) = stream.body().await;
    let events = String::from_utf8(events).unwrap();
    assert_eq!(end, End::Clean);
    assert!(!events.contains("\"usage\":{"), "{events}");
    let whole = router.post_with(PATH, &with("whole"), &whole_body).await;
    assert_eq!(whole.status, 200, "{}", whole.text());
    let stranger = [
        ("authorization", "Bearer sk-9876-no-key"),
        ("x-request-id", "stranger"),
    ];
    let denied = router.post_with(PATH, &stranger, &whole_body).await;
    assert_eq!(denied.status, 401);

    settled(&router, 3).await;
    let found = |lines: Vec<Value>| -> BTreeMap<String, Value> {
        ids(&lines).into_iter().zip(lines).collect()
    };
    let (records, rows) = (found(listener.records()), found(listener.rows()));
    let everyone = ["refused", "streamed", "whole"];
    assert!(records.keys().eq(everyone), "{records:?}");
    assert!(rows.keys().eq(everyone), "{rows:?}");

    let whole = whole.json();
    let counts = |id: &str| records[id]["usage"].clone();
    let expected = json!({
        "v": 2, "method": "POST", "uri": "/v1/chat/completions", "route": "r", "tenant": "team",
        "session_id": "conversation-1", "session_src": "header.x-session-id", "model_req": "sim",
        "model": "sim", "peer": peer, "peer_name": "sim-1", "mode": "hash", "attempts": 1,
        "status": 200, "stream": true, "finish_reason": "length", "complete": true,
        "req_body": stream_body, "resp_body": streamed_text(&events), "resp_body_truncated": false,
        "req_bytes": stream_body.len(), "client_ip": "127.0.0.1",
    });
    let streamed = &records["streamed"];
    assert_eq!(only(streamed, &expected), expected, "{streamed}");
    assert_eq!(counts("streamed")["completion"], 25, "{streamed}");
    assert_eq!(
        streamed["resp_meta"]["usage"]["completion_tokens"], 25,
        "the usage that the client did not ask for is recorded: {streamed}"
    );
    let time = |name: &str| streamed[name].as_f64();
    assert!(time("first_token_t").is_some(), "{streamed}");
    assert!(time("first_token_t") >= time("first_chunk_t"), "{streamed}");
    assert!(time("rt") >= time("first_token_t"), "{streamed}");
    assert!(records["whole"]["first_token_t"].is_null());
    assert!(streamed["upstream_connect_t"].is_number(), "{streamed}");
    let expected = json!({
        "status": 200, "session_id": "conversation-1", "peer": peer, "req_body": whole_body,
        "resp_body": whole["choices"][0]["message"]["content"], "finish_reason": "length",
        "complete": true,
    });
    let record = &records["whole"];
    assert_eq!(only(record, &expected), expected, "{record}");
    assert_eq!(
        counts("whole")["completion"],
        whole["usage"]["completion_tokens"]
    );
    assert_eq!(counts("whole")["prompt"], whole["usage"]["prompt_tokens"]);
    let expected = json!({
        "status": 429, "reject_reason": "concurrency_limit", "tenant": "team", "route": "r",
        "req_body": whole_body, "resp_body": refused.text(), "usage": null,
    });
    let record = &records["refused"];
    assert_eq!(only(record, &expected), expected, "{record}");
    let expected = json!({
        "v": 2, "status": 200, "route": "r", "tenant": "team", "backend": peer, "peer": peer,
        "finish_reason": "length", "completion_tokens": 25, "stream": true, "seq": 2,
    });
    assert_eq!(
        only(&rows["streamed"], &expected),
        expected,
        "{}",
        rows["streamed"]
    );
    assert_eq!(rows["refused"]["backend"], "(none)");

    let reply = listener.get("/records?request_id=whole").await;
    assert_eq!(reply.json(), records["whole"]);
    assert_eq!(
        listener.get("/records?request_id=stranger").await.status,
        404
    );

    let page = exported(&exporter, 3).await;
    let metrics = router.admin_get("/metrics").await.text();
    for (kind, family) in [
        ("prompt", "bodylog_prompt_tokens_total{"),
        ("completion", "bodylog_completion_tokens_total{"),
        ("cached", "bodylog_cached_tokens_total{"),
    ] {
        let lines = metrics.lines().filter(|line| {
            line.starts_with("llm_router_tokens_total{")
                && line.contains(&format!("kind=\"{kind}\""))
        });
        let lines: Vec<_> = lines.collect();
        let counted = sum(&lines.join("\n"), "llm_router_tokens_total{");
        assert_eq!(sum(&page, family), counted, "{kind}\n{page}\n{metrics}");
    }
    let class = |class: &str| {
        let lines: Vec<_> = page.lines().filter(|line| line.contains(class)).collect();
        sum(&lines.join("\n"), "bodylog_requests_total{")
    };
    assert_eq!(
        (class("status_class=\"2xx\""), class("status_class=\"4xx\"")),
        (2, 1)
    );

    assert_no_secrets(store.path());
    let log = [router.log(), listener.log()].concat();
    for secret in [KEY, WRONG_KEY, TOKEN, "tell me"] {
        assert!(!log.contains(secret), "{secret} in a log");
    }
}

/// Asserts that no file below `dir` contains a key.
fn assert_no_secrets(dir: &Path) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            assert_no_secrets(&path);
            continue;
        }
        let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
        for secret in [KEY, WRONG_KEY, TOKEN] {
            assert!(!text.contains(secret), "{secret} in {}", path.display());
        }
    }
}

/// Clients that send requests without a pause until told to stop. Each returns the ids of its
/// requests.
struct Load {
    clients: JoinSet<BTreeSet<String>>,
    stop: watch::Sender<bool>,
}

impl Load {
    fn begin(router: &Router, clients: usize) -> Self {
        let (stop, stopped) = watch::channel(false);
        let public = router.public;
        let mut tasks = JoinSet::new();
        for client in 0..clients {
            let stopped = stopped.clone();
            tasks.spawn(async move {
                let mut asked = BTreeSet::new();
                while !*stopped.borrow() {
                    let id = format!("load-{client}-{}", asked.len());
                    ask(public, &id, &chat("hi", 2).to_string()).await;
                    asked.insert(id);
                }
                asked
            });
        }
        Self {
            clients: tasks,
            stop,
        }
    }

    async fn end(self) -> BTreeSet<String> {
        self.stop.send_replace(true);
        let asked = self.clients.join_all().await;
        asked.into_iter().flatten().collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_go_on_without_a_listener_and_every_record_arrives_afterwards() {
    let engine = engine(Options::default()).await;
    let store = directory();
    let mut listener = absent(&store).await;
    let router = over(&engine, "")
        .main(&spooled(listener.frames))
        .start()
        .await;
    let mut asked = ask_many(&router, "before", 30).await;
    spilled(&router, 30).await;
    asked.extend(ask_many(&router, "while", 30).await);
    assert!(listener.records().is_empty());
    listener.restart().await;
    asked.extend(ask_many(&router, "after", 10).await);
    settled(&router, asked.len()).await;
    assert_once(&listener, &asked);
    assert_eq!(metric(&router, "dropped_total{").await, 0);
    spool_is_empty(&router).await;
    assert_eq!(listener.stop().await.code, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_router_had_on_disk_arrives_after_its_restart() {
    let engine = engine(Options::default()).await;
    let store = directory();
    let mut listener = absent(&store).await;
    let router = over(&engine, "")
        .main(&spooled(listener.frames))
        .start()
        .await;
    let mut asked = ask_many(&router, "first", 60).await;
    spilled(&router, 60).await;
    // The next run delivers nothing either: it is killed as soon as its listener appears.
    let router = router.kill().await.start().await;
    asked.extend(ask_many(&router, "second", 20).await);
    spilled(&router, 20).await;
    listener.restart().await;
    until("some of them to arrive", || !listener.records().is_empty()).await;
    let router = router.kill().await.start().await;
    asked.extend(ask_many(&router, "third", 5).await);
    until("the rest to arrive", || {
        listener.rows().len() >= asked.len()
    })
    .await;
    until("the rest to arrive", || {
        listener.records().len() >= asked.len()
    })
    .await;
    assert_once(&listener, &asked);
    spool_is_empty(&router).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn losses_of_a_full_spool_are_counted_by_reason_and_add_up() {
    let engine = engine(Options::default()).await;
    let store = directory();
    let mut listener = absent(&store).await;
    let small = format!(
        "bodylog: {{listener: \"{}\", memory: 1m, spool: {{dir: spool, max_bytes: 1m}}}}",
        listener.frames
    );
    let router = over(&engine, "max_body_size: 1m")
        .main(&small)
        .start()
        .await;
    // Bodies fill the spool, and the records without bodies take the rest.
    let mut asked = BTreeSet::new();
    for round in 0.. {
        assert!(round < 200, "the spool is never full");
        let large = if round == 0 { 40_000 } else { 4_000 };
        for n in 0..25 {
            let id = format!("full-{round}-{n}");
            let mut body = chat(&"x".repeat(large), 2);
            // Incompressible bytes.
            let noise = (0..large / 8).map(|at| {
                let seed = format!("{id}-{at}");
                format!("{:08x}", crc32fast::hash(seed.as_bytes()))
            });
            body["messages"][0]["content"] = json!(noise.collect::<String>());
            ask(router.public, &id, &body.to_string()).await;
            asked.insert(id);
        }
        if metric(&router, "dropped_total{").await >= 20 {
            break;
        }
    }
    listener.restart().await;
    settled(&router, asked.len()).await;
    let page = router.admin_get("/metrics").await.text();
    let of = |series: &str| sum(&page, &format!("llm_router_bodylog_capture_{series}"));
    let dropped = of("dropped_total{");
    let explained =
        of("dropped_total{reason=\"spool_full\"}") + of("dropped_total{reason=\"budget\"}");
    assert_eq!(dropped, explained, "{page}");
    assert_eq!(of("frames_total{result=\"dropped\"}"), dropped);
    assert_eq!(
        of("frames_total{result=\"queued\"}"),
        asked.len() as u64 - dropped
    );
    let records = listener.records();
    let stored: BTreeSet<_> = ids(&records).into_iter().collect();
    assert!(stored.is_subset(&asked));
    assert_once(&listener, &stored);
    assert_eq!(stored.len() as u64 + dropped, asked.len() as u64);
    let shed = records.iter().filter(|record| record["shed"] == "bodies");
    assert_eq!(shed.count() as u64, of("shed_total"), "{page}");
    assert!(of("shed_total") > 0, "{page}");
    // With free room, whole records are stored again. A segment is deleted shortly after its last
    // acknowledgement.
    until_answer("room in the spool", async || {
        (metric(&router, "spool_bytes").await < (1 << 20) / 2).then_some(())
    })
    .await;
    // The value of records is measured again from time to time, not for each record.
    for n in 1.. {
        assert!(n < 100, "records stay without bodies");
        let id = format!("last-{n}");
        ask(router.public, &id, &chat("hi", 2).to_string()).await;
        settled(&router, asked.len() + n).await;
        let last = listener.get(&format!("/records?request_id={id}")).await;
        let last = last.json();
        if last["shed"].is_null() {
            assert!(last["req_body"] != "", "{last}");
            break;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_reload_turns_on_is_recorded_from_its_answer_on() {
    let engine = engine(Options::default()).await;
    let store = directory();
    let listener = listener(&store).await;
    let router = over(&engine, "").main("# bodylog").start().await;
    ask(router.public, "before", &chat("hi", 2).to_string()).await;
    let main = std::fs::read_to_string(router.path().join("router.yaml")).unwrap();
    let on = main.replace("# bodylog", &spooled(listener.frames));
    router.replace("router.yaml", &on);
    assert_eq!(router.admin_post("/_reload").await.status, 200);
    let asked = ask_many(&router, "after", 5).await;
    settled(&router, asked.len()).await;
    assert_once(&listener, &asked);
}
