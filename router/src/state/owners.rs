//! What the owners of keys use, over all routes, and their limits.
//!
//! A request takes its place before its route decides, and gives it back when it ends, however it
//! ends. So the count is exact, and no request waits for a slot of a pool without a place of its
//! owner's.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use router_config::owners::{OwnerLimits, Owners};

/// The most owners that are counted apart; key files name fewer. Others are not limited.
const OWNERS_MAX: usize = 10_000;

const MINUTE: Duration = Duration::from_secs(60);

/// The counts of all owners. Outlives the tables.
#[derive(Debug, Default)]
pub struct OwnerStates {
    by_name: RwLock<BTreeMap<Arc<str>, Arc<OwnerState>>>,
}

/// The counts of one owner.
#[derive(Debug, Default)]
struct OwnerState {
    in_flight: AtomicU32,
    refused_concurrency: AtomicU64,
    refused_rate: AtomicU64,
    /// When the next request is due at the allowed rate (GCRA, ITU-T I.371).
    due: Mutex<Option<Instant>>,
}

/// The limits in force, and the counts.
#[derive(Debug)]
pub struct OwnerBook {
    limits: Arc<Owners>,
    states: Arc<OwnerStates>,
}

/// A place of an owner. Dropping it gives the place back.
#[derive(Debug)]
pub struct OwnerSlot(Arc<OwnerState>);

impl Drop for OwnerSlot {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Why an owner's request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerRefusal {
    /// As many requests run or wait as may.
    Concurrency {
        /// Requests that run or wait.
        in_flight: u32,
        /// The limit.
        limit: u32,
    },
    /// Requests come faster than they may.
    Rate {
        /// Requests a minute.
        limit: u32,
        /// When one more is admitted.
        after: Duration,
    },
}

/// One owner as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerUse {
    /// The owner.
    pub owner: Arc<str>,
    /// Requests that run or wait.
    pub in_flight: u32,
    /// Its limits.
    pub limits: OwnerLimits,
    /// Requests refused for too many at once.
    pub refused_concurrency: u64,
    /// Requests refused for coming too fast.
    pub refused_rate: u64,
}

impl OwnerBook {
    /// These limits over counts that may be older. `None` when nobody is limited.
    pub fn new(limits: &Arc<Owners>, states: &Arc<OwnerStates>) -> Option<Self> {
        if limits.is_empty() {
            return None;
        }
        // Their series begin at zero.
        for owner in limits.names() {
            states.of(owner);
        }
        Some(Self {
            limits: Arc::clone(limits),
            states: Arc::clone(states),
        })
    }

    /// Takes a place for one request of `owner`.
    ///
    /// # Errors
    /// Why the owner may not have one now. Nothing is counted then but the refusal.
    pub fn take(&self, owner: &Arc<str>, now: Instant) -> Result<Option<OwnerSlot>, OwnerRefusal> {
        let limits = self.limits.of(owner);
        let Some(state) = self.states.of(owner) else {
            return Ok(None);
        };
        let max = limits.max_concurrency.unwrap_or(u32::MAX);
        let taken = state
            .in_flight
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| {
                (count < max).then_some(count + 1)
            });
        if let Err(in_flight) = taken {
            state.refused_concurrency.fetch_add(1, Ordering::Relaxed);
            let limit = max;
            return Err(OwnerRefusal::Concurrency { in_flight, limit });
        }
        // Gives the place back if the rate refuses.
        let slot = OwnerSlot(state);
        if let Some(limit) = limits.requests_per_minute
            && let Err(after) = slot.0.begin(limit, now)
        {
            slot.0.refused_rate.fetch_add(1, Ordering::Relaxed);
            return Err(OwnerRefusal::Rate { limit, after });
        }
        Ok(Some(slot))
    }

    /// Every owner that sent a request or has an entry of its own, by name.
    pub fn uses(&self) -> Vec<OwnerUse> {
        let by_name = self.states.by_name.read();
        let each = by_name.iter().map(|(owner, state)| OwnerUse {
            owner: Arc::clone(owner),
            in_flight: state.in_flight.load(Ordering::Acquire),
            limits: self.limits.of(owner),
            refused_concurrency: state.refused_concurrency.load(Ordering::Relaxed),
            refused_rate: state.refused_rate.load(Ordering::Relaxed),
        });
        each.collect()
    }
}

