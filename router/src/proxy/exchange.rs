//! One request from arrival to its last byte: what is known about it, and how it is settled.
//!
//! The exchange owns the reservation. It travels through the handler and then inside the response
//! body; wherever it is dropped (end of stream, error, client gone, time-out, panic) the slot is
//! released once and the request is counted, logged and remembered once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use answers::Meter;
use chrono::Utc;
use http::{HeaderMap, Method, Response, StatusCode, Uri};
use router_bodylog::{BodyLog, Capture};
use router_core::book::PoolId;
use router_core::decision::{Attempt, Choice, Mode, Receipt, Usage};

use super::head::HeadWatch;
use super::measure::{End, Least, Measure};
use super::recorded::Recorded;
use crate::state::{Peer, Reservation, Route};
use crate::telemetry::access::{AccessLine, AccessLog};
use crate::telemetry::events::Events;
use crate::telemetry::metrics::{Metrics, RequestDone};

/// Status recorded for a client that left before it was sent one (nginx's number).
const CLIENT_CLOSED: u16 = 499;

/// Gaps between chunks kept before they are handed to the histogram.
const GAPS_MAX: usize = 64;

/// Where settled exchanges go.
#[derive(Debug)]
pub struct Sinks {
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Log lines with their counters.
    pub events: Arc<Events>,
    /// Access lines; `None` with `access_log: false`.
    pub access: Option<Arc<AccessLog>>,
    /// Records of exchanges.
    pub bodylog: Arc<BodyLog>,
}

/// Times of one exchange, monotonic.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// The request's headers were read.
    pub arrived: Instant,
    /// Its body was read.
    pub received: Option<Instant>,
    /// It was first handed to a peer's connection.
    pub sent: Option<Instant>,
    /// The first body byte of a stream passed.
    pub first_byte: Option<Instant>,
    /// The last chunk of any body passed.
    pub last_chunk: Option<Instant>,
}

/// What is known about one request.
#[derive(Debug)]
pub struct Exchange {
    /// `x-request-id`.
    pub rid: Arc<str>,
    /// Request method.
    pub method: Method,
    /// As the client sent it; only the path is ever logged.
    pub uri: Uri,
    /// The path without the route prefix starts here.
    pub path_at: usize,
    /// The route, once one is found.
    pub route: Option<Arc<Route>>,
    /// The slot, while one is held.
    pub reservation: Option<Reservation>,
    /// Owner of the key.
    pub owner: Option<Arc<str>>,
    /// The body's `model`, its first 128 bytes.
    pub model: Option<Arc<str>>,
    /// The body is one JSON object.
    pub is_json_object: bool,
    /// As `X-Routed-Session` shows it.
    pub session: Arc<str>,
    /// As `X-Routed-Source` shows it.
    pub source: Arc<str>,
    /// The decision, once one is made.
    pub choice: Option<Choice>,
    /// The peer in use, or tried last.
    pub peer: Option<Arc<Peer>>,
    /// Attempts beyond the first.
    pub retries: u32,
    /// One entry per peer tried.
    pub attempts: Vec<Attempt>,
    /// Status sent to the client.
    pub status: Option<StatusCode>,
    /// Bytes of the request body.
    pub bytes_in: u64,
    /// Bytes of the response body.
    pub bytes_out: u64,
    /// Clocks.
    pub times: Times,
    /// The response was handed over whole.
    pub complete: bool,
    /// Written to the access log. Health checks are not: they would be most of it.
    pub logged: bool,
    /// Told when the response is done.
    pub head: Option<Arc<HeadWatch>>,
    /// The measuring of the peer's answer, from its head on.
    measure: Option<Box<Measure>>,
    /// What the body log takes of it; `None` where it is not recorded.
    pub capture: Option<Box<Capture>>,
    /// The stream was asked for usage that the client must not see.
    pub asked_for_usage: bool,
    /// The first body byte of a peer's answer passed.
    first_chunk: Option<Instant>,
    trace_id: Option<Box<str>>,
    gaps: Gaps,
    /// Where it is counted and logged.
    pub sinks: Arc<Sinks>,
}

#[derive(Debug)]
struct Gaps {
    seconds: [f32; GAPS_MAX],
    len: usize,
}

impl Exchange {
    /// A request whose headers have just been read.
    pub fn begin(
        rid: Arc<str>,
        method: Method,
        uri: Uri,
        headers: &HeaderMap,
        sinks: Arc<Sinks>,
        now: Instant,
    ) -> Self {
        Self {
            rid,
            method,
            uri,
            path_at: 0,
            route: None,
            reservation: None,
            owner: None,
            model: None,
            is_json_object: false,
            session: dash(),
            source: no_source(),
            choice: None,
            peer: None,
            retries: 0,
            attempts: Vec::new(),
            status: None,
            bytes_in: 0,
            bytes_out: 0,
            times: Times {
                arrived: now,
                received: None,
                sent: None,
                first_byte: None,
                last_chunk: None,
            },
            complete: false,
            logged: true,
            head: None,
            measure: None,
            capture: None,
            asked_for_usage: false,
            first_chunk: None,
            trace_id: trace_id(headers),
            gaps: Gaps {
                seconds: [0.0; GAPS_MAX],
                len: 0,
            },
            sinks,
        }
    }

