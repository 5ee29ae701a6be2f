//! Frames are stored once, in order, and acknowledged only when they are on disk.

use proto::control::{GoAwayCode, NackCode};
use proto::frame::{Frame, HEADER_LEN};

use super::harness::{Home, bytes_of, data, hello, packed, with_meta};
use crate::stream::Output;

const DUPLICATES: &str = "bodylog_listener_duplicates_total";

#[tokio::test]
async fn a_frame_sent_twice_is_stored_once_and_acknowledged_twice() {
    let home = Home::new();
    let listener = home.start().await;
    let mut wire = listener.sender("p", 1, 1).await;
    wire.data([1]).await;
    wire.acked(1).await;
    wire.data([1]).await;
    wire.acked(1).await;
    assert_eq!(listener.metric(DUPLICATES).await, 1.0);
    listener.stop().await;
    for output in Output::ALL {
        assert_eq!(home.seqs(output), [1]);
    }
}

#[tokio::test]
async fn a_flipped_bit_is_refused_and_the_connection_goes_on() {
    let home = Home::new();
    let listener = home.start().await;
    let mut wire = listener.sender("p", 1, 1).await;
    let mut flipped = bytes_of(&Frame::Data(data(1)));
    flipped[HEADER_LEN + 30] ^= 1;
    wire.raw(&flipped).await;
    match wire.next().await {
        Some(Frame::Nack(nack)) => assert_eq!((nack.seq, nack.code), (1, NackCode::Crc)),
        other => panic!("{other:?}"),
    }
    wire.data(1..=2).await;
    wire.acked(2).await;
    let kind = r#"bodylog_listener_frame_errors_total{kind="payload_crc"}"#;
    assert_eq!(listener.metric(kind).await, 1.0);
    assert_eq!(
        std::fs::read_dir(home.root().join("quarantine"))
            .unwrap()
            .count(),
        1
    );
}

