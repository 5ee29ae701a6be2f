//! Measures what it costs the router to poll the load of many engines.
//!
//! `cargo bench -p system-tests --bench poll [-- --peers N] [--router PROGRAM]`, release profile,
//! Linux, two cores. The router (of this build, or another program) has core 0. The engines are one
//! trivial responder on core 1, under as many loopback addresses as there are peers. The bench
//! reports the router's CPU time while it polls every peer once a second and serves no requests,
//! and compares it with the same router without polls, which only runs health checks. The floor is
//! a bare hyper client in the router's place, with a task, a timer and a kept connection for each
//! peer, which discards every page. The bench asserts nothing.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::SocketAddr;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use procfs::process::Process;
use system_tests::router::Setup;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// The default number of peers.
const PEERS: usize = 512;
/// Time for the first round of polls and the model lists.
const SETTLE: Duration = Duration::from_secs(5);
/// Duration of one measurement.
const MEASURED: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let told = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)
    };
    let peers = told("--peers").map_or(Some(PEERS), |text| text.parse().ok());
    let Some(peers) = peers.filter(|peers| (1..=50_000).contains(peers)) else {
        line(
            "usage: cargo bench -p system-tests --bench poll [-- --peers N] [--router PROGRAM], N from 1 to 50000",
        );
        return ExitCode::from(2);
    };
    // This program again, as the floor in the router's place.
    if let Some(port) = told("--floor").and_then(|text| text.parse().ok()) {
        runtime().block_on(floor_client(peers, port));
        return ExitCode::SUCCESS;
    }
    let own = std::process::id().to_string();
    let pinned = Command::new("taskset").args(["-cp", "1", &own]).output();
    if !pinned.is_ok_and(|output| output.status.success()) {
        line(
            "taskset failed: the engines share the router's core, the numbers are worse than usual",
        );
    }
    let router = told("--router").map_or(env!("CARGO_BIN_EXE_router-under-test"), String::as_str);
    runtime().block_on(run(router, peers));
    ExitCode::SUCCESS
}

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let built = builder.enable_all().build();
    built.expect("threads can be started")
}

async fn run(router: &str, peers: usize) {
    let (llama, vllm) = (llamacpp_page(), vllm_page());
    for (name, page, options) in [
        ("no polls", &llama, "load_signal: in_flight"),
        ("llama.cpp", &llama, "load_signal: engine"),
        ("vLLM", &vllm, "load_signal: engine"),
    ] {
        let engines = Engines::spawn(page).await;
        let cost = measure_router(router, peers, &engines, options).await;
        report(name, peers, page, cost);
        if options.ends_with("engine") {
            let floor = measure_floor(peers, &engines).await;
            report("  floor", peers, page, floor);
            let ratio = cost.cpu.as_secs_f64() / floor.cpu.as_secs_f64();
            line(&format!("  router ÷ floor: {ratio:.2}"));
        }
    }
}

/// The cost of a client during [`MEASURED`].
#[derive(Clone, Copy)]
struct Cost {
    cpu: Duration,
    requests: u64,
}

fn report(name: &str, peers: usize, page: &str, Cost { cpu, requests }: Cost) {
    let share = cpu.as_secs_f64() / MEASURED.as_secs_f64();
    line(&format!(
        "{name:<10} {peers} peers, page of {:>5} bytes: {:.2} % of a core, {:.1} µs a peer and second; {:.0} requests a second, {:.1} µs each",
        page.len(),
        share * 100.0,
        share * 1e6 / peers as f64,
        requests as f64 / MEASURED.as_secs_f64(),
        cpu.as_secs_f64() * 1e6 / requests.max(1) as f64,
    ));
}

/// The address of the `n`th engine.
fn address(n: usize, port: u16) -> String {
    let (high, low) = (n / 250 + 1, n % 250 + 1);
    format!("127.0.{high}.{low}:{port}")
}

/// Measures a router with these peers.
async fn measure_router(program: &str, peers: usize, engines: &Engines, options: &str) -> Cost {
    let mut route = format!("{options}\npin_model: false\npeers:\n");
    for n in 0..peers {
        let _ = writeln!(route, "  - {{address: '{}'}}", address(n, engines.port));
    }
    let router = Setup::new(program)
        .under("taskset", &["-c", "0"])
        .server("access_log: false")
        .env("RUST_LOG", "warn")
        .route("r", &route)
        .start()
        .await;
    measure(router.program.id(), engines).await
}

