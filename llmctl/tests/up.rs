//! The whole stack in one process, as a newcomer meets it.

#![expect(
    clippy::unwrap_used,
    reason = "a test helper that fails has found the failure"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread::JoinHandle;

use serde_json::Value;

/// A running `llmctl up`.
struct Up {
    child: Child,
    greeting: Value,
    /// What stdout says after the greeting.
    after: Option<JoinHandle<String>>,
}

impl Up {
    /// Starts it and waits until it says where it is.
    fn start(arguments: &[&str]) -> Self {
        let mut child = llmctl(&["up", "--port", "0", "--output", "json"])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let greeting = serde_json::from_str(&line)
            .unwrap_or_else(|_| panic!("{line:?}, then {}", rest(&mut child)));
        // Neither pipe may fill while the test runs.
        child.stdout = None;
        let after = std::thread::spawn(move || {
            let mut text = String::new();
            stdout.read_to_string(&mut text).unwrap();
            text
        });
        let mut stderr = child.stderr.take().unwrap();
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        Self {
            child,
            greeting,
            after: Some(after),
        }
    }

    fn public(&self) -> String {
        format!("http://{}", self.greeting["public"].as_str().unwrap())
    }

    fn admin(&self) -> String {
        format!("http://{}", self.greeting["admin"].as_str().unwrap())
    }

    /// Runs a command against it.
    fn ask(&self, arguments: &[&str]) -> Value {
        let ended = llmctl(arguments)
            .args(["--router", &self.admin(), "--output", "json"])
            .output()
            .unwrap();
        assert!(
            ended.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&ended.stderr)
        );
        serde_json::from_slice(&ended.stdout).unwrap()
    }

    /// Ctrl-C.
    fn interrupt(mut self) -> ExitStatus {
        let sent = Command::new("kill")
            .args(["-INT", &self.child.id().to_string()])
            .status()
            .unwrap();
        assert!(sent.success());
        let ended = self.child.wait().unwrap();
        let after = self.after.take().unwrap().join().unwrap();
        assert_eq!(after, "", "a program reads one line and no more");
        ended
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // Gone already when the test ended it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn rest(child: &mut Child) -> String {
    let mut text = String::new();
    let _ = child.stderr.take().unwrap().read_to_string(&mut text);
    text
}

fn llmctl(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_llmctl"));
    command
        .args(arguments)
        .stdin(Stdio::null())
        .env_remove("LLMCTL_ROUTER")
        .env_remove("LLM_ROUTER_CONFIG");
    command
}

fn run(arguments: &[&str]) -> Output {
    llmctl(arguments).output().unwrap()
}

#[test]
fn a_newcomer_sees_what_affinity_is_worth() {
    let up = Up::start(&[]);
    let report = up.ask(&[
        "replay",
        "--url",
        &up.public(),
        "--sessions",
        "6",
        "--turns",
        "4",
    ]);
    let hit_rate = |arm: usize| report["arms"][arm]["hit_rate"].as_f64().unwrap();
    assert_eq!(
        (
            &report["arms"][0]["affinity"],
            &report["arms"][1]["affinity"]
        ),
        (&true.into(), &false.into())
    );
    assert_eq!(report["arms"][0]["requests"], 24);
    // By tokens, not by time: at home every turn finds all the turns before it.
    assert!(hit_rate(0) > hit_rate(1), "{report}");
    let switch = &up.ask(&["status"])[0]["status"]["routes"][0]["switches"]["affinity"];
    assert_eq!(
        (&switch["enabled"], &switch["source"]),
        (&true.into(), &"default".into()),
        "the switch is put back"
    );
    assert!(up.interrupt().success());
}

#[test]
fn a_live_router_explains_what_it_would_do_and_what_it_did() {
    let up = Up::start(&["--engines", "2"]);
    let foreseen = up.ask(&["route", "explain", "chat", "--session", "demo"]);
    let inspected = up.ask(&[
        "route",
        "explain",
        "chat",
        "--model",
        "sim",
        "-H",
        "x-session-id: demo",
    ]);
    assert_eq!(
        foreseen["outcome"]["send"]["peer"],
        inspected["outcome"]["send"]["peer"]
    );
    assert_eq!(inspected["source"], "header.x-session-id");
    up.ask(&[
        "replay",
        "--url",
        &up.public(),
        "--sessions",
        "1",
        "--turns",
        "1",
    ]);
    let past = up.ask(&["route", "explain", "chat", "--last"]);
    assert_eq!(
        (&past["route"], &past["status"]),
        (&"chat".into(), &200.into())
    );
    let id = past["request_id"].as_str().unwrap();
    assert_eq!(
        up.ask(&["route", "explain", "chat", "--request-id", id]),
        past
    );
    assert_eq!(up.ask(&["route", "list"])[0]["peers"], 2);
    assert_eq!(
        up.ask(&["route", "show", "chat"])["pools"][0]["peers"][1]["name"],
        "engine-2"
    );
}

