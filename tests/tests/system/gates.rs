//! The load gates through the real program. Each gate closes, lets probes through and opens again.
//! Also tests the master switch, temporary limits, the precedence of warm sessions, and a storm
//! that is counted to the last request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use system_tests::peer::{COMPLETION, Exchange, Gate, Peer};
use system_tests::router::Router;
use system_tests::wait::until_answer;
use system_tests::wire::{Reply, Wire, call};
use tokio::task::JoinSet;

use crate::common::{CHAT, CHAT_PATH, CHAT_STREAM, over, setup};

/// Fast measuring: the average is that of the last window, and windows are short.
const QUICK: &str = "
ttft_window: 100ms
ttft_ewma_alpha: 1
ttft_ttl: 1m
tps_window: 100ms
tps_ewma_alpha: 1
tps_ttl: 1m
tps_min_tokens: 1
tps_min_decode_s: 0.01
";

/// The current behaviour of a test's engine: a delay before its first token, and the number of
/// tokens it reports.
#[derive(Default)]
struct Mood {
    delay_ms: AtomicUsize,
    tokens: AtomicUsize,
}

impl Mood {
    fn set(&self, delay_ms: usize, tokens: usize) {
        self.delay_ms.store(delay_ms, Ordering::SeqCst);
        self.tokens.store(tokens, Ordering::SeqCst);
    }

    /// One streamed chat completion.
    async fn answer(&self, mut exchange: Exchange) -> Exchange {
        let delay = self.delay_ms.load(Ordering::SeqCst) as u64;
        tokio::time::sleep(Duration::from_millis(delay)).await;
        exchange.open_stream().await;
        exchange
            .chunk("data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n")
            .await;
        // Some time, so that a rate can be computed.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let tokens = self.tokens.load(Ordering::SeqCst);
        let usage = format!(
            "data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":3,\"completion_tokens\":{tokens},\"total_tokens\":9}}}}\n\n"
        );
        exchange.chunk(usage).await;
        exchange.chunk("data: [DONE]\n\n").await;
        exchange.end_chunks().await;
        exchange
    }
}

/// An engine with this mood.
async fn moody(mood: &Arc<Mood>) -> Peer {
    let mood = Arc::clone(mood);
    Peer::spawn(move |_, exchange| {
        let mood = Arc::clone(&mood);
        async move { mood.answer(exchange).await }
    })
    .await
}

async fn stream(router: &Router) -> Reply {
    router.post(CHAT_PATH, CHAT_STREAM).await
}

/// Sends streams until one is refused, and returns the refusal. `refused` counts it.
async fn until_refused(router: &Router, refused: &AtomicUsize) -> Reply {
    until_answer("a refusal", async || {
        let reply = stream(router).await;
        (reply.status == 429).then(|| {
            refused.fetch_add(1, Ordering::SeqCst);
            reply
        })
    })
    .await
}

/// Sends streams until the gate is open again. The stream that found the gate closed took a probe
/// slot.
async fn until_open(router: &Router, signal: &str, refused: &AtomicUsize) {
    until_answer("the gate to open", async || {
        if stream(router).await.status == 429 {
            refused.fetch_add(1, Ordering::SeqCst);
        }
        let status = router
            .admin_get(&format!("/r/_{signal}_status"))
            .await
            .json();
        (status["metrics"][0]["tripped"] == json!(false)).then_some(())
    })
    .await;
}