    /// The path without the route prefix and without the query.
    pub fn path(&self) -> &str {
        self.uri.path().get(self.path_at..).unwrap_or_default()
    }

    /// How the peer was found; `None` before one was.
    pub fn mode(&self) -> Option<Mode> {
        match self.choice {
            Some(Choice::Send { mode, .. }) => Some(mode),
            _ => None,
        }
    }

    /// A peer answered: from here on its body is measured. `decoded`: it is read decoded, if it comes
    /// compressed.
    pub fn measure_answer<B>(&mut self, response: &Response<B>, pool: PoolId, decoded: bool) {
        self.measure = Measure::of(&self.method, response, pool, decoded);
    }

    /// What the peer's body told so far; `None` where it is not read.
    pub fn meter(&self) -> Option<&Meter> {
        self.measure.as_ref()?.meter.as_ref()
    }

    /// Reads a part of the peer's answer, decoded where it comes compressed and is decoded at all.
    pub fn read(&mut self, data: &[u8]) {
        if let Some(measure) = &mut self.measure {
            measure.feed(data);
        }
    }

    /// A chunk of the peer's response came at `now`, not an empty one. `stream` says whether the times
    /// between chunks are worth keeping.
    pub fn arrived(&mut self, stream: bool, now: Instant) {
        self.first_chunk.get_or_insert(now);
        if stream {
            self.stream_times(now);
        }
        self.times.last_chunk = Some(now);
    }

