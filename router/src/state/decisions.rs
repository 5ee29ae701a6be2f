//! The last decisions of a route: the ring behind `/_decisions`.

use std::collections::VecDeque;

use parking_lot::Mutex;
use router_core::decision::{Attempt, Receipt};

/// A route keeps this many receipts, however old they are,
const RECEIPTS_MIN: usize = 256;

/// and all of the last five minutes,
const SPAN_MS: u64 = 5 * 60 * 1000;

/// but no more than this many bytes beyond [`RECEIPTS_MIN`].
const BYTES_MAX: usize = 2 << 20;

/// The last receipts of one route.
#[derive(Debug, Default)]
pub struct Decisions {
    ring: Mutex<Ring>,
}

#[derive(Debug, Default)]
struct Ring {
    /// Oldest first.
    receipts: VecDeque<Receipt>,
    bytes: usize,
}

impl Ring {
    /// The oldest receipt, if it has to go before the next one comes at `at_unix_ms`.
    fn surplus(&mut self, at_unix_ms: u64) -> Option<Receipt> {
        let oldest = self.receipts.front()?;
        let is_old = at_unix_ms.saturating_sub(oldest.at_unix_ms) > SPAN_MS;
        if self.receipts.len() < RECEIPTS_MIN || !(is_old || self.bytes > BYTES_MAX) {
            return None;
        }
        let oldest = self.receipts.pop_front()?;
        self.bytes = self.bytes.saturating_sub(weight(&oldest));
        Some(oldest)
    }
}

/// About the memory of a receipt that it does not share with others.
fn weight(receipt: &Receipt) -> usize {
    let texts = [&receipt.request_id, &receipt.path, &receipt.session];
    size_of::<Receipt>()
        + texts.map(|text| text.len()).iter().sum::<usize>()
        + receipt.attempts.capacity() * size_of::<Attempt>()
}

impl Decisions {
    /// Adds a receipt, and drops up to two of the oldest, so that the ring shrinks again after a
    /// busy time without a pause.
    pub fn push(&self, receipt: Receipt) {
        let mut ring = self.ring.lock();
        let oldest = [
            ring.surplus(receipt.at_unix_ms),
            ring.surplus(receipt.at_unix_ms),
        ];
        ring.bytes += weight(&receipt);
        ring.receipts.push_back(receipt);
        drop(ring);
        // Freed outside the lock: a receipt owns half a dozen allocations.
        drop(oldest);
    }

    /// The last `n` receipts, newest first.
    pub fn last(&self, n: usize) -> Vec<Receipt> {
        let ring = self.ring.lock();
        ring.receipts.iter().rev().take(n).cloned().collect()
    }

    /// The receipt of one request, if it is still in the ring.
    pub fn find(&self, request_id: &str) -> Option<Receipt> {
        let ring = self.ring.lock();
        ring.receipts
            .iter()
            .rev()
            .find(|r| &*r.request_id == request_id)
            .cloned()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn receipt(at_unix_ms: u64, path: &str) -> Receipt {
        serde_json::from_value(json!({
            "request_id": format!("r{at_unix_ms}"), "at_unix_ms": at_unix_ms, "route": "chat", "method": "POST",
            "path": path, "session": "-", "source": "none", "decision": {"wait": {"ahead": 0}}, "attempts": [],
            "status": 200, "duration_ms": 5, "client_gone": false,
        }))
        .unwrap()
    }

    #[test]
    fn receipts_of_the_last_minutes_stay_and_old_ones_do_until_there_are_enough() {
        let kept = Decisions::default();
        for at in 0..1_000 {
            kept.push(receipt(at, "/v1"));
        }
        assert_eq!(kept.last(usize::MAX).len(), 1_000);
        for at in 0..1_000 {
            kept.push(receipt(SPAN_MS * 2 + at, "/v1"));
        }
        assert_eq!(kept.last(usize::MAX).len(), 1_000);
        assert!(kept.find("r0").is_none());
        for hour in 1..=300 {
            kept.push(receipt(SPAN_MS * 2 + hour * 3_600_000, "/v1"));
        }
        assert_eq!(kept.last(usize::MAX).len(), 700);
        for hour in 301..=900 {
            kept.push(receipt(SPAN_MS * 2 + hour * 3_600_000, "/v1"));
        }
        assert_eq!(kept.last(usize::MAX).len(), RECEIPTS_MIN);
    }

    #[test]
    fn bytes_are_bounded_however_many_requests_come() {
        let kept = Decisions::default();
        let path = "/v1".repeat(1_000);
        for at in 0..3_000 {
            kept.push(receipt(at, &path));
        }
        let ring = kept.ring.lock();
        let newest = weight(ring.receipts.back().unwrap());
        assert!(ring.bytes <= BYTES_MAX + newest, "{} bytes", ring.bytes);
        let sum: usize = ring.receipts.iter().map(weight).sum();
        assert_eq!(ring.bytes, sum);
    }
}
