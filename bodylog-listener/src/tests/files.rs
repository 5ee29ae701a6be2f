//! Tests of hours, packing and the root directory.

use std::path::Path;

use proto::frame::Frame;

use super::harness::{Home, eventually};
use crate::StartError;
use crate::stream::Output;

/// The hours of one output, as its opened files show them.
fn opened(home: &Home, output: Output) -> Vec<String> {
    let is_details = |path: &Path| path.starts_with("details");
    home.faults
        .opened()
        .iter()
        .filter(|path| is_details(path) == (output == Output::Details))
        .map(|path| path.display().to_string())
        .collect()
}

#[tokio::test]
async fn sixty_four_senders_over_midnight_leave_each_record_in_one_file() {
    const SENDERS: usize = 64;
    const FRAMES: u64 = 20;
    let home = Home::new();
    home.hands.set("2026-01-02T23:59:59.900Z");
    let listener = home.start().await;
    let mut senders = Vec::new();
    for n in 0..SENDERS {
        senders.push(listener.sender(&format!("p{n}"), 1, 1).await);
    }
    for seq in 1..=FRAMES {
        match seq {
            8 => home.hands.set("2026-01-03T00:00:00.100Z"),
            // The clock steps back: no file is reopened.
            14 => home.hands.set("2026-01-02T23:59:59.950Z"),
            _ => {}
        }
        for wire in &mut senders {
            wire.data([seq]).await;
        }
        for wire in &mut senders {
            wire.acked(seq).await;
        }
    }
    listener.stop().await;
    for (output, dir) in [(Output::Records, ""), (Output::Details, "details/")] {
        let names = [
            format!("{dir}2026-01-02/23.jsonl"),
            format!("{dir}2026-01-03/00.jsonl"),
        ];
        assert_eq!(opened(&home, output), names);
        let stored = home.stored(output);
        assert_eq!(stored.keys().cloned().collect::<Vec<_>>(), names);
        assert_eq!(stored[&names[0]].len(), 7 * SENDERS);
        let mut all: Vec<(String, u64)> = stored
            .into_values()
            .flatten()
            .map(|line| {
                (
                    line["pid"].as_str().unwrap().to_owned(),
                    line["seq"].as_u64().unwrap(),
                )
            })
            .collect();
        assert_eq!(all.len(), SENDERS * FRAMES as usize);
        all.sort();
        all.dedup();
        assert_eq!(all.len(), SENDERS * FRAMES as usize);
    }
}

