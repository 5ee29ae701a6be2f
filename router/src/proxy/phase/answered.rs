//! The fifth phase: a request with an answering peer. It lives in the response's body until the
//! last byte is handed over.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{StatusCode, Version, response};
use router_bodylog::End;
use router_core::health::{AttemptEnd, Failure};

use super::progress::{Ending, Progress};
use super::{Live, Phase, Placed};
use crate::content::postprocess::Outcome;
use crate::proxy::error::ApiError;
use crate::proxy::head::HeadWatch;
use crate::proxy::measure::{Least, Measure, Span};
use crate::proxy::respond::Media;
use crate::proxy::stored::{self, IdWatch, StoredUse};
use crate::state::Route;
use answers::Meter;

/// Number of gaps between chunks that are buffered before the histogram gets them.
const GAPS_MAX: usize = 64;

/// A request with an answering peer.
#[derive(Debug)]
pub(in crate::proxy) struct Answered {
    /// The request and its slot.
    pub(in crate::proxy) placed: Placed,
    head: Head,
    /// The peer's status, which may differ from the status that the client gets.
    status: StatusCode,
    is_stream: bool,
    measure: Option<Box<Measure>>,
    /// Reads the id of the object that the answer says was stored.
    ids: Option<Box<IdWatch>>,
    span: Span,
    gaps: Gaps,
    bytes_out: u64,
    end: End,
    /// Evidence about the peer from an answer that broke off.
    broke: AttemptEnd,
}

/// How an answer is observed.
#[derive(Clone, Copy, Debug)]
pub(in crate::proxy) struct Observed {
    /// The kind of its body.
    pub(in crate::proxy) media: Media,
    /// A compressed body is read decoded.
    pub(in crate::proxy) is_decoded: bool,
    /// The head is sent after the whole body has arrived.
    pub(in crate::proxy) is_held: bool,
}

/// The head of the answer to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Head {
    /// The head waits for the body: a failure can still change its status.
    Held(StatusCode),
    /// The head was sent.
    Sent(StatusCode),
}

/// Times between chunks of a stream.
#[derive(Debug)]
struct Gaps {
    seconds: [f32; GAPS_MAX],
    len: usize,
}

impl Answered {
    /// Starts the phase with this head of the peer's answer. Making the connection took `connect`.
    pub(in crate::proxy) fn live(
        placed: Live<Placed>,
        head: &response::Parts,
        connect: Duration,
        observed: Observed,
    ) -> Live<Self> {
        placed.next(|mut placed| {
            let authorised = &mut placed.inspected.authorised;
            if let Some(capture) = &mut authorised.capture {
                capture.answered(head, connect);
            }
            let method = &authorised.arrival.method;
            let stored = placed.inspected.asked.stored;
            let ids = match stored != StoredUse::Nothing && head.status.is_success() {
                true => stored::answered(
                    stored,
                    &authorised.arrival.sinks.stored,
                    authorised.path(),
                    || stored::at(&authorised.route, &placed.tries.peer),
                ),
                false => None,
            };
            Self {
                ids,
                head: match observed.is_held {
                    true => Head::Held(head.status),
                    false => Head::Sent(head.status),
                },
                status: head.status,
                is_stream: observed.media == Media::EventStream,
                measure: Measure::of(method, head, placed.pool, observed),
                span: Span::new(authorised.arrival.at),
                gaps: Gaps {
                    seconds: [0.0; GAPS_MAX],
                    len: 0,
                },
                bytes_out: 0,
                end: End::Left,
                broke: AttemptEnd::Neutral,
                placed,
            }
        })
    }

    /// The request's route.
    pub(in crate::proxy) fn route(&self) -> &Arc<Route> {
        self.placed.route()
    }

    /// The client's connection.
    pub(in crate::proxy) fn connection(&self) -> &HeadWatch {
        &self.placed.inspected.authorised.arrival.head
    }

    /// The body ends early, without an error event. In HTTP/1.0 the end of the connection is the
    /// end of the body, so only a reset distinguishes a broken body from a complete one.
    pub(in crate::proxy) fn abort(&self) {
        if self.placed.inspected.authorised.arrival.version < Version::HTTP_11 {
            self.connection().reset();
        }
    }

    /// Whether the head waits for the body.
    pub(in crate::proxy) fn is_head_held(&self) -> bool {
        matches!(self.head, Head::Held(_))
    }

    /// Records that the head is sent.
    pub(in crate::proxy) fn head_sent(&mut self) {
        let (Head::Held(status) | Head::Sent(status)) = self.head;
        self.head = Head::Sent(status);
    }

    /// Records that an error of the router replaces the answer.
    pub(in crate::proxy) fn replaced(
        &mut self,
        error: &ApiError,
        status: StatusCode,
        bytes: usize,
    ) {
        if let Some(capture) = &mut self.placed.inspected.authorised.capture {
            capture.refused(error.code());
        }
        self.head = Head::Sent(status);
        self.bytes_out = bytes as u64;
    }

