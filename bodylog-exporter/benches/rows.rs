//! How fast rows are read and counted, on one thread: `cargo bench -p bodylog-exporter`.
//!
//! Writes an hour of rows to a temporary directory, lets an exporter catch up from nothing, commits
//! included, and prints bytes per second. `ROWS` sets how many.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::sync::Arc;
use std::time::Duration;

use bodylog_exporter::checkpoint::Store;
use bodylog_exporter::epoch::{ColdStart, Pipeline};
use bodylog_exporter::now::Now;
use bodylog_exporter::shared::Shared;
use bodylog_exporter::tail::Where;

const ROWS: u64 = 1_000_000;

/// Rows as a fleet makes them: 8 routes of 12 peers, prompts from short to long.
fn write_rows(to: impl Write, rows: u64) -> std::io::Result<()> {
    let mut to = BufWriter::new(to);
    for seq in 1..=rows {
        let (route, peer) = (seq % 8, seq / 8 % 12);
        let prompt = 50 + seq * 7919 % 60_000;
        let completion = 5 + seq * 104_729 % 900;
        let rt = 0.2 + (seq * 15_485_863 % 30_000) as f64 / 1000.0;
        let frt = rt * 0.1;
        let lct = rt - 0.001;
        writeln!(
            to,
            r#"{{"v":2,"ts":"2026-01-02T10:11:12.345Z","ts_end":"2026-01-02T10:11:42.345Z","request_id":"{seq:032x}","pid":"7a1c0c58-0f6e-4a86-9d0c-5f3a6f0c1b11","epoch":3,"seq":{seq},"source_addr":"10.0.0.7","method":"POST","uri":"/v1/chat/completions","route":"route-{route}","tenant":"team-{}","model_req":"some-model","model":"some-model","stream":true,"status":200,"peer":"10.0.{route}.{peer}:8000","peer_name":"gpu-{peer}","backend":"10.0.{route}.{peer}:8000","attempts":1,"mode":"hash","session_src":"header.x-session-id","finish_reason":"stop","complete":true,"frt":{frt:.3},"lct":{lct:.3},"rt":{rt:.3},"upstream_connect_t":0.001,"queue_t":0.0,"chunk_count":{completion},"req_bytes":{},"resp_bytes":{},"prompt_tokens":{prompt},"completion_tokens":{completion},"cached_tokens":{},"total_tokens":{},"reasoning_tokens":0}}"#,
            seq % 40,
            prompt * 4,
            completion * 180,
            prompt / 2,
            prompt + completion,
        )?;
    }
    to.flush()
}

/// What this thread ran, however busy the machine is with others.
fn cpu_seconds() -> f64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ran = text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok());
    ran.unwrap_or(f64::NAN) / 1e9
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rows = std::env::var("ROWS").map_or(Ok(ROWS), |text| text.parse())?;
    let dir = tempfile::tempdir()?;
    let day = dir.path().join("details/2026-01-02");
    fs::create_dir_all(&day)?;
    let file = day.join("10.jsonl");
    write_rows(File::create(&file)?, rows)?;
    let bytes = fs::metadata(&file)?.len();
    // Once before, so that the disk has no part in it.
    std::hint::black_box(fs::read(&file)?.len());

    let store = Store::open(dir.path().join("exporter.checkpoint"))?;
    let shared = Arc::new(Shared::default());
    let mut pipeline = Pipeline::open(
        Where::rows(dir.path()),
        store,
        ColdStart::Start,
        Duration::from_secs(2),
        Arc::clone(&shared),
        Now::read(),
    )?;
    let (began, cpu_before) = (Now::read().instant, cpu_seconds());
    let mut epochs = 1;
    while pipeline.epoch(Now::read())? {
        epochs += 1;
    }
    let took = Now::read().instant.duration_since(began).as_secs_f64();
    let cpu = cpu_seconds() - cpu_before;
    let counted = shared.committed().map_or(0, |c| c.view.own.lines);
    let megabytes = bytes as f64 / 1e6;
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{counted} rows, {megabytes:.0} MB, {epochs} epochs: {took:.2} s of time, {:.0} MB/s; {cpu:.2} s of one core, {:.0} MB/s, {:.0} rows/s",
        megabytes / took,
        megabytes / cpu,
        counted as f64 / cpu,
    )?;
    Ok(())
}
