//! `sse_keepalive`: a client that asked for a stream hears from the router while the engine is silent.
//!
//! Balancers cut a connection on which nothing moves for a minute, and a long prefill takes longer. After
//! the interval without the engine's head, the client gets 200 and the head of an event stream, and then
//! a comment (Anthropic: its own `ping` event) per interval. From then on a failure is an event.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Response, StatusCode, response};
use http_body::Body as HttpBody;
use http_body_util::{BodyExt as _, Limited};
use tokio::time::Sleep;

use super::answer::{self, RelayOptions, Relayed};
use super::error::{ApiError, Dialect};
use super::forward::{Deadlines, Outgoing, forward};
use super::phase::{Live, LocalAnswer, Placed, Refused};
use super::relay::{Aborted, Body};
use super::respond::{self, Stamp};
use super::shutdown_notice::ShutdownNotice;
use crate::clock::now;
use crate::state::RouteTable;
use crate::upstream::{PeerBody, PeerClient};
use service::budget::{ByteBudget, Held};

/// The largest error of an engine that is passed on as an event, bytes.
const ERROR_MAX: usize = 64 << 10;

/// How long an engine may take for the body of its error.
const ERROR_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a stream stays open after its last event, so that the event leaves before the abort.
const LINGER: Duration = Duration::from_millis(50);

/// A streamed request on its way to a peer, on a route with `sse_keepalive`.
pub(super) struct Sending {
    /// The client.
    pub(super) client: PeerClient,
    /// The request and its slot.
    pub(super) placed: Live<Placed>,
    /// The index of the first peer.
    pub(super) first: usize,
    /// What is sent.
    pub(super) outgoing: Outgoing,
    /// The time limits.
    pub(super) deadlines: Deadlines,
    /// Ends the request before the process ends.
    pub(super) notice: ShutdownNotice,
    /// What the relay of the answer needs.
    pub(super) finish: Finish,
}

/// What the relay of an answer needs.
pub(super) struct Finish {
    /// The snapshot in force.
    pub(super) tables: Arc<ArcSwap<RouteTable>>,
    /// Memory for bytes held back by edits.
    pub(super) budget: ByteBudget,
    /// The body's share of the memory, until the engine has answered.
    pub(super) held: Held,
    /// The router asked the engine for usage that the client must not see.
    pub(super) asked_for_usage: bool,
}

/// A peer's answer to a streamed request.
struct Answer {
    placed: Live<Placed>,
    response: Response<PeerBody>,
    notice: ShutdownNotice,
    finish: Finish,
}

impl Sending {
    /// Sends the request. The client hears nothing before the first interval is over, so that a
    /// failure until then has a status.
    pub(super) async fn run_with_pings(
        self,
        interval: Duration,
    ) -> Result<Response<Body>, Box<Refused>> {
        let placed = &self.placed;
        let authorised = &placed.inspected.authorised;
        let (dialect, stamp) = (Dialect::of(authorised.path()), Stamp::of(&authorised.route));
        let mut headers = HeaderMap::new();
        respond::stamp(
            &mut headers,
            placed.id(),
            Some(placed.routing()),
            dialect,
            stamp,
        );
        let mut sending = Box::pin(self.run());
        tokio::select! {
            biased;
            answer = &mut sending => match answer?.relay() {
                Relayed::Now(response) => Ok(response),
                Relayed::Held(held) => Ok(held.begun().await),
            },
            () = tokio::time::sleep(interval) => {
                let late = Box::pin(async move {
                    match sending.await {
                        Ok(answer) => answer.after_the_head(dialect).await,
                        Err(refused) => ended(*refused, dialect),
                    }
                });
                let body = Body::early(Early::new(late, interval, dialect));
                Ok(Response::from_parts(head(headers), body))
            }
        }
    }