/// Measures the floor with these peers.
async fn measure_floor(peers: usize, engines: &Engines) -> Cost {
    let own = std::env::current_exe().expect("this program has a file");
    let (peers, port) = (peers.to_string(), engines.port.to_string());
    let mut client = Command::new("taskset")
        .args(["-c", "0"])
        .arg(own)
        .args(["--floor", &port, "--peers", &peers])
        .stdin(Stdio::null())
        .spawn()
        .expect("taskset is there");
    let cost = measure(client.id(), engines).await;
    let ended = client.kill().and_then(|()| client.wait());
    ended.expect("our child can be ended");
    cost
}

/// Measures a child process that polls these engines.
async fn measure(child: u32, engines: &Engines) -> Cost {
    tokio::time::sleep(SETTLE).await;
    let id = i32::try_from(child).expect("process ids are small");
    let process = Process::new(id).expect("our child is in /proc");
    let cpu = || {
        let stat = process.stat().expect("our child is in /proc");
        Duration::from_millis((stat.utime + stat.stime) * 1000 / procfs::ticks_per_second())
    };
    let requests = || engines.requests.load(Ordering::Relaxed);
    let (before, asked, began) = (cpu(), requests(), Instant::now());
    tokio::time::sleep(MEASURED).await;
    let (used, asked) = (cpu() - before, requests() - asked);
    let scale = MEASURED.as_secs_f64() / Instant::now().duration_since(began).as_secs_f64();
    Cost {
        cpu: used.mul_f64(scale),
        requests: (asked as f64 * scale) as u64,
    }
}

/// Polls every engine once a second until it is killed.
async fn floor_client(peers: usize, port: u16) {
    let mut polls = JoinSet::new();
    for n in 0..peers {
        polls.spawn(floor_poll(address(n, port)));
        // Spread evenly over one second.
        tokio::time::sleep(Duration::from_secs(1) / u32::try_from(peers).expect("few")).await;
    }
    while polls.join_next().await.is_some() {}
}

async fn floor_poll(address: String) {
    let stream = TcpStream::connect(&address).await;
    let stream = TokioIo::new(stream.expect("the engine listens"));
    let (mut sender, connection) = http1::handshake(stream).await.expect("no wire is needed");
    let mut driven = JoinSet::new();
    driven.spawn(connection);
    let mut pace = tokio::time::interval(Duration::from_secs(1));
    loop {
        pace.tick().await;
        let request = Request::get("/metrics").header(header::HOST, &address);
        let request = request.body(Empty::<Bytes>::new()).expect("it is valid");
        let answer = sender.send_request(request).await;
        let mut page = answer.expect("the engine answers").into_body();
        while let Some(frame) = page.frame().await {
            frame.expect("the engine sends all of it");
        }
    }
}

/// All engines at once: a responder on all loopback addresses.
struct Engines {
    port: u16,
    /// Requests answered so far.
    requests: Arc<AtomicU64>,
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
        let requests = Arc::<AtomicU64>::default();
        let answered = Arc::clone(&requests);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let pages = (metrics.clone(), other.clone());
                connections.spawn(serve(stream, pages, Arc::clone(&answered)));
                while connections.try_join_next().is_some() {}
            }
        });
        Self {
            port,
            requests,
            _tasks: tasks,
        }
    }
}

/// Answers requests without a body until the other side closes.
async fn serve(
    mut stream: TcpStream,
    (metrics, other): (Vec<u8>, Vec<u8>),
    answered: Arc<AtomicU64>,
) {
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
        answered.fetch_add(1, Ordering::Relaxed);
    }
}

fn response(media: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\ncontent-type: {media}\r\ncontent-length: {length}\r\n\r\n{body}")
        .into_bytes()
}

/// A page as long as llama.cpp's own.
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

/// A page as long as vLLM's: about 600 series of histograms around the gauges that count.
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
    // If the reader has gone, nobody needs the numbers.
    let _ = writeln!(out, "{text}");
}
