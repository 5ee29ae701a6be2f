//! The scenarios to count.

use std::path::Path;

use rustix::process::Signal;
use system_tests::bodylog::{Listener, Start};
use system_tests::router::Setup;
use system_tests::wire::{End, Wire, encode};

use crate::engine::{self, CHUNKS, Engine};
use crate::prompt;

const KEY: &str = "sk-bench";

/// The number of requests in a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requests(pub(crate) usize);

impl Requests {
    /// Enough for every table and pool to reach its size.
    pub(crate) const FEW: Self = Self(40);
    pub(crate) const MANY: Self = Self(140);
}

/// One kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scenario {
    /// A request of 1 KiB, answered by a small JSON document.
    Small,
    /// A request of 32 KiB of text with escapes, answered the same way.
    Large,
    /// A request of 1 MiB of such text. Its body arrives in several reads.
    Huge,
    /// A stream of 64 chunks, each sent after the client has the previous one.
    Steps,
    /// A stream of 64 chunks that the engine sends in one write.
    Burst,
    /// A request that the route refuses, because its only peer is full.
    Refusal,
    /// A request of 1 KiB; the exchange is also sent to a body log listener.
    Recorded,
}

impl Scenario {
    pub(crate) const ALL: [Self; 7] = [
        Self::Small,
        Self::Large,
        Self::Huge,
        Self::Steps,
        Self::Burst,
        Self::Refusal,
        Self::Recorded,
    ];

    /// The name of the scenario in the record.
    pub(crate) fn id(self) -> &'static str {
        match self {
            Self::Small => "1k",
            Self::Large => "32k",
            Self::Huge => "1m",
            Self::Steps => "stream-64",
            Self::Burst => "burst-64",
            Self::Refusal => "refusal",
            Self::Recorded => "recorded",
        }
    }

    fn request(self, route: &str, session: usize) -> Vec<u8> {
        let size = match self {
            Self::Large => 32 << 10,
            Self::Huge => 1 << 20,
            _ => 1 << 10,
        };
        let kind = match self {
            Self::Steps | Self::Refusal => "steps",
            Self::Burst => "burst",
            _ => "reply",
        };
        let bearer = format!("Bearer {KEY}");
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
            ("accept", "application/json"),
            ("user-agent", "OpenAI/Python 3.57.0"),
            ("x-bench", kind),
        ];
        let body = prompt::chat(session, size);
        let path = format!("/{route}/v1/chat/completions");
        encode("POST", &path, &headers, body.as_bytes())
    }
}

/// Runs the router under callgrind, which writes its counts to `out`.
pub(crate) async fn drive(scenario: Scenario, requests: Requests, router: &Path, out: &Path) {
    let engine = engine::spawn().await;
    let peer = format!("address: '{}'", engine.address);
    let out = format!("--callgrind-out-file={}", out.display());
    let mut setup = Setup::new(&router.to_string_lossy())
        .under("valgrind", &["--tool=callgrind", "--quiet", &out])
        .env("TOKIO_WORKER_THREADS", "1")
        .env("RUST_LOG", "warn")
        .server("access_log: false")
        .keys(&format!("{KEY}:bench\n"))
        .route("r", &format!("peers: [{{{peer}, max_concurrency: 64}}]"))
        .route("full", &format!("peers: [{{{peer}, max_concurrency: 1}}]"));
    let store = tempfile::tempdir().expect("a temporary directory");
    let mut listener = None;
    if scenario == Scenario::Recorded {
        let program = env!("CARGO_BIN_EXE_bodylog-listener-under-test");
        let started = Listener::start(Start::new(program, store.path())).await;
        setup = setup.main(&format!("bodylog: {{listener: \"{}\"}}", started.frames));
        listener = Some(started);
    }
    let mut router = setup.start().await;
    let mut wire = Wire::connect(router.public).await;
    if scenario == Scenario::Refusal {
        let mut first = Wire::connect(router.public).await;
        first.send(Scenario::Steps.request("full", 0)).await;
        assert_eq!(first.head("POST").await.status, 200);
        for session in 0..requests.0 {
            wire.send(scenario.request("full", session)).await;
            assert_eq!(wire.reply("POST").await.status, 429);
        }
        finish(&engine, &mut first).await;
    } else {
        for session in 0..requests.0 {
            wire.send(scenario.request("r", session)).await;
            answered(scenario, &engine, &mut wire).await;
        }
    }
    router.program.signal(Signal::TERM);
    router.program.exited().await;
    drop(listener);
}

async fn answered(scenario: Scenario, engine: &Engine, wire: &mut Wire) {
    assert_eq!(wire.head("POST").await.status, 200);
    if scenario == Scenario::Steps {
        finish(engine, wire).await;
    } else {
        assert_eq!(wire.body().await.1, End::Clean);
    }
}

/// Reads a stream step by step, to its end.
async fn finish(engine: &Engine, wire: &mut Wire) {
    for _ in 0..CHUNKS {
        assert!(wire.piece().await.is_ok(), "a chunk is missing");
        engine.steps.add_permits(1);
    }
    assert_eq!(wire.piece().await, Err(End::Clean));
}
