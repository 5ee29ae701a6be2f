//! Tells a stream that the process is about to end.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::sync::futures::OwnedNotified;

use crate::state::Lifecycle;

/// One stream's wait for the end of the process. A poll costs one atomic load as long as the same
/// task polls.
pub(super) struct ShutdownNotice {
    lifecycle: Lifecycle,
    /// Created by the first poll.
    end: Option<Pin<Box<OwnedNotified>>>,
    /// The waker of the task that polled last.
    waker: Option<Waker>,
}

impl ShutdownNotice {
    /// Makes a notice. It registers nothing before the first poll.
    pub(super) fn new(lifecycle: Lifecycle) -> Self {
        Self {
            lifecycle,
            end: None,
            waker: None,
        }
    }

    /// Ready when the remaining streams are about to be cut.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.lifecycle.is_stopped() {
            return Poll::Ready(());
        }
        let registered = self.waker.as_ref();
        if registered.is_some_and(|waker| waker.will_wake(cx.waker())) {
            return Poll::Pending;
        }
        self.waker = Some(cx.waker().clone());
        let lifecycle = &self.lifecycle;
        let end = self.end.get_or_insert_with(|| Box::pin(lifecycle.end()));
        let _ = end.as_mut().poll(cx);
        // The process may have stopped before the registration.
        match lifecycle.is_stopped() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

impl fmt::Debug for ShutdownNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShutdownNotice").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use tokio::task::JoinSet;

    use super::*;
    use crate::clock::now;
    use crate::state::Phase;

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_is_woken_and_whoever_comes_late_need_not_wait() {
        let lifecycle = Lifecycle::default();
        let begun = now();
        let mut waiting = JoinSet::new();
        for _ in 0..3 {
            let mut call = ShutdownNotice::new(lifecycle.clone());
            // A task that is not woken runs into this much longer time-out.
            waiting.spawn(tokio::time::timeout(Duration::from_secs(60), async move {
                poll_fn(|cx| call.poll(cx)).await;
                poll_fn(|cx| call.poll(cx)).await;
            }));
        }
        for phase in [Phase::DrainDelay, Phase::Draining] {
            tokio::task::yield_now().await;
            lifecycle.advance(phase);
        }
        tokio::task::yield_now().await;
        assert!(waiting.try_join_next().is_none());
        lifecycle.advance(Phase::Stopped);
        waiting.join_all().await;
        let mut late = ShutdownNotice::new(lifecycle);
        poll_fn(|cx| late.poll(cx)).await;
        assert_eq!(now(), begun);
    }
}