    /// Records a non-empty chunk of the peer's body.
    pub(in crate::proxy) fn arrived(&mut self, data: &Bytes, now: Instant) {
        if self.is_stream {
            self.stream_times(now);
        }
        if self.span.first.is_none() && self.status.is_success() {
            let Placed {
                inspected, tries, ..
            } = &mut self.placed;
            let authorised = &inspected.authorised;
            tries.first_byte(&authorised.route, &authorised.arrival.sinks.events);
        }
        self.span.chunk(now);
        if let Some(capture) = &mut self.placed.inspected.authorised.capture {
            capture.chunk(data, now);
        }
    }

    fn stream_times(&mut self, now: Instant) {
        match self.span.last {
            None => {}
            Some(last) => {
                if self.gaps.len == GAPS_MAX {
                    self.flush_gaps();
                }
                self.gaps.seconds[self.gaps.len] =
                    now.saturating_duration_since(last).as_secs_f32();
                self.gaps.len += 1;
            }
        }
    }

    fn flush_gaps(&mut self) {
        let gaps = &self.gaps.seconds[..self.gaps.len];
        self.route().state.metrics.chunk_gaps(gaps);
        self.gaps.len = 0;
    }

    /// Reads a part of the peer's answer that came with the last chunk. The part is decoded if the
    /// body is compressed and decoding is on.
    pub(in crate::proxy) fn read(&mut self, data: &[u8]) {
        if let Some(ids) = &mut self.ids {
            let stored = &self.placed.inspected.authorised.arrival.sinks.stored;
            if ids.feed(data, stored) {
                self.ids = None;
            }
        }
        let (Some(measure), Some(now)) = (&mut self.measure, self.span.last) else {
            return;
        };
        let pool = measure.pool;
        // Sent at once: at the end of the stream, a signal of overload would be too late.
        if let Some(sample) = measure.feed(data, &mut self.span, now) {
            self.route().sample(pool, sample);
        }
    }

    /// Number of events read so far.
    pub(in crate::proxy) fn events(&self) -> u64 {
        let meter = self.measure.as_ref().and_then(|it| it.meter.as_ref());
        meter.map_or(0, Meter::events)
    }

    /// Adds bytes that are sent to the client.
    pub(in crate::proxy) fn sent(&mut self, bytes: usize) {
        self.bytes_out += bytes as u64;
    }

    /// Records the result of a handler.
    pub(in crate::proxy) fn postprocessed(&self, outcome: Outcome) {
        self.route().state.metrics.postprocessed(outcome);
    }

    /// Records that the body was handed over completely, unless the answer broke off before.
    pub(in crate::proxy) fn is_whole(&mut self) {
        if self.end == End::Left {
            self.end = End::Whole;
        }
    }

    /// Records that the answer breaks off; `says` is the evidence about the peer.
    pub(in crate::proxy) fn broke(&mut self, cause: &str, says: AttemptEnd) {
        self.placed.tries.failed(&cause.into());
        self.end = End::Broken;
        self.broke = says;
    }

    /// The evidence about the peer at the end of the answer.
    fn attempt_end(&self) -> AttemptEnd {
        if self.status.is_server_error() {
            return AttemptEnd::Failed(Failure::ServerError);
        }
        match self.end {
            End::Broken => self.broke,
            End::Left if self.span.first.is_none() => AttemptEnd::Abandoned,
            End::Whole if self.status.is_success() => match self.lacks_its_terminator() {
                true => AttemptEnd::Failed(Failure::Cut),
                false => AttemptEnd::Served,
            },
            End::Whole | End::Left => AttemptEnd::Neutral,
        }
    }

    /// Whether a stream of generated content ended as if it was cut. Other streams have no
    /// terminator that could be missing.
    fn lacks_its_terminator(&self) -> bool {
        let meter = self.measure.as_ref().and_then(|it| it.meter.as_ref());
        let is_cut = |meter: &Meter| meter.has_content() && !meter.is_complete();
        self.is_stream && meter.is_some_and(is_cut)
    }

    /// Reads the incomplete event after the last chunk.
    fn finish_meter(&mut self) {
        if let Some(measure) = &mut self.measure {
            measure.finish();
        }
    }

    /// Takes the sample of the whole answer's rate. Returns what was read of the answer.
    fn finish_measure(&mut self) -> Option<Meter> {
        let measure = self.measure.take()?;
        let route = self.route();
        let least = Least {
            tokens: route.options.tps_min_tokens.value,
            decode: route.options.tps_min_decode.value,
        };
        if let Some(sample) = measure.rate(&self.span, self.end, least) {
            route.sample(measure.pool, sample);
        }
        let meter = measure.meter?;
        if let Some(usage) = meter.usage() {
            route.tokens(&self.placed.facts, usage.prompt, usage.cached);
        }
        Some(meter)
    }
}

impl Phase for Answered {
    fn settle(mut self) {
        self.finish_meter();
        let end = self.attempt_end();
        let Placed {
            inspected, tries, ..
        } = &mut self.placed;
        let authorised = &inspected.authorised;
        tries.finish(&authorised.route, &authorised.arrival.sinks.events, end);
        self.flush_gaps();
        let meter = self.finish_measure();
        let status = match self.head {
            Head::Held(_) => Ending::left().status,
            Head::Sent(status) => status.as_u16(),
        };
        Progress::from(self.placed).settle(Ending {
            status,
            bytes_out: self.bytes_out,
            end: self.end,
            first_chunk: self.span.first,
            first_token: self.span.first_token,
            last_chunk: self.span.last,
            meter,
        });
    }
}
