//! Faults that an operator meets: each is planted, has to be named by its code at `/_findings`, and
//! the finding has to go away after the fault is gone.

use serde_json::{Value, json};
use sim_engine::{Engine, EngineHandle, Options};
use system_tests::bodylog::{Listener, Start};
use system_tests::router::{Router, Setup};
use system_tests::tmpfs::Tmpfs;
use system_tests::wait::until_answer;
use system_tests::wire::Wire;

use crate::common::setup;

/// Open on purpose, so that a missing key file is no finding.
const KEYS: &str = "api_keys: {}\n";

const PATH: &str = "/r/v1/chat/completions";

/// A setup whose findings go away within seconds.
fn brief() -> Setup {
    setup().server("findings: {window: 5s}")
}

async fn engines<const N: usize>() -> [EngineHandle; N] {
    let mut engines = Vec::new();
    for _ in 0..N {
        engines.push(Engine::local(Options::default()).await.unwrap());
    }
    engines.try_into().ok().unwrap()
}

fn plant(engine: &EngineHandle, faults: &[&str]) {
    engine.set_faults(faults.iter().map(|fault| fault.parse().unwrap()).collect());
}

/// The route `r` over these engines. A failed request is not repeated and ejects nothing, so that
/// each engine gets its share.
fn route(engines: &[EngineHandle], options: &str) -> String {
    let peers: Vec<_> = engines
        .iter()
        .map(|engine| format!("{{address: {}}}", engine.addr))
        .collect();
    format!(
        "peers: [{}]\nbalance: round_robin\nmax_more_tries: 0\neject: off\nhealth_check_interval: 1s\n{KEYS}{options}\n",
        peers.join(", ")
    )
}

fn chat(stream: bool) -> String {
    let usage = json!({"include_usage": true});
    json!({"model": "sim", "stream": stream, "max_tokens": 4, "stream_options": stream.then_some(usage),
        "messages": [{"role": "user", "content": "hi"}]})
    .to_string()
}

/// Sends requests one after the other, however they end.
async fn send(router: &Router, count: usize) {
    for _ in 0..count {
        let mut wire = Wire::connect(router.public).await;
        wire.request("POST", PATH, &[], chat(true).as_bytes()).await;
        wire.head("POST").await;
        wire.body().await;
    }
}

/// Waits for the finding with this code and returns it.
async fn named(router: &Router, code: &str) -> Value {
    let page = router
        .admin_until("/_findings", code, |page| of_code(page, code).is_some())
        .await;
    let found = of_code(&page, code).unwrap();
    assert!(
        !found["text"].as_str().unwrap().starts_with("over"),
        "{found}"
    );
    assert!(!found["look"].as_str().unwrap().is_empty(), "{found}");
    found
}

/// Waits until the page is empty.
async fn gone(router: &Router) {
    router
        .admin_until("/_findings", "an empty page", |page| {
            page["findings"].as_array().is_some_and(Vec::is_empty)
        })
        .await;
}

