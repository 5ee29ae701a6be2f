//! Relays the response: each chunk passes as it came, observed but never delayed.
//!
//! A stream that breaks after its headers gets one error event in the client's dialect, and then
//! the connection is aborted: every SDK would take a clean end for success.

use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use super::early::{Early, Pings};
use super::edits::Edits;
use super::error::{ApiError, Dialect};
use super::forward::at_peer;
use super::phase::{Answered, Live, LocalAnswer};
use super::respond::{self, Stamp};
use super::shutdown_notice::ShutdownNotice;
use super::timer::Timer;
use super::unwritten::Unwritten;
use crate::clock::now;
use crate::upstream::PeerBody;
use crate::upstream::client::chain;
use bytes::Bytes;
use http::response;
use http_body::{Body as HttpBody, Frame, SizeHint};
use router_core::health::{AttemptEnd, Failure};

/// Poll interval while waiting for the socket to drain before an abort. An abort drops whatever is
/// still unsent: the error event, or the head and the first part of a body.
const FLUSH_TICK: Duration = Duration::from_millis(10);

/// After this many polls the router aborts anyway, because the client does not read.
const FLUSH_TICKS: u16 = 500;

/// Evidence about the peer from an answer that breaks off.
const CUT: AttemptEnd = AttemptEnd::Failed(Failure::Cut);

/// The error that ends a connection with an incomplete response.
#[derive(Debug)]
pub struct Aborted;

impl fmt::Display for Aborted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the response broke off")
    }
}

impl Error for Aborted {}

/// A response body of the public port.
#[derive(Debug)]
pub struct Body(Kind);

#[derive(Debug)]
enum Kind {
    /// A body made by the router.
    Local {
        /// Taken by the first poll.
        bytes: Option<Bytes>,
        /// Settled when the body is dropped.
        _answer: Box<Live<LocalAnswer>>,
    },
    /// A peer's body.
    Relay(Box<Relay>),
    /// No body.
    Empty,
    /// A body that begins before the peer answers.
    Early(Box<Early>),
}

impl Body {
    /// The body of an answer made by the router.
    pub(super) fn local(bytes: Bytes, answer: Live<LocalAnswer>) -> Self {
        Self(Kind::Local {
            bytes: Some(bytes),
            _answer: Box::new(answer),
        })
    }

    /// No body: the answer says that the protocol changes.
    pub(super) fn empty() -> Self {
        Self(Kind::Empty)
    }

    /// A body that begins before the peer answers.
    pub(super) fn early(early: Box<Early>) -> Self {
        Self(Kind::Early(early))
    }

    /// The body of a peer's answer.
    pub(super) fn relay(relay: Box<Relay>) -> Self {
        Self(Kind::Relay(relay))
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Aborted;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        match &mut self.get_mut().0 {
            Kind::Local { bytes, .. } => {
                let bytes = bytes.take().filter(|bytes| !bytes.is_empty());
                Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
            }
            Kind::Relay(relay) => relay.poll(cx),
            Kind::Empty => Poll::Ready(None),
            Kind::Early(early) => early.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Local { bytes, .. } => bytes.as_ref().is_none_or(Bytes::is_empty),
            Kind::Relay(relay) => relay.is_end(),
            Kind::Empty => true,
            Kind::Early(early) => early.is_end(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Local { bytes, .. } => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Kind::Relay(relay) => relay.size_hint(),
            Kind::Empty => SizeHint::with_exact(0),
            Kind::Early(_) => SizeHint::default(),
        }
    }
}

/// The time limits of one response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Maximum time between two chunks of the peer.
    pub idle: Duration,
    /// Maximum time without progress in sending to the client.
    pub client_idle: Duration,
    /// The deadline of the whole request, and the option's value for the message.
    pub deadline: Option<(Instant, Duration)>,
}

/// A peer's response body with its observers.
#[derive(Debug)]
pub(super) struct Relay {
    inner: PeerBody,
    answered: Live<Answered>,
    bounds: Bounds,
    /// When the last frame arrived, for the idle limit.
    active: Instant,
    /// One timer per stream, re-armed only when it fires.
    timer: Option<Timer>,
    stream: Option<Stream>,
    /// The edits of the body; `None` once the body has ended.
    edits: Option<Box<Edits>>,
    /// A frame that arrived before everything ahead of it was sent.
    trailers: Option<Frame<Bytes>>,
    /// A frame to send before anything else.
    first: Option<Frame<Bytes>>,
    /// Why the body broke off, if no event reports it.
    failure: Option<ApiError>,
    /// Pings for the client until the peer sends something.
    pings: Option<Box<Pings>>,
    /// Ends a stream before the process ends.
    shutdown_notice: Option<ShutdownNotice>,
    unwritten: Unwritten,
    flow: Flow,
}