#[test]
fn files_without_a_directory_of_their_own_are_gone_at_the_end() {
    let up = Up::start(&["--engines", "1"]);
    let directory = up.greeting["dir"].as_str().unwrap().to_owned();
    assert!(Path::new(&directory).join("routes/chat.yaml").is_file());
    assert!(up.interrupt().success());
    assert!(!Path::new(&directory).exists());
}

#[test]
fn files_in_a_directory_are_kept_and_used_again() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path().to_str().unwrap();
    let up = Up::start(&["--dir", dir, "--engines", "2"]);
    let peers = up.greeting["peers"].clone();
    assert!(up.interrupt().success());
    let route = directory.path().join("routes/chat.yaml");
    let edited = format!("# mine\n{}", std::fs::read_to_string(&route).unwrap());
    std::fs::write(&route, &edited).unwrap();
    let again = Up::start(&["--dir", dir]);
    assert_eq!(
        again.greeting["peers"], peers,
        "the engines are where the file says"
    );
    assert!(again.interrupt().success());
    assert_eq!(std::fs::read_to_string(&route).unwrap(), edited);
    let contradicted = run(&["up", "--dir", dir, "--port", "0", "--engines", "3"]);
    assert_eq!(
        contradicted.status.code(),
        Some(2),
        "{}",
        String::from_utf8_lossy(&contradicted.stderr)
    );
}

#[test]
fn every_exchange_is_recorded_and_counted_up_to_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path().to_str().unwrap();
    let up = Up::start(&["--engines", "1", "--dir", dir]);
    let records = up.greeting["records"].as_str().unwrap().to_owned();
    let page = get(up.greeting["exporter"].as_str().unwrap());
    assert!(page.contains("bodylog_exporter_build_info{"), "{page}");
    let url = up.public();
    let report = up.ask(&["replay", "--url", &url, "--sessions", "1", "--turns", "2"]);
    assert!(up.interrupt().success());
    let logs = run(&["logs", "--dir", &records, "--output", "json"]);
    let text = String::from_utf8(logs.stdout).unwrap();
    let chats = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|record| record["uri"] == "/v1/chat/completions" && record["status"] == 200);
    let asked = [0, 1].map(|arm| report["arms"][arm]["requests"].as_u64().unwrap());
    assert_eq!(chats.count() as u64, asked.iter().sum::<u64>(), "{text}");
    // What was recorded last was counted as well: the page of the next run begins with it.
    let again = Up::start(&["--dir", dir]);
    let page = get(again.greeting["exporter"].as_str().unwrap());
    let counted = |family: &str| {
        let lines = page.lines().filter(|line| line.starts_with(family));
        let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        values.sum::<f64>() as u64
    };
    let requests = counted("bodylog_requests_total{");
    assert_eq!(requests, text.lines().count() as u64, "{page}");
    // The operator's sums are those of the counters.
    let usage = run(&[
        "usage",
        "--dir",
        &records,
        "--by",
        "owner,day",
        "--output",
        "json",
    ]);
    let usage: Value = serde_json::from_slice(&usage.stdout).unwrap();
    for (sum, family) in [
        ("requests", "bodylog_requests_total{"),
        ("prompt_tokens", "bodylog_prompt_tokens_total{"),
        ("cached_tokens", "bodylog_cached_tokens_total{"),
        ("generated_tokens", "bodylog_completion_tokens_total{"),
    ] {
        assert_eq!(usage["total"][sum], counted(family), "{sum}: {page}");
        assert_ne!(usage["total"][sum], 0, "{sum}");
    }
}