    async fn run(mut self) -> Result<Answer, Box<Refused>> {
        let sent = forward(
            &self.client,
            &mut self.placed,
            self.first,
            &self.outgoing,
            self.deadlines,
        );
        let notice = &mut self.notice;
        let sent = tokio::select! {
            biased;
            sent = sent => sent,
            () = poll_fn(|cx| notice.poll(cx)) => Err(ApiError::draining()),
        };
        match sent {
            Ok(response) => Ok(Answer {
                placed: self.placed,
                response,
                notice: self.notice,
                finish: self.finish,
            }),
            Err(error) => Err(Refused::new(self.placed, error)),
        }
    }
}

impl Answer {
    fn relay(self) -> Relayed {
        let table = self.finish.tables.load();
        drop(self.finish.held);
        let options = RelayOptions {
            table: &table,
            budget: &self.finish.budget,
            shutdown_notice: self.notice,
            asked_for_usage: self.finish.asked_for_usage,
        };
        answer::relayed(self.placed, self.response, options)
    }

    /// Goes on with the body of an answer whose head the client already has.
    async fn after_the_head(mut self, dialect: Dialect) -> Late {
        self.placed.tries.pings += 1;
        if is_stream(&self.response) {
            return match self.relay() {
                Relayed::Now(response) => Late::Stream(response.into_body()),
                Relayed::Held(held) => Late::Stream(held.begun().await.into_body()),
            };
        }
        let status = self.response.status();
        let why: Arc<str> = format!("status {} after the head", status.as_u16()).into();
        self.placed.tries.failed(&why);
        let message = "the peer answered with an error after its client had a head";
        let error = ApiError::upstream(message, self.placed.tries.attempts.len());
        let event = engine_error(self.response, dialect).await;
        let event = event.unwrap_or_else(|| error.event(dialect, 0).into());
        failed(*Refused::new(self.placed, error), event)
    }
}

/// What is sent while an engine is silent.
fn ping(dialect: Dialect) -> Bytes {
    Bytes::from_static(match dialect {
        Dialect::Anthropic => b"event: ping\ndata: {\"type\": \"ping\"}\n\n",
        Dialect::OpenAi | Dialect::Responses => b": ping\n\n",
    })
}

/// A repeated timer.
pub(super) struct Pings {
    interval: Duration,
    timer: Pin<Box<Sleep>>,
    dialect: Dialect,
}

impl Pings {
    /// The first ping is due after one interval.
    pub(super) fn new(interval: Duration, dialect: Dialect) -> Box<Self> {
        Box::new(Self {
            interval,
            timer: Box::pin(tokio::time::sleep(interval)),
            dialect,
        })
    }

    /// Ready with a ping when one is due.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
        ready!(self.timer.as_mut().poll(cx));
        self.timer.as_mut().reset((now() + self.interval).into());
        Poll::Ready(ping(self.dialect))
    }
}

impl fmt::Debug for Pings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pings")
            .field("interval", &self.interval)
            .finish_non_exhaustive()
    }
}

/// How a request ended for which the client already has a head.
pub(super) enum Late {
    /// The engine streams.
    Stream(Body),
    /// The request failed. The event is for the client.
    Failed {
        /// The last event.
        event: Bytes,
        /// The request, until the stream is over.
        answer: Box<Live<LocalAnswer>>,
    },
}

type Waiting = Pin<Box<dyn Future<Output = Late> + Send>>;

/// The body of an answer whose head was sent before the engine's.
pub(super) struct Early(State);

enum State {
    /// The engine is silent.
    Silent { sending: Waiting, pings: Box<Pings> },
    /// The engine answers.
    Relayed(Box<Body>),
    /// The last event was handed over.
    Ending {
        timer: Pin<Box<Sleep>>,
        _answer: Box<Live<LocalAnswer>>,
    },
    /// The body has ended.
    Over,
}

