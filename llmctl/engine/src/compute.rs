//! The compute part of the engine: pace, slots, prefix cache, and counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

use crate::cache::PrefixCache;
use crate::slots::Slots;
use crate::stats::{Counters, Stats};

/// The speed of the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// Time to the first token when everything is cached.
    pub ttft: Duration,
    /// Time between two tokens.
    pub itl: Duration,
    /// Time for each prompt token that is not cached.
    pub prefill: Duration,
}

/// The compute part of the engine.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) pace: Pace,
    pub(crate) slots: Arc<Slots>,
    pub(crate) cache: Mutex<PrefixCache>,
    pub(crate) counters: Mutex<Counters>,
    /// Number of blocks that running requests occupy.
    pub(crate) held_blocks: AtomicUsize,
}

impl Core {
    pub(crate) fn new(pace: Pace, slots: usize, cache_blocks: usize) -> Arc<Self> {
        Arc::new(Self {
            pace,
            slots: Slots::new(slots),
            cache: Mutex::new(PrefixCache::new(cache_blocks)),
            counters: Mutex::default(),
            held_blocks: AtomicUsize::new(0),
        })
    }

    /// A snapshot of the counters.
    pub(crate) fn counted(&self) -> Counters {
        self.counters.lock().clone()
    }

    /// Share of the cache's blocks that running requests would occupy, from 0 to 1.
    pub(crate) fn kv_usage(&self) -> f64 {
        let held = self.held_blocks.load(Relaxed);
        #[expect(clippy::cast_precision_loss, reason = "a ratio of block counts")]
        let share = held as f64 / self.cache.lock().capacity().max(1) as f64;
        share.min(1.0)
    }

    pub(crate) fn cache_capacity(&self) -> usize {
        self.cache.lock().capacity()
    }

    pub(crate) fn stats(&self) -> Stats {
        let counters = self.counted();
        Stats {
            running: self.slots.running() as u64,
            waiting: self.slots.waiting() as u64,
            started: counters.started,
            completed: counters.stopped + counters.at_length,
            cancelled: counters.aborted,
            prompt_tokens: counters.prompt_tokens,
            cached_tokens: counters.cached_tokens,
            generated_tokens: counters.generated_tokens,
            cache_blocks: self.cache.lock().blocks() as u64,
        }
    }
}
