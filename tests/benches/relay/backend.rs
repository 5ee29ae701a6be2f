//! An engine with negligible cost: it reads the request and answers a constant.
//!
//! `x-bench: stream` returns 64 chunks at once, `x-bench: paced` one chunk every 20 ms, anything
//! else one small JSON body.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Interval, interval};

/// Number of chunks in a stream.
pub(crate) const CHUNKS: usize = 64;
/// Time between two chunks of a paced stream.
const PACE: Duration = Duration::from_millis(20);
/// A chunk of the size that engines send for one token.
const CHUNK: &[u8] = br#"data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1700000000,"model":"bench","choices":[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null}]}

"#;
const REPLY: &[u8] = br#"{"id":"chatcmpl-bench","object":"chat.completion","created":1700000000,"model":"bench","choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}"#;

/// A running backend.
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    _tasks: JoinSet<()>,
}

/// Starts the backend in this process.
pub(crate) async fn spawn() -> Backend {
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .expect("loopback has free ports");
    let address = listener
        .local_addr()
        .expect("a bound socket has an address");
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            stream
                .set_nodelay(true)
                .expect("a TCP socket takes TCP_NODELAY");
            connections.spawn(async move {
                let mut http = hyper::server::conn::http1::Builder::new();
                let served = http
                    .timer(TokioTimer::new())
                    .serve_connection(TokioIo::new(stream), service_fn(answer));
                // The other side closes when its turn is over.
                let _ = served.await;
            });
            while connections.try_join_next().is_some() {}
        }
    });
    Backend {
        address,
        _tasks: tasks,
    }
}

async fn answer(
    request: Request<Incoming>,
) -> Result<Response<BoxBody<Bytes, Infallible>>, hyper::Error> {
    let kind = request.headers().get("x-bench").cloned();
    let mut body = request.into_body();
    while let Some(frame) = body.frame().await {
        frame?;
    }
    let pace = match kind.as_ref().map(http::HeaderValue::as_bytes) {
        Some(b"stream") => None,
        Some(b"paced") => Some(interval(PACE)),
        _ => {
            let response = Response::builder().header("content-type", "application/json");
            return Ok(response
                .body(Full::new(Bytes::from_static(REPLY)).boxed())
                .expect("constant headers"));
        }
    };
    let response = Response::builder().header("content-type", "text/event-stream");
    Ok(response
        .body(
            Chunks {
                left: CHUNKS,
                pace,
                flushed: true,
            }
            .boxed(),
        )
        .expect("constant headers"))
}

/// The chunks of a stream.
struct Chunks {
    left: usize,
    pace: Option<Interval>,
    flushed: bool,
}

impl Body for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let this = &mut *self;
        match &mut this.pace {
            Some(pace) => {
                std::task::ready!(pace.poll_tick(cx));
            }
            // Returns pending once between two chunks. The server then flushes, so each chunk
            // leaves in its own write.
            None if !this.flushed => {
                this.flushed = true;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            None => this.flushed = false,
        }
        this.left -= 1;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(CHUNK)))))
    }
}
