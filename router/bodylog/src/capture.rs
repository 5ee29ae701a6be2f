//! Captures one request for the body log while it is in flight. A capture is part of the exchange,
//! never waits, and becomes a [`Record`] when the exchange is settled.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use answers::redact::Form;
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::response;

use super::budget::{Charge, Share};
use super::counters::Reason;
use super::detail_level::DetailLevel;
use super::exchange::{Begun, RecordedRoute, Settled, Wanted};
use super::headers::HeaderBlock;
use super::pipe::Pipe;
use super::record::Record;
use super::sampling::{Draw, Outcome};
use super::tap::{Caps, Tap};

/// Most bytes kept of a request body.
const REQUEST_MAX: u64 = 10 << 20;

/// Smaller bodies are copied: a reference would keep a whole read buffer alive.
const SHARED_MIN: usize = 16 << 10;

/// Longest header value taken from an answer, bytes.
const ANSWER_HEADER_MAX: usize = 256;

/// The capture of one request; see the module.
#[derive(Debug)]
pub struct Capture {
    pipe: Arc<Pipe>,
    pub(super) route: Arc<RecordedRoute>,
    draw: Draw,
    slow: Option<Duration>,
    /// Most bytes kept of each body.
    body_bytes_max: u64,
    pub(super) headers: HeaderBlock,
    pub(super) client: IpAddr,
    pub(super) session: Option<Box<str>>,
    pub(super) request: Option<Bytes>,
    pub(super) request_bytes: u64,
    /// The budget charge for `request`.
    request_cost: usize,
    /// A request body was announced but not read, so nothing is known about it.
    pub(super) awaits_body: bool,
    /// The value of `stream` in the request.
    pub(super) asked_for_stream: Option<bool>,
    pub(super) tap: Tap,
    pub(super) answer: Option<Answer>,
    pub(super) refusal: Option<&'static str>,
    pub(super) first_chunk: Option<Instant>,
    pub(super) last_chunk: Option<Instant>,
    /// Bodies were left out because room was short.
    pub(super) is_shed: bool,
    pub(super) charge: Charge,
}

/// Values from a peer's response head.
#[derive(Debug)]
pub(super) struct Answer {
    pub encoding: Option<Box<str>>,
    /// The peer's own `X-Routed-Peer`, present if the peer is a router.
    pub forwarded_to: Option<Box<str>>,
    pub is_stream: bool,
    /// Time spent connecting to the peer; absent if an existing connection was used.
    pub connect: Option<Duration>,
}

impl Capture {
    /// Begins to capture a request. Returns `None` and counts a loss if the budget is spent.
    pub(super) fn begin(pipe: &Arc<Pipe>, begun: &Begun<'_>) -> Option<Box<Self>> {
        let (route, headers) = (begun.route, begun.headers);
        let Wanted {
            pct,
            slow,
            body_bytes_max,
        } = begun.wanted;
        let draw = pipe.sampler.draw(pct);
        let headers_block = HeaderBlock::of(headers);
        let mut charge = pipe.shared.budget.charge();
        let cost = size_of::<Self>() + size_of::<Record>() + headers_block.cost();
        if !charge.try_take(cost, Share::Meta) {
            if draw != Draw::Out {
                pipe.shared.counters.dropped(Reason::Budget, 1);
                route.counters.dropped();
            }
            return None;
        }
        let is_shed = body_bytes_max > 0 && pipe.shared.grade() >= DetailLevel::NoBodies;
        let body_bytes_max = if is_shed { 0 } else { body_bytes_max };
        let tap = match caps(body_bytes_max, draw) {
            Some(caps) => Tap::new(caps, pipe.shared.budget.charge()),
            None => Tap::counting(),
        };
        Some(Box::new(Self {
            pipe: Arc::clone(pipe),
            route: Arc::clone(route),
            draw,
            slow,
            body_bytes_max,
            headers: headers_block,
            client: begun.client,
            session: None,
            request: None,
            request_bytes: 0,
            request_cost: 0,
            awaits_body: announces_body(headers),
            asked_for_stream: None,
            tap,
            answer: None,
            refusal: None,
            first_chunk: None,
            last_chunk: None,
            is_shed,
            charge,
        }))
    }

    /// Takes the request body as the client sent it.
    pub fn request(&mut self, body: &Bytes) {
        self.awaits_body = false;
        self.request_bytes = body.len() as u64;
        let limit = self.body_bytes_max.min(REQUEST_MAX);
        if limit == 0 {
            return;
        }
        let kept = usize::try_from(limit).map_or(body.len(), |limit| limit.min(body.len()));
        // A reference retains the whole buffer, so a small part of a large body is copied too.
        let is_shared = kept >= SHARED_MIN && kept * 4 >= body.len();
        let cost = if is_shared { body.len() } else { kept };
        if !self.charge.try_take(cost, Share::Bodies) {
            self.shed();
            return;
        }
        self.request_cost = cost;
        self.request = Some(match is_shared {
            true => body.slice(..kept),
            false => Bytes::copy_from_slice(&body[..kept]),
        });
    }

