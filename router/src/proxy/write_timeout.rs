//! The time limit for a client that does not read.
//!
//! While the socket is full, hyper does not poll the response, so the response's own timers do not
//! run. Without this limit such a client would keep its slot for ever.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::time::Sleep;

use crate::clock::now;

/// The time limits for writing the current response, shared by connection and handler. In
/// milliseconds, so that each fits one atomic.
#[derive(Debug)]
pub(super) struct WriteBounds {
    base: Instant,
    idle: AtomicU64,
    /// Milliseconds since `base`.
    deadline: AtomicU64,
}

impl WriteBounds {
    /// No limit until a response sets one.
    pub(super) fn new() -> Self {
        Self {
            base: now(),
            idle: AtomicU64::new(u64::MAX),
            deadline: AtomicU64::new(u64::MAX),
        }
    }

    /// Limits the current response: the time without progress, and the deadline.
    pub(super) fn set(&self, idle: Duration, deadline: Option<Instant>) {
        let deadline = deadline.map(|end| end.saturating_duration_since(self.base));
        self.idle.store(millis(idle), Ordering::Relaxed);
        self.deadline
            .store(deadline.map_or(u64::MAX, millis), Ordering::Relaxed);
    }

    /// The next response has no deadline yet.
    pub(super) fn clear(&self) {
        self.deadline.store(u64::MAX, Ordering::Relaxed);
    }

    /// When to give up a write that has made no progress since `since`. On a shared connection the
    /// deadline of a single response does not apply.
    fn end(&self, since: Instant, is_shared: bool) -> Option<Instant> {
        let read = |bound: &AtomicU64| Duration::from_millis(bound.load(Ordering::Relaxed));
        let idle = since.checked_add(read(&self.idle));
        let deadline = self.base.checked_add(read(&self.deadline));
        match (idle, deadline.filter(|_| !is_shared)) {
            (Some(idle), Some(deadline)) => Some(idle.min(deadline)),
            (idle, deadline) => idle.or(deadline),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The timer of one blocked write; unset while writes succeed.
#[derive(Debug, Default)]
pub(super) struct WriteTimeout(Option<(Instant, Pin<Box<Sleep>>)>);

impl WriteTimeout {
    /// The write succeeded.
    pub(super) fn over(&mut self) {
        if self.0.is_some() {
            self.0 = None;
        }
    }

    /// Polled while a write is blocked: ready when it has been blocked too long.
    pub(super) fn poll(
        &mut self,
        bounds: &WriteBounds,
        is_shared: bool,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let since = self.0.as_ref().map_or_else(now, |(since, _)| *since);
        let Some(end) = bounds.end(since, is_shared) else {
            return Poll::Pending;
        };
        let (_, timer) = self
            .0
            .get_or_insert_with(|| (since, Box::pin(tokio::time::sleep_until(end.into()))));
        loop {
            ready!(timer.as_mut().poll(cx));
            if now() >= end {
                return Poll::Ready(());
            }
            timer.as_mut().reset(end.into());
        }
    }
}