/// The state that an event stream needs to end with an event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    /// The client's dialect.
    pub dialect: Dialect,
    /// False if no event may be added to the body: `transparent`, or a compressed body.
    pub speaks: bool,
    /// The last two bytes relayed.
    tail: [u8; 2],
}

#[derive(Debug)]
enum Flow {
    /// Chunks pass.
    Open,
    /// Everything has been handed over, with an error event at the end if possible. The abort
    /// follows once it is written.
    Breaking {
        /// The connection's number of flushes at that time.
        flushes: u32,
        /// Number of polls left before the abort.
        ticks: u16,
    },
    /// The body has ended.
    Closed,
}

impl Stream {
    /// A stream at its beginning.
    pub(super) fn new(dialect: Dialect, speaks: bool) -> Self {
        Self {
            dialect,
            speaks,
            tail: *b"\n\n",
        }
    }

    fn passed(&mut self, data: &[u8]) {
        match data {
            [] => {}
            [one] => self.tail = [self.tail[1], *one],
            [.., a, b] => self.tail = [*a, *b],
        }
    }

    /// The line ends that complete the bytes relayed so far, so that an event can follow.
    fn gap(&self) -> &'static str {
        match self.tail {
            [b'\n', b'\n'] => "",
            [_, b'\n'] => "\n",
            _ => "\n\n",
        }
    }
}

impl Relay {
    /// Relays a peer's body. `stream` is present for `text/event-stream`. If the process ends
    /// first, such a stream ends with an event where one may be added.
    pub(super) fn new(
        inner: PeerBody,
        answered: Live<Answered>,
        bounds: Bounds,
        stream: Option<Stream>,
        edits: Option<Box<Edits>>,
        shutdown_notice: ShutdownNotice,
        unwritten: Unwritten,
    ) -> Box<Self> {
        let deadline = bounds.deadline.map(|(end, _)| end);
        answered
            .connection()
            .bound_writes(bounds.client_idle, deadline);
        let flow = if inner.is_end_stream() {
            Flow::Closed
        } else {
            Flow::Open
        };
        let speaks = stream.is_some_and(|stream| stream.speaks);
        let interval = answered.route().options.sse_keepalive.value;
        let pings = match (stream, interval) {
            (Some(stream), Some(interval)) if speaks => Some(Pings::new(interval, stream.dialect)),
            _ => None,
        };
        Box::new(Self {
            inner,
            answered,
            bounds,
            active: now(),
            timer: None,
            stream,
            edits,
            trailers: None,
            first: None,
            failure: None,
            pings,
            shutdown_notice: speaks.then_some(shutdown_notice),
            unwritten,
            flow,
        })
    }

    /// Waits for the first part of a body that is held until it is complete: a failure can still
    /// change the status.
    ///
    /// # Errors
    /// Why the body failed.
    pub(super) async fn begin(&mut self) -> Result<(), ApiError> {
        match poll_fn(|cx| self.poll(cx)).await {
            Some(Err(Aborted)) => {
                let unknown = || ApiError::internal("the answer broke off");
                let failure = self.failure.take().unwrap_or_else(unknown);
                return Err(failure.on_route(&self.answered.route().name));
            }
            Some(Ok(frame)) => self.first = Some(frame),
            None => {}
        }
        self.answered.head_sent();
        Ok(())
    }

    /// Replaces the answer by an error after its beginning failed. Returns the head; the body
    /// follows here.
    pub(super) fn fail(&mut self, error: &ApiError, stamp: Stamp) -> response::Parts {
        let placed = &self.answered.placed;
        let dialect = Dialect::of(placed.inspected.authorised.path());
        let (mut head, body) = error.response(dialect).into_parts();
        let routing = Some(placed.routing());
        respond::stamp(&mut head.headers, placed.id(), routing, dialect, stamp);
        self.answered.replaced(error, head.status, body.len());
        self.first = Some(Frame::data(body));
        head
    }

    fn size_hint(&self) -> SizeHint {
        let speaks = self.stream.is_some_and(|stream| stream.speaks);
        match (&self.first, &self.edits) {
            // The length is unknown because an event may be added.
            (None, None) if !speaks => self.inner.size_hint(),
            _ => SizeHint::default(),
        }
    }

