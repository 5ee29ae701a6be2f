use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use clap::Parser;
use flate2::Compression;
use flate2::write::GzEncoder;
use parking_lot::Mutex;
use tokio_util::task::TaskTracker;

use super::*;
use crate::render::testing::capture_async;

#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    logs: LogsArgs,
}

fn args(dir: &Path, more: &[&str]) -> LogsArgs {
    let dir = dir.to_str().unwrap();
    let mut typed = vec!["logs", "--dir", dir];
    typed.extend(more);
    Cli::parse_from(typed).logs
}

fn append(dir: &Path, hour: &str, text: &str) {
    let path = dir.join(format!("2026-01-02/{hour}.jsonl"));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut file = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

fn close(dir: &Path, hour: &str) {
    let plain = dir.join(format!("2026-01-02/{hour}.jsonl"));
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&fs::read(&plain).unwrap()).unwrap();
    fs::write(plain.with_extension("jsonl.gz"), gzip.finish().unwrap()).unwrap();
    fs::remove_file(plain).unwrap();
}

/// A short conversation over three hours, the first of them closed, with a refusal, a torn line and
/// an old record in between.
fn conversation(dir: &Path) {
    append(
        dir,
        "09",
        r#"{"v":2,"ts":"2026-01-02T09:59:58.000Z","ts_end":"2026-01-02T09:59:59.500Z","request_id":"req-1","route":"chat","session_id":"s-1","status":200,"peer":"10.0.0.1:8000","peer_name":"gpu-a","mode":"hash","model":"m","first_chunk_t":0.12,"rt":1.5,"finish_reason":"stop","usage":{"prompt":7,"completion":2},"req_body":"{\"messages\":[\n\"hi\"]}","resp_body":"Hello\u001b[2J\nyou"}
"#,
    );
    close(dir, "09");
    append(
        dir,
        "10",
        r#"{"v":2,"ts":"2026-01-02T10:00:01.000Z","ts_end":"2026-01-02T10:00:01.001Z","request_id":"req-2","route":"chat","session_id":"s-2","status":429,"mode":"-","model_req":"m","rt":0.001,"reject_reason":"ttft","req_body":"","resp_body":"{}"}
{"v":2,"ts":"2026-01-02T10:00:02.0
"#,
    );
    append(
        dir,
        "11",
        r#"{"ts":"2026-01-02T19:00:03.000+08:00","request_id":"req-3","session_id":"s-1","status":503,"peer":"10.0.0.2:8000 (retry#1)","mode":"hash_fallback","rt":0.5,"resp_meta":{"model":"m1","finish_reason":"length","usage":{"input_tokens":9,"output_tokens":4}},"req_body":"/w==","req_body_b64":true,"resp_body":""}
"#,
    );
}

async fn human(dir: &Path, more: &[&str]) -> String {
    let args = args(dir, more);
    let (text, ended) = capture_async(Format::Human, async |screen| run(&args, screen).await).await;
    assert_eq!(ended.unwrap(), Ended::Fine);
    text
}

/// IDs of the printed records.
async fn ids(dir: &Path, more: &[&str]) -> Vec<String> {
    let args = args(dir, more);
    let (text, ended) = capture_async(Format::Json, async |screen| run(&args, screen).await).await;
    assert_eq!(ended.unwrap(), Ended::Fine);
    let id = |line: &str| {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        record["request_id"].as_str().unwrap().to_owned()
    };
    text.lines().map(id).collect()
}

#[tokio::test]
async fn every_hour_is_read_in_order_and_filtered() {
    let dir = tempfile::tempdir().unwrap();
    conversation(dir.path());
    for (typed, expected) in [
        (&[][..], &["req-1", "req-2", "req-3"][..]),
        (&["--session", "s-1"], &["req-1", "req-3"]),
        (&["--route", "chat"], &["req-1", "req-2"]),
        (&["--status", "429,5xx"], &["req-2", "req-3"]),
        (
            &["--since", "2026-01-02T10:00:01.001Z"],
            &["req-2", "req-3"],
        ),
        (&["--since", "2026-01-02T11:00:03.500Z"], &["req-3"]),
        (&["--since", "2026-01-02T11:00:03.501Z"], &[]),
        (&["--session", "s-1", "--status", "200"], &["req-1"]),
        (&["--session", "nobody"], &[]),
        (&["--until", "2026-01-02T10:00:01.001Z"], &["req-1"]),
        (&["--request-id", "req-2"], &["req-2"]),
        (&["--peer", "gpu-a"], &["req-1"]),
        (&["--model", "m1"], &["req-3"]),
        (&["-n", "2"], &["req-2", "req-3"]),
        (&["-n", "1", "--session", "s-1"], &["req-3"]),
    ] {
        assert_eq!(ids(dir.path(), typed).await, expected, "{typed:?}");
    }
}

#[tokio::test]
async fn a_record_is_a_line_for_people() {
    let dir = tempfile::tempdir().unwrap();
    conversation(dir.path());
    insta::assert_snapshot!("logs", human(dir.path(), &["--bodies"]).await);
}

#[tokio::test]
async fn a_screen_for_each_exchange() {
    let dir = tempfile::tempdir().unwrap();
    conversation(dir.path());
    insta::assert_snapshot!("logs_show", human(dir.path(), &["--show"]).await);
}

#[test]
fn a_line_fits_80_columns_whatever_it_holds() {
    let long = format!(
        r#"{{"ts":"2026-01-02T10:00:00Z","status":200,"route":"{0}","peer_name":"{0}","finish_reason":"{0}","first_chunk_t":12345.0,"rt":99.99,"usage":{{"prompt":123456,"completion":1}}}}"#,
        "x".repeat(50)
    );
    let text = crate::render::testing::capture_80(|screen| {
        show::head(screen);
        show::line(&Line::read(long.as_bytes()).unwrap(), screen);
    });
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    insta::assert_snapshot!(text);
}

#[tokio::test]
async fn an_old_record_without_a_time_does_not_come_first() {
    let dir = tempfile::tempdir().unwrap();
    append(
        dir.path(),
        "10",
        "{\"request_id\":\"old\"}\n{\"request_id\":\"new\",\"ts_end\":\"2026-01-02T10:59:00Z\"}\n",
    );
    let typed = ["--since", "2026-01-02T10:50:00Z"];
    assert_eq!(ids(dir.path(), &typed).await, ["new"]);
}

#[tokio::test]
async fn a_record_is_just_what_is_stored_for_programs() {
    let dir = tempfile::tempdir().unwrap();
    let stored = r#"{"v":2,"b":1.0,"a":"\u00e9","request_id":"r","usage":{"prompt":1}}"#;
    append(dir.path(), "10", &format!("{stored}\n"));
    let args = args(dir.path(), &[]);
    let (text, _) = capture_async(Format::Json, async |screen| run(&args, screen).await).await;
    assert_eq!(text, format!("{stored}\n"));
}

#[tokio::test]
async fn a_directory_that_is_not_there_is_a_failure_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let args = args(&dir.path().join("nowhere"), &[]);
    let (_, ended) = capture_async(Format::Human, async |screen| run(&args, screen).await).await;
    let failure = ended.unwrap_err();
    assert_eq!(failure.code(), 1);
    assert!(failure.to_string().contains("nowhere"), "{failure}");
}

