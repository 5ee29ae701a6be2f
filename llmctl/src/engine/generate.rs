//! The life of one request inside the engine, the same for every API: queue, slot, prefix cache,
//! prefill, tokens at their pace. The API modules only shape what comes out.
//!
//! Time is simulated by waiting: to the first token `ttft + uncached prompt tokens × prefill`,
//! between two tokens `itl`, by deadlines that do not drift. Unlike a real engine, nothing is
//! generated ahead of a client that does not read: it keeps its slot for longer instead.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use super::cache::{BLOCK, PrefixCache};
use super::log::Exchange;
use super::slots::{QueueFull, Slot, Slots, Ticket};
use super::stats::{Counters, Ended, Stats};
use super::text::{Finish, Plan};
use super::tokens::{self, Token};

/// How fast the engine is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// To the first token, with everything cached.
    pub ttft: Duration,
    /// Between two tokens.
    pub itl: Duration,
    /// For each prompt token that is not cached.
    pub prefill: Duration,
}

/// The part of the engine that computes.
#[derive(Debug)]
pub(super) struct Core {
    pace: Pace,
    slots: Arc<Slots>,
    cache: Mutex<PrefixCache>,
    counters: Mutex<Counters>,
    /// Blocks that running requests occupy.
    held_blocks: AtomicUsize,
}

/// What is to be computed.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) prompt: Vec<Token>,
    pub(super) plan: Plan,
    /// How many replies; all run in the one slot.
    pub(super) choices: usize,
}

/// Token counts of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) prompt: usize,
    pub(super) cached: usize,
    pub(super) completion: usize,
}

/// Simulated times of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Timings {
    pub(super) prompt: Duration,
    pub(super) decode: Duration,
}

/// A request in the queue. Dropping it leaves the queue.
#[derive(Debug)]
pub(super) struct Pending {
    core: Arc<Core>,
    ticket: Ticket,
    job: Job,
    exchange: Arc<Exchange>,
    arrived: Instant,
}

/// A request in its slot. Dropping it frees the slot and, unless it had come to its end, counts
/// as an abort; the tokens made so far stay in the prefix cache.
#[derive(Debug)]
pub(super) struct Generation {
    core: Arc<Core>,
    _slot: Slot,
    job: Job,
    exchange: Arc<Exchange>,
    arrived: Instant,
    cached: usize,
    prompt_time: Duration,
    prefilled: bool,
    made: usize,
    next_at: Instant,
    held_blocks: usize,
}

impl Core {
    pub(super) fn new(pace: Pace, slots: usize, cache_blocks: usize) -> Arc<Self> {
        Arc::new(Self {
            pace,
            slots: Slots::new(slots),
            cache: Mutex::new(PrefixCache::new(cache_blocks)),
            counters: Mutex::default(),
            held_blocks: AtomicUsize::new(0),
        })
    }

    /// Puts a request into the queue, or into a slot if one is free.
    pub(super) fn submit(
        self: &Arc<Self>,
        job: Job,
        exchange: Arc<Exchange>,
    ) -> Result<Pending, QueueFull> {
        let ticket = self.slots.enqueue()?;
        let arrived = Instant::now();
        Ok(Pending {
            core: Arc::clone(self),
            ticket,
            job,
            exchange,
            arrived,
        })
    }

    pub(super) fn slots(&self) -> &Slots {
        &self.slots
    }

    pub(super) fn counters(&self) -> Counters {
        self.counters.lock().clone()
    }

    /// Share of the cache's blocks that running requests would occupy, from 0 to 1.
    pub(super) fn kv_usage(&self) -> f64 {
        let held = self.held_blocks.load(Relaxed);
        #[expect(clippy::cast_precision_loss, reason = "a ratio of block counts")]
        let share = held as f64 / self.cache.lock().capacity().max(1) as f64;
        share.min(1.0)
    }

    pub(super) fn cache_capacity(&self) -> usize {
        self.cache.lock().capacity()
    }

