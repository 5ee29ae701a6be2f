//! The last decisions of a route: the ring behind `/_decisions`.

use std::collections::VecDeque;

use parking_lot::Mutex;
use router_core::decision::Receipt;

/// Number of receipts a route keeps; the oldest is dropped first. At a few hundred bytes each this
/// is about 100 KiB per route.
const RECEIPTS_MAX: usize = 256;

/// The last receipts of one route, oldest first.
#[derive(Debug, Default)]
pub struct Decisions {
    ring: Mutex<VecDeque<Receipt>>,
}

impl Decisions {
    /// Adds a receipt, dropping the oldest at the bound.
    pub fn push(&self, receipt: Receipt) {
        let mut ring = self.ring.lock();
        let oldest = if ring.len() >= RECEIPTS_MAX {
            ring.pop_front()
        } else {
            None
        };
        ring.push_back(receipt);
        drop(ring);
        // Freed outside the lock: a receipt owns half a dozen allocations.
        drop(oldest);
    }

    /// The last `n` receipts, newest first.
    pub fn last(&self, n: usize) -> Vec<Receipt> {
        self.ring.lock().iter().rev().take(n).cloned().collect()
    }

    /// The receipt of one request, if it is still in the ring.
    pub fn find(&self, request_id: &str) -> Option<Receipt> {
        self.ring
            .lock()
            .iter()
            .rev()
            .find(|r| &*r.request_id == request_id)
            .cloned()
    }
}
