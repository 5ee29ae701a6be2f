//! The memory limit of the body log. It covers bodies of in-flight requests, queued records, and
//! unacknowledged frames. The process has one budget; taking from it never waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bodies are refused above this, so that the small remainder of a record still fits.
const BODIES_SHARE: (u64, u64) = (3, 4);

/// The kind of data charged. It decides how much of the budget may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// Bodies: up to three quarters.
    Bodies,
    /// The rest of a record: the whole budget.
    Meta,
}

/// The process's budget. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct MemoryBudget {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    used: AtomicU64,
    limit: AtomicU64,
}

impl MemoryBudget {
    /// Creates a budget of `limit` bytes.
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            inner: Arc::new(Inner {
                used: AtomicU64::new(0),
                limit: AtomicU64::new(limit),
            }),
        }
    }

    /// Changes the limit. Bytes already held stay held.
    pub(crate) fn set_limit(&self, limit: u64) {
        self.inner.limit.store(limit, Ordering::Relaxed);
    }

    /// Bytes held now.
    pub(crate) fn used(&self) -> u64 {
        self.inner.used.load(Ordering::Relaxed)
    }

    /// Most bytes held.
    pub(crate) fn limit(&self) -> u64 {
        self.inner.limit.load(Ordering::Relaxed)
    }

    /// An empty charge.
    pub(crate) fn charge(&self) -> Charge {
        Charge {
            budget: self.clone(),
            bytes: 0,
        }
    }

    fn limit_of(&self, share: Share) -> u64 {
        let limit = self.limit();
        match share {
            Share::Bodies => limit / BODIES_SHARE.1 * BODIES_SHARE.0,
            Share::Meta => limit,
        }
    }
}

/// Bytes held for one owner. They are released on drop.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: MemoryBudget,
    bytes: u64,
}

impl Charge {
    /// Takes `more` bytes unless that would exceed the limit of the share. Returns whether it did.
    pub(crate) fn try_take(&mut self, more: usize, share: Share) -> bool {
        let limit = self.budget.limit_of(share);
        let used = &self.budget.inner.used;
        let grown = |used: u64| used.checked_add(more as u64).filter(|&sum| sum <= limit);
        let taken = used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown)
            .is_ok();
        if taken {
            self.bytes += more as u64;
        }
        taken
    }

    /// Releases `bytes`, at most what is held.
    pub(crate) fn give(&mut self, bytes: usize) {
        let bytes = self.bytes.min(bytes as u64);
        self.bytes -= bytes;
        self.budget.inner.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Sets the charge to exactly `bytes`, regardless of the limit: the charged data has been
    /// converted to something of this size.
    pub(crate) fn become_bytes(&mut self, bytes: usize) {
        let (was, now) = (self.bytes, bytes as u64);
        self.bytes = now;
        if now > was {
            self.budget
                .inner
                .used
                .fetch_add(now - was, Ordering::Relaxed);
        } else {
            self.budget
                .inner
                .used
                .fetch_sub(was - now, Ordering::Relaxed);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget
            .inner
            .used
            .fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_leave_a_quarter_to_the_rest_of_the_records() {
        let budget = MemoryBudget::new(100);
        let (mut bodies, mut meta) = (budget.charge(), budget.charge());
        assert!(bodies.try_take(75, Share::Bodies));
        assert!(!bodies.try_take(1, Share::Bodies));
        assert!(meta.try_take(25, Share::Meta));
        assert!(!meta.try_take(1, Share::Meta));
        drop((bodies, meta));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_charge_follows_what_it_stands_for() {
        let budget = MemoryBudget::new(100);
        let mut charge = budget.charge();
        assert!(charge.try_take(50, Share::Bodies));
        charge.give(20);
        assert_eq!(budget.used(), 30);
        charge.become_bytes(120);
        assert_eq!(budget.used(), 120);
        charge.become_bytes(10);
        charge.give(99);
        assert_eq!(budget.used(), 0);
    }
}
