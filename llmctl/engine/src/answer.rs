//! The body of an answer: records in the log how it ended, and carries out faults that strike in
//! its middle.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Sleep, sleep};

use crate::connection::Busy;
use crate::log::{Exchange, Outcome};

/// The body of an answer, with its log entry and its fault.
#[derive(Debug)]
pub(crate) struct Answer {
    inner: Body,
    /// Absent for the control requests of tests, which are not logged.
    exchange: Option<Arc<Exchange>>,
    interruption: Option<Interruption>,
    /// Number of chunks sent so far.
    chunks: u32,
    /// The pause of [`Interruption::Stall`], once it has begun.
    pause: Option<Pin<Box<Sleep>>>,
    /// Whether the connection had a turn to flush before the cut.
    flushed: bool,
    _busy: Busy,
}

/// A fault that strikes after a number of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interruption {
    Cut {
        after: u32,
    },
    Hang {
        after: u32,
    },
    /// The answer ends as if it were complete.
    End {
        after: u32,
    },
    /// One pause.
    Stall {
        after: u32,
        pause: Duration,
    },
}

/// The error that breaks the connection off.
#[derive(Debug, thiserror::Error)]
#[error("cut by a fault")]
pub(crate) struct CutShort;

impl Answer {
    pub(crate) fn new(
        inner: Body,
        busy: Busy,
        exchange: Option<Arc<Exchange>>,
        interruption: Option<Interruption>,
    ) -> Self {
        Self {
            inner,
            exchange,
            interruption,
            chunks: 0,
            pause: None,
            flushed: false,
            _busy: busy,
        }
    }

    fn end(&self, outcome: Outcome) {
        if let Some(exchange) = &self.exchange {
            exchange.end(outcome);
        }
    }

    /// Breaks off after everything before has left: an error would discard the connection's buffer.
    fn cut(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, CutShort>>> {
        if !self.flushed {
            self.flushed = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.end(Outcome::Cut);
        Poll::Ready(Some(Err(CutShort)))
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = CutShort;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, CutShort>>> {
        match self.interruption {
            Some(Interruption::Cut { after }) if self.chunks >= after => return self.cut(cx),
            Some(Interruption::Hang { after }) if self.chunks >= after => return Poll::Pending,
            Some(Interruption::End { after }) if self.chunks >= after => {
                self.end(Outcome::Cut);
                return Poll::Ready(None);
            }
            Some(Interruption::Stall { after, pause }) if self.chunks >= after => {
                let pause = self.pause.get_or_insert_with(|| Box::pin(sleep(pause)));
                ready!(pause.as_mut().poll(cx));
                self.interruption = None;
            }
            _ => {}
        }
        let whole = self.inner.size_hint().exact();
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx))
            .map(|frame| frame.map_err(|_| CutShort));
        let Some(Ok(frame)) = frame else {
            self.end(if frame.is_none() {
                Outcome::Completed
            } else {
                Outcome::Cut
            });
            return Poll::Ready(frame);
        };
        self.chunks += 1;
        let stalls = matches!(self.interruption, Some(Interruption::Stall { .. }));
        if whole.is_some() && self.interruption.is_some() && !stalls {
            // An answer of one piece is interrupted in the middle of it, whatever the count.
            self.chunks = u32::MAX;
            return Poll::Ready(Some(
                Ok(frame.map_data(|data| data.slice(..data.len() / 2))),
            ));
        }
        if self.inner.is_end_stream() {
            self.end(Outcome::Completed);
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.interruption.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
