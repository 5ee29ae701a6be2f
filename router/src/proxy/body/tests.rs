use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::StatusCode;
use hyper::body::{Frame, SizeHint};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinSet;
use tokio::time::{advance, sleep};

use super::*;

const LIMITS: Limits = Limits {
    body: 1 << 20,
    buffered: 1 << 20,
};

/// The router's end of an upload.
struct Upload {
    declared: Option<u64>,
    received: u64,
    chunks: Receiver<Chunk>,
}

type Chunk = Result<Bytes, &'static str>;

impl Body for Upload {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.is_end_stream() {
            return Poll::Ready(None);
        }
        let chunk = ready!(self.chunks.poll_recv(cx));
        if let Some(Ok(chunk)) = &chunk {
            self.received += chunk.len() as u64;
        }
        Poll::Ready(chunk.map(|chunk| chunk.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.declared == Some(self.received)
    }

    fn size_hint(&self) -> SizeHint {
        let left = self.declared.map(|declared| declared - self.received);
        left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// A client in the middle of an upload.
struct Client {
    budget: ByteBudget,
    chunks: Sender<Chunk>,
    reading: JoinSet<Result<Collected, ApiError>>,
    start: Instant,
}

impl Client {
    fn uploads(declared: Option<u64>, budget: &ByteBudget, limits: Limits) -> Self {
        let (chunks, received) = channel(8);
        let upload = Upload {
            declared,
            received: 0,
            chunks: received,
        };
        let shared = budget.clone();
        let mut reading = JoinSet::new();
        reading.spawn(async move { collect(upload, limits, &shared).await });
        Self {
            budget: budget.clone(),
            chunks,
            reading,
            start: now(),
        }
    }

    /// Sends bytes and lets the router read them.
    async fn send(&self, bytes: usize) {
        self.chunks.send(Ok(vec![b'x'; bytes].into())).await.ok();
        sleep(Duration::from_millis(1)).await;
    }

    /// What became of the body.
    async fn end(mut self) -> Result<Collected, ApiError> {
        let chunks = self.chunks;
        let end = self.reading.join_next().await.unwrap().unwrap();
        drop(chunks);
        end
    }

    /// The status of the refusal, and the whole seconds until it came.
    async fn refused(self) -> (StatusCode, u64) {
        let (budget, start) = (self.budget.clone(), self.start);
        let error = self.end().await.unwrap_err();
        assert_eq!(budget.used(), 0);
        (error.status(), now().duration_since(start).as_secs())
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_is_charged_for_what_arrived_until_it_is_dropped() {
    for declared in [Some(3000), None] {
        let budget = ByteBudget::default();
        let client = Client::uploads(declared, &budget, LIMITS);
        client.send(1000).await;
        assert_eq!(budget.used(), 1000);
        client.send(2000).await;
        assert_eq!(budget.used(), 3000);
        let Client {
            chunks,
            mut reading,
            ..
        } = client;
        drop(chunks);
        let collected = reading.join_next().await.unwrap().unwrap().unwrap();
        assert_eq!((collected.bytes.len(), budget.used()), (3000, 3000));
        drop(collected);
        assert_eq!(budget.used(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_there_needs_no_clock() {
    let (budget, start) = (ByteBudget::default(), now());
    let body = http_body_util::Full::new(Bytes::from_static(b"{}"));
    let collected = collect(body, LIMITS, &budget).await.unwrap();
    assert_eq!((&collected.bytes[..], budget.used()), (&b"{}"[..], 2));
    assert_eq!(now(), start);
}

#[tokio::test(start_paused = true)]
async fn promises_leave_room_for_a_body_that_arrives() {
    let budget = ByteBudget::default();
    let mut promises = Vec::new();
    for _ in 0..200 {
        let client = Client::uploads(Some(1 << 19), &budget, LIMITS);
        client.send(1).await;
        promises.push(client);
    }
    let honest = Client::uploads(Some(1 << 19), &budget, LIMITS);
    honest.send(1 << 19).await;
    assert!(honest.end().await.is_ok());
    assert_eq!(budget.used(), 200);
    for client in promises {
        let error = client.end().await.unwrap_err();
        assert_eq!(error.status(), StatusCode::REQUEST_TIMEOUT);
    }
    assert_eq!(budget.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_body_of_one_byte_is_408_after_the_grace() {
    let client = Client::uploads(Some(10 << 10), &ByteBudget::default(), LIMITS);
    client.send(1).await;
    assert_eq!(client.refused().await, (StatusCode::REQUEST_TIMEOUT, 20));
}

#[tokio::test(start_paused = true)]
async fn a_trickle_after_a_fast_start_is_408_when_its_bytes_are_used_up() {
    let client = Client::uploads(None, &ByteBudget::default(), LIMITS);
    client.send(40 << 10).await;
    for _ in 0..3 {
        advance(Duration::from_secs(12)).await;
        client.send(1).await;
    }
    assert_eq!(client.refused().await, (StatusCode::REQUEST_TIMEOUT, 40));
}

#[tokio::test(start_paused = true)]
async fn a_pause_of_a_minute_is_408_however_much_came_before() {
    let client = Client::uploads(None, &ByteBudget::default(), LIMITS);
    client.send(500 << 10).await;
    assert_eq!(client.refused().await, (StatusCode::REQUEST_TIMEOUT, 60));
}

#[tokio::test(start_paused = true)]
async fn a_steady_upload_of_2_kib_a_second_is_read_to_its_end() {
    let client = Client::uploads(Some(600 << 10), &ByteBudget::default(), LIMITS);
    for _ in 0..300 {
        client.send(2 << 10).await;
        sleep(Duration::from_millis(999)).await;
    }
    let collected = client.end().await.unwrap();
    assert_eq!(collected.bytes.len(), 600 << 10);
}

#[tokio::test(start_paused = true)]
async fn the_budget_comes_back_however_a_body_ends() {
    let budget = ByteBudget::default();
    let broken = Client::uploads(None, &budget, LIMITS);
    broken.send(1000).await;
    broken.chunks.send(Err("broken")).await.unwrap();
    assert_eq!(broken.refused().await.0, StatusCode::BAD_REQUEST);

    let too_large = Client::uploads(None, &budget, LIMITS);
    too_large.send(1 << 20).await;
    too_large.send(1).await;
    assert_eq!(too_large.refused().await.0, StatusCode::PAYLOAD_TOO_LARGE);

    let small = Limits {
        buffered: 1500,
        ..LIMITS
    };
    let no_room = Client::uploads(None, &budget, small);
    no_room.send(1000).await;
    no_room.send(1000).await;
    assert_eq!(no_room.refused().await.0, StatusCode::SERVICE_UNAVAILABLE);

    let gone = Client::uploads(None, &budget, LIMITS);
    gone.send(1000).await;
    assert_eq!(budget.used(), 1000);
    drop(gone);
    tokio::task::yield_now().await;
    assert_eq!(budget.used(), 0);
}

#[tokio::test]
async fn an_announced_length_without_room_is_refused_before_it_is_read() {
    let budget = ByteBudget::default();
    let mut other = budget.hold();
    assert!(other.take(1, LIMITS.buffered));
    let client = Client::uploads(Some(LIMITS.buffered), &budget, LIMITS);
    let error = client.end().await.unwrap_err();
    assert_eq!(error.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(budget.used(), 1);
}
