//! Changes to the files under a running exporter.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;

/// The rows of one hour, written as a listener does.
struct Hour(PathBuf);

impl Hour {
    fn of(store: &TempDir, hour: u32) -> Self {
        let day = store.path().join("details/2026-01-02");
        fs::create_dir_all(&day).unwrap();
        Self(day.join(format!("{hour:02}.jsonl")))
    }

    fn append(&self, text: &str) {
        let mut file = File::options()
            .create(true)
            .append(true)
            .open(&self.0)
            .unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    /// Replaces the file by one with this text.
    fn replace(&self, text: &str) {
        let aside = self.0.with_extension("new");
        fs::write(&aside, text).unwrap();
        fs::rename(aside, &self.0).unwrap();
    }

    fn cut_to(&self, text: &str) {
        let file = File::options().write(true).open(&self.0).unwrap();
        file.set_len(text.len() as u64).unwrap();
    }

    /// Closes it as a listener does. For a moment both files exist.
    fn pack(&self) {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(&fs::read(&self.0).unwrap()).unwrap();
        fs::write(self.0.with_extension("jsonl.gz"), packed.finish().unwrap()).unwrap();
        fs::remove_file(&self.0).unwrap();
    }
}

/// Rows with these sequences.
fn rows(seqs: std::ops::RangeInclusive<u64>) -> String {
    seqs.map(|seq| {
        let row = json!({
            "v": 2, "ts": "2026-01-02T03:00:00.000Z", "request_id": format!("r{seq}"), "pid": "p", "epoch": 1, "seq": seq,
            "route": "r", "status": 200, "backend": "10.0.0.1:8000", "model": "m", "frt": 0.1, "lct": 0.2, "rt": 0.2,
            "chunk_count": 1, "req_bytes": 1, "resp_bytes": 1, "prompt_tokens": 10, "completion_tokens": 2,
            "cached_tokens": 0, "total_tokens": 12, "reasoning_tokens": 0,
        });
        format!("{row}\n")
    })
    .collect()
}

/// How often the exporter had to start a file anew, by cause.
async fn resets(exporter: &Exporter, cause: &str) -> u64 {
    let series = format!("bodylog_exporter_file_resets_total{{cause=\"{cause}\"}}");
    sum(&exporter.page().await, &series)
}

/// Waits until the exporter has noticed. Crashes it sometimes, because the counts must survive in
/// every state.
async fn noticed(exporter: &mut Exporter, cause: &str, count: u64) {
    until_answer(&format!("{count} files {cause}"), async || {
        (resets(exporter, cause).await == count).then_some(())
    })
    .await;
    exporter.kill().await;
    exporter.restart().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_counted_once_whatever_happens_to_their_files() {
    let store = directory();
    let mut exporter = exporter(&store).await;
    let first = Hour::of(&store, 3);
    first.append(&rows(1..=50));
    // Half a row does not count yet.
    first.append(&rows(51..=51)[..40]);
    exported(&exporter, 50).await;
    first.append(&rows(51..=51)[40..]);
    exported(&exporter, 51).await;

    first.cut_to(&rows(1..=30));
    noticed(&mut exporter, "truncated", 1).await;
    first.append(&rows(31..=60));
    exported(&exporter, 60).await;

    first.replace(&rows(1..=70));
    exported(&exporter, 70).await;
    // If a file is shorter than its fingerprint, nobody can tell whether it was cut.
    first.cut_to(&rows(1..=2));
    noticed(&mut exporter, "replaced", 1).await;
    first.append(&rows(3..=75));
    exported(&exporter, 75).await;

    // The file is packed while the exporter reads it, and another hour begins.
    first.append(&rows(76..=80));
    first.pack();
    let second = Hour::of(&store, 4);
    second.append(&rows(81..=85));
    exported(&exporter, 85).await;

    // The file is packed while the exporter is down, with rows that it has not read.
    exporter.kill().await;
    second.append(&rows(86..=90));
    second.pack();
    let third = Hour::of(&store, 5);
    third.append(&rows(91..=91));
    exporter.restart().await;
    let page = exported(&exporter, 91).await;
    assert!(sum(&page, "bodylog_exporter_recovery_total") >= 1, "{page}");

    fs::remove_file(&third.0).unwrap();
    noticed(&mut exporter, "deleted", 1).await;
    third.append(&rows(92..=93));
    Hour::of(&store, 6).append(&rows(94..=95));
    let page = exported(&exporter, 95).await;
    assert_eq!(sum(&page, "bodylog_completion_tokens_total{"), 2 * 95);
    assert_eq!(sum(&page, "bodylog_rt_seconds_count{"), 95);
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_that_are_no_rows_are_counted_and_named_and_the_rest_is_read() {
    let store = directory();
    let exporter = exporter(&store).await;
    let hour = Hour::of(&store, 3);
    hour.append(&rows(1..=2));
    hour.append("this is not JSON, and sk-secret must not be in a log\n");
    hour.append("[1,2]\n\n{\"v\":3,\"status\":200}\n");
    hour.append(&format!("{{\"uri\":\"{}\"}}\n", "x".repeat(1 << 20)));
    hour.append(&rows(3..=3));
    let page = exported(&exporter, 3).await;
    for (kind, count) in [("json", 2), ("version", 1), ("too_long", 1)] {
        let series = format!("bodylog_exporter_bad_lines_total{{kind=\"{kind}\"}}");
        assert_eq!(sum(&page, &series), count, "{page}");
    }
    let log = exporter.log();
    assert!(
        log.contains("2026-01-02T03") || log.contains("2026-01-02/03"),
        "{log}"
    );
    assert!(!log.contains("sk-secret"), "{log}");
}
