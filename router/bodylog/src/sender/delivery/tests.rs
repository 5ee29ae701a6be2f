//! Silence, on a paused clock and an in-memory connection.

use ::service::buffers::Buffers;
use proto::codec::Codec;
use tokio::io::{AsyncReadExt, DuplexStream};
use tokio::task::JoinSet;
use tokio_util::codec::{Decoder, FramedRead};

use super::*;
use crate::budget::MemoryBudget;
use crate::spool::Identity;

/// The receiver's end of a connection that a courier serves, and how that ends.
struct Receiver {
    stream: DuplexStream,
    buffer: BytesMut,
    codec: Codec,
    ended: JoinSet<End>,
    _target: watch::Sender<Option<Target>>,
}

fn welcomed() -> Receiver {
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let (read, write) = tokio::io::split(theirs);
    let read: Box<dyn tokio::io::AsyncRead + Send + Unpin> = Box::new(read);
    let link = Link {
        read: FramedRead::new(read, Codec::default()),
        write: Box::new(write),
        last_durable: 0,
        window_bytes: 1 << 20,
        window_frames: 64,
    };
    let target = Target {
        address: "listener:9999".into(),
        token_file: None,
        tls: None,
    };
    let shared = Arc::new(Shared::new(
        Arc::default(),
        MemoryBudget::new(1 << 20),
        None,
        Identity::fresh(),
        Buffers::default(),
    ));
    let outbox = Arc::new(Outbox::new(1, None, now()));
    let wanted = watch::Sender::new(Some(target.clone()));
    let mut delivery = Delivery::new(outbox, shared, wanted.subscribe(), true);
    let mut ended = JoinSet::new();
    ended.spawn(async move { delivery.serve(link, 1, &target).await });
    Receiver {
        stream: ours,
        buffer: BytesMut::new(),
        codec: Codec::default(),
        ended,
        _target: wanted,
    }
}

impl Receiver {
    async fn next(&mut self) -> Frame {
        loop {
            match self.codec.decode(&mut self.buffer).unwrap() {
                Some(Decoded::Frame(frame)) => return frame,
                Some(Decoded::Bad(bad)) => panic!("{bad:?}"),
                None => assert!(self.stream.read_buf(&mut self.buffer).await.unwrap() > 0),
            }
        }
    }

    async fn says(&mut self, frame: &Frame) {
        self.stream.write_all(&control(frame)).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_receiver_is_asked_and_then_given_up() {
    let mut receiver = welcomed();
    let began = now();
    for _ in 0..3 {
        let asked = now();
        assert_eq!(receiver.next().await, Frame::Ping);
        assert_eq!(now() - asked, PING_AFTER);
        // An answer counts as a sign of life.
        receiver.says(&Frame::Pong).await;
    }
    let end = receiver.ended.join_next().await.unwrap().unwrap();
    assert!(matches!(end, End::Lost(LinkError::Silent)), "{end:?}");
    assert_eq!(now() - began, 3 * PING_AFTER + DEAD_AFTER);
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_asks_is_answered() {
    let mut receiver = welcomed();
    receiver.says(&Frame::Ping).await;
    assert_eq!(receiver.next().await, Frame::Pong);
    drop(receiver.stream);
    let end = receiver.ended.join_next().await.unwrap().unwrap();
    assert!(matches!(end, End::Lost(LinkError::Closed)), "{end:?}");
}
