//! How a stream learns that the process will not wait for it any longer.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::sync::futures::OwnedNotified;

use crate::state::Lifecycle;

/// The end of the process as one stream waits for it. Asking costs one load as long as the same task
/// asks.
pub(super) struct ShutdownNotice {
    lifecycle: Lifecycle,
    /// Once it is waited for.
    end: Option<Pin<Box<OwnedNotified>>>,
    /// Whom it wakes.
    waker: Option<Waker>,
}

impl ShutdownNotice {
    /// Nothing is waited for before the first poll.
    pub(super) fn new(lifecycle: Lifecycle) -> Self {
        Self {
            lifecycle,
            end: None,
            waker: None,
        }
    }

    /// Ready when what is left is about to be cut.
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
        // It may have come before it was waited for.
        match lifecycle.is_stopped() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

impl fmt::Debug for ShutdownNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LastCall").finish_non_exhaustive()
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
            // Who is not woken wakes up much later.
            waiting.spawn(tokio::time::timeout(Duration::from_secs(60), async move {
                poll_fn(|cx| call.poll(cx)).await;
                poll_fn(|cx| call.poll(cx)).await;
            }));
        }
        for phase in [Phase::Leaving, Phase::Draining] {
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