#[tokio::test]
async fn after_a_crash_between_the_files_and_the_ledger_a_resent_frame_is_stored_once() {
    let home = Home::new();
    let listener = home.start().await;
    let mut wire = listener.sender("p", 1, 1).await;
    wire.data(1..=3).await;
    wire.acked(3).await;
    let ledger = home.root().join("ledger");
    let before: Vec<_> = Output::ALL
        .map(|output| ledger.join(output.as_str()))
        .to_vec();
    listener.stop().await;
    let saved: Vec<_> = before
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect();

    let listener = home.start().await;
    let mut wire = listener.sender("p", 1, 4).await;
    wire.data(4..=6).await;
    wire.acked(6).await;
    listener.stop().await;
    // Simulates a kill before the ledger was saved, with one line fewer on disk in the details than
    // in the records.
    for (path, bytes) in before.iter().zip(&saved) {
        std::fs::write(path, bytes).unwrap();
    }
    let details = &home.files(Output::Details)[0];
    let text = std::fs::read_to_string(details).unwrap();
    let kept = text.trim_end().rfind('\n').unwrap();
    std::fs::write(details, &text[..kept + 20]).unwrap();

    let listener = home.start().await;
    let mut wire = listener.sender("p", 1, 4).await;
    assert_eq!(wire.durable, 5);
    wire.data(6..=7).await;
    wire.acked(7).await;
    listener.stop().await;
    assert_eq!(home.seqs(Output::Records), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(home.seqs(Output::Details), [1, 2, 3, 4, 5, 6, 7]);
    // The torn line stays on a line of its own and does no harm.
    let lines: usize = home
        .stored(Output::Details)
        .into_values()
        .map(|lines| lines.len())
        .sum();
    assert_eq!(lines, 8);
}

#[tokio::test]
async fn a_restart_knows_what_it_has() {
    let home = Home::new();
    let listener = home.start().await;
    let mut wire = listener.sender("p", 7, 1).await;
    wire.data(1..=3).await;
    wire.acked(3).await;
    listener.stop().await;
    assert!(
        matches!(wire.next().await, Some(Frame::GoAway(bye)) if bye.code == GoAwayCode::Shutdown)
    );
    let listener = home.start().await;
    assert_eq!(listener.sender("p", 7, 1).await.durable, 3);
    assert_eq!(listener.sender("p", 8, 1).await.durable, 0);
    assert_eq!(listener.sender("q", 7, 5).await.durable, 4);
}

#[tokio::test]
async fn a_skipped_sequence_ends_the_connection_unless_it_is_declared_lost() {
    let home = Home::new();
    let listener = home.start().await;
    let mut wire = listener.sender("p", 1, 1).await;
    wire.data([1, 3]).await;
    loop {
        match wire.next().await {
            Some(Frame::Ack(1)) => {}
            Some(Frame::GoAway(bye)) => break assert_eq!(bye.code, GoAwayCode::Gap),
            other => panic!("{other:?}"),
        }
    }
    assert!(wire.next().await.is_none());
    let mut wire = listener.sender("p", 1, 2).await;
    assert_eq!(wire.durable, 1);
    wire.send(&Frame::Data(with_meta(5, r#"{"v":2,"lost_before":5}"#)))
        .await;
    wire.data([6]).await;
    wire.acked(6).await;
    assert_eq!(listener.metric("bodylog_listener_gaps_total").await, 2.0);
    assert_eq!(home.seqs(Output::Records), [1, 5, 6]);
}

#[tokio::test]
async fn a_second_connection_for_a_run_displaces_the_first_and_nothing_is_stored_twice() {
    let home = Home::new();
    let listener = home.start().await;
    let mut first = listener.sender("p", 1, 1).await;
    first.data(1..=200).await;
    let mut second = listener.sender("p", 1, 1).await;
    assert!(second.durable <= 200);
    second.data(second.durable + 1..=300).await;
    second.acked(300).await;
    while let Some(frame) = first.next().await {
        assert!(
            matches!(frame, Frame::Ack(_) | Frame::GoAway(_)),
            "{frame:?}"
        );
    }
    for output in Output::ALL {
        assert_eq!(home.seqs(output), (1..=300).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn runs_of_one_sender_are_told_apart() {
    let home = Home::new();
    let listener = home.start().await;
    let mut live = listener.sender("p", 2, 1).await;
    let mut replay = listener.sender("p", 1, 1).await;
    live.data(1..=20).await;
    replay.data(1..=20).await;
    live.acked(20).await;
    replay.acked(20).await;
    let lines: Vec<_> = home
        .stored(Output::Details)
        .into_values()
        .flatten()
        .collect();
    for epoch in [1, 2] {
        let seqs: Vec<_> = lines
            .iter()
            .filter(|line| line["epoch"] == epoch)
            .map(|line| line["seq"].as_u64().unwrap())
            .collect();
        assert_eq!(seqs, (1..=20).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn frames_that_can_never_be_stored_are_set_aside_and_acknowledged_past() {
    let home = Home::new();
    let listener = home.start().await;
    let mut wire = listener.sender("p", 1, 1).await;
    wire.data([1]).await;
    wire.send(&Frame::Data(with_meta(2, "no json"))).await;
    wire.send(&Frame::Data(with_meta(3, r#"{"v":3}"#))).await;
    wire.data([4]).await;
    let mut nacks = Vec::new();
    let mut acked = 0;
    while acked < 4 {
        match wire.next().await {
            Some(Frame::Ack(seq)) => acked = seq,
            Some(Frame::Nack(nack)) => {
                assert!(acked < nack.seq, "passed before it was refused");
                nacks.push((nack.seq, nack.code));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(nacks, [(2, NackCode::BadMeta), (3, NackCode::Schema)]);
    assert_eq!(home.seqs(Output::Records), [1, 4]);
    assert_eq!(
        listener.metric("bodylog_listener_bad_meta_total").await,
        2.0
    );
}

#[tokio::test]
async fn packed_frames_are_unpacked() {
    let home = Home::new();
    let listener = home.start().await;
    let mut wire = listener.connect().await;
    wire.send(&Frame::Hello(hello("p", 1, 1))).await;
    assert_eq!(wire.welcome().await.codec, "gzip");
    let mut large = data(1);
    large.req = (0..9000)
        .map(|n| format!("line {n}\n"))
        .collect::<String>()
        .into();
    wire.raw(&packed(&large)).await;
    wire.acked(1).await;
    let records: Vec<_> = home
        .stored(Output::Records)
        .into_values()
        .flatten()
        .collect();
    assert!(
        records[0]["req_body"]
            .as_str()
            .unwrap()
            .ends_with("line 8999\n")
    );
}

#[tokio::test]
async fn every_durability_stores_in_order() {
    use crate::config::Durability;
    for durability in [Durability::None, Durability::Batch, Durability::Always] {
        let mut home = Home::new();
        home.config.durability = durability;
        let listener = home.start().await;
        let mut wire = listener.sender("p", 1, 1).await;
        wire.data(1..=30).await;
        wire.acked(30).await;
        listener.stop().await;
        assert_eq!(home.seqs(Output::Records), (1..=30).collect::<Vec<_>>());
    }
}
