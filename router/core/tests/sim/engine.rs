//! A model engine: one batch with shared speed, a queue in front of it, and a prefix cache.
//!
//! With n requests in the batch, each runs at `1 ÷ (1 + n ÷ knee)` of full speed. The engine's
//! throughput still rises with n, while every request's decode rate and time to first token get
//! worse. Prefill takes time for the part of the prompt that is not in the cache.

use std::collections::VecDeque;
use std::time::Duration;

use router_core::book::Ticket;
use router_core::decision::Facts;

/// With less work left than this (in seconds) a phase is over.
const DONE: f64 = 1e-9;

/// The properties of an engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Make {
    /// Requests computed at once; other requests wait.
    pub(crate) batch: usize,
    /// With this number of requests each runs at half speed.
    pub(crate) knee: f64,
    /// Tokens per second of a single request.
    pub(crate) decode_rate: f64,
    /// Prompt tokens per second of a single request.
    pub(crate) prefill_rate: f64,
    /// Capacity of its cache.
    pub(crate) cache_tokens: u64,
}

/// One request on an engine.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) ticket: Ticket,
    pub(crate) facts: Facts,
    pub(crate) session: u64,
    pub(crate) arrived: Duration,
    /// Tokens.
    pub(crate) prompt: u32,
    pub(crate) output: u32,
    /// Tokens of the prompt that were in the cache when the computation began.
    pub(crate) cached: u32,
    /// Time of its first token.
    pub(crate) first: Option<Duration>,
    /// Seconds of work at full speed.
    prefill_left: f64,
    decode_left: f64,
}

impl Job {
    pub(crate) fn new(
        ticket: Ticket,
        facts: Facts,
        session: u64,
        arrived: Duration,
        (prompt, output): (u32, u32),
    ) -> Self {
        Self {
            ticket,
            facts,
            session,
            arrived,
            prompt,
            output,
            cached: 0,
            first: None,
            prefill_left: 0.0,
            decode_left: 0.0,
        }
    }

    fn left(&self) -> f64 {
        if self.first.is_none() {
            self.prefill_left
        } else {
            self.decode_left
        }
    }
}

/// Events on an engine up to now.
#[derive(Debug, Default)]
pub(crate) struct Happened {
    /// Seconds from arrival to the first token, for each request that reached it.
    pub(crate) first_tokens: Vec<f64>,
    pub(crate) ended: Vec<Job>,
}

#[derive(Debug)]
pub(crate) struct Engine {
    make: Make,
    /// A factor on its speed; below 1 the engine is ill.
    pace: f64,
    /// The time up to which it has computed.
    at: Duration,
    running: Vec<Job>,
    waiting: VecDeque<Job>,
    /// Session and tokens, least recently used first.
    cache: VecDeque<(u64, u32)>,
    cached_tokens: u64,
}

impl Engine {
    pub(crate) fn new(make: Make) -> Self {
        Self {
            make,
            pace: 1.0,
            at: Duration::ZERO,
            running: Vec::new(),
            waiting: VecDeque::new(),
            cache: VecDeque::new(),
            cached_tokens: 0,
        }
    }

    pub(crate) fn set_pace(&mut self, pace: f64) {
        self.pace = pace;
    }

    /// The engine dies and restarts empty. Returns its requests.
    pub(crate) fn lose_all(&mut self) -> Vec<Job> {
        self.cache.clear();
        self.cached_tokens = 0;
        let running = self.running.drain(..);
        running.chain(self.waiting.drain(..)).collect()
    }

    /// Accepts a request. The engine must have computed up to its arrival.
    pub(crate) fn accept(&mut self, job: Job) {
        self.waiting.push_back(job);
        self.fill();
    }

    /// Computes up to `now`.
    pub(crate) fn run(&mut self, now: Duration) -> Happened {
        let work = (now - self.at).as_secs_f64() * self.speed();
        self.at = now;
        let mut happened = Happened::default();
        for job in &mut self.running {
            if job.first.is_some() {
                job.decode_left -= work;
                continue;
            }
            job.prefill_left -= work;
            if job.prefill_left <= DONE {
                job.first = Some(now);
                happened
                    .first_tokens
                    .push((now - job.arrived).as_secs_f64());
            }
        }
        let is_over = |job: &mut Job| job.first.is_some() && job.decode_left <= DONE;
        happened.ended.extend(self.running.extract_if(.., is_over));
        for job in &happened.ended {
            self.remember(job.session, job.prompt + job.output);
        }
        self.fill();
        happened
    }

    /// The requests that have just got their first token.
    pub(crate) fn begun(&mut self) -> impl Iterator<Item = &mut Job> {
        let now = self.at;
        self.running
            .iter_mut()
            .filter(move |job| job.first == Some(now))
    }

    /// When its next request changes phase, without other events.
    pub(crate) fn next(&self) -> Option<Duration> {
        let left = self.running.iter().map(Job::left).reduce(f64::min)?;
        let wait = Duration::from_secs_f64(left.max(0.0) / self.speed());
        Some(self.at + wait + Duration::from_nanos(1))
    }

    fn speed(&self) -> f64 {
        self.pace / (1.0 + self.running.len() as f64 / self.make.knee)
    }

    fn fill(&mut self) {
        while self.running.len() < self.make.batch {
            let Some(mut job) = self.waiting.pop_front() else {
                return;
            };
            let known = self.cache.iter().find(|(id, _)| *id == job.session);
            job.cached = known.map_or(0, |(_, tokens)| (*tokens).min(job.prompt - 1));
            job.prefill_left = f64::from(job.prompt - job.cached) / self.make.prefill_rate;
            job.decode_left = f64::from(job.output) / self.make.decode_rate;
            self.running.push(job);
        }
    }

    fn remember(&mut self, session: u64, tokens: u32) {
        if let Some(at) = self.cache.iter().position(|(id, _)| *id == session) {
            let (_, before) = self.cache.remove(at).expect("it was just found");
            self.cached_tokens -= u64::from(before);
        }
        self.cache.push_back((session, tokens));
        self.cached_tokens += u64::from(tokens);
        while self.cached_tokens > self.make.cache_tokens {
            let (_, oldest) = self.cache.pop_front().expect("it holds tokens");
            self.cached_tokens -= u64::from(oldest);
        }
    }
}
