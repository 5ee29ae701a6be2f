//! Who may begin when many would in one instant.

use std::pin::pin;
use std::time::Duration;

use tokio::sync::Semaphore;

/// How many are under way at once.
const AT_ONCE: usize = 32;

/// How long one keeps others from beginning. Engines that hang must not hold up the rest.
const MAKES_WAIT: Duration = Duration::from_millis(50);

/// Turns of first polls. A start, and a reload of all peers, asks every engine: as soon as may be, since
/// no peer is a candidate before, but neither all engines nor this host in one instant.
#[derive(Debug)]
pub(super) struct Turns(Semaphore);

impl Turns {
    pub(super) fn new() -> Self {
        Self(Semaphore::new(AT_ONCE))
    }

    /// Does something in its turn. Cancel safe where that is.
    pub(super) async fn take<F: Future>(&self, what: F) -> F::Output {
        // It is never closed.
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

    /// The most of 320 polls that were under way at once, and when the last one began.
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
