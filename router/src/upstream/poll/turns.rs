//! Limits how many polls begin in one instant.

use std::pin::pin;
use std::time::Duration;

use tokio::sync::Semaphore;

/// The most that run at once.
const AT_ONCE: usize = 32;

/// The longest that one task keeps others from beginning. Engines that hang must not delay the
/// rest.
const MAKES_WAIT: Duration = Duration::from_millis(50);

/// Turns of first polls. After a start, or a reload of all peers, every engine is polled as soon as
/// possible, because no peer is a candidate before its first poll. But neither all engines nor this
/// host should get all polls in one instant.
#[derive(Debug)]
pub(super) struct Turns(Semaphore);

impl Turns {
    pub(super) fn new() -> Self {
        Self(Semaphore::new(AT_ONCE))
    }

    /// Runs a future in its turn. Cancel safe when the future is.
    pub(super) async fn take<F: Future>(&self, what: F) -> F::Output {
        // The semaphore is never closed.
        let turn = self.0.acquire().await;
        let mut what = pin!(what);
        if let Ok(output) = tokio::time::timeout(MAKES_WAIT, &mut what).await {
            return output;
        }
        drop(turn);
        what.await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::task::JoinSet;
    use tokio::time::Instant;

    use super::*;

    /// The largest number of 320 polls that ran at once, and when the last one began.
    async fn begin(each: Duration) -> (usize, Duration) {
        let turns = Arc::new(Turns::new());
        let (running, most) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let began = Instant::now();
        let mut all = JoinSet::new();
        for _ in 0..10 * AT_ONCE {
            let (turns, running, most) = (turns.clone(), running.clone(), most.clone());
            all.spawn(async move {
                let poll = async {
                    let waited = Instant::now().duration_since(began);
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    tokio::time::sleep(each).await;
                    running.fetch_sub(1, Ordering::SeqCst);
                    waited
                };
                turns.take(poll).await
            });
        }
        let waited = all.join_all().await.into_iter().max();
        (most.load(Ordering::SeqCst), waited.unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_begin_and_the_next_when_one_has_ended() {
        let each = Duration::from_millis(4);
        assert_eq!(begin(each).await, (AT_ONCE, 9 * each));
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_hang_make_the_others_wait_for_a_bounded_time() {
        let (most, waited) = begin(Duration::from_secs(60)).await;
        assert_eq!((most, waited.as_millis() / 10), (10 * AT_ONCE, 45));
    }
}
