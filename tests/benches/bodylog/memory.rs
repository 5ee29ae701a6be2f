//! Memory use during a backlog.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use procfs::process::Process;
use system_tests::router::Setup;
use tokio::task::spawn_blocking;

use crate::sender::{Exchange, send};
use crate::{directory, listener, report};

/// The listener's memory budget: the smallest allowed.
const LISTENER_BUDGET: u64 = 128 << 20;
/// Concurrent senders.
const SENDERS: u64 = 4;
/// The router's memory budget: the default.
const ROUTER_BUDGET: u64 = 256 << 20;

/// The peak resident memory of a process, in MiB.
fn high_water_mib(id: u32) -> u64 {
    let id = i32::try_from(id).expect("process ids are small");
    let status = Process::new(id).and_then(|process| process.status());
    status
        .expect("our child is in /proc")
        .vmhwm
        .unwrap_or_default()
        / 1024
}

/// Sends a backlog of `gib` GiB to a listener as fast as it accepts.
pub(crate) async fn replay(gib: u64) {
    let store = directory();
    let listener = listener(store.path(), |start| {
        start.option("--memory", &format!("{}m", LISTENER_BUDGET >> 20))
    })
    .await;
    let exchange = Exchange::new(512 << 10, 512 << 10);
    let count = (gib << 30) / exchange.len() / SENDERS;
    let senders = (0..SENDERS).map(|n| {
        let (exchange, frames) = (exchange.clone(), listener.frames);
        spawn_blocking(move || send(frames, &format!("backlog-{n}"), &exchange, count))
    });
    for sender in senders.collect::<Vec<_>>() {
        sender.await.expect("it ends by itself");
    }
    report::line(&format!(
        "listener, {gib} GiB of backlog in frames of 1 MiB: {} MiB at most, budget {} MiB (promise: 100 MiB more)",
        high_water_mib(listener.id()),
        LISTENER_BUDGET >> 20
    ));
}

/// Starts a router with `gib` GiB in its spool and lets it deliver them.
pub(crate) async fn spool(gib: u64) {
    let (store, spool) = (directory(), directory());
    let listener = listener(store.path(), |start| start).await;
    let (dir, bytes) = (spool.path().to_owned(), gib << 30);
    let frames = spawn_blocking(move || fill(&dir, bytes).expect("the disk takes it"));
    let frames = frames.await.expect("it ends by itself");
    let main = format!(
        "bodylog: {{listener: \"{}\", spool: {{dir: {}, max_bytes: 64g}}}}",
        listener.frames,
        spool.path().display()
    );
    let router = Setup::new(env!("CARGO_BIN_EXE_router-under-test"))
        .env("RUST_LOG", "warn")
        .main(&main)
        .route("r", "peers: []\n")
        .start()
        .await;
    loop {
        let lines = listener.get("/stats").await.json()["outputs"]["records"]["lines"].as_u64();
        if lines >= Some(frames) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    report::line(&format!(
        "router, {gib} GiB in its spool: {} MiB at most until all was delivered, budget {} MiB",
        high_water_mib(router.program.id()),
        ROUTER_BUDGET >> 20
    ));
}

/// Fills a spool as an earlier run of a router would have left it. Returns the number of frames.
fn fill(dir: &Path, bytes: u64) -> std::io::Result<u64> {
    const SEGMENT: u64 = 60 << 20;
    std::fs::write(
        dir.join("producer.json"),
        r#"{"v":1,"producer":"0198c5f0-0000-7000-8000-00000000beef","epoch":1}"#,
    )?;
    let exchange = Exchange::new(64 << 10, 64 << 10);
    let (mut seq, mut written) = (0, 0);
    while written < bytes {
        let path = dir.join(format!("{:020}-{:020}.seg", 1, seq + 1));
        let mut segment = BufWriter::with_capacity(1 << 20, File::create(path)?);
        let mut len = 0;
        while len < SEGMENT {
            seq += 1;
            segment.write_all(&exchange.frame(seq))?;
            len += exchange.len();
        }
        segment.flush()?;
        written += len;
    }
    Ok(seq)
}
