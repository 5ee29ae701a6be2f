//! Tests of the frame port: garbage, partial frames, and unknown peers.

use proto::control::GoAwayCode;
use proto::frame::{Frame, HEADER_LEN, Header};

use super::harness::{Home, bytes_of, data, hello};
use crate::config::Secret;
use crate::stream::Output;
use service::renewed::Renewed;

async fn bye(wire: &mut super::harness::Wire) -> GoAwayCode {
    loop {
        match wire.next().await {
            Some(Frame::GoAway(bye)) => return bye.code,
            Some(Frame::Ack(_) | Frame::Nack(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn garbage_is_counted_and_the_next_sender_is_served() {
    let home = Home::new();
    let listener = home.start().await;
    let mut header = bytes_of(&Frame::Ping);
    header[20] ^= 1;
    for (bytes, kind) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "too_large"),
        (b"\0\0\0\0", "zero_len"),
        (b"\x04\0\0\x01", "too_large"),
        (b"LOGIN now", "bad_magic"),
        (&header, "header_crc"),
        (&bytes_of(&Frame::Data(data(1)))[..40], "truncated"),
        (b"\0\0\0\x0c\0\x02{", "truncated"),
    ] {
        let series = format!("bodylog_listener_frame_errors_total{{kind=\"{kind}\"}}");
        let before = listener.metric(&series).await;
        let mut wire = listener.connect().await;
        wire.raw(bytes).await;
        tokio::io::AsyncWriteExt::shutdown(&mut wire.stream)
            .await
            .unwrap();
        while wire.next().await.is_some() {}
        listener.metric_becomes(&series, before + 1.0).await;
    }
    let mut wire = listener.sender("p", 1, 1).await;
    wire.data([1]).await;
    wire.acked(1).await;
    listener
        .metric_becomes("bodylog_listener_connections", 1.0)
        .await;
}

#[tokio::test]
async fn a_frame_beyond_the_limit_is_skipped_and_its_sender_told() {
    let mut home = Home::new();
    home.config.max_frame = 100_000;
    let listener = home.start().await;
    let mut wire = listener.connect().await;
    wire.send(&Frame::Hello(hello("p", 1, 1))).await;
    assert_eq!(wire.welcome().await.max_frame, 100_000);
    let payload = vec![b'x'; 200_000];
    let header = Header {
        kind: 3,
        flags: proto::frame::Flags::default(),
        seq: 1,
        payload_len: 200_000,
        raw_len: 200_000,
        payload_crc: crc32fast::hash(&payload),
    };
    wire.raw(&header.to_bytes()).await;
    wire.raw(&payload).await;
    wire.data([2]).await;
    match wire.next().await {
        Some(Frame::Nack(nack)) => assert_eq!((nack.seq, nack.code.code()), (1, 2)),
        other => panic!("{other:?}"),
    }
    wire.acked(2).await;
    assert_eq!(home.seqs(Output::Records), [2]);
}

#[tokio::test]
async fn a_sender_must_introduce_itself_soundly() {
    let home = Home::new();
    let listener = home.start().await;
    let other_version = proto::control::Hello {
        proto: vec![3],
        ..hello("p", 1, 1)
    };
    for first in [
        Frame::Data(data(1)),
        Frame::Ping,
        Frame::Hello(other_version),
        Frame::Hello(hello("../../etc", 1, 1)),
        Frame::Hello(hello("", 1, 1)),
    ] {
        let mut wire = listener.connect().await;
        wire.send(&first).await;
        assert_eq!(bye(&mut wire).await, GoAwayCode::Protocol, "{first:?}");
        assert!(wire.next().await.is_none());
    }
    let mut wire = listener.sender("p", 1, 1).await;
    wire.send(&Frame::Hello(hello("p", 1, 1))).await;
    assert_eq!(bye(&mut wire).await, GoAwayCode::Protocol);
}

#[tokio::test]
async fn a_token_is_asked_for_and_version_1_cannot_show_it() {
    let mut home = Home::new();
    home.config.token = Some(Renewed::fixed(Secret::new("sesame")));
    let listener = home.start().await;
    for token in [None, Some("Sesame".to_owned())] {
        let mut wire = listener.connect().await;
        wire.send(&Frame::Hello(proto::control::Hello {
            token,
            ..hello("p", 1, 1)
        }))
        .await;
        assert_eq!(bye(&mut wire).await, GoAwayCode::Auth);
    }
    let mut wire = listener.connect().await;
    wire.send(&Frame::Hello(proto::control::Hello {
        token: Some("sesame".into()),
        ..hello("p", 1, 1)
    }))
    .await;
    wire.welcome().await;
    let mut old = listener.connect().await;
    old.raw(&super::harness::v1("{}", b"")).await;
    assert!(old.next().await.is_none());
    listener.stop().await;
    assert!(home.seqs(Output::Records).is_empty() && home.files(Output::Records).is_empty());
}

#[tokio::test]
async fn strangers_and_too_many_are_turned_away() {
    let mut home = Home::new();
    home.config.allow = vec!["10.0.0.0/8".parse().unwrap()];
    let listener = home.start().await;
    let mut stranger = listener.connect().await;
    stranger.raw(b"L").await;
    assert!(stranger.next().await.is_none());
    listener.stop().await;
    home.config.allow.clear();
    home.config.max_connections = 1;
    let listener = home.start().await;
    let first = listener.sender("p", 1, 1).await;
    let mut second = listener.connect().await;
    second.raw(b"L").await;
    assert_eq!(bye(&mut second).await, GoAwayCode::Busy);
    drop(first);
    listener
        .metric_becomes("bodylog_listener_connections", 0.0)
        .await;
    listener.sender("p", 1, 1).await;
}

#[tokio::test]
async fn a_frame_in_single_bytes_is_a_frame() {
    let home = Home::new();
    let listener = home.start().await;
    let mut wire = listener.sender("p", 1, 1).await;
    let bytes = bytes_of(&Frame::Data(data(1)));
    assert!(bytes.len() > HEADER_LEN);
    for byte in bytes {
        wire.raw(&[byte]).await;
    }
    wire.acked(1).await;
}

#[tokio::test]
async fn a_ping_is_answered() {
    let home = Home::new();
    let listener = home.start().await;
    let mut wire = listener.sender("p", 1, 1).await;
    wire.send(&Frame::Ping).await;
    assert_eq!(wire.next().await, Some(Frame::Pong));
}
