//! Bounds the bytes in memory over all requests: their bodies, and answers that are held for
//! rewriting.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::buffers::Buffers;

/// A shared count of bytes against a limit. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct ByteBudget {
    used: Arc<AtomicU64>,
    buffers: Buffers,
}

impl ByteBudget {
    /// Bytes held now.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether `more` bytes would fit now. Nothing is taken.
    pub fn has_room(&self, more: u64, limit: u64) -> bool {
        self.used().saturating_add(more) <= limit
    }

    /// The source of memory for large bodies.
    pub fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    /// An empty holding.
    pub fn hold(&self) -> Held {
        Held {
            budget: self.clone(),
            bytes: 0,
        }
    }
}

/// The bytes that one request holds. Dropping it returns them.
#[derive(Debug)]
pub struct Held {
    budget: ByteBudget,
    bytes: u64,
}

impl Held {
    /// Takes `more` bytes unless that would exceed `limit`. Returns whether it did; if not, nothing
    /// changes.
    pub fn take(&mut self, more: u64, limit: u64) -> bool {
        let grown = |used: u64| used.checked_add(more).filter(|&sum| sum <= limit);
        let taken = self
            .budget
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown)
            .is_ok();
        if taken {
            self.bytes += more;
        }
        taken
    }
}

impl Held {
    /// Changes the holding to `bytes`, more or fewer than before, unless that would exceed `limit`.
    /// Returns whether it did; if not, nothing changes.
    pub fn set(&mut self, bytes: u64, limit: u64) -> bool {
        if bytes >= self.bytes {
            return self.take(bytes - self.bytes, limit);
        }
        let less = self.bytes - bytes;
        self.budget.used.fetch_sub(less, Ordering::Relaxed);
        self.bytes = bytes;
        true
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holding_is_bounded_and_given_back() {
        let budget = ByteBudget::default();
        let mut first = budget.hold();
        assert!(first.take(6, 10));
        let mut second = budget.hold();
        assert!(!second.take(5, 10));
        assert!(budget.has_room(4, 10) && !budget.has_room(5, 10));
        assert!(!budget.has_room(u64::MAX, 10));
        assert!(second.take(4, 10));
        assert_eq!(budget.used(), 10);
        drop(first);
        assert_eq!(budget.used(), 4);
        assert!(second.set(9, 10) && !second.set(11, 10));
        assert_eq!(budget.used(), 9);
        assert!(second.set(1, 10));
        assert_eq!(budget.used(), 1);
        drop(second);
        assert_eq!(budget.used(), 0);
    }
}
