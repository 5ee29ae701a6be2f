//! Bounds the bytes of an answer that wait for a client to read them.

use std::task::Waker;

use service::budget::{ByteBudget, Held};

use super::head::HeadWatch;

/// Maximum bytes handed to a connection and not yet written to its socket. A client that stops
/// reading must not fill the memory: hyper alone would buffer 400 KiB per connection.
const UNWRITTEN_MAX: usize = 32 << 10;

/// Bytes that need no room in the budget. Without room beyond them, an answer goes on each time
/// its client has read everything.
const FREE: usize = 8 << 10;

/// The bytes of one answer that were handed to its connection since the last flush.
#[derive(Debug)]
pub(super) struct Unwritten {
    bytes: usize,
    /// The connection's number of flushes at that time.
    flushes: u32,
    /// The share of the budget for them.
    held: Held,
    is_charged: bool,
    /// The budget that all requests share.
    limit: u64,
}

impl Unwritten {
    /// Nothing was handed over.
    pub(super) fn new(budget: &ByteBudget, limit: u64) -> Self {
        Self {
            bytes: 0,
            flushes: 0,
            held: budget.hold(),
            is_charged: false,
            limit,
        }
    }

    /// Counts bytes that are handed to the connection.
    pub(super) fn add(&mut self, bytes: usize, connection: &HeadWatch) {
        self.look(connection);
        self.bytes += bytes;
    }

    /// Whether nothing more may be handed over until the next flush, which wakes the task. Over
    /// HTTP/2 the client's window limits the bytes instead.
    pub(super) fn is_full(&mut self, connection: &HeadWatch, waker: &Waker) -> bool {
        if self.bytes < FREE || connection.is_shared() {
            return false;
        }
        self.look(connection);
        let is_full = self.bytes >= UNWRITTEN_MAX || !self.charge();
        if is_full {
            // hyper flushes when a body is pending, and may then not poll again by itself.
            connection.wake_when_flushed(waker);
        }
        is_full
    }

    /// A flush since the last bytes means that they have reached the socket.
    fn look(&mut self, connection: &HeadWatch) {
        let flushes = connection.flushes();
        if flushes == self.flushes {
            return;
        }
        self.flushes = flushes;
        self.bytes = 0;
        if self.is_charged {
            self.is_charged = !self.held.set(0, self.limit);
        }
    }

    fn charge(&mut self) -> bool {
        if self.bytes < FREE {
            return true;
        }
        let has_room = self.held.set(self.bytes as u64, self.limit);
        self.is_charged |= has_room;
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 20 << 10;

    #[test]
    fn bytes_are_counted_from_the_last_flush() {
        let connection = HeadWatch::default();
        let mut unwritten = Unwritten::new(&ByteBudget::default(), u64::MAX);
        let mut is_full = |bytes| {
            unwritten.add(bytes, &connection);
            unwritten.is_full(&connection, Waker::noop())
        };
        assert!(!is_full(UNWRITTEN_MAX - 1));
        assert!(is_full(1));
        connection.count_flush();
        // The flush came before these bytes, so it says nothing about them.
        assert!(is_full(UNWRITTEN_MAX));
        connection.count_flush();
        assert!(!is_full(0));
    }

    #[test]
    fn bytes_beyond_the_free_ones_need_room_in_the_budget_and_return_it() {
        let (budget, connection) = (ByteBudget::default(), HeadWatch::default());
        let mut first = Unwritten::new(&budget, LIMIT);
        let mut second = Unwritten::new(&budget, LIMIT);
        first.add(15 << 10, &connection);
        assert!(!first.is_full(&connection, Waker::noop()));
        assert_eq!(budget.used(), 15 << 10);
        second.add(FREE - 1, &connection);
        assert!(!second.is_full(&connection, Waker::noop()));
        second.add(1, &connection);
        assert!(second.is_full(&connection, Waker::noop()));
        connection.count_flush();
        assert!(!first.is_full(&connection, Waker::noop()));
        assert_eq!(budget.used(), 0);
        second.add(FREE, &connection);
        assert!(!second.is_full(&connection, Waker::noop()));
        drop(second);
        assert_eq!(budget.used(), 0);
    }
}
