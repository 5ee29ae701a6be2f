//! A timer that costs little to ask again and again.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use tokio::time::Sleep;

/// A timer. As long as the same task polls it, a poll before its end costs one atomic load.
#[derive(Debug)]
pub(super) struct Timer {
    sleep: Pin<Box<Sleep>>,
    /// The waker of the task that the timer will wake.
    waker: Option<Waker>,
}

impl Timer {
    /// A timer that ends at `end`.
    pub(super) fn new(end: Instant) -> Self {
        Self {
            sleep: Box::pin(tokio::time::sleep_until(end.into())),
            waker: None,
        }
    }

    /// Moves the end.
    pub(super) fn reset(&mut self, end: Instant) {
        self.sleep.as_mut().reset(end.into());
        self.waker = None;
    }

    /// Ready at the end.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let registered = self.waker.as_ref();
        if registered.is_some_and(|waker| waker.will_wake(cx.waker())) && !self.sleep.is_elapsed() {
            return Poll::Pending;
        }
        let polled = self.sleep.as_mut().poll(cx);
        self.waker = polled.is_pending().then(|| cx.waker().clone());
        polled
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use tokio::task::JoinSet;

    use super::*;
    use crate::clock::now;

    #[tokio::test(start_paused = true)]
    async fn a_timer_ends_once_polled_often_and_again_after_a_reset() {
        let begun = now();
        let second = Duration::from_secs(1);
        let mut timer = Timer::new(begun + second);
        poll_fn(|cx| {
            let _ = timer.poll(cx);
            timer.poll(cx)
        })
        .await;
        assert_eq!(now() - begun, second);
        timer.reset(begun + 3 * second);
        poll_fn(|cx| timer.poll(cx)).await;
        assert_eq!(now() - begun, 3 * second);
    }

    #[tokio::test(start_paused = true)]
    async fn a_timer_wakes_the_task_that_polled_last() {
        let begun = now();
        let mut timer = Timer::new(begun + Duration::from_secs(1));
        let polled = poll_fn(|cx| Poll::Ready(timer.poll(cx))).await;
        assert!(polled.is_pending());
        let mut other = JoinSet::new();
        other.spawn(async move { poll_fn(|cx| timer.poll(cx)).await });
        other.join_all().await;
        assert_eq!(now() - begun, Duration::from_secs(1));
    }
}
