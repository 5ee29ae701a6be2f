//! Compares the listener with a plain writer of the same bytes: one file, one write after the
//! other, synced as often as the listener syncs.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use tokio::task::spawn_blocking;

use crate::sender::{Exchange, send};
use crate::{directory, listener, report};

/// The listener syncs after this many bytes or frames, which is half of the window that it gives a
/// sender.
const SYNCED: u64 = 4 << 20;
/// See [`SYNCED`].
const SYNCED_FRAMES: u64 = 512;
/// Concurrent senders, like replicas of a router.
const SENDERS: u64 = 2;
/// Bytes per turn.
const TURN: u64 = 384 << 20;

/// Runs the comparison and prints it.
pub(crate) async fn run(rounds: usize) {
    report::header("MB/s to disk", ["plain", "listener"]);
    // The first writer pays for pages that a virtual machine had given back.
    plain(&Exchange::new(16 << 10, 68 << 10), TURN / (64 << 10)).await;
    for (name, request, response) in [
        ("84 KiB, streamed", 16 << 10, 68 << 10),
        ("84 KiB, mostly request", 80 << 10, 4 << 10),
        ("4 KiB, streamed", 1 << 10, 2 << 10),
    ] {
        let exchange = Exchange::new(request, response);
        let count = TURN / exchange.len() / SENDERS * SENDERS;
        let mut speeds = [Vec::new(), Vec::new()];
        for round in 0..rounds {
            for at in crate::turns(round) {
                let took = match at {
                    0 => plain(&exchange, count).await,
                    _ => stored(&exchange, count).await,
                };
                speeds[at].push((count * exchange.len()) as f64 / 1e6 / took);
            }
        }
        report::ratio(name, &speeds, Some(0.6));
    }
}

async fn plain(exchange: &Exchange, count: u64) -> f64 {
    let (exchange, dir) = (exchange.clone(), directory());
    let written = spawn_blocking(move || {
        let began = Instant::now();
        write(&exchange, count, &dir.path().join("plain")).expect("the disk takes it");
        let took = Instant::now() - began;
        drop(dir);
        took.as_secs_f64()
    });
    written.await.expect("it ends by itself")
}

fn write(exchange: &Exchange, count: u64, path: &Path) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    let frame = exchange.frame(1);
    // Writes blocks, not frames, as `dd` does.
    let block = frame.repeat((256 << 10) / frame.len() + 1);
    let synced = SYNCED.min(SYNCED_FRAMES * exchange.len());
    let (mut left, mut unsynced) = (count * exchange.len(), 0);
    while left > 0 {
        let piece = left.min(block.len() as u64);
        file.write_all(&block[..piece as usize])?;
        left -= piece;
        unsynced += piece;
        if unsynced >= synced {
            file.sync_data()?;
            unsynced = 0;
        }
    }
    file.sync_data()
}

async fn stored(exchange: &Exchange, count: u64) -> f64 {
    let store = directory();
    let mut listener = listener(store.path(), |start| start).await;
    let began = Instant::now();
    let senders = (0..SENDERS).map(|n| {
        let (exchange, frames) = (exchange.clone(), listener.frames);
        spawn_blocking(move || send(frames, &format!("bench-{n}"), &exchange, count / SENDERS))
    });
    for sender in senders.collect::<Vec<_>>() {
        sender.await.expect("it ends by itself");
    }
    let took = (Instant::now() - began).as_secs_f64();
    listener.kill().await;
    took
}
