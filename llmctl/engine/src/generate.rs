//! The life of one request inside the engine, the same for every API: queue, slot, prefix cache,
//! prefill, tokens at their pace. The API modules only format the result.
//!
//! The engine simulates time by waiting: to the first token `ttft + uncached prompt tokens ×
//! prefill`, between two tokens `itl`, by deadlines that do not drift. Unlike a real engine, it
//! does not generate ahead of a slow client: the request keeps its slot for longer instead.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::cache::BLOCK;
use crate::compute::Core;
use crate::log::Exchange;
use crate::slots::{QueueFull, Slot, Ticket};
use crate::stats::Ended;
use crate::text::{Finish, Plan};
use crate::tokens::{self, Token};

/// The input of a generation.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) prompt: Vec<Token>,
    pub(crate) plan: Plan,
    /// Number of replies; all run in one slot.
    pub(crate) choices: usize,
}

/// Token counts of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) prompt: usize,
    pub(crate) cached: usize,
    pub(crate) completion: usize,
}

/// Simulated times of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Timings {
    pub(crate) prompt: Duration,
    pub(crate) decode: Duration,
}

/// A request in the queue. Dropping it leaves the queue.
#[derive(Debug)]
pub(crate) struct Pending {
    core: Arc<Core>,
    ticket: Ticket,
    job: Job,
    exchange: Arc<Exchange>,
    /// Added to the time to the first token.
    slow_ttft: Duration,
    arrived: Instant,
}

/// A request in its slot. Dropping it frees the slot; unless the request had finished, it counts as
/// an abort. The tokens so far stay in the prefix cache.
#[derive(Debug)]
pub(crate) struct Generation {
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

impl Pending {
    /// Puts a request into the queue, or into a free slot.
    pub(crate) fn enqueue(
        core: &Arc<Core>,
        job: Job,
        exchange: Arc<Exchange>,
        slow_ttft: Duration,
    ) -> Result<Self, QueueFull> {
        let ticket = core.slots.enqueue()?;
        let (core, arrived) = (Arc::clone(core), Instant::now());
        Ok(Self {
            core,
            ticket,
            job,
            exchange,
            slow_ttft,
            arrived,
        })
    }

    /// Waits for the slot and then for the prefill.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue or frees the slot.
    pub(crate) async fn begin(self) -> Generation {
        let slot = self.ticket.slot().await;
        let cached = self.core.cache.lock().lookup(&self.job.prompt);
        let prompt = self.job.prompt.len();
        let uncached = u32::try_from(prompt - cached).unwrap_or(u32::MAX);
        let pace = self.core.pace;
        let prompt_time = pace.ttft + pace.prefill.saturating_mul(uncached) + self.slow_ttft;
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
    /// A dropped future consumes no token.
    pub(crate) async fn next(&mut self) -> Option<&str> {
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

    pub(crate) fn usage(&self) -> Usage {
        Usage {
            prompt: self.job.prompt.len(),
            cached: self.cached,
            completion: self.made * self.job.choices,
        }
    }

    pub(crate) fn timings(&self) -> Timings {
        let gaps = u32::try_from(self.made.saturating_sub(1)).unwrap_or(u32::MAX);
        Timings {
            prompt: self.prompt_time,
            decode: self.core.pace.itl.saturating_mul(gaps),
        }
    }

    /// The reason why the reply ends if nothing cuts it short.
    pub(crate) fn finish(&self) -> &Finish {
        &self.job.plan.finish
    }

    fn is_complete(&self) -> bool {
        self.prefilled && self.made == self.job.plan.pieces.len()
    }

    /// The prompt and the generated tokens, as the prompt of the next turn contains them.
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
mod tests;