    fn stream_times(&mut self, now: Instant) {
        match self.times.last_chunk {
            None => {
                self.times.first_byte = Some(now);
                // At once: a signal of overload that waits for the end of a stream comes too late.
                if let (Some(route), Some(measure)) = (&self.route, &self.measure)
                    && let Some(sample) = measure.first_byte(&self.times, now)
                {
                    route.sample(measure.pool, sample);
                }
            }
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

    /// How the answer ended.
    fn end(&self) -> End {
        let last = self.attempts.last();
        let is_broken = last.is_some_and(|last| last.error.is_some());
        match (self.complete, is_broken) {
            (false, _) => End::Left,
            (true, true) => End::Broken,
            (true, false) => End::Whole,
        }
    }

    /// The answer is over: its rate becomes a sample.
    fn finish_measure(&mut self) {
        let end = self.end();
        let Some(measure) = &mut self.measure else {
            return;
        };
        if let Some(meter) = &mut measure.meter {
            meter.finish();
        }
        let Some(route) = &self.route else { return };
        let least = Least {
            tokens: route.options.tps_min_tokens.value,
            decode: route.options.tps_min_decode.value,
        };
        if let Some(sample) = measure.rate(&self.times, end, least) {
            route.sample(measure.pool, sample);
        }
        if let (Some(meter), Some(Choice::Send { facts, .. })) = (&measure.meter, &self.choice)
            && let Some(usage) = meter.usage()
        {
            route.tokens(facts, usage.prompt, usage.cached);
        }
    }

    fn flush_gaps(&mut self) {
        if let Some(route) = &self.route {
            route
                .state
                .metrics
                .chunk_gaps(&self.gaps.seconds[..self.gaps.len]);
        }
        self.gaps.len = 0;
    }

    fn settle(&mut self) {
        drop(self.reservation.take());
        self.flush_gaps();
        self.finish_measure();
        let now = now();
        let since = |at: Instant| at.saturating_duration_since(self.times.arrived);
        let seconds = since(now).as_secs_f64();
        let status = self.status.map_or(CLIENT_CLOSED, |status| status.as_u16());
        let ttft = self.times.first_byte.map(since);
        let counters = match &self.route {
            Some(route) => &route.state.metrics,
            None => self.sinks.metrics.unrouted(),
        };
        counters.request_done(&RequestDone {
            model: self.model.as_deref(),
            peer: self.peer.as_ref().map(|peer| peer.spec.key.as_str()),
            code: status,
            request_seconds: seconds,
            ttft_seconds: ttft.map(|ttft| ttft.as_secs_f64()),
            ttfb_seconds: self.first_chunk.map(|at| since(at).as_secs_f64()),
            overhead_seconds: self.queued().map(|queued| queued.as_secs_f64()),
            owner: self.owner.as_deref(),
            usage: self.meter().and_then(Meter::usage),
            mode: match &self.choice {
                Some(Choice::Send { mode, .. }) => Some(*mode),
                _ => None,
            },
        });
        let ttft_ms = ttft.map(|ttft| u64::try_from(ttft.as_millis()).unwrap_or(u64::MAX));
        if let Some(access) = self.sinks.access.as_ref().filter(|_| self.logged) {
            access.write(&self.access_line(status, seconds, ttft_ms), Utc::now());
        }
        let capture = self.capture.take();
        let captured = capture.map(|capture| (capture, self.recorded(status, now)));
        self.remember(status, seconds, ttft_ms);
        if let Some((capture, mut recorded)) = captured {
            recorded.meter = self.measure.take().and_then(|measure| measure.meter);
            capture.settle(Box::new(recorded));
        }
    }

    /// What its record says beside what was captured.
    fn recorded(&self, status: u16, now: Instant) -> Recorded {
        let took = now.saturating_duration_since(self.times.arrived);
        Recorded {
            rid: Arc::clone(&self.rid),
            method: self.method.clone(),
            uri: self.uri.clone(),
            path_at: self.path_at,
            owner: self.owner.clone(),
            model: self.model.clone(),
            source: Arc::clone(&self.source),
            choice: self.choice.clone(),
            peer: self.peer.clone(),
            attempts: u32::try_from(self.attempts.len()).unwrap_or(u32::MAX),
            status,
            unix_ms: (Utc::now() - took).timestamp_millis(),
            times: self.times,
            queued: self.queued(),
            took,
            end: self.end(),
            meter: None,
        }
    }

    /// From the request's last byte to its first send: the router's own share of the wait.
    fn queued(&self) -> Option<Duration> {
        let (received, sent) = (self.times.received?, self.times.sent?);
        Some(sent.saturating_duration_since(received))
    }

    fn access_line(&self, status: u16, seconds: f64, ttft_ms: Option<u64>) -> AccessLine<'_> {
        AccessLine {
            rid: &self.rid,
            method: self.method.as_str(),
            path: self.uri.path(),
            status,
            seconds,
            route: self.route.as_ref().map(|route| &*route.name),
            peer: self.peer.as_ref().map(|peer| &*peer.spec.name),
            mode: self.mode().map(Mode::as_str),
            retries: self.retries,
            owner: self.owner.as_deref(),
            model: self.model.as_deref(),
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            ttft_ms,
            tokens: self.meter().and_then(Meter::completion),
            trace_id: self.trace_id.as_deref(),
        }
    }

    fn remember(&mut self, status: u16, seconds: f64, ttft_ms: Option<u64>) {
        let Some(route) = self.route.clone() else {
            return;
        };
        let Some(decision) = self.choice.take() else {
            return;
        };
        let at_unix_ms = u64::try_from(Utc::now().timestamp_millis()).unwrap_or_default();
        let duration_ms = (seconds * 1000.0) as u64;
        let meter = self.meter();
        let usage = meter.and_then(Meter::usage).map(receipt_usage);
        let finish_reason = meter.and_then(Meter::finish_reason).map(Arc::from);
        route.state.decisions.push(Receipt {
            request_id: Arc::clone(&self.rid),
            at_unix_ms: at_unix_ms.saturating_sub(duration_ms),
            route: Arc::clone(&route.name),
            model: self.model.take(),
            method: Arc::from(self.method.as_str()),
            path: Arc::from(self.path()),
            session: Arc::clone(&self.session),
            source: Arc::clone(&self.source),
            decision,
            attempts: std::mem::take(&mut self.attempts),
            status,
            duration_ms,
            ttft_ms,
            usage,
            finish_reason,
            client_gone: !self.complete,
        });
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.settle();
        if let Some(head) = &self.head {
            head.expect();
        }
    }
}

/// The monotonic clock of the request path; a paused test clock reaches it.
pub fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// What a header says where there is nothing to say.
pub fn dash() -> Arc<str> {
    static DASH: std::sync::LazyLock<Arc<str>> = std::sync::LazyLock::new(|| Arc::from("-"));
    Arc::clone(&DASH)
}

/// What `X-Routed-Source` says of a request without a session.
pub(super) fn no_source() -> Arc<str> {
    static NONE: std::sync::LazyLock<Arc<str>> = std::sync::LazyLock::new(|| Arc::from("none"));
    Arc::clone(&NONE)
}

fn receipt_usage(usage: answers::Usage) -> Usage {
    Usage {
        prompt: usage.prompt,
        completion: usage.completion,
        cached: usage.cached,
        reasoning: usage.reasoning,
        total: usage.total,
    }
}

/// The trace id of a W3C `traceparent`: `00-<32 hex>-<16 hex>-<2 hex>`.
fn trace_id(headers: &HeaderMap) -> Option<Box<str>> {
    let parent = headers.get("traceparent")?.to_str().ok()?;
    let id = parent.split('-').nth(1)?;
    (id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit())).then(|| id.into())
}