    pub(super) fn stats(&self) -> Stats {
        let counters = self.counters();
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

impl Pending {
    /// Waits for the slot, then for the prompt to be computed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue or frees the slot.
    pub(super) async fn begin(self) -> Generation {
        let slot = self.ticket.slot().await;
        let cached = self.core.cache.lock().lookup(&self.job.prompt);
        let prompt = self.job.prompt.len();
        let uncached = u32::try_from(prompt - cached).unwrap_or(u32::MAX);
        let pace = self.core.pace;
        let prompt_time = pace.ttft + pace.prefill.saturating_mul(uncached);
        let held_blocks = prompt.div_ceil(BLOCK);
        {
            let mut counters = self.core.counters.lock();
            counters.started += 1;
            counters.cache_queries += prompt as u64;
            counters.cache_hits += cached as u64;
        }
        self.core.held_blocks.fetch_add(held_blocks, Relaxed);
        let mut generation = Generation {
            next_at: Instant::now() + prompt_time,
            core: self.core,
            _slot: slot,
            job: self.job,
            exchange: self.exchange,
            arrived: self.arrived,
            cached,
            prompt_time,
            prefilled: false,
            made: 0,
            held_blocks,
        };
        generation.prefill().await;
        generation
    }
}

impl Generation {
    async fn prefill(&mut self) {
        if !self.prompt_time.is_zero() {
            sleep_until(self.next_at).await;
        }
        self.prefilled = true;
        self.core.cache.lock().insert(&self.job.prompt);
        let now = Instant::now();
        let mut counters = self.core.counters.lock();
        counters.prompt_tokens += self.job.prompt.len() as u64;
        counters.cached_tokens += self.cached as u64;
        counters.prompt_time += self.prompt_time;
        counters.ttft.observe(now.duration_since(self.arrived));
        drop(counters);
        self.exchange.prefilled(self.job.prompt.len(), self.cached);
    }

    /// Waits for the next token and returns its text; `None` after the last.
    ///
    /// # Cancel safety
    ///
    /// A dropped future has consumed no token.
    pub(super) async fn next(&mut self) -> Option<&str> {
        let piece = self.job.plan.pieces.get(self.made)?;
        let itl = self.core.pace.itl;
        if self.made > 0 && !itl.is_zero() {
            let due = self.next_at + itl;
            sleep_until(due).await;
            self.next_at = due;
        }
        self.made += 1;
        let choices = self.job.choices as u64;
        let mut counters = self.core.counters.lock();
        counters.generated_tokens += choices;
        counters.decode_time += if self.made > 1 { itl } else { Duration::ZERO };
        drop(counters);
        self.exchange.generated(choices);
        Some(piece)
    }

    pub(super) fn usage(&self) -> Usage {
        Usage {
            prompt: self.job.prompt.len(),
            cached: self.cached,
            completion: self.made * self.job.choices,
        }
    }

    pub(super) fn timings(&self) -> Timings {
        let gaps = u32::try_from(self.made.saturating_sub(1)).unwrap_or(u32::MAX);
        Timings {
            prompt: self.prompt_time,
            decode: self.core.pace.itl.saturating_mul(gaps),
        }
    }

    /// How it ends when nothing cuts it short.
    pub(super) fn finish(&self) -> &Finish {
        &self.job.plan.finish
    }

    fn is_complete(&self) -> bool {
        self.prefilled && self.made == self.job.plan.pieces.len()
    }

    /// The prompt and what was generated after it, as the next turn will bring it back.
    fn tokens_so_far(&mut self) -> Vec<Token> {
        let mut all = std::mem::take(&mut self.job.prompt);
        all.extend(
            self.job.plan.pieces[..self.made]
                .iter()
                .map(|piece| tokens::id(piece)),
        );
        all
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        let ended = match (self.is_complete(), &self.job.plan.finish) {
            (false, _) => Ended::Abort,
            (true, Finish::Length) => Ended::Length,
            (true, _) => Ended::Stop,
        };
        if self.prefilled {
            let all = self.tokens_so_far();
            self.core.cache.lock().insert(&all);
            let mut counters = self.core.counters.lock();
            counters.longest = counters.longest.max(all.len() as u64);
        }
        self.core.held_blocks.fetch_sub(self.held_blocks, Relaxed);
        let latency = Instant::now().duration_since(self.arrived);
        self.core.counters.lock().end(ended, latency);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::log::{Log, Origin};
    use futures_util::FutureExt as _;

    const PACE: Pace = Pace {
        ttft: Duration::from_millis(50),
        itl: Duration::from_millis(10),
        prefill: Duration::from_millis(1),
    };

    fn submit(core: &Arc<Core>, prompt: &[Token], reply: usize) -> Pending {
        let (head, ()) = http::Request::new(()).into_parts();
        let origin = Origin {
            peer: ([127, 0, 0, 1], 1).into(),
            connection: 0,
            on_connection: 0,
        };
        let plan = Plan::sentences(reply, None);
        let job = Job {
            prompt: prompt.to_vec(),
            plan,
            choices: 1,
        };
        core.submit(job, Log::default().open(&head, origin))
            .unwrap()
    }

    async fn run(core: &Arc<Core>, prompt: &[Token], reply: usize) -> Vec<Duration> {
        let from = Instant::now();
        let mut generation = submit(core, prompt, reply).begin().await;
        let mut at = Vec::new();
        while generation.next().await.is_some() {
            at.push(Instant::now() - from);
        }
        at
    }

    fn millis(all: &[u64]) -> Vec<Duration> {
        all.iter().copied().map(Duration::from_millis).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_cached_shortens_the_time_to_the_first_token() {
        let core = Core::new(PACE, 1, 100);
        let prompt: Vec<Token> = (0..40).collect();
        assert_eq!(run(&core, &prompt, 3).await, millis(&[90, 100, 110]));
        assert_eq!(
            run(&core, &prompt, 3).await,
            millis(&[58, 68, 78]),
            "32 of 40 cached"
        );
        let stats = core.stats();
        assert_eq!(
            (
                stats.prompt_tokens,
                stats.cached_tokens,
                stats.generated_tokens
            ),
            (80, 32, 6)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_reply_is_cached_for_the_turn_that_brings_it_back() {
        let core = Core::new(PACE, 1, 100);
        let mut turn: Vec<Token> = (0..20).collect();
        run(&core, &turn, 30).await;
        turn.extend(
            Plan::sentences(30, None)
                .pieces
                .iter()
                .map(|piece| tokens::id(piece)),
        );
        turn.extend(5000..5010);
        assert_eq!(submit(&core, &turn, 1).begin().await.usage().cached, 48);
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_cache_every_turn_costs_the_same() {
        let core = Core::new(PACE, 1, 0);
        let prompt: Vec<Token> = (0..40).collect();
        assert_eq!(run(&core, &prompt, 1).await, run(&core, &prompt, 1).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_request_waits_for_the_only_slot() {
        let core = Core::new(PACE, 1, 0);
        let (first, second) = (run(&core, &[1], 2), run(&core, &[2], 1));
        let (first, second) = tokio::join!(first, second);
        assert_eq!((first, second), (millis(&[51, 61]), millis(&[61 + 51])));
    }

    #[tokio::test(start_paused = true)]
    async fn leaving_during_prefill_frees_the_slot_and_caches_nothing() {
        let core = Core::new(PACE, 1, 100);
        let prompt: Vec<Token> = (0..40).collect();
        let mut begin = Box::pin(submit(&core, &prompt, 1).begin());
        assert!((&mut begin).now_or_never().is_none());
        assert_eq!(core.stats().running, 1);
        drop(begin);
        let stats = core.stats();
        assert_eq!(
            (
                stats.running,
                stats.cancelled,
                stats.prompt_tokens,
                stats.cache_blocks
            ),
            (0, 1, 0, 0)
        );
        assert_eq!(core.kv_usage().to_bits(), 0, "no block stays occupied");
    }

    #[tokio::test(start_paused = true)]
    async fn leaving_midway_is_an_abort_and_keeps_what_was_made() {
        let core = Core::new(PACE, 1, 100);
        let mut generation = submit(&core, &(0..8).collect::<Vec<_>>(), 100)
            .begin()
            .await;
        for _ in 0..8 {
            generation.next().await;
        }
        drop(generation);
        let stats = core.stats();
        assert_eq!(
            (
                stats.cancelled,
                stats.completed,
                stats.generated_tokens,
                stats.cache_blocks
            ),
            (1, 0, 8, 1)
        );
    }
}