/// What `GET` answers, head and body.
fn get(url: &str) -> String {
    let rest = url.strip_prefix("http://").unwrap();
    let (address, path) = rest.split_once('/').unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /{path} HTTP/1.0\r\nhost: {address}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_real_engine_can_stand_behind_it() {
    let front = Up::start(&["--engines", "1"]);
    let backend = front.greeting["peers"][0].as_str().unwrap().to_owned();
    let up = Up::start(&["--backend", &backend]);
    assert_eq!(
        (&up.greeting["simulated"], &up.greeting["model"]),
        (&false.into(), &"sim".into())
    );
    let report = up.ask(&[
        "replay",
        "--url",
        &up.public(),
        "--sessions",
        "1",
        "--turns",
        "2",
    ]);
    assert_eq!(report["arms"][1]["requests"], 2);
}

#[test]
fn a_load_is_measured_repeated_from_its_records_and_compared() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path().to_str().unwrap();
    let up = Up::start(&["--engines", "2", "--dir", dir]);
    let url = format!("{}/{}", up.public(), up.greeting["route"].as_str().unwrap());
    let records = up.greeting["records"].as_str().unwrap().to_owned();
    let file = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let common = [
        "--requests",
        "12",
        "--output-tokens",
        "4",
        "--output",
        "json",
    ];
    let closed = run(&[
        ["bench", &url, "--concurrency", "3", "--turns", "4"].as_slice(),
        ["--report", &file("closed.json")].as_slice(),
        common.as_slice(),
    ]
    .concat());
    let closed: Value = serde_json::from_slice(&closed.stdout).unwrap();
    assert_eq!(closed["requests"]["ok"], 12, "{closed}");
    assert_eq!(closed["tokens"]["output"], 12 * 4, "{closed}");
    assert_eq!(closed["ttft_ms"]["count"], 12, "{closed}");
    assert_eq!(closed["inter_token_ms"]["count"], 12 * 3, "{closed}");
    assert_eq!(closed["turns"].as_array().unwrap().len(), 4, "{closed}");
    // A later turn finds the earlier ones in the cache of its engine.
    let hits = |turn: usize| closed["turns"][turn]["hit_rate"].as_f64().unwrap();
    assert!(hits(3) > 0.7 && hits(3) > hits(0), "{closed}");

    let open = run(&[
        ["bench", &url, "--api", "anthropic", "--rate", "200"].as_slice(),
        ["--arrivals", "burst:4", "--turns", "1"].as_slice(),
        common.as_slice(),
    ]
    .concat());
    let open: Value = serde_json::from_slice(&open.stdout).unwrap();
    let all =
        open["requests"]["ok"].as_u64().unwrap() + open["requests"]["failed"].as_u64().unwrap();
    assert_eq!(all, 12, "{open}");

    let again = run(&[
        "bench",
        &url,
        "--from-records",
        &records,
        "--speed",
        "50",
        "--report",
        &file("again.json"),
        "--output",
        "json",
    ]);
    let again: Value = serde_json::from_slice(&again.stdout).unwrap();
    let sent =
        again["requests"]["ok"].as_u64().unwrap() + again["requests"]["failed"].as_u64().unwrap();
    // As many of the 24 as were on disk by then.
    assert!((1..=24).contains(&sent), "{again}");
    let compared = run(&[
        "bench",
        "--compare",
        &file("closed.json"),
        &file("again.json"),
        "--output",
        "json",
    ]);
    let compared: Value = serde_json::from_slice(&compared.stdout).unwrap();
    assert_eq!(compared["figures"][0]["name"], "ttft_ms.p50");
    assert_eq!(
        compared["before"]["load"],
        "closed, 3 conversations at once"
    );
}

#[test]
fn a_load_names_what_it_could_not_reach_and_what_was_refused() {
    let nowhere = run(&["bench", "http://127.0.0.1:1", "--requests", "1"]);
    assert_eq!(nowhere.status.code(), Some(3));
    let directory = tempfile::tempdir().unwrap();
    let up = Up::start(&[
        "--engines",
        "1",
        "--dir",
        directory.path().to_str().unwrap(),
    ]);
    let url = format!("{}/nobody", up.public());
    let wrong = run(&[
        "bench",
        &url,
        "--model",
        "m",
        "--requests",
        "2",
        "--output",
        "json",
    ]);
    assert_eq!(wrong.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&wrong.stdout).unwrap();
    let errors = report["errors"].as_object().unwrap();
    assert!(
        errors.keys().eq(["401 invalid_api_key"]) && report["requests"]["failed"] == 2,
        "{report}"
    );
}

#[test]
fn a_taken_port_is_an_error() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let ended = run(&["up", "--port", &port]);
    assert_eq!(ended.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&ended.stderr).contains(&port));
}

#[test]
fn status_watches_until_nobody_reads_and_names_every_router_that_is_silent() {
    let up = Up::start(&[]);
    let mut watching = llmctl(&["status", "--watch", "--router", &up.admin()])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pages = BufReader::new(watching.stdout.take().unwrap()).lines();
    let headings = pages.map_while(Result::ok);
    let headings = headings.filter(|line| line.starts_with(&up.admin()));
    // Taking two closes the pipe: whoever reads has seen enough.
    assert_eq!(headings.take(2).count(), 2);
    assert_eq!(watching.wait().unwrap().code(), Some(0));

    let silent = ["http://127.0.0.1:1", "http://127.0.0.1:2"];
    let once = run(&[
        "status",
        "--router",
        silent[0],
        "--router",
        &up.admin(),
        "--router",
        silent[1],
    ]);
    let complaints = String::from_utf8_lossy(&once.stderr);
    assert_eq!(once.status.code(), Some(3), "{complaints}");
    assert!(
        silent.iter().all(|url| complaints.contains(url)),
        "{complaints}"
    );
}