/// The sum of a metric's samples that carry every label.
async fn metric(router: &Router, name: &str, labels: &[&str]) -> f64 {
    let page = router.admin_get("/metrics").await.text();
    let of_name = page
        .lines()
        .filter(|line| line.starts_with(&format!("{name}{{")));
    let carrying = of_name.filter(|line| labels.iter().all(|label| line.contains(label)));
    carrying
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

async fn refusals(router: &Router) -> Value {
    router.admin_get("/r/_429_status").await.json()["by_reason"].clone()
}

/// Checks the members of every refusal for slowness.
fn assert_explains_itself(reply: &Reply, signal: &str) {
    let error = &reply.json()["error"];
    assert_eq!(error["code"], format!("{signal}_limit"), "{error}");
    for number in [
        "ewma",
        "threshold",
        "admits_at",
        "probes_used",
        "probes_left",
        "probe_window_left_s",
        &format!("{signal}_ewma"),
        &format!("{signal}_limit"),
    ] {
        assert!(error[number].is_number(), "{number} in {error}");
    }
    assert_eq!(
        (&error["metric"], &error["route"]),
        (&json!("p80"), &json!("r")),
        "{error}"
    );
    let seconds: u64 = reply.header("retry-after").parse().unwrap();
    assert!((1..=60).contains(&seconds), "{seconds}");
    assert_eq!(reply.header("retry-after-ms"), (seconds * 1000).to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_first_token_closes_the_gate_and_probes_open_it_again() {
    let mood = Arc::new(Mood::default());
    // Slower than the limit but faster than the probe window, so that a second stream in a window
    // finds the slot taken.
    mood.set(500, 5);
    let peer = moody(&mood).await;
    let options =
        format!("{QUICK}ttft_limit_ms: 400\nttft_probe_window: 2s\nttft_probe_per_window: 1");
    let router = over(&[&peer], &options).start().await;
    let refused = AtomicUsize::new(0);
    let reply = until_refused(&router, &refused).await;
    assert_explains_itself(&reply, "ttft");
    let served = peer.requests().len();
    mood.set(0, 5);
    until_open(&router, "ttft", &refused).await;
    assert!(
        peer.requests().len() > served,
        "only a probe can have opened it"
    );
    let counted = refused.load(Ordering::SeqCst);
    assert_eq!(
        refusals(&router).await,
        json!({"concurrency": 0, "ttft": counted, "tps": 0, "rule": 0})
    );
    let series = metric(&router, "llm_router_refusals_total", &["gate=\"ttft\""]).await;
    assert_eq!(series as usize, counted);
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_tokens_close_the_gate_and_probes_open_it_again() {
    let mood = Arc::new(Mood::default());
    // At most 20 tokens a second, however loaded the machine is.
    mood.set(0, 1);
    let peer = moody(&mood).await;
    let options =
        format!("{QUICK}tps_limit_tps: 100\ntps_probe_window: 300ms\ntps_probe_per_window: 1");
    let router = over(&[&peer], &options).start().await;
    let refused = AtomicUsize::new(0);
    let reply = until_refused(&router, &refused).await;
    assert_explains_itself(&reply, "tps");
    // Above any limit, however slowly the tokens arrive.
    mood.set(0, 1_000_000);
    until_open(&router, "tps", &refused).await;
    assert_eq!(
        refusals(&router).await["tps"],
        json!(refused.load(Ordering::SeqCst))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_master_switch_lets_everyone_through_and_counts_what_would_have_been_refused() {
    let gate = Gate::default();
    let peer = Peer::gated(&gate).await;
    let route = format!(
        "peers: [{{address: {}, max_concurrency: 1}}]\nhealth_check_interval: 1h\nfull_status: 503\n",
        peer.address
    );
    let router = setup().route("r", &route).start().await;
    let mut clients = JoinSet::new();
    let send = |clients: &mut JoinSet<u16>| {
        let public = router.public;
        clients.spawn(async move { call(public, "POST", CHAT_PATH, &[], CHAT).await.status });
    };
    send(&mut clients);
    peer.running(1).await;
    let full = router.post(CHAT_PATH, CHAT).await;
    assert_eq!(
        (full.status, full.json()["error"]["code"].clone()),
        (503, json!("concurrency_limit"))
    );
    let off = router.admin_post("/r/_rate_limit_toggle?on=0").await.json();
    assert_eq!(
        (&off["before"], &off["after"], &off["source"]),
        (&json!(true), &json!(false), &json!("runtime"))
    );
    for running in 2..=4 {
        send(&mut clients);
        peer.running(running).await;
    }
    let status = router.admin_get("/r/_rate_limit_status").await.json();
    assert_eq!(
        status["trips"],
        json!({"concurrency": 3, "ttft": 0, "tps": 0})
    );
    assert_eq!(
        refusals(&router).await["concurrency"],
        json!(1),
        "trips are no refusals"
    );
    assert_eq!(
        metric(
            &router,
            "llm_router_rate_limit_trips_total",
            &["gate=\"concurrency\""]
        )
        .await,
        3.0
    );
    let back = router
        .admin_post("/r/_rate_limit_toggle?reset=1&reset_counters=1")
        .await
        .json();
    assert_eq!(
        (&back["after"], &back["source"]),
        (&json!(true), &json!("default"))
    );
    assert_eq!(router.post(CHAT_PATH, CHAT).await.status, 503);
    let status = router.admin_get("/r/_rate_limit_status").await.json();
    assert_eq!(status["trips"]["concurrency"], json!(0));
    gate.open(4);
    while let Some(status) = clients.join_next().await {
        assert_eq!(status.unwrap(), 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_set_for_a_while_ends_by_itself() {
    let mood = Arc::new(Mood::default());
    let peer = moody(&mood).await;
    let options = format!("{QUICK}ttft_probe_window: 1h\nttft_probe_per_window: 1");
    let router = over(&[&peer], &options).start().await;
    assert_eq!(stream(&router).await.status, 200);
    router
        .admin_until("/r/_ttft_status", "a time to first token", |status| {
            status["ewma_ms"]["_"].is_number()
        })
        .await;
    // No stream is this fast. The limit has no expiry, so only the next step can end it.
    let set = router.admin_post("/r/_ttft_limit?ms=1&ttl=0").await.json();
    assert_eq!(
        (&set["limit_ms"], &set["source"], &set["override_ttl_s"]),
        (&json!(1), &json!("runtime"), &json!(0))
    );
    let refused = AtomicUsize::new(0);
    let reply = until_refused(&router, &refused).await;
    assert_eq!(reply.json()["error"]["threshold"], json!(1));
    let active = ["switch=\"ttft-limit\""];
    assert_eq!(
        metric(&router, "llm_router_override_active", &active).await,
        1.0
    );
    router.admin_post("/r/_ttft_limit?ms=1&ttl=1").await;
    until_answer("the limit to end", async || {
        (stream(&router).await.status == 200).then_some(())
    })
    .await;
    let ended = router.admin_get("/r/_ttft_limit").await.json();
    assert_eq!(
        (ended.get("limit_ms"), &ended["source"]),
        (None, &json!("default"))
    );
    assert_eq!(
        metric(&router, "llm_router_override_active", &active).await,
        0.0
    );
}

/// The header with a session's turn.
fn turn(turn: u32) -> (&'static str, String) {
    (
        "x-phanrouter-session",
        format!(r#"{{"session_id":"s-{turn}","turn":{turn}}}"#),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn new_sessions_are_turned_away_before_warm_ones() {
    let gate = Gate::default();
    let peer = Peer::gated(&gate).await;
    let route = format!(
        "peers: [{{address: {}, max_concurrency: 10}}]\nhealth_check_interval: 1h\nsession_prio: true\n",
        peer.address
    );
    let router = setup().route("r", &route).start().await;
    let mut clients = JoinSet::new();
    let send = |clients: &mut JoinSet<u16>, of: u32| {
        let (public, (name, value)) = (router.public, turn(of));
        clients.spawn(async move {
            call(public, "POST", CHAT_PATH, &[(name, &value)], CHAT)
                .await
                .status
        });
    };
    // New sessions may use nine of ten slots: ceil(10 × 0.85).
    for running in 1..=9 {
        send(&mut clients, 1);
        peer.running(running).await;
    }
    let (name, first) = turn(1);
    let refused = router
        .post_with(
            CHAT_PATH,
            &[(name, &first), ("x-request-id", "rid-cold")],
            CHAT,
        )
        .await;
    let error = refused.json()["error"].clone();
    assert_eq!(
        (
            refused.status,
            &error["bucket"],
            &error["turn"],
            &error["ceiling"]
        ),
        (429, &json!(1), &json!(1), &json!(9))
    );
    send(&mut clients, 40);
    peer.running(10).await;
    let (name, warm) = turn(40);
    let full = router.post_with(CHAT_PATH, &[(name, &warm)], CHAT).await;
    assert_eq!(
        (full.status, &full.json()["error"]["bucket"]),
        (429, &json!(32))
    );
    gate.open(10);
    while let Some(status) = clients.join_next().await {
        assert_eq!(status.unwrap(), 200);
    }
    let table = router.admin_get("/r/_session_status").await.json()["table"].clone();
    let row = |n: usize| {
        (
            table[n]["min_turn"].clone(),
            table[n]["admitted"].clone(),
            table[n]["refused"].clone(),
        )
    };
    assert_eq!(row(0), (json!(1), json!(9), json!(1)));
    assert_eq!(row(5), (json!(32), json!(1), json!(1)));
    let by_bucket = metric(
        &router,
        "llm_router_refusals_total",
        &["gate=\"concurrency\"", "bucket=\"1\""],
    )
    .await;
    assert_eq!(by_bucket, 1.0);
    let receipts = router
        .admin_get("/r/_decisions?request_id=rid-cold")
        .await
        .json();
    let numbers = &receipts["decisions"][0]["decision"]["refuse"];
    for name in [
        "in_flight",
        "limit",
        "ceiling",
        "must_end",
        "share",
        "bucket",
        "turn",
    ] {
        assert_eq!(
            numbers[name], error[name],
            "{name}: the receipt says what the client was told"
        );
    }
}

/// The observations of an engine during the storm.
#[derive(Default)]
struct Running {
    now: AtomicUsize,
    peak: AtomicUsize,
    served: AtomicUsize,
}

/// An engine that takes a few milliseconds per request, and stops counting a request before it
/// answers.
async fn busy(running: &Arc<Running>) -> Peer {
    let running = Arc::clone(running);
    Peer::spawn(move |_, mut exchange| {
        let running = Arc::clone(&running);
        async move {
            let now = running.now.fetch_add(1, Ordering::SeqCst) + 1;
            running.peak.fetch_max(now, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(3)).await;
            running.served.fetch_add(1, Ordering::SeqCst);
            running.now.fetch_sub(1, Ordering::SeqCst);
            exchange
                .reply(200, &[("content-type", "application/json")], COMPLETION)
                .await;
            exchange
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_at_three_times_capacity_is_counted_to_the_last_request() {
    const LIMIT: usize = 16;
    const CLIENTS: usize = 3 * LIMIT;
    const EACH: usize = 10_000 / CLIENTS + 1;
    let running = Arc::new(Running::default());
    let peer = busy(&running).await;
    let route = format!(
        "peers: [{{address: {}, max_concurrency: {LIMIT}}}]\nhealth_check_interval: 1h\n",
        peer.address
    );
    let router = setup()
        .env("RUST_LOG", "info")
        .server("access_log: false")
        .route("r", &route)
        .start()
        .await;
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let public = router.public;
        clients.spawn(async move {
            let mut wire = Wire::connect(public).await;
            let (mut served, mut refused) = (0, 0);
            for _ in 0..EACH {
                wire.request("POST", CHAT_PATH, &[], CHAT.as_bytes()).await;
                match wire.reply("POST").await.status {
                    200 => served += 1,
                    429 => refused += 1,
                    status => panic!("{status}"),
                }
            }
            (served, refused)
        });
    }
    let (mut served, mut refused) = (0, 0);
    while let Some(of_one) = clients.join_next().await {
        let (yes, no) = of_one.unwrap();
        served += yes;
        refused += no;
        let now = metric(&router, "llm_router_pool_in_flight", &[]).await;
        assert!(now <= LIMIT as f64, "{now} in flight");
    }
    assert_eq!(served + refused, CLIENTS * EACH);
    assert!(
        refused > 0,
        "this was no storm: {served} served, {refused} refused"
    );
    let peak = running.peak.load(Ordering::SeqCst);
    // The refusals prove that the limit was reached. The engine may see a start after an end.
    assert!(peak <= LIMIT, "{peak} ran at once");
    assert_eq!(running.served.load(Ordering::SeqCst), served);
    assert_eq!(
        refusals(&router).await,
        json!({"concurrency": refused, "ttft": 0, "tps": 0, "rule": 0})
    );
    assert_eq!(
        metric(&router, "llm_router_refusals_total", &[]).await as usize,
        refused
    );
    until_answer("every request to be settled", async || {
        let count =
            async |code: &str| metric(&router, "llm_router_requests_total", &[code]).await as usize;
        let all = (count("code=\"200\"").await, count("code=\"429\"").await);
        (all == (served, refused)).then_some(())
    })
    .await;
    assert_eq!(metric(&router, "llm_router_in_flight", &[]).await, 0.0);
    let conns = router.admin_get("/r/_active_conns").await.json();
    assert_eq!(conns[peer.address.to_string()], json!(0));
}
