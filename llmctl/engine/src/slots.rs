//! The slots: they limit how many requests run at once. A FIFO queue holds the waiting requests.
//!
//! A freed slot goes to the longest waiting request within the same critical section, so a reading
//! of running and waiting never shows a lost slot. Both states are guards: dropping a [`Ticket`]
//! leaves the queue, dropping a [`Slot`] frees it, whatever the reason.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Maximum number of waiting requests. Further requests are refused, as by real engines with a
/// bounded queue.
pub(crate) const QUEUE_MAX: usize = 16_384;

/// The slots of one engine.
#[derive(Debug)]
pub(crate) struct Slots {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Index = slot number; true while the slot runs a request.
    busy: Vec<bool>,
    /// Oldest first.
    waiting: VecDeque<(u64, oneshot::Sender<Slot>)>,
    next_ticket: u64,
}

/// The queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueFull;

/// A place in the queue, or an assigned slot.
#[derive(Debug)]
pub(crate) struct Ticket(Place);

#[derive(Debug)]
enum Place {
    Granted(Slot),
    Queued(Queued),
}

#[derive(Debug)]
struct Queued {
    slots: Arc<Slots>,
    number: u64,
    granted: oneshot::Receiver<Slot>,
}

/// The right to run one request.
#[derive(Debug)]
pub(crate) struct Slot {
    slots: Arc<Slots>,
    index: usize,
}

impl Slots {
    /// `count` idle slots; at least one.
    pub(crate) fn new(count: usize) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                busy: vec![false; count.max(1)],
                waiting: VecDeque::new(),
                next_ticket: 0,
            }),
        })
    }

    /// Takes a free slot or the last place in the queue.
    ///
    /// # Errors
    ///
    /// [`QueueFull`] when [`QUEUE_MAX`] requests are waiting already.
    pub(crate) fn enqueue(self: &Arc<Self>) -> Result<Ticket, QueueFull> {
        let mut state = self.state.lock();
        // A slot is never idle while a request waits, so a free one can be taken at once.
        if let Some(index) = state.busy.iter().position(|busy| !busy) {
            state.busy[index] = true;
            let slots = Arc::clone(self);
            return Ok(Ticket(Place::Granted(Slot { slots, index })));
        }
        if state.waiting.len() >= QUEUE_MAX {
            return Err(QueueFull);
        }
        let number = state.next_ticket;
        state.next_ticket += 1;
        let (grant, granted) = oneshot::channel();
        state.waiting.push_back((number, grant));
        let slots = Arc::clone(self);
        Ok(Ticket(Place::Queued(Queued {
            slots,
            number,
            granted,
        })))
    }

    /// Number of requests in a slot.
    pub(crate) fn running(&self) -> usize {
        self.state.lock().busy.iter().filter(|busy| **busy).count()
    }

    /// Number of requests in the queue.
    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().waiting.len()
    }

    /// The busy slots; index = slot number.
    pub(crate) fn busy(&self) -> Vec<bool> {
        self.state.lock().busy.clone()
    }
}

impl Ticket {
    /// Waits for the slot.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue; a slot that was assigned meanwhile goes to the next
    /// request.
    pub(crate) async fn slot(self) -> Slot {
        match self.0 {
            Place::Granted(slot) => slot,
            Place::Queued(mut queued) => (&mut queued.granted)
                .await
                .expect("a sender leaves the queue only by granting or with its ticket"),
        }
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        // A slot that was assigned but not taken is inside the receiver. It is dropped after this
        // block, outside the lock.
        let mut state = self.slots.state.lock();
        // Ticket numbers ascend from the front, so binary search works.
        if let Ok(at) = state
            .waiting
            .binary_search_by_key(&self.number, |(number, _)| *number)
        {
            state.waiting.remove(at);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let next = {
            let mut state = self.slots.state.lock();
            let next = state.waiting.pop_front();
            if next.is_none() {
                state.busy[self.index] = false;
            }
            next
        };
        if let Some((_, grant)) = next {
            let slots = Arc::clone(&self.slots);
            // If that ticket was dropped just now, the error returns the slot, and dropping the
            // slot offers it to the next request.
            drop(grant.send(Slot {
                slots,
                index: self.index,
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    fn gauges(slots: &Slots) -> (usize, usize) {
        (slots.running(), slots.waiting())
    }

    #[tokio::test]
    async fn a_freed_slot_goes_to_the_longest_waiting() {
        let slots = Slots::new(1);
        let first = slots.enqueue().unwrap().slot().await;
        let mut second = Box::pin(slots.enqueue().unwrap().slot());
        let mut third = Box::pin(slots.enqueue().unwrap().slot());
        assert_eq!(gauges(&slots), (1, 2));
        assert!((&mut second).now_or_never().is_none());
        drop(first);
        assert_eq!(gauges(&slots), (1, 1), "handed over without a gap");
        assert!((&mut third).now_or_never().is_none());
        let second = second.await;
        drop(second);
        drop(third.await);
        assert_eq!(gauges(&slots), (0, 0));
    }

    #[tokio::test]
    async fn a_waiter_that_leaves_gives_up_its_place() {
        let slots = Slots::new(1);
        let first = slots.enqueue().unwrap().slot().await;
        let second = slots.enqueue().unwrap();
        let third = slots.enqueue().unwrap();
        drop(second);
        assert_eq!(gauges(&slots), (1, 1));
        drop(first);
        drop(third.slot().await);
        assert_eq!(gauges(&slots), (0, 0));
    }

    #[tokio::test]
    async fn a_slot_granted_to_a_waiter_that_left_goes_to_the_next() {
        let slots = Slots::new(1);
        let first = slots.enqueue().unwrap().slot().await;
        let second = slots.enqueue().unwrap();
        let third = slots.enqueue().unwrap();
        drop(first);
        drop(second);
        assert_eq!(gauges(&slots), (1, 0));
        drop(third.slot().await);
        assert_eq!(gauges(&slots), (0, 0));
    }

    #[tokio::test]
    async fn the_lowest_free_slot_is_taken() {
        let slots = Slots::new(3);
        let zero = slots.enqueue().unwrap().slot().await;
        let _one = slots.enqueue().unwrap().slot().await;
        drop(zero);
        let again = slots.enqueue().unwrap().slot().await;
        assert_eq!(slots.busy(), [true, true, false]);
        drop(again);
        assert_eq!(slots.busy(), [false, true, false]);
    }

    #[test]
    fn the_queue_is_bounded() {
        let slots = Slots::new(1);
        let held: Vec<_> = (0..=QUEUE_MAX).map(|_| slots.enqueue().unwrap()).collect();
        assert_eq!(slots.enqueue().unwrap_err(), QueueFull);
        drop(held);
        assert_eq!(gauges(&slots), (0, 0));
    }
}
