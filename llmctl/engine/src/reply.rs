//! One answer in either form: a JSON body when everything is generated, or server-sent events token
//! by token. Each API implements [`Api`]; queue, pace and cancellation are the same for all.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::stream;
use http::{StatusCode, header};
use serde_json::Value;

use crate::compute::Core;
use crate::failure::Failure;
use crate::generate::{Generation, Job, Pending, Timings, Usage};
use crate::log::Exchange;
use crate::text::Finish;

/// How an API formats an answer. The engine calls `start`, `piece` and `end` in this order, `piece`
/// once per token.
pub(crate) trait Api: Send + 'static {
    /// The whole answer as one JSON document.
    fn whole(&self, end: &End) -> Value;
    /// The prefill is done; the first token comes next.
    fn start(&mut self, usage: Usage, out: &mut Events);
    /// One token.
    fn piece(&mut self, text: &str, out: &mut Events);
    /// The generation is complete.
    fn end(&mut self, end: &End, out: &mut Events);
}

/// A finished generation.
#[derive(Clone, Debug)]
pub(crate) struct End {
    /// The text, or the arguments of a tool call.
    pub(crate) text: String,
    pub(crate) finish: Finish,
    pub(crate) usage: Usage,
    pub(crate) timings: Timings,
}

/// Events that are ready to send, oldest first; each becomes one chunk of the body.
#[derive(Debug, Default)]
pub(crate) struct Events(VecDeque<Bytes>);

impl Events {
    /// `data: <json>`
    pub(crate) fn data(&mut self, value: &Value) {
        self.0.push_back(format!("data: {value}\n\n").into());
    }

    /// `event: <name>` and `data: <json>`
    pub(crate) fn named(&mut self, name: &str, value: &Value) {
        self.0
            .push_back(format!("event: {name}\ndata: {value}\n\n").into());
    }

    /// `data: [DONE]`
    pub(crate) fn done(&mut self) {
        self.0.push_back(Bytes::from_static(b"data: [DONE]\n\n"));
    }
}

/// The form of an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    pub(crate) streaming: bool,
    /// Whether a stream's headers are sent before the request has a slot.
    pub(crate) headers_first: bool,
    /// Added to the time to the first token.
    pub(crate) slow_ttft: Duration,
}

/// Answers a request.
///
/// # Errors
///
/// 503 when the queue is full.
///
/// # Cancel safety
///
/// Dropping the future, or the body of the response, frees the slot or the place in the queue.
pub(crate) async fn reply(
    core: &Arc<Core>,
    job: Job,
    exchange: Arc<Exchange>,
    api: impl Api,
    form: Form,
) -> Result<Response, Failure> {
    let pending = Pending::enqueue(core, job, exchange, form.slow_ttft).map_err(|_| {
        Failure::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "The request queue is full.",
        )
    })?;
    if !form.streaming {
        let end = collect(pending.begin().await).await;
        return Ok(Json(api.whole(&end)).into_response());
    }
    let stage = if form.headers_first {
        Stage::Waiting(pending)
    } else {
        Stage::Begun(pending.begin().await)
    };
    Ok(event_stream(Streaming {
        stage,
        api,
        events: Events::default(),
        text: String::new(),
    }))
}

async fn collect(mut generation: Generation) -> End {
    let mut text = String::new();
    while let Some(piece) = generation.next().await {
        text.push_str(piece);
    }
    end(&generation, text)
}

fn end(generation: &Generation, text: String) -> End {
    End {
        text,
        finish: generation.finish().clone(),
        usage: generation.usage(),
        timings: generation.timings(),
    }
}

#[derive(Debug)]
struct Streaming<A> {
    stage: Stage,
    api: A,
    events: Events,
    text: String,
}

#[derive(Debug)]
enum Stage {
    /// In the queue. Next: `Begun`.
    Waiting(Pending),
    /// Prefill done, nothing sent yet. Next: `Running`.
    Begun(Generation),
    /// Sends token by token. Next: `Ended`.
    Running(Generation),
    /// Everything is sent, except the rest in `events`.
    Ended,
}

impl<A: Api> Streaming<A> {
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        loop {
            if let Some(event) = self.events.0.pop_front() {
                return Some((Ok(event), self));
            }
            self.stage = match self.stage {
                Stage::Waiting(pending) => Stage::Begun(pending.begin().await),
                Stage::Begun(generation) => {
                    self.api.start(generation.usage(), &mut self.events);
                    Stage::Running(generation)
                }
                Stage::Running(mut generation) => match generation.next().await {
                    Some(piece) => {
                        self.text.push_str(piece);
                        self.api.piece(piece, &mut self.events);
                        Stage::Running(generation)
                    }
                    None => {
                        let end = end(&generation, std::mem::take(&mut self.text));
                        self.api.end(&end, &mut self.events);
                        Stage::Ended
                    }
                },
                Stage::Ended => return None,
            };
        }
    }
}

fn event_stream<A: Api>(streaming: Streaming<A>) -> Response {
    let body = Body::from_stream(stream::unfold(streaming, Streaming::next));
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, body).into_response()
}