/// Collects the output for a test that reads it while it grows.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<u8>>>);

impl Write for Seen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seen {
    async fn until(&self, text: &str) {
        let until = Instant::now() + Duration::from_secs(30);
        while !String::from_utf8_lossy(&self.0.lock()).contains(text) {
            assert!(Instant::now() < until, "no {text}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn following_goes_on_over_the_hour_and_a_closed_file() {
    let dir = tempfile::tempdir().unwrap();
    conversation(dir.path());
    let args = args(dir.path(), &["--follow", "--session", "s-1"]);
    let seen = Seen::default();
    let tasks = TaskTracker::new();
    let following = {
        let seen = seen.clone();
        tasks.spawn(async move {
            let mut screen = Screen::to(Format::Human, seen, io::sink());
            let _ = run(&args, &mut screen).await;
        })
    };
    seen.until("req-3").await;
    let record = |id: &str| format!("{{\"request_id\":\"{id}\",\"session_id\":\"s-1\"}}\n");
    let whole = record("req-4");
    let (first, second) = whole.split_at(10);
    append(dir.path(), "11", first);
    append(dir.path(), "11", second);
    seen.until("req-4").await;
    append(dir.path(), "11", &record("req-5"));
    close(dir.path(), "11");
    append(dir.path(), "12", &record("req-6"));
    seen.until("req-6").await;
    seen.until("req-5").await;
    following.abort();
}