#[tokio::test]
async fn a_closed_hour_is_packed_after_ten_minutes_without_any_traffic() {
    let home = Home::new();
    let listener = home.start().await;
    let mut wire = listener.sender("p", 1, 1).await;
    wire.data(1..=5).await;
    wire.acked(5).await;
    listener.stop().await;
    home.hands.set("2026-01-02T11:09:59Z");
    let listener = home.start().await;
    eventually("the writers have seen the hour", async || {
        listener
            .metric(r#"bodylog_listener_files{class="records"}"#)
            .await
            == 1.0
    })
    .await;
    assert_eq!(
        home.stored(Output::Records).keys().next().unwrap(),
        "2026-01-02/10.jsonl"
    );
    listener.stop().await;
    home.hands.set("2026-01-02T11:10:01Z");
    let listener = home.start().await;
    for output in Output::ALL {
        eventually("packed", async || {
            home.files(output)
                .iter()
                .all(|path| path.extension().unwrap() == "gz")
        })
        .await;
        assert_eq!(home.seqs(output), [1, 2, 3, 4, 5]);
    }
    // Packed records are still known.
    let mut wire = listener.sender("p", 1, 1).await;
    assert_eq!(wire.durable, 5);
    wire.data([6]).await;
    wire.acked(6).await;
    assert_eq!(home.seqs(Output::Records), [1, 2, 3, 4, 5, 6]);
}

#[tokio::test]
async fn a_second_listener_on_the_same_directory_does_not_start() {
    let home = Home::new();
    let first = home.start().await;
    let error = home.try_start().await.err().expect("an error");
    assert!(matches!(error, StartError::Root(_)), "{error}");
    assert!(
        error
            .to_string()
            .contains("another bodylog-listener is at work there"),
        "{error}"
    );
    first.stop().await;
    home.start().await.stop().await;
}

#[tokio::test]
async fn a_directory_that_cannot_be_used_is_named() {
    let mut home = Home::new();
    let file = home.dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    home.config.dir = file.join("log");
    let error = home.try_start().await.err().expect("an error").to_string();
    assert!(
        error.starts_with(&format!("use {}/log for records: ", file.display())),
        "{error}"
    );
}

#[tokio::test]
async fn what_is_taken_when_the_listener_stops_is_stored_and_acknowledged() {
    let home = Home::new();
    let listener = home.start().await;
    let mut wire = listener.sender("p", 1, 1).await;
    wire.data(1..=100).await;
    // The answer to the last one shows that all earlier ones were read.
    wire.send(&Frame::Ping).await;
    let mut acked = 0;
    loop {
        match wire.next().await {
            Some(Frame::Pong) => break,
            Some(Frame::Ack(seq)) => acked = seq,
            other => panic!("{other:?}"),
        }
    }
    listener.stop().await;
    while let Some(frame) = wire.next().await {
        if let Frame::Ack(seq) = frame {
            acked = seq;
        }
    }
    assert_eq!(acked, 100);
    assert_eq!(home.seqs(Output::Records).len(), 100);
}

#[tokio::test]
async fn records_are_stored_although_somebody_removes_or_renames_the_current_file() {
    let home = Home::new();
    let listener = home.start().await;
    let mut wire = listener.sender("p", 1, 1).await;
    wire.data(1..=2).await;
    wire.acked(2).await;
    let current = home.root().join("2026-01-02/10.jsonl");
    let moved = home.dir.path().join("moved.jsonl");
    std::fs::rename(&current, &moved).unwrap();
    wire.data(3..=5).await;
    wire.acked(5).await;
    assert_eq!(home.seqs(Output::Records), [3, 4, 5]);
    let lines = std::fs::read_to_string(&moved).unwrap();
    assert_eq!(lines.lines().count(), 2, "each record is in one file");
    std::fs::remove_file(&current).unwrap();
    wire.data(6..=6).await;
    wire.acked(6).await;
    assert_eq!(home.seqs(Output::Records), [6]);
    assert_eq!(home.seqs(Output::Details), [1, 2, 3, 4, 5, 6]);
    listener
        .metric_becomes(
            r#"bodylog_listener_vanished_files_total{output="records"}"#,
            2.0,
        )
        .await;
    listener.stop().await;
    // A restart neither restores what was stored nor stores anything twice.
    let listener = home.start().await;
    let wire = listener.sender("p", 1, 1).await;
    assert_eq!(wire.durable, 6);
    listener.stop().await;
}

#[tokio::test]
async fn an_idle_listener_lets_go_of_a_file_that_was_removed() {
    let home = Home::new();
    let listener = home.start().await;
    let mut wire = listener.sender("p", 1, 1).await;
    wire.data(1..=1).await;
    wire.acked(1).await;
    std::fs::remove_file(home.root().join("2026-01-02/10.jsonl")).unwrap();
    listener
        .metric_becomes(
            r#"bodylog_listener_vanished_files_total{output="records"}"#,
            1.0,
        )
        .await;
    listener.stop().await;
}

#[tokio::test]
async fn a_fifo_named_like_an_hour_neither_stops_the_listener_nor_its_end() {
    let home = Home::new();
    let day = home.root().join("2026-01-01");
    std::fs::create_dir_all(&day).unwrap();
    let made = std::process::Command::new("mkfifo")
        .arg(day.join("09.jsonl"))
        .status();
    assert!(made.unwrap().success());
    let listener = home.start().await;
    let mut wire = listener.sender("p", 1, 1).await;
    wire.data(1..=1).await;
    wire.acked(1).await;
    assert_eq!(listener.local("/readyz").await.0, 200);
    listener.stop().await;
}
