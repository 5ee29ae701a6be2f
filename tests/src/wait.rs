//! Waits for an event with a deadline.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::PATIENCE;

/// The pause between two checks of a condition that cannot wake us.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Checks repeatedly until `condition` holds.
///
/// # Panics
///
/// After [`PATIENCE`], naming `what`.
pub async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    until_some(what, || condition().then_some(())).await;
}

/// Checks repeatedly until `look` finds something, and returns it.
///
/// # Panics
///
/// After [`PATIENCE`], naming `what`.
pub async fn until_some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        sleep(LOOK_EVERY).await;
    }
}

/// Calls `ask` repeatedly until it returns something, and returns that.
///
/// # Panics
///
/// After [`PATIENCE`], naming `what`.
pub async fn until_answer<T, F>(what: &str, mut ask: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = ask().await {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        sleep(LOOK_EVERY).await;
    }
}

/// Awaits `future` with a deadline.
///
/// # Panics
///
/// After [`PATIENCE`], naming `what`.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let Ok(value) = timeout(PATIENCE, future).await else {
        panic!("waited in vain for {what}");
    };
    value
}
