//! How often each transform changed a request of a route. They outlive a reload.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Switch;

/// One counter per thing a transform does; since the start or the last reset.
#[derive(Debug, Default)]
pub struct Transforms {
    /// Streams asked for usage that the client had not asked for.
    injected: AtomicU64,
}

impl Transforms {
    /// A stream was asked for its usage.
    pub fn asked_for_usage(&self) {
        self.injected.fetch_add(1, Ordering::Relaxed);
    }

    /// What a switch's transform counted, by name; empty for a switch of another kind.
    pub fn counts(&self, switch: Switch) -> Vec<(&'static str, u64)> {
        self.of(switch)
            .map(|(name, counter)| (name, counter.load(Ordering::Relaxed)))
            .collect()
    }

    /// Zeroes what a switch's transform counted.
    pub fn reset(&self, switch: Switch) {
        for (_, counter) in self.of(switch) {
            counter.store(0, Ordering::Relaxed);
        }
    }

    fn of(&self, switch: Switch) -> impl Iterator<Item = (&'static str, &AtomicU64)> {
        [(Switch::IncludeUsage, "injected_total", &self.injected)]
            .into_iter()
            .filter(move |(of, ..)| *of == switch)
            .map(|(_, name, counter)| (name, counter))
    }
}
