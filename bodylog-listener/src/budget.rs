//! The memory budget for frames. Room is taken before a frame is read.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::metrics::Metrics;

/// The room for frames, shared by all connections.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    room: Arc<Semaphore>,
    total: usize,
    metrics: Arc<Metrics>,
}

/// Room held by one frame, or by several that arrived together, from before it is read until both
/// its lines are on disk. Dropping the charge returns the room and observes how long the frame
/// took.
#[derive(Debug)]
pub(crate) struct Charge {
    permit: Option<OwnedSemaphorePermit>,
    bytes: i64,
    /// Arrival time of the first frame.
    received: Instant,
    /// Number of latency samples to observe. Only stored frames count.
    stored: u32,
    metrics: Arc<Metrics>,
}

impl Budget {
    /// Room for `total` bytes.
    pub(crate) fn new(total: usize, metrics: Arc<Metrics>) -> Self {
        let total = total.min(Semaphore::MAX_PERMITS).min(u32::MAX as usize);
        Self {
            room: Arc::new(Semaphore::new(total)),
            total,
            metrics,
        }
    }

    /// Takes room for `bytes`, or the whole budget if `bytes` is larger. Callers are served in
    /// order of arrival. Cancel safe: dropping the future takes nothing.
    pub(crate) async fn take(&self, bytes: usize) -> Charge {
        let permit = Arc::clone(&self.room)
            .acquire_many_owned(self.permits(bytes))
            .await
            .expect("the semaphore is never closed");
        self.charge(Some(permit), bytes)
    }

    /// Takes room for `bytes` if that much is free.
    pub(crate) fn try_take(&self, bytes: usize) -> Option<Charge> {
        let permit = Arc::clone(&self.room)
            .try_acquire_many_owned(self.permits(bytes))
            .ok()?;
        Some(self.charge(Some(permit), bytes))
    }

    /// A charge for `bytes` that are already in memory. Takes as much room as is free.
    pub(crate) fn overdraw(&self, bytes: usize) -> Charge {
        let mut charge = self.charge(None, 0);
        self.grow(&mut charge, bytes);
        charge
    }

    /// Grows the charge when its frame grows, for example when its body is escaped. Takes only the
    /// room that is free: waiting here could mean waiting for this same charge.
    pub(crate) fn grow(&self, charge: &mut Charge, bytes: usize) {
        let free = self.permits(bytes.min(self.room.available_permits()));
        if let Ok(permit) = Arc::clone(&self.room).try_acquire_many_owned(free) {
            charge.hold(permit);
        }
        charge.bytes += bytes as i64;
        self.metrics.queue_bytes.inc_by(bytes as i64);
    }

    /// Like [`Budget::grow`], up to `bytes` in all. A charge that is already larger stays as it is.
    pub(crate) fn grow_to(&self, charge: &mut Charge, bytes: usize) {
        let more = bytes.saturating_sub(usize::try_from(charge.bytes).unwrap_or(0));
        if more > 0 {
            self.grow(charge, more);
        }
    }

    /// Takes room up to `bytes` in all, if that much is free.
    pub(crate) fn try_grow_to(&self, charge: &mut Charge, bytes: usize) -> bool {
        let more = bytes.saturating_sub(usize::try_from(charge.bytes).unwrap_or(0));
        if more == 0 {
            return true;
        }
        let taken = self.try_take(more).map(|more| charge.join(more.unstored()));
        taken.is_some()
    }

    /// Bytes taken.
    pub(crate) fn taken(&self) -> usize {
        self.total - self.room.available_permits()
    }

    fn permits(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.min(self.total)).unwrap_or(u32::MAX)
    }

    fn charge(&self, permit: Option<OwnedSemaphorePermit>, bytes: usize) -> Charge {
        self.metrics.queue_bytes.inc_by(bytes as i64);
        Charge {
            permit,
            bytes: bytes as i64,
            received: Instant::now(),
            stored: 1,
            metrics: Arc::clone(&self.metrics),
        }
    }
}

impl Charge {
    /// Marks the frame as not stored, so that it adds no latency sample.
    pub(crate) fn forget(&mut self) {
        self.stored = 0;
    }

    fn unstored(mut self) -> Self {
        self.stored = 0;
        self
    }

    /// Takes over the room of another charge of the same budget. Both are returned together.
    pub(crate) fn join(&mut self, mut other: Self) {
        if let Some(permit) = other.permit.take() {
            self.hold(permit);
        }
        self.bytes += std::mem::take(&mut other.bytes);
        self.received = self.received.min(other.received);
        self.stored += std::mem::take(&mut other.stored);
    }

    fn hold(&mut self, permit: OwnedSemaphorePermit) {
        match &mut self.permit {
            Some(held) => held.merge(permit),
            none => *none = Some(permit),
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.metrics.queue_bytes.dec_by(self.bytes);
        if self.stored > 0 {
            let lag = Instant::now().duration_since(self.received);
            for _ in 0..self.stored {
                self.metrics.ack_lag_seconds.observe(lag.as_secs_f64());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(total: usize) -> Budget {
        Budget::new(
            total,
            Arc::new(Metrics::new(&service::connections::Connections::new(
                service::http::CONNECTIONS,
            ))),
        )
    }

    #[tokio::test]
    async fn what_is_taken_comes_back() {
        let budget = budget(100);
        let first = budget.take(60).await;
        assert!(budget.try_take(50).is_none());
        assert_eq!((budget.taken(), budget.metrics.queue_bytes.get()), (60, 60));
        drop(first);
        assert!(budget.try_take(50).is_some());
        assert_eq!((budget.taken(), budget.metrics.queue_bytes.get()), (0, 0));
    }

    #[tokio::test]
    async fn a_frame_larger_than_everything_takes_everything() {
        let budget = budget(100);
        let charge = budget.take(1000).await;
        assert_eq!(budget.taken(), 100);
        drop(charge);
        assert_eq!(budget.taken(), 0);
    }

    #[tokio::test]
    async fn frames_that_are_joined_give_their_room_back_together() {
        let budget = budget(100);
        let mut first = budget.take(30).await;
        let mut second = budget.take(40).await;
        second.forget();
        first.join(second);
        assert_eq!((budget.taken(), budget.metrics.queue_bytes.get()), (70, 70));
        assert_eq!(first.stored, 1);
        drop(first);
        assert_eq!((budget.taken(), budget.metrics.queue_bytes.get()), (0, 0));
    }

    #[tokio::test]
    async fn growing_never_waits() {
        let budget = budget(100);
        let mut charge = budget.take(80).await;
        budget.grow(&mut charge, 50);
        assert_eq!(
            (budget.taken(), budget.metrics.queue_bytes.get()),
            (100, 130)
        );
        drop(charge);
        assert_eq!((budget.taken(), budget.metrics.queue_bytes.get()), (0, 0));
    }
}