fn of_code(page: &Value, code: &str) -> Option<Value> {
    let all = page["findings"].as_array()?;
    all.iter().find(|found| found["code"] == code).cloned()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_engine_is_named_by_its_own_fault() {
    let faults = [
        ("500=0.8", "peer_failing"),
        ("refuse", "peer_unreachable"),
        ("reset", "peer_resetting"),
        ("cut-stream=3", "peer_cuts_streams"),
        ("end-stream=3", "peer_cuts_streams"),
        ("stall=3:60s", "peer_stalls"),
        ("hang", "peer_hung"),
        ("404", "peer_not_found"),
    ];
    let engines = engines::<9>().await;
    for (engine, (fault, _)) in engines.iter().zip(faults) {
        plant(engine, &[fault]);
    }
    let router = setup()
        .server("findings: {window: 10s}")
        .server("idle_timeout: 100ms")
        .route("r", &route(&engines, "first_byte_timeout: 100ms"))
        .start()
        .await;
    let page = until_answer("a finding for each engine", async || {
        send(&router, engines.len()).await;
        let page = router.admin_get("/_findings").await.json();
        (page["findings"].as_array().unwrap().len() >= faults.len()).then_some(page)
    })
    .await;
    let all = page["findings"].as_array().unwrap();
    for (engine, (fault, code)) in engines.iter().zip(faults) {
        let address = engine.addr.to_string();
        let found: Vec<_> = all
            .iter()
            .filter(|found| found["peer"] == address)
            .collect();
        assert_eq!(found.len(), 1, "{fault}: {page:#}");
        assert_eq!(found[0]["code"], code, "{fault}: {page:#}");
        assert_eq!(found[0]["route"], "r");
    }
    assert_eq!(all.len(), faults.len(), "{page:#}");
    for engine in &engines {
        plant(engine, &[]);
    }
    gone(&router).await;
    send(&router, engines.len()).await;
    gone(&router).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_no_engine_has() {
    let engines = engines::<2>().await;
    engines.iter().for_each(|engine| plant(engine, &["404"]));
    let router = brief().route("r", &route(&engines, "")).start().await;
    send(&router, 10).await;
    let found = named(&router, "model_unknown").await;
    assert_eq!(found["peer"], Value::Null);
    assert!(
        found["text"].as_str().unwrap().contains("model sim"),
        "{found}"
    );
    engines.iter().for_each(|engine| plant(engine, &[]));
    gone(&router).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_is_slow_beside_its_sibling() {
    let engines = engines::<2>().await;
    plant(&engines[0], &["slow-ttft=150ms"]);
    let router = brief().route("r", &route(&engines, "")).start().await;
    send(&router, 44).await;
    let found = named(&router, "peer_slow").await;
    assert_eq!(found["peer"], engines[0].addr.to_string());
    plant(&engines[0], &[]);
    // The medians are those of the last 64 first tokens.
    send(&router, 100).await;
    gone(&router).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_engine_away() {
    let engines = engines::<2>().await;
    engines.iter().for_each(|engine| plant(engine, &["refuse"]));
    let router = brief().route("r", &route(&engines, "")).start().await;
    send(&router, 10).await;
    named(&router, "no_peer").await;
    let page = router.admin_get("/_findings").await.json();
    assert_eq!(page["findings"].as_array().unwrap().len(), 1, "{page}");
    engines.iter().for_each(|engine| plant(engine, &[]));
    gone(&router).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ttft_gate_that_trips() {
    let engines = engines::<1>().await;
    plant(&engines[0], &["slow-ttft=100ms"]);
    let options = "ttft_limit_ms: 20\nttft_window: 500ms";
    let router = brief().route("r", &route(&engines, options)).start().await;
    until_answer("refusals", async || {
        send(&router, 1).await;
        let page = router.admin_get("/_findings").await.json();
        of_code(&page, "ttft_limit")
    })
    .await;
    let found = named(&router, "ttft_limit").await;
    assert!(
        found["text"].as_str().unwrap().contains("threshold 20"),
        "{found}"
    );
    gone(&router).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_is_full() {
    let engines = engines::<1>().await;
    plant(&engines[0], &["hang"]);
    let peers = format!(
        "peers: [{{address: {}, max_concurrency: 1}}]",
        engines[0].addr
    );
    let options = format!("{peers}\nfull_policy: wait\nwait_max: 1\neject: off\n{KEYS}");
    let router = brief().route("r", &options).start().await;
    let mut running = Vec::new();
    for _ in 0..2 {
        let mut wire = Wire::connect(router.public).await;
        wire.request("POST", PATH, &[], chat(false).as_bytes())
            .await;
        running.push(wire);
    }
    router
        .admin_until("/_routes", "a waiting request", |page| {
            page["routes"][0]["pools"][0]["waiting"] == 1
        })
        .await;
    for _ in 0..8 {
        assert_eq!(router.post(PATH, &chat(false)).await.status, 429);
    }
    named(&router, "waiting_full").await;
    drop(running);
    gone(&router).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_file_with_other_keys() {
    let engines = engines::<1>().await;
    let router = brief()
        .keys("sk-old:alice\n")
        .route("r", &route(&engines, "").replace(KEYS, ""))
        .start()
        .await;
    let key = [("authorization", "Bearer sk-old")];
    assert_eq!(router.post_with(PATH, &key, &chat(false)).await.status, 200);
    // The watch on the key set begins with the first evaluation.
    assert_eq!(router.admin_get("/_findings").await.status, 200);
    let before = router.admin_get("/_routes").await.json();
    router.replace("keys", "sk-new:alice\n");
    router
        .admin_until("/_routes", "the new keys", |page| {
            page["keys"]["fingerprint"] != before["keys"]["fingerprint"]
        })
        .await;
    for _ in 0..6 {
        assert_eq!(router.post_with(PATH, &key, &chat(false)).await.status, 401);
    }
    let found = named(&router, "unauthorized").await;
    let text = found["text"].as_str().unwrap();
    assert!(text.contains("since the key set changed"), "{text}");
    assert!(!found.to_string().contains("sk-"), "{found}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_refuses_much() {
    let engines = engines::<1>().await;
    let options = "reject_rules: [{name: no-short, field: max_tokens, op: lt, value: 100}]";
    let router = brief().route("r", &route(&engines, options)).start().await;
    send(&router, 10).await;
    let found = named(&router, "rule_refuses").await;
    let text = found["text"].as_str().unwrap();
    assert!(text.contains("no-short refused 10 of 10"), "{text}");
    gone(&router).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_is_not_in_force() {
    let engines = engines::<1>().await;
    let router = brief()
        .route("r", &route(&engines, "affinity_enabled: maybe"))
        .start()
        .await;
    let found = named(&router, "file_partly").await;
    assert!(
        found["file"].as_str().unwrap().ends_with("r.yaml:7"),
        "{found}"
    );
    router.replace("routes/r.yaml", &route(&engines, ""));
    gone(&router).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_that_is_cold_after_a_restart_is_visible_as_hit_rate() {
    let engines = engines::<1>().await;
    let router = brief().route("r", &route(&engines, "")).start().await;
    let opening = "remember these words ".repeat(30);
    let body = json!({"model": "sim", "max_tokens": 4, "user": "talk",
        "messages": [{"role": "user", "content": opening}]})
    .to_string();
    for _ in 0..4 {
        assert_eq!(router.post(PATH, &body).await.status, 200);
    }
    let page = router.admin_get("/_routes").await.json();
    let route = &page["routes"][0];
    let peer = &route["pools"][0]["peers"][0]["hits"]["last_1m"];
    assert_eq!(peer["prompts"], 4);
    assert_eq!(route["hits"]["first_5m"]["cached"], 0, "{route}");
    let again = &route["hits"]["again_5m"];
    let (tokens, cached) = (again["tokens"].as_u64(), again["cached"].as_u64());
    assert!(cached.unwrap() * 2 > tokens.unwrap(), "{again}");
    assert_eq!(route["hits"]["last_5m"], *peer);
}

/// A router that sends its records to a listener at this address.
async fn recording(address: impl std::fmt::Display, more: &str) -> (Router, [EngineHandle; 1]) {
    let engines = engines::<1>().await;
    let router = brief()
        .main(&format!("bodylog: {{listener: \"{address}\"{more}}}"))
        .route("r", &route(&engines, ""))
        .start()
        .await;
    (router, engines)
}

fn listener(dir: &std::path::Path) -> Start {
    Start::new(env!("CARGO_BIN_EXE_bodylog-listener-under-test"), dir)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_that_is_away() {
    let dir = tempfile::tempdir().unwrap();
    let mut listener = Listener::start(listener(dir.path())).await;
    let (router, _engines) = recording(listener.frames, "").await;
    send(&router, 1).await;
    router
        .admin_until("/_findings", "a quiet page", |page| {
            page["findings"] == json!([])
        })
        .await;
    listener.kill().await;
    send(&router, 3).await;
    let found = named(&router, "bodylog_listener_away").await;
    let text = found["text"].as_str().unwrap();
    assert!(text.contains("the oldest record waits"), "{text}");
    assert!(text.contains("free"), "{text}");
    listener.restart().await;
    gone(&router).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_that_refuses_the_token() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "right-token").unwrap();
    let store = tempfile::tempdir().unwrap();
    let start = listener(store.path()).option("--token-file", &token.display());
    let listener = Listener::start(start).await;
    let wrong = dir.path().join("wrong");
    std::fs::write(&wrong, "wrong-token").unwrap();
    let (router, _engines) = recording(
        listener.frames,
        &format!(", token_file: {}", wrong.display()),
    )
    .await;
    send(&router, 1).await;
    let found = named(&router, "bodylog_unauthorized").await;
    assert!(!found.to_string().contains("wrong-token"), "{found}");
    std::fs::write(&wrong, "right-token").unwrap();
    gone(&router).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_whose_disk_is_full() {
    let disk = match Tmpfs::mount(8) {
        Ok(disk) => disk,
        Err(why) => return eprintln!("skipped: no small disk can be mounted: {why}"),
    };
    std::fs::create_dir(disk.path()).unwrap();
    let start = listener(&disk.path()).option("--min-free", "50%");
    disk.fill_but(1 << 20);
    let listener = Listener::start(start).await;
    let (router, _engines) = recording(listener.frames, "").await;
    let found = until_answer("a refused record", async || {
        send(&router, 1).await;
        let page = router.admin_get("/_findings").await.json();
        of_code(&page, "bodylog_disk_full")
    })
    .await;
    let text = found["text"].as_str().unwrap();
    assert!(text.contains("the oldest record waits"), "{text}");
    disk.empty();
    gone(&router).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forgotten_limit_says_how_long_it_lasts() {
    let engines = engines::<1>().await;
    let options = "ttft_limit_ms: 30000";
    let router = brief().route("r", &route(&engines, options)).start().await;
    router.admin_post("/r/_ttft_limit?ms=5000&ttl=3600").await;
    let found = named(&router, "override_in_force").await;
    let text = found["text"].as_str().unwrap();
    assert!(text.contains("5000") && text.contains("left"), "{text}");
    router.admin_post("/r/_ttft_limit?reset=1").await;
    gone(&router).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_router_that_drains() {
    let engines = engines::<1>().await;
    plant(&engines[0], &["hang"]);
    let router = brief()
        .server("drain_delay: 30s")
        .route("r", &route(&engines, ""))
        .start()
        .await;
    let mut wire = Wire::connect(router.public).await;
    wire.request("POST", PATH, &[], chat(true).as_bytes()).await;
    router
        .admin_until("/_routes", "a request in flight", |page| {
            page["routes"][0]["pools"][0]["in_flight"] == 1
        })
        .await;
    router.admin_post("/_drain").await;
    let found = named(&router, "draining").await;
    let text = found["text"].as_str().unwrap();
    assert!(
        text.contains("1 requests are in flight") && text.contains("left"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_with_reversed_peers_are_told_apart() {
    let engines = engines::<2>().await;
    let forward = route(&engines, "");
    let [one, other] = engines;
    let backward = route(&[other, one], "");
    let (a, b, c) = (
        brief().route("r", &forward).start().await,
        brief().route("r", &backward).start().await,
        brief().route("r", &forward).start().await,
    );
    let print = async |router: &Router| {
        let page = router.admin_get("/_routes").await.json();
        page["routes"][0]["fingerprint"].clone()
    };
    assert_ne!(print(&a).await, print(&b).await);
    assert_eq!(print(&a).await, print(&c).await);
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_llmctl-under-test"));
    command.arg("status").env_clear();
    for router in [&a, &b] {
        command.args(["--router", &format!("http://{}", router.admin)]);
    }
    let output = command.output().await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("the peers stand in another order"), "{text}");
}