    /// Counts bytes of the request body that are sent on as they arrive, and are not kept.
    pub fn request_goes_on(&mut self, bytes: u64) {
        self.request_bytes += bytes;
    }

    /// Sets the value of `stream` in the request body. The body itself may not be kept.
    pub fn asked_for_stream(&mut self, asked: Option<bool>) {
        self.asked_for_stream = asked;
    }

    /// Sets the session of the request, in the form that logs may show.
    pub fn session(&mut self, id: &[u8]) {
        self.session = Some(String::from_utf8_lossy(id).into());
    }

    /// Records that the router refuses the request.
    pub fn refused(&mut self, code: &'static str) {
        self.refusal = Some(code);
    }

    /// Takes the body of an answer that the router generated.
    pub fn local(&mut self, body: &Bytes) {
        self.recap(500);
        self.tap.chunk(body);
    }

    /// Records that a peer's answer begins. `connect` is the time spent connecting to the peer.
    pub fn answered(&mut self, head: &response::Parts, connect: Duration) {
        let text = |name: header::HeaderName| {
            let value = head.headers.get(name)?.to_str().ok()?;
            (value.len() <= ANSWER_HEADER_MAX).then(|| value.into())
        };
        // Another route may have refused the request before.
        self.refusal = None;
        let content_type = head.headers.get(header::CONTENT_TYPE);
        self.recap(head.status.as_u16());
        self.answer = Some(Answer {
            encoding: text(header::CONTENT_ENCODING),
            forwarded_to: text(header::HeaderName::from_static("x-routed-peer")),
            is_stream: content_type.is_some_and(is_events),
            connect: Some(connect),
        });
    }

    /// An answer with this status is recorded regardless of the draw.
    fn recap(&mut self, status: u16) {
        if self.draw == Draw::Out
            && status >= 500
            && let Some(caps) = caps(self.body_bytes_max, Draw::All)
        {
            self.tap.recap(caps);
        }
    }

    /// Takes a chunk of a peer's answer that passed at `now`, before anything was removed from it.
    pub fn chunk(&mut self, data: &Bytes, now: Instant) {
        if data.is_empty() {
            return;
        }
        self.first_chunk.get_or_insert(now);
        self.last_chunk = Some(now);
        self.tap.chunk(data);
    }

    /// Ends the capture and offers its record, if the exchange is to be recorded.
    pub fn settle(self: Box<Self>, settled: Box<dyn Settled>) {
        let facts = settled.facts();
        let outcome = Outcome {
            status: facts.status,
            took: facts.took,
            is_truncated: facts.is_truncated(),
        };
        let Some(sampled_by) = self.draw.decide(outcome, self.slow) else {
            return;
        };
        let pipe = Arc::clone(&self.pipe);
        let record = Record::new(self, settled, sampled_by);
        if let Err(error) = pipe.records.try_send(record) {
            let (reason, record) = match error {
                tokio::sync::mpsc::error::TrySendError::Full(record) => (Reason::Budget, record),
                tokio::sync::mpsc::error::TrySendError::Closed(record) => {
                    (Reason::Shutdown, record)
                }
            };
            pipe.shared.counters.dropped(reason, 1);
            record.counters().dropped();
        }
    }

    /// Drops the bodies.
    pub(super) fn shed(&mut self) {
        if self.request.take().is_some() {
            self.charge.give(self.request_cost);
        }
        self.tap.shed();
        self.is_shed = true;
    }
}

/// How much of an answer to keep; `None` for nothing.
fn caps(body_bytes_max: u64, draw: Draw) -> Option<Caps> {
    if body_bytes_max == 0 {
        return None;
    }
    let caps = Caps::within(body_bytes_max);
    Some(match draw {
        Draw::Out => Caps {
            head: caps.head.min(Caps::GLANCE.head),
            tail: caps.tail.min(Caps::GLANCE.tail),
        },
        Draw::All | Draw::Rate => caps,
    })
}

/// Whether the headers announce a body.
fn announces_body(headers: &HeaderMap) -> bool {
    let length = headers.get(header::CONTENT_LENGTH);
    headers.contains_key(header::TRANSFER_ENCODING) || length.is_some_and(|length| length != "0")
}

fn is_events(content_type: &HeaderValue) -> bool {
    let kind = content_type.as_bytes().split(|byte| *byte == b';').next();
    kind.is_some_and(|kind| kind.trim_ascii().eq_ignore_ascii_case(b"text/event-stream"))
}

impl Answer {
    /// The format of the answer's body.
    pub(super) fn form(&self) -> Form {
        let is_plain = self
            .encoding
            .as_ref()
            .is_none_or(|encoding| encoding.eq_ignore_ascii_case("identity"));
        match (is_plain, self.is_stream) {
            (false, _) => Form::Opaque,
            (true, true) => Form::Events,
            (true, false) => Form::Document,
        }
    }
}
