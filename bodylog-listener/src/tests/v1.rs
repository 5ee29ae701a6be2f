//! Senders of version 1 never get an answer and never have to wait.

use super::harness::{Home, eventually, v1};
use crate::stream::Output;

const STORED: &str = r#"bodylog_listener_frames_total{proto="v1",result="stored"}"#;

fn ids(home: &Home) -> Vec<String> {
    let mut ids: Vec<String> = home
        .stored(Output::Records)
        .into_values()
        .flatten()
        .map(|line| line["request_id"].as_str().unwrap_or("-").to_owned())
        .collect();
    ids.sort();
    ids
}

#[tokio::test]
async fn frames_of_version_1_are_stored_and_not_answered() {
    let home = Home::new();
    let listener = home.start().await;
    let mut wire = listener.connect().await;
    for n in 1..=3 {
        wire.raw(&v1(
            &format!(r#"{{"request_id":"r{n}","status":200}}"#),
            b"data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\n",
        ))
        .await;
    }
    listener.metric_becomes(STORED, 3.0).await;
    tokio::io::AsyncWriteExt::shutdown(&mut wire.stream)
        .await
        .unwrap();
    assert!(wire.next().await.is_none());
    listener.stop().await;
    assert_eq!(ids(&home), ["r1", "r2", "r3"]);
    let records: Vec<_> = home
        .stored(Output::Records)
        .into_values()
        .flatten()
        .collect();
    assert!(
        records
            .iter()
            .all(|record| record["resp_body"] == "Hi" && record["source_addr"] == "127.0.0.1")
    );
    assert_eq!(
        home.stored(Output::Details)["details/2026-01-02/10.jsonl"].len(),
        3
    );
}

#[tokio::test]
async fn frames_that_do_not_add_up_are_kept_and_the_next_one_is_stored() {
    let home = Home::new();
    let listener = home.start().await;
    let mut wire = listener.connect().await;
    let mut trailing = v1(r#"{"request_id":"bad"}"#, b"");
    trailing.push(0);
    trailing[3] += 1;
    wire.raw(&trailing).await;
    wire.raw(&v1("not json", b"")).await;
    wire.raw(&v1(r#"{"request_id":"good"}"#, b"")).await;
    listener.metric_becomes(STORED, 1.0).await;
    assert_eq!(
        listener
            .metric(r#"bodylog_listener_frame_errors_total{kind="resp_mismatch"}"#)
            .await,
        1.0
    );
    assert_eq!(
        listener
            .metric(r#"bodylog_listener_frames_total{proto="v1",result="bad"}"#)
            .await,
        2.0
    );
    listener.stop().await;
    assert_eq!(ids(&home), ["good"]);
    let kept = std::fs::read_to_string(home.root().join("quarantine/2026-01-02.frames")).unwrap();
    assert!(
        kept.contains("resp_mismatch") && kept.contains("bad_meta"),
        "{kept}"
    );
}

#[tokio::test]
async fn a_buffer_sent_again_is_stored_once_for_ten_minutes() {
    let home = Home::new();
    let listener = home.start().await;
    let buffer = [
        v1(r#"{"request_id":"a"}"#, b""),
        v1(r#"{"request_id":"b","ts":"2026-01-02T10:29:01.000Z"}"#, b""),
        v1(r#"{"request_id":"b","ts":"2026-01-02T10:29:02.000Z"}"#, b""),
        v1("{}", b""),
    ]
    .concat();
    for _ in 0..2 {
        let mut wire = listener.connect().await;
        wire.raw(&buffer).await;
        tokio::io::AsyncWriteExt::shutdown(&mut wire.stream)
            .await
            .unwrap();
        assert!(wire.next().await.is_none());
    }
    // A repeated frame without an id is not recognised.
    listener.metric_becomes(STORED, 5.0).await;
    listener
        .metric_becomes("bodylog_listener_duplicates_total", 3.0)
        .await;
    listener.stop().await;
    // Two requests with the same id are two records.
    assert_eq!(ids(&home), ["-", "-", "a", "b", "b"]);
}

#[tokio::test]
async fn what_finds_no_room_waits_on_disk_and_its_sender_does_not() {
    let mut home = Home::new();
    home.config.memory = 98_000;
    let listener = home.start().await;
    // A frame that has nearly arrived holds all of the room.
    let mut slow = listener.connect().await;
    let large = v1(r#"{"request_id":"slow"}"#, &[b'x'; 99_000]);
    slow.raw(&large[..98_000]).await;
    eventually("the room is taken", async || {
        listener.metric("bodylog_listener_queue_bytes").await >= 98_000.0
    })
    .await;
    let mut wire = listener.connect().await;
    for n in 0..20 {
        wire.raw(&v1(
            &format!(r#"{{"request_id":"r{n:02}"}}"#),
            &[b'y'; 70_000],
        ))
        .await;
    }
    listener
        .metric_becomes("bodylog_listener_spilled_total", 20.0)
        .await;
    assert_eq!(listener.metric(STORED).await, 0.0);
    slow.raw(&large[98_000..]).await;
    drop(wire);
    listener.metric_becomes(STORED, 21.0).await;
    eventually("the spill is empty", async || {
        std::fs::read_dir(home.root().join("spill"))
            .unwrap()
            .count()
            == 0
    })
    .await;
    listener.stop().await;
    let mut expected: Vec<String> = (0..20).map(|n| format!("r{n:02}")).collect();
    expected.push("slow".into());
    assert_eq!(ids(&home), expected);
}

#[tokio::test]
async fn what_the_system_had_received_is_stored_when_the_listener_stops() {
    let home = Home::new();
    let listener = home.start().await;
    let mut wire = listener.connect().await;
    for n in 0..50 {
        wire.raw(&v1(
            &format!(r#"{{"request_id":"r{n:02}"}}"#),
            &[b'y'; 10_000],
        ))
        .await;
    }
    listener.stop().await;
    assert_eq!(ids(&home).len(), 50);
}