    fn is_end(&self) -> bool {
        if self.first.is_some() {
            return false;
        }
        match self.flow {
            Flow::Open => self.inner.is_end_stream() && !self.holds(),
            Flow::Breaking { .. } => false,
            Flow::Closed => true,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        match self.flow {
            Flow::Closed => return Poll::Ready(None),
            Flow::Breaking { .. } => return self.poll_abort(cx),
            Flow::Open => {}
        }
        let connection = self.answered.connection();
        if self.unwritten.is_full(connection, cx.waker()) {
            return Poll::Pending;
        }
        loop {
            match self.edited() {
                Ok(Some(data)) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Ok(None) => {}
                Err(error) => return self.undecodable(cx, &error),
            }
            if self.trailers.is_some() {
                return self.ended(cx);
            }
            return match Pin::new(&mut self.inner).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match self.passed(frame) {
                    Some(frame) => Poll::Ready(Some(Ok(frame))),
                    None => continue,
                },
                Poll::Ready(None) => {
                    self.flow = Flow::Closed;
                    self.ended(cx)
                }
                Poll::Ready(Some(Err(error))) => {
                    let error_text = chain(&error);
                    let message = "the peer broke off in the middle of its response";
                    let broke =
                        ApiError::upstream(message, self.answered.placed.tries.attempts.len());
                    self.break_off(cx, &broke, &error_text, CUT)
                }
                Poll::Pending => {
                    if let Some(shutdown_notice) = &mut self.shutdown_notice
                        && shutdown_notice.poll(cx).is_ready()
                    {
                        let (held, _) = self.finish_edits();
                        let (error, says) = (ApiError::draining(), AttemptEnd::Neutral);
                        return self.end_with(cx, &held, &error, "the router stops", says);
                    }
                    if let Some(pings) = &mut self.pings
                        && let Poll::Ready(ping) = pings.poll(cx)
                    {
                        self.answered.placed.tries.pings += 1;
                        return Poll::Ready(Some(Ok(Frame::data(self.sent(ping)))));
                    }
                    let (late, says) = ready!(self.poll_bounds(cx));
                    self.break_off(cx, &late, "time-out", says)
                }
            };
        }
    }

