//! What polling the load of many engines costs the router.
//!
//! `cargo bench -p system-tests --bench poll [-- --peers N]`, release profile, Linux, two cores: the router
//! has core 0, the engines are one trivial responder on core 1, under as many loopback addresses as there
//! are peers. Reported is the router's CPU time while it polls every peer once a second and serves nobody,
//! beside the same router that polls nobody: health checks alone. Nothing is asserted.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::SocketAddr;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use procfs::process::Process;
use system_tests::router::Setup;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Peers unless told.
const PEERS: usize = 512;
/// Until the first round and the model lists are through.
const SETTLE: Duration = Duration::from_secs(5);
/// Time of one measurement.
const MEASURED: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let told = arguments.iter().position(|argument| argument == "--peers");
    let peers = told.map_or(Some(PEERS), |at| arguments.get(at + 1)?.parse().ok());
    let Some(peers) = peers.filter(|peers| (1..=50_000).contains(peers)) else {
        line("usage: cargo bench -p system-tests --bench poll [-- --peers N], N from 1 to 50000");
        return ExitCode::from(2);
    };
    let own = std::process::id().to_string();
    let pinned = Command::new("taskset").args(["-cp", "1", &own]).output();
    if !pinned.is_ok_and(|output| output.status.success()) {
        line(
            "taskset failed: the engines share the router's core, the numbers are worse than usual",
        );
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    runtime
        .expect("threads can be started")
        .block_on(run(peers));
    ExitCode::SUCCESS
}

async fn run(peers: usize) {
    let (llama, vllm) = (llamacpp_page(), vllm_page());
    for (name, page, options) in [
        ("no polls", &llama, "load_signal: in_flight"),
        ("llama.cpp", &llama, "load_signal: engine"),
        ("vLLM", &vllm, "load_signal: engine"),
    ] {
        let engines = Engines::spawn(page).await;
        let cpu = measure(peers, engines.port, options).await;
        let share = cpu.as_secs_f64() / MEASURED.as_secs_f64();
        let per_peer = share * 1e6 / peers as f64;
        line(&format!(
            "{name:<10} {peers} peers, page of {:>5} bytes: {:.2} % of a core, {per_peer:.1} µs a peer and second",
            page.len(),
            share * 100.0
        ));
    }
}

/// CPU time of a router over these peers in [`MEASURED`].
async fn measure(peers: usize, port: u16, options: &str) -> Duration {
    let mut route = format!("{options}\npin_model: false\npeers:\n");
    for n in 0..peers {
        let (high, low) = (n / 250 + 1, n % 250 + 1);
        let _ = writeln!(route, "  - {{address: '127.0.{high}.{low}:{port}'}}");
    }
    let router = Setup::new(env!("CARGO_BIN_EXE_router-under-test"))
        .under("taskset", &["-c", "0"])
        .server("access_log: false")
        .env("RUST_LOG", "warn")
        .route("r", &route)
        .start()
        .await;
    tokio::time::sleep(SETTLE).await;
    let id = i32::try_from(router.program.id()).expect("process ids are small");
    let process = Process::new(id).expect("our child is in /proc");
    let cpu = || {
        let stat = process.stat().expect("our child is in /proc");
        Duration::from_millis((stat.utime + stat.stime) * 1000 / procfs::ticks_per_second())
    };
    let (before, began) = (cpu(), Instant::now());
    tokio::time::sleep(MEASURED).await;
    let used = cpu() - before;
    used.mul_f64(MEASURED.as_secs_f64() / Instant::now().duration_since(began).as_secs_f64())
}

/// Every engine at once: it answers on all loopback addresses.
struct Engines {
    port: u16,
    _tasks: JoinSet<()>,
}

impl Engines {
    async fn spawn(page: &str) -> Self {
        let any: SocketAddr = ([0, 0, 0, 0], 0).into();
        let listener = TcpListener::bind(any).await.expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let metrics = response("text/plain; version=0.0.4", page);
        let other = response(
            "application/json",
            r#"{"object":"list","data":[],"total_slots":1}"#,
        );
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, metrics.clone(), other.clone()));
                while connections.try_join_next().is_some() {}
            }
        });
        Self {
            port,
            _tasks: tasks,
        }
    }
}

/// Answers requests without a body until the other side leaves.
async fn serve(mut stream: TcpStream, metrics: Vec<u8>, other: Vec<u8>) {
    let mut request = Vec::with_capacity(1024);
    loop {
        request.clear();
        while !request.ends_with(b"\r\n\r\n") {
            match stream.read_buf(&mut request).await {
                Ok(n) if n > 0 => {}
                _ => return,
            }
        }
        let answer = match request.starts_with(b"GET /metrics ") {
            true => &metrics,
            false => &other,
        };
        if stream.write_all(answer).await.is_err() {
            return;
        }
    }
}

fn response(media: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\ncontent-type: {media}\r\ncontent-length: {length}\r\n\r\n{body}")
        .into_bytes()
}

/// As long as llama.cpp's own.
fn llamacpp_page() -> String {
    let mut page = String::new();
    for (name, kind) in [
        ("prompt_tokens_total", "counter"),
        ("prompt_seconds_total", "counter"),
        ("tokens_predicted_total", "counter"),
        ("tokens_predicted_seconds_total", "counter"),
        ("n_decode_total", "counter"),
        ("n_tokens_max", "counter"),
        ("n_busy_slots_per_decode", "counter"),
        ("prompt_tokens_seconds", "gauge"),
        ("predicted_tokens_seconds", "gauge"),
        ("requests_processing", "gauge"),
        ("requests_deferred", "gauge"),
    ] {
        let _ = writeln!(
            page,
            "# HELP llamacpp:{name} As the engine describes it in a sentence."
        );
        let _ = writeln!(page, "# TYPE llamacpp:{name} {kind}\nllamacpp:{name} 0");
    }
    page
}

/// As long as vLLM's: some six hundred series of histograms around the gauges that count.
fn vllm_page() -> String {
    let labels = "engine=\"0\",model_name=\"tiny\"";
    let mut page = String::new();
    for histogram in 0..25 {
        let name = format!("vllm:some_latency_{histogram}_seconds");
        let _ = writeln!(
            page,
            "# HELP {name} As the engine describes it.\n# TYPE {name} histogram"
        );
        for bound in 0..24 {
            let _ = writeln!(page, "{name}_bucket{{{labels},le=\"{bound}.0\"}} 0.0");
        }
    }
    for gauge in [
        "num_requests_running",
        "num_requests_waiting",
        "kv_cache_usage_perc",
    ] {
        let _ = writeln!(
            page,
            "# TYPE vllm:{gauge} gauge\nvllm:{gauge}{{{labels}}} 0.0"
        );
    }
    page
}

fn line(text: &str) {
    let mut out = std::io::stdout().lock();
    // A reader that has gone needs no numbers.
    let _ = writeln!(out, "{text}");
}