impl OwnerStates {
    fn of(&self, owner: &Arc<str>) -> Option<Arc<OwnerState>> {
        if let Some(state) = self.by_name.read().get(owner) {
            return Some(Arc::clone(state));
        }
        let mut by_name = self.by_name.write();
        if by_name.len() >= OWNERS_MAX && !by_name.contains_key(owner) {
            return None;
        }
        Some(Arc::clone(by_name.entry(Arc::clone(owner)).or_default()))
    }
}

impl OwnerState {
    /// Counts a request against `limit` a minute, a tenth of which may come at once.
    ///
    /// # Errors
    /// How long until one more is admitted.
    fn begin(&self, limit: u32, now: Instant) -> Result<(), Duration> {
        let interval = MINUTE / limit;
        let ahead_max = interval * (limit / 10).saturating_sub(1);
        let mut due = self.due.lock();
        let next = due.map_or(now, |due| due.max(now));
        let ahead = next.saturating_duration_since(now);
        if ahead > ahead_max {
            return Err(ahead - ahead_max);
        }
        *due = Some(next + interval);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now;

    fn book(max_concurrency: Option<u32>, requests_per_minute: Option<u32>) -> OwnerBook {
        let limits = OwnerLimits {
            max_concurrency,
            requests_per_minute,
        };
        let owners = Arc::new(Owners::new([("alice".into(), limits)]));
        OwnerBook::new(&owners, &Arc::default()).unwrap()
    }

    #[test]
    fn as_many_places_as_the_limit_and_each_comes_back() {
        let book = book(Some(2), None);
        let (alice, bob): (Arc<str>, Arc<str>) = ("alice".into(), "bob".into());
        let (now, mut held) = (now(), Vec::new());
        for _ in 0..2 {
            held.push(book.take(&alice, now).unwrap());
        }
        let refused = OwnerRefusal::Concurrency {
            in_flight: 2,
            limit: 2,
        };
        assert_eq!(book.take(&alice, now).unwrap_err(), refused);
        assert!(
            book.take(&bob, now).is_ok(),
            "another owner has places of its own"
        );
        held.pop();
        held.push(book.take(&alice, now).unwrap());
        drop(held);
        let alice = &book.uses()[0];
        assert_eq!((alice.in_flight, alice.refused_concurrency), (0, 1));
    }

    #[test]
    fn places_are_never_over_the_limit_however_many_threads_ask() {
        let book = book(Some(7), None);
        let alice: Arc<str> = "alice".into();
        let at_once = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5_000 {
                        if let Ok(slot) = book.take(&alice, now()) {
                            let count = at_once.fetch_add(1, Ordering::SeqCst) + 1;
                            assert!(count <= 7);
                            at_once.fetch_sub(1, Ordering::SeqCst);
                            drop(slot);
                        }
                    }
                });
            }
        });
        assert_eq!(book.uses()[0].in_flight, 0);
    }

    #[test]
    fn a_rate_admits_a_tenth_at_once_and_then_one_each_interval() {
        let book = book(None, Some(60));
        let alice: Arc<str> = "alice".into();
        let begin = now();
        let ask = |ms: u64| {
            book.take(&alice, begin + Duration::from_millis(ms))
                .map(|_| ())
        };
        for _ in 0..6 {
            assert_eq!(ask(0), Ok(()));
        }
        let after = |ms| OwnerRefusal::Rate {
            limit: 60,
            after: Duration::from_millis(ms),
        };
        assert_eq!(ask(0), Err(after(1000)));
        assert_eq!(ask(400), Err(after(600)));
        assert_eq!(ask(1000), Ok(()));
        assert_eq!(ask(1000), Err(after(1000)));
        assert_eq!(
            book.uses()[0].in_flight,
            0,
            "a refused request keeps no place"
        );
        // A minute of silence gives no more than a tenth at once.
        let burst = (0..60).filter(|_| ask(61_000).is_ok()).count();
        assert_eq!(burst, 6);
    }
}
