//! What a poller requests from an engine that lacks some pages.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::*;

/// An engine defined by its pages: its answer to each path, which a test may change, and a count of
/// the requests.
#[derive(Clone, Default)]
struct Pages {
    answers: Arc<Mutex<HashMap<&'static str, String>>>,
    asked: Arc<Mutex<HashMap<String, usize>>>,
}

impl Pages {
    fn of(pages: &[(&'static str, &str)]) -> Self {
        let this = Self::default();
        for (path, answer) in pages {
            this.say(path, answer);
        }
        this
    }

    fn say(&self, path: &'static str, answer: &str) {
        self.answers.lock().insert(path, answer.to_owned());
    }

    fn asked(&self, path: &str) -> usize {
        self.asked.lock().get(path).copied().unwrap_or(0)
    }

    fn answer(&self, head: &[u8]) -> String {
        let head = std::str::from_utf8(head).unwrap();
        let path = head.split(' ').nth(1).unwrap();
        *self.asked.lock().entry(path.to_owned()).or_default() += 1;
        let answers = self.answers.lock();
        let answer = answers.get(path).cloned();
        answer.unwrap_or_else(|| staying("404 Not Found", "no such page"))
    }
}

struct Engine {
    pages: Pages,
    address: String,
    _serving: JoinSet<()>,
}

impl Engine {
    async fn spawn(pages: &[(&'static str, &str)]) -> Self {
        let pages = Pages::of(pages);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut serving = JoinSet::new();
        let said = pages.clone();
        serving.spawn(async move {
            let mut all = JoinSet::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let pages = said.clone();
                all.spawn(async move {
                    let mut head = Vec::new();
                    while let Ok(byte) = stream.read_u8().await {
                        head.push(byte);
                        if head.ends_with(b"\r\n\r\n") {
                            let answer = pages.answer(&head);
                            head.clear();
                            // The router may have closed the connection.
                            let _ = stream.write_all(answer.as_bytes()).await;
                        }
                    }
                });
            }
        });
        Self {
            pages,
            address,
            _serving: serving,
        }
    }

    /// The peer for this engine. Its number of slots has to be learned.
    fn route(&self, peer: &str, more: &str) -> String {
        format!(
            "peers: [{{address: '{}', max_concurrency: auto{peer}}}]\nhealth_check_interval: 1h\n{more}",
            self.address
        )
    }

    fn key(&self) -> PeerKey {
        PeerKey::new(self.address.as_str())
    }

    async fn until_polled(&self, stage: &Stage, path: &str, times: usize) {
        let wanted = self.pages.asked(path) + times;
        let what = format!("{path} asked for");
        stage
            .until(&what, |_| self.pages.asked(path) >= wanted)
            .await;
    }

    fn learned(&self, stage: &Stage) -> Option<u32> {
        stage.route().known_load(&self.key()).unwrap().learned
    }

    fn busy(&self, stage: &Stage) -> Option<u32> {
        let known = stage.route().known_load(&self.key()).unwrap();
        let (sample, _) = known.reading.sample(Instant::now().into_std())?;
        Some(sample.busy())
    }
}

const METRICS: &str = "llamacpp:requests_processing 1\n";
const SLOTS: &str = r#"[{"id":0,"is_processing":true},{"id":1,"is_processing":false}]"#;
const NOT_SUPPORTED: &str = r#"{"error":{"code":501,"type":"not_supported_error"}}"#;

/// A load page of a process that was started at this time.
fn started(at: u32) -> String {
    let length = METRICS.len();
    format!(
        "HTTP/1.1 200 OK\r\nprocess-start-time-unix: {at}\r\ncontent-length: {length}\r\n\r\n{METRICS}"
    )
}

#[tokio::test]
async fn props_that_an_engine_does_not_have_are_not_asked_for_at_every_poll() {
    for missing in ["404 Not Found", "501 Not Implemented"] {
        let engine = Engine::spawn(&[
            ("/metrics", &started(7)),
            ("/props", &staying(missing, NOT_SUPPORTED)),
        ])
        .await;
        let stage = Stage::start(&[("chat", &engine.route("", POLLED))]);
        engine.until_polled(&stage, "/metrics", 20).await;
        assert_eq!(engine.pages.asked("/props"), 1, "{missing}");
        // The new process may run with other options.
        engine
            .pages
            .say("/props", &staying("200 OK", r#"{"total_slots":4}"#));
        engine.pages.say("/metrics", &started(8));
        stage
            .until("learned", |stage| engine.learned(stage) == Some(4))
            .await;
        assert_eq!(engine.pages.asked("/props"), 2, "{missing}");
        stage.end().await;
    }
}

#[tokio::test]
async fn slots_are_learned_from_whichever_page_an_engine_without_metrics_has() {
    let not_supported = staying("501 Not Implemented", NOT_SUPPORTED);
    let (slots, props) = (
        staying("200 OK", SLOTS),
        staying("200 OK", r#"{"total_slots":2}"#),
    );
    let missing = staying("404 Not Found", "");
    for (metrics, slots, props, busy) in [
        (&not_supported, &slots, &missing, Some(1)),
        (&not_supported, &slots, &props, Some(1)),
        (&not_supported, &not_supported, &props, None),
        (&missing, &slots, &props, Some(1)),
        (&missing, &missing, &props, None),
    ] {
        let engine = Engine::spawn(&[
            ("/metrics", metrics),
            ("/slots", slots),
            ("/props", props),
            ("/health", &staying("200 OK", "")),
        ])
        .await;
        let stage = Stage::start(&[("chat", &engine.route("", POLLED))]);
        stage
            .until("learned", |stage| engine.learned(stage) == Some(2))
            .await;
        stage
            .until("sampled", |stage| engine.busy(stage) == busy)
            .await;
        let facts = &stage.route().peer_facts(router_core::book::PoolId(0))[0];
        assert_eq!(facts.slots, 2);
        stage.end().await;
    }
}

#[tokio::test]
async fn an_engine_of_another_kind_is_asked_once_for_what_only_llama_cpp_has() {
    let engine = Engine::spawn(&[("/health", &staying("200 OK", ""))]).await;
    let stage = Stage::start(&[("chat", &engine.route("", POLLED))]);
    engine.until_polled(&stage, "/health", 20).await;
    let asked = ["/metrics", "/props", "/slots"].map(|path| engine.pages.asked(path));
    assert_eq!(asked, [1, 1, 0]);
    stage.end().await;
    let stage = Stage::start(&[("chat", &engine.route(", engine: vllm", POLLED))]);
    engine.until_polled(&stage, "/health", 20).await;
    assert_eq!(engine.pages.asked("/props"), 1, "it cannot be llama.cpp");
    stage.end().await;
}

#[tokio::test]
async fn an_engine_that_sleeps_is_not_woken_by_a_look_at_its_slots() {
    let engine = Engine::spawn(&[
        ("/metrics", &staying("501 Not Implemented", NOT_SUPPORTED)),
        ("/props", &staying("200 OK", r#"{"is_sleeping":true}"#)),
        ("/slots", &staying("200 OK", SLOTS)),
        ("/health", &staying("200 OK", "")),
    ])
    .await;
    let stage = Stage::start(&[("chat", &engine.route("", POLLED))]);
    engine.until_polled(&stage, "/metrics", 20).await;
    assert_eq!(engine.pages.asked("/slots"), 0);
    stage.end().await;
}

#[tokio::test]
async fn an_engine_that_woke_up_for_others_is_seen_at_work() {
    let idle = staying("200 OK", "llamacpp:requests_processing 0\n");
    let engine = Engine::spawn(&[
        ("/metrics", &idle),
        ("/props", &staying("200 OK", r#"{"is_sleeping":true}"#)),
    ])
    .await;
    let stage = Stage::start(&[("chat", &engine.route("", POLLED))]);
    engine.until_polled(&stage, "/metrics", 3).await;
    assert_eq!(engine.busy(&stage), Some(0));
    engine.pages.say("/metrics", &staying("200 OK", METRICS));
    stage
        .until("seen", |stage| engine.busy(stage) == Some(1))
        .await;
    stage.end().await;
}

#[tokio::test]
async fn a_reload_with_a_shorter_interval_does_not_wait_out_the_old_one() {
    let engine = Engine::spawn(&[("/metrics", &staying("200 OK", METRICS))]).await;
    let polled = |every: &str| {
        let more = format!("load_signal: engine\npoll_interval: {every}\n");
        engine.route("", &more)
    };
    let mut stage = Stage::start(&[("chat", &polled("1h"))]);
    engine.until_polled(&stage, "/metrics", 1).await;
    stage.replace(&[("chat", &polled("10ms"))]);
    engine.until_polled(&stage, "/metrics", 3).await;
    stage.end().await;
}