    /// Observes a frame of the peer. `None` if something else must be sent first.
    fn passed(&mut self, frame: Frame<Bytes>) -> Option<Frame<Bytes>> {
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(trailers) if self.edits.is_none() => return Some(trailers),
            Err(trailers) => {
                self.trailers = Some(trailers);
                return None;
            }
        };
        self.active = now();
        if !data.is_empty() {
            self.pings = None;
            self.answered.arrived(&data, self.active);
        }
        let Some(edits) = &mut self.edits else {
            self.answered.read(&data);
            return Some(Frame::data(self.sent(data)));
        };
        edits.feed(data);
        None
    }

    /// The next received part that is for the client; `None` when more input is needed.
    fn edited(&mut self) -> io::Result<Option<Bytes>> {
        let Some(edits) = &mut self.edits else {
            return Ok(None);
        };
        while let Some(part) = edits.part()? {
            self.answered.read(&part.made);
            if !part.left.is_empty() {
                return Ok(Some(self.sent(part.left)));
            }
        }
        Ok(None)
    }

    /// Records bytes sent to the client.
    fn sent(&mut self, data: Bytes) -> Bytes {
        self.answered.sent(data.len());
        let connection = self.answered.connection();
        self.unwritten.add(data.len(), connection);
        if let Some(stream) = &mut self.stream {
            stream.passed(&data);
        }
        data
    }

    fn holds(&self) -> bool {
        self.trailers.is_some() || self.edits.as_ref().is_some_and(|edits| edits.holds())
    }

    /// The peer's body is complete: sends the rest of it, then the trailers.
    fn ended(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        let (rest, result) = self.finish_edits();
        if let Err(error) = result {
            let broken = self.no_such_encoding();
            return self.break_after(cx, &rest, &broken, &error.to_string(), CUT);
        }
        let rest = (!rest.is_empty()).then(|| Frame::data(rest));
        Poll::Ready(rest.or_else(|| self.trailers.take()).map(Ok))
    }

    /// The rest of the body for the client, and whether the body was complete.
    fn finish_edits(&mut self) -> (Bytes, io::Result<()>) {
        let Some(mut edits) = self.edits.take() else {
            return (Bytes::new(), Ok(()));
        };
        let (part, result) = edits.finish();
        self.answered.read(&part.made);
        self.count(&edits);
        (self.sent(part.left), result)
    }

    fn count(&self, edits: &Edits) {
        if let Some(outcome) = edits.outcome() {
            self.answered.postprocessed(outcome);
        }
    }

    /// Ready when a time limit has passed. The timer is checked only when it fires; a chunk only
    /// updates `active`.
    fn poll_bounds(&mut self, cx: &mut Context<'_>) -> Poll<(ApiError, AttemptEnd)> {
        loop {
            let idle_end = self.active + self.bounds.idle;
            let end = self
                .bounds
                .deadline
                .map_or(idle_end, |(deadline, _)| deadline.min(idle_end));
            let timer = self.timer.get_or_insert_with(|| Timer::new(end));
            ready!(timer.poll(cx));
            if now() < end {
                timer.reset(end);
                continue;
            }
            return Poll::Ready(match self.bounds.deadline {
                Some((deadline, limit)) if deadline <= idle_end => {
                    // A long answer is not the peer's fault.
                    let late = ApiError::upstream_timeout("request_timeout", limit);
                    (late, AttemptEnd::Neutral)
                }
                _ => {
                    let late = ApiError::upstream_timeout("idle_timeout", self.bounds.idle);
                    (late, AttemptEnd::Failed(Failure::Stall))
                }
            });
        }
    }

    fn flushes(&self) -> u32 {
        self.answered.connection().flushes()
    }

    /// Ready when all bytes handed over have reached the socket, or when the polls are used up.
    fn poll_flushed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let now_flushed = self.flushes();
            let timer = self
                .timer
                .get_or_insert_with(|| Timer::new(now() + FLUSH_TICK));
            ready!(timer.poll(cx));
            let Flow::Breaking { flushes, ticks } = &mut self.flow else {
                return Poll::Ready(());
            };
            *ticks = ticks.saturating_sub(1);
            if now_flushed != *flushes || *ticks == 0 {
                return Poll::Ready(());
            }
            timer.reset(now() + FLUSH_TICK);
        }
    }

    /// Ends the response because the body cannot be decoded.
    fn no_such_encoding(&self) -> ApiError {
        let message = "the peer's answer is not what its encoding says";
        ApiError::upstream(message, self.answered.placed.tries.attempts.len())
    }

    fn undecodable(
        &mut self,
        cx: &mut Context<'_>,
        error: &io::Error,
    ) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        let broken = self.no_such_encoding();
        self.break_off(cx, &broken, &error.to_string(), CUT)
    }

    fn break_off(
        &mut self,
        cx: &mut Context<'_>,
        error: &ApiError,
        cause: &str,
        says: AttemptEnd,
    ) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        let (held, _) = self.finish_edits();
        self.break_after(cx, &held, error, cause, says)
    }

    /// Breaks off after a last part of the body.
    fn break_after(
        &mut self,
        cx: &mut Context<'_>,
        held: &[u8],
        error: &ApiError,
        cause: &str,
        says: AttemptEnd,
    ) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        let placed = &self.answered.placed;
        let events = &placed.inspected.authorised.arrival.sinks.events;
        let peer = at_peer(placed.route(), &placed.tries.peer);
        events.stream_broken(peer, placed.rid(), &cause, now());
        self.end_with(cx, held, error, cause, says)
    }

    /// Ends the response early. Adds an error event after a last part of the body where possible.
    fn end_with(
        &mut self,
        cx: &mut Context<'_>,
        held: &[u8],
        error: &ApiError,
        cause: &str,
        says: AttemptEnd,
    ) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        self.answered.broke(cause, says);
        self.trailers = None;
        if self.answered.is_head_held() {
            // The head waits for this body, so the failure becomes the status.
            self.flow = Flow::Closed;
            self.failure = Some(error.clone());
            return Poll::Ready(Some(Err(Aborted)));
        }
        self.flow = Flow::Breaking {
            flushes: self.flushes(),
            ticks: FLUSH_TICKS,
        };
        self.timer = None;
        match self.stream.filter(|stream| stream.speaks) {
            Some(stream) => {
                let event = format!(
                    "{}{}",
                    stream.gap(),
                    error.event(stream.dialect, self.answered.events())
                );
                let event = [held, event.as_bytes()].concat();
                Poll::Ready(Some(Ok(Frame::data(event.into()))))
            }
            None => self.poll_abort(cx),
        }
    }

    /// Aborts after the bytes handed over before have been written.
    fn poll_abort(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        ready!(self.poll_flushed(cx));
        self.flow = Flow::Closed;
        self.answered.abort();
        Poll::Ready(Some(Err(Aborted)))
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if self.is_end() {
            self.answered.is_whole();
        }
        if let Some(edits) = self.edits.take() {
            self.count(&edits);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_starts_on_a_line_of_its_own_whatever_was_relayed_before() {
        for (relayed, gap) in [
            (vec![], ""),
            (vec!["data: x\n\n"], ""),
            (vec!["data: x\n", "\n"], ""),
            (vec!["data: x\n"], "\n"),
            (vec!["data: x"], "\n\n"),
            (vec!["\n", "x"], "\n\n"),
        ] {
            let mut stream = Stream::new(Dialect::OpenAi, true);
            for part in &relayed {
                stream.passed(part.as_bytes());
            }
            assert_eq!(stream.gap(), gap, "{relayed:?}");
        }
    }
}
