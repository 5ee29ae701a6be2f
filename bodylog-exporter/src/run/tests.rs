//! Tests the whole exporter on real sockets.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use service::exposition::Format;

use super::*;

const DEADLINE: Duration = Duration::from_secs(30);

struct Running {
    url: String,
    stop: CancellationToken,
    ended: tokio::task::JoinHandle<Result<(), RunError>>,
}

async fn start(dir: &Path) -> Running {
    service::tls::install_crypto_provider();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let stop = CancellationToken::new();
    let config = Config {
        epoch: Duration::from_millis(20),
        ..Config::new(dir.to_owned())
    };
    let (ready, is_ready) = oneshot::channel();
    let tasks = TaskTracker::new();
    let ended = tasks.spawn(run(config, listener, stop.clone(), move || {
        let _ = ready.send(());
    }));
    is_ready.await.expect("it starts");
    Running { url, stop, ended }
}

impl Running {
    async fn get(&self, path: &str, accept: &str) -> (u16, String, Vec<u8>) {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let answer = client
            .get(format!("{}{path}", self.url))
            .header("accept", accept)
            .send()
            .await
            .unwrap();
        let status = answer.status().as_u16();
        let kind = answer.headers()["content-type"]
            .to_str()
            .unwrap()
            .to_owned();
        (status, kind, answer.bytes().await.unwrap().to_vec())
    }

    async fn page(&self) -> String {
        String::from_utf8(self.get("/metrics", "").await.2).unwrap()
    }

    async fn page_with(&self, sample: &str) -> String {
        let until = Instant::now() + DEADLINE;
        loop {
            let page = self.page().await;
            if page.lines().any(|line| line == sample) {
                return page;
            }
            assert!(Instant::now() < until, "no {sample:?} in\n{page}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn end(self) {
        self.stop.cancel();
        self.ended.await.unwrap().unwrap();
    }
}

fn append(dir: &Path, line: &str) {
    let day = dir.join("details/2026-01-02");
    fs::create_dir_all(&day).unwrap();
    let mut file = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(day.join("10.jsonl"))
        .unwrap();
    writeln!(file, "{line}").unwrap();
}

const ROW: &str = r#"{"v":2,"ts":"2026-01-02T10:00:00Z","route":"chat","backend":"a:1","model":"m","status":200,"stream":false,"rt":1.5}"#;

#[tokio::test(flavor = "multi_thread")]
async fn rows_become_samples_in_every_format_and_a_restart_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let first = start(dir.path()).await;
    append(dir.path(), ROW);
    let sample = |count| {
        format!(
            r#"bodylog_requests_total{{service="chat",route="chat",backend="a:1",model="m",status_class="2xx",stream="false"}} {count}"#
        )
    };
    first.page_with(&sample(1)).await;
    for (accept, format) in [
        ("text/plain;version=0.0.4", Format::Text),
        (
            "application/openmetrics-text;version=1.0.0",
            Format::OpenMetrics,
        ),
        (
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
            Format::Protobuf,
        ),
    ] {
        let (status, kind, body) = first.get("/metrics", accept).await;
        assert_eq!((status, kind.as_str()), (200, format.content_type()));
        let holds = |name: &str| body.windows(name.len()).any(|part| part == name.as_bytes());
        assert!(holds("bodylog_requests_total"), "{format:?}");
        assert!(holds("bodylog_rt_seconds"), "{format:?}");
    }
    first.end().await;

    append(dir.path(), ROW);
    let second = start(dir.path()).await;
    second.page_with(&sample(2)).await;
    second.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_epoch_is_committed_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let first = start(dir.path()).await;
    append(dir.path(), ROW);
    first.end().await;
    let second = start(dir.path()).await;
    let page = second.page().await;
    assert!(page.contains("bodylog_exporter_lines_total 1\n"), "{page}");
    second.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_and_the_checkpoint_answer() {
    let dir = tempfile::tempdir().unwrap();
    let running = start(dir.path()).await;
    append(dir.path(), ROW);
    running.page_with("bodylog_exporter_lines_total 1").await;
    assert_eq!(running.get("/healthz", "").await.2, b"OK\n");
    let (status, _, body) = running.get("/readyz", "").await;
    assert_eq!((status, &*body), (200, &br#"{"status":"ready"}"#[..]));
    let (status, _, body) = running.get("/debug/checkpoint", "").await;
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(status, 200);
    assert_eq!(body["hours"][0]["hour"], "2026-01-02T10");
    assert_eq!(body["hours"][0]["lines"], 1);
    assert_eq!(body["hours"][0]["offset"], ROW.len() + 1);
    assert_eq!(body["counters"]["cold_starts"], 1);
    let (status, _, body) = running.get("/metric", "").await;
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(status, 404);
    assert!(body["error"]["message"].is_string(), "{body}");
    running.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_exporters_of_one_checkpoint_do_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let first = start(dir.path()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let second = run(
        Config::new(dir.path().to_owned()),
        listener,
        CancellationToken::new(),
        || {},
    );
    let error = second.await.unwrap_err().to_string();
    assert!(error.contains("another exporter"), "{error}");
    first.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_is_none_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    service::tls::install_crypto_provider();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = Config {
        checkpoint: Some(dir.path().join("checkpoint")),
        ..Config::new(file.clone())
    };
    let refused = run(config, listener, CancellationToken::new(), || {}).await;
    let error = refused.unwrap_err().to_string();
    assert!(error.contains(&*file.to_string_lossy()), "{error}");
}