impl Early {
    /// Waits for `sending` with pings. The first one is due at once.
    pub(super) fn new(sending: Waiting, interval: Duration, dialect: Dialect) -> Box<Self> {
        let mut pings = Pings::new(interval, dialect);
        pings.timer.as_mut().reset(now().into());
        Box::new(Self(State::Silent { sending, pings }))
    }

    /// The next part of the body.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Aborted>>> {
        loop {
            match &mut self.0 {
                State::Silent { sending, pings } => match sending.as_mut().poll(cx) {
                    Poll::Ready(Late::Stream(body)) => self.0 = State::Relayed(Box::new(body)),
                    Poll::Ready(Late::Failed { event, answer }) => {
                        self.0 = State::Ending {
                            timer: Box::pin(tokio::time::sleep(LINGER)),
                            _answer: answer,
                        };
                        return Poll::Ready(Some(Ok(http_body::Frame::data(event))));
                    }
                    Poll::Pending => {
                        let ping = ready!(pings.poll(cx));
                        return Poll::Ready(Some(Ok(http_body::Frame::data(ping))));
                    }
                },
                State::Relayed(body) => return Pin::new(&mut **body).poll_frame(cx),
                State::Ending { timer, .. } => {
                    ready!(timer.as_mut().poll(cx));
                    self.0 = State::Over;
                    return Poll::Ready(Some(Err(Aborted)));
                }
                State::Over => return Poll::Ready(None),
            }
        }
    }

    /// Whether the body has ended.
    pub(super) fn is_end(&self) -> bool {
        match &self.0 {
            State::Relayed(body) => body.is_end_stream(),
            State::Over => true,
            State::Silent { .. } | State::Ending { .. } => false,
        }
    }
}

impl fmt::Debug for Early {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Early").finish_non_exhaustive()
    }
}

/// The head that is sent before the engine's.
fn head(mut headers: HeaderMap) -> response::Parts {
    let (mut head, ()) = Response::new(()).into_parts();
    let kind = HeaderValue::from_static("text/event-stream; charset=utf-8");
    headers.insert(header::CONTENT_TYPE, kind);
    respond::hint_stream(&mut headers);
    head.headers = headers;
    head
}

/// The end of a request that was refused after its head.
fn ended(refused: Refused, dialect: Dialect) -> Late {
    let Refused { progress, error } = refused;
    let event = Bytes::from(error.event(dialect, 0));
    failed(Refused { progress, error }, event)
}

/// The end of a request that failed after its head, with its last event.
fn failed(refused: Refused, event: Bytes) -> Late {
    let Refused { progress, error } = refused;
    let status = error.status();
    let answer = progress.next(|progress| LocalAnswer::of(progress, status, &event));
    Late::Failed {
        event,
        answer: Box::new(answer),
    }
}

/// An engine's error as an event in the client's dialect, if it has that dialect's shape.
async fn engine_error(response: Response<PeerBody>, dialect: Dialect) -> Option<Bytes> {
    let body = Limited::new(response.into_body(), ERROR_MAX).collect();
    let body = tokio::time::timeout(ERROR_TIMEOUT, body).await.ok()?.ok()?;
    let error: serde_json::Value = serde_json::from_slice(&body.to_bytes()).ok()?;
    error.get("error")?;
    Some(Bytes::from(match dialect {
        Dialect::Anthropic => format!("event: error\ndata: {error}\n\n"),
        Dialect::Responses => {
            let message = &error["error"]["message"];
            let event = serde_json::json!({
                "type": "error", "code": error["error"]["code"], "message": message, "param": null,
                "sequence_number": 0, "error": error["error"],
            });
            format!("event: error\ndata: {event}\n\n")
        }
        Dialect::OpenAi => format!("data: {error}\n\n"),
    }))
}

/// Whether an answer is the stream that the client waits for.
fn is_stream<B>(response: &Response<B>) -> bool {
    response.status() == StatusCode::OK
        && respond::Media::of(response.headers()) == respond::Media::EventStream
}
