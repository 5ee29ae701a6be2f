//! How busy a peer is: what its engine said last, how far that can be trusted, and our own requests.
//!
//! A *sample* is one reading of an engine's load. A peer with a recent one is *fresh*. A peer whose
//! engine is alive but too busy to answer the poll is *held*: still a candidate, assumed full, for a
//! bounded time; a long prefill on llama.cpp blocks its metrics page for as long as it lasts, and
//! dropping the busiest engines would pile their traffic on the rest. Anything else that does not
//! answer is out.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// One reading of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Requests it computes.
    pub running: u32,
    /// Requests it queues.
    pub waiting: u32,
    /// Share of its KV cache in use, 0 to 1, where it says.
    pub kv_usage: Option<f64>,
    /// It batches continuously: it is full when it queues or its cache is, whatever its slots.
    pub batches: bool,
}

impl Sample {
    /// Requests that the engine has, whoever sent them.
    pub fn busy(self) -> u32 {
        self.running.saturating_add(self.waiting)
    }

    /// Whether the engine itself shows that it can take no more.
    fn is_saturated(self) -> bool {
        self.batches && (self.waiting > 0 || self.kv_usage.is_some_and(|usage| usage >= KV_FULL))
    }
}

/// The clock's own step.
const TICK: Duration = Duration::from_nanos(1);

/// A cache this full starts to evict what running requests need.
const KV_FULL: f64 = 0.95;

/// What one poll found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Report {
    /// A reading.
    Sampled(Sample),
    /// No load to be had from this engine, but it answers its health check: its load is our own
    /// in-flight.
    Blind,
    /// It sleeps; nothing may wake it but a request.
    Sleeping,
    /// It refused, reset, does not resolve or fails TLS.
    Dead,
    /// It is loading its model.
    Loading,
    /// It does not accept our credential.
    Misconfigured,
    /// It accepted the connection and did not answer in time. `answers_health`: its health check did.
    Hung {
        /// Whether `/health` answered 200.
        answers_health: bool,
    },
    /// An error, or a page without usable numbers: no new sample, the last one ages.
    Unusable,
}

/// How much a peer's reading is worth now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// A recent sample, or polling is off.
    Fresh,
    /// Alive, too busy to be read: assumed full.
    Held,
    /// The last sample is too old, or there never was one.
    Stale,
    /// It refuses connections.
    Dead,
    /// It is loading its model.
    Loading,
    /// It does not accept our credential.
    Misconfigured,
}

impl Standing {
    /// Whether the choice may pick such a peer.
    pub fn is_candidate(self) -> bool {
        matches!(self, Self::Fresh | Self::Held)
    }

    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Held => "held",
            Self::Stale => "stale",
            Self::Dead => "dead",
            Self::Loading => "loading",
            Self::Misconfigured => "misconfigured",
        }
    }
}

/// What becomes of a peer that cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StalePolicy {
    /// Alive but silent: held, for at most `hold_max`.
    #[default]
    Hold,
    /// Out as soon as its sample is too old.
    Exclude,
}

/// How own requests and the engine's count are added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadModel {
    /// Own requests that were in flight when the sample was taken are taken out of it.
    #[default]
    Corrected,
    /// `busy + in_flight`: own requests count twice once a poll has seen them.
    Additive,
}

/// The rules of a route.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadSpec {
    /// A sample older than this is not fresh.
    pub stale_after: Duration,
    /// What becomes of a peer that cannot be read.
    pub stale_policy: StalePolicy,
    /// The longest time from the last sample that a peer is held.
    pub hold_max: Duration,
    /// How counts are added up.
    pub model: LoadModel,
}

impl Default for LoadSpec {
    fn default() -> Self {
        Self {
            stale_after: Duration::from_secs(3),
            stale_policy: StalePolicy::Hold,
            hold_max: Duration::from_secs(60),
            model: LoadModel::Corrected,
        }
    }
}

/// What is known of one peer's load. Lives as long as the peer's in-flight count.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    sample: Option<Taken>,
    last: Last,
    /// Polling has just begun on a peer in use, and no poll has ended yet.
    unasked: bool,
    /// Of a peer that never gave a sample: since when its engine has been silent.
    silent_since: Option<Instant>,
    sleeping: bool,
    /// When its load last went to zero.
    idle_since: Option<Instant>,
    /// Whether it was ever seen busy, or ever served a request of ours.
    was_used: bool,
}

#[derive(Clone, Copy, Debug)]
struct Taken {
    sample: Sample,
    at: Instant,
    /// Own requests in flight when it came.
    own: u32,
    /// Health answers instead of a sample: the load is our own.
    blind: bool,
}

/// The last poll that told something other than a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Last {
    #[default]
    Nothing,
    Dead,
    Loading,
    Misconfigured,
    Hung {
        answers_health: bool,
    },
}

impl Reading {
    /// Polling begins on a peer that was in use without it. Until a poll has ended nothing speaks against
    /// the peer, and its load is our own requests: otherwise a reload would take every peer out at once.
    pub fn begin(&mut self) {
        *self = Self {
            unasked: true,
            idle_since: self.idle_since,
            was_used: self.was_used,
            ..Self::default()
        };
    }

    /// Takes a poll's result in. `own`: our requests in flight on the peer now.
    pub fn report(&mut self, report: Report, own: u32, now: Instant) {
        let sampled = |sample, blind| Taken {
            sample,
            at: now,
            own,
            blind,
        };
        self.unasked = false;
        if !matches!(report, Report::Hung { .. } | Report::Unusable) {
            self.silent_since = None;
        }
        let last = match report {
            Report::Sampled(sample) => {
                let before = self.external();
                self.sample = Some(sampled(sample, false));
                self.sleeping = false;
                let after = self.external();
                self.was_used |= after > 0;
                if before > 0 && after == 0 && own == 0 {
                    self.idle_since = Some(now);
                }
                Last::Nothing
            }
            Report::Blind => {
                self.sample = Some(sampled(Sample::default(), true));
                self.sleeping = false;
                Last::Nothing
            }
            Report::Sleeping => {
                self.sample = Some(sampled(Sample::default(), false));
                self.sleeping = true;
                Last::Nothing
            }
            Report::Dead => Last::Dead,
            Report::Loading => Last::Loading,
            Report::Misconfigured => Last::Misconfigured,
            Report::Hung { answers_health } => {
                self.silent_since.get_or_insert(now);
                Last::Hung { answers_health }
            }
            Report::Unusable => return,
        };
        self.last = last;
    }

    /// A request of ours was placed on the peer.
    pub fn placed(&mut self) {
        self.was_used = true;
        self.sleeping = false;
    }

    /// A request of ours ended; `own` are left.
    pub fn released(&mut self, own: u32, now: Instant) {
        if own == 0 && self.external() == 0 {
            self.idle_since = Some(now);
        }
    }

    /// What the reading is worth. `own`: our requests in flight on the peer now.
    pub fn standing(&self, spec: &LoadSpec, own: u32, now: Instant) -> Standing {
        match self.last {
            Last::Dead => return Standing::Dead,
            Last::Loading => return Standing::Loading,
            Last::Misconfigured => return Standing::Misconfigured,
            Last::Nothing | Last::Hung { .. } => {}
        }
        if self.unasked {
            return Standing::Fresh;
        }
        let age_of = |at: Instant| now.saturating_duration_since(at);
        let age = match self.sample {
            Some(taken) if age_of(taken.at) <= spec.stale_after => return Standing::Fresh,
            Some(taken) => age_of(taken.at),
            // It was silent from the start, as an engine is that prefills while the router restarts.
            None => match self.silent_since {
                Some(since) => age_of(since),
                None => return Standing::Stale,
            },
        };
        let alive = match self.last {
            Last::Hung { answers_health } => answers_health || own > 0,
            _ => false,
        };
        if alive && spec.stale_policy == StalePolicy::Hold && age <= spec.hold_max {
            Standing::Held
        } else {
            Standing::Stale
        }
    }

    /// The first instant at which time alone makes the reading worth something else; `None` when
    /// it never will.
    pub fn stands_until(&self, spec: &LoadSpec, own: u32, now: Instant) -> Option<Instant> {
        let life = match self.standing(spec, own, now) {
            Standing::Fresh => spec.stale_after,
            Standing::Held => spec.hold_max,
            Standing::Stale | Standing::Dead | Standing::Loading | Standing::Misconfigured => {
                return None;
            }
        };
        if self.unasked {
            return None;
        }
        let since = self.sample.map(|taken| taken.at).or(self.silent_since)?;
        // A bound belongs to the state that it ends.
        since.checked_add(life)?.checked_add(TICK)
    }

    /// Requests on the peer, others' included. A held peer counts as full.
    pub fn load(&self, spec: &LoadSpec, standing: Standing, own: u32, slots: u32) -> u32 {
        let busy = self.sample.map_or(0, |taken| taken.sample.busy());
        if standing == Standing::Held {
            return busy.max(slots).max(own);
        }
        match spec.model {
            LoadModel::Corrected => self.external().saturating_add(own),
            LoadModel::Additive => busy.saturating_add(own),
        }
    }

    /// Whether the peer can take no more: by its slots, or by its engine's own account.
    pub fn is_full(&self, spec: &LoadSpec, standing: Standing, own: u32, slots: u32) -> bool {
        let saturated = self.sample.is_some_and(|taken| taken.sample.is_saturated());
        saturated || self.load(spec, standing, own, slots) >= slots
    }

    /// How long the peer has been idle at `load`.
    pub fn idle(&self, load: u32, now: Instant) -> Idle {
        self.rest(load).idle(now)
    }

    /// Since when the peer has been idle at `load`.
    pub(crate) fn rest(&self, load: u32) -> Rest {
        if load > 0 {
            return Rest::Busy;
        }
        if self.sleeping {
            return Rest::Asleep;
        }
        match self.idle_since {
            Some(since) => Rest::Since(since),
            None if self.was_used => Rest::Unknown,
            None => Rest::Always,
        }
    }

    /// Others' requests, as the last sample showed them.
    pub fn external(&self) -> u32 {
        self.sample
            .map_or(0, |taken| taken.sample.busy().saturating_sub(taken.own))
    }

    /// The last sample and its age; `None` before the first, and of an engine that has none to give.
    pub fn sample(&self, now: Instant) -> Option<(Sample, Duration)> {
        let taken = self.sample.filter(|taken| !taken.blind)?;
        Some((taken.sample, now.saturating_duration_since(taken.at)))
    }
}

/// How long a peer has had nothing to do, from the least attractive to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Idle {
    /// It has something to do.
    Busy,
    /// Nothing, and its engine has gone to sleep: a request has to wake it.
    Asleep,
    /// Since so long.
    For(Duration),
    /// It has never had anything to do.
    Always,
}

/// Since when a peer has had nothing to do: [`Idle`] without the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// It has something to do, or nobody asks.
    Busy,
    Asleep,
    Since(Instant),
    /// It was seen busy, and not when that ended.
    Unknown,
    Always,
}

impl Rest {
    #[inline]
    pub(crate) fn idle(self, now: Instant) -> Idle {
        match self {
            Self::Busy => Idle::Busy,
            Self::Asleep => Idle::Asleep,
            Self::Since(since) => Idle::For(now.saturating_duration_since(since)),
            Self::Unknown => Idle::For(Duration::ZERO),
            Self::Always => Idle::Always,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;
    use crate::testing::start;

    const SPEC: LoadSpec = LoadSpec {
        stale_after: Duration::from_secs(3),
        stale_policy: StalePolicy::Hold,
        hold_max: Duration::from_secs(60),
        model: LoadModel::Corrected,
    };
    const EXCLUDE: LoadSpec = LoadSpec {
        stale_policy: StalePolicy::Exclude,
        ..SPEC
    };
    const ADDITIVE: LoadSpec = LoadSpec {
        model: LoadModel::Additive,
        ..SPEC
    };

    fn busy(running: u32) -> Report {
        Report::Sampled(Sample {
            running,
            ..Sample::default()
        })
    }

    fn after(millis: u64) -> Instant {
        static BEGIN: LazyLock<Instant> = LazyLock::new(start);
        *BEGIN + Duration::from_millis(millis)
    }

    fn read(report: Report, own: u32) -> Reading {
        let mut reading = Reading::default();
        reading.report(report, own, after(0));
        reading
    }

    #[test]
    fn v4_a_sample_is_fresh_up_to_its_bound_and_a_refusal_ends_it_at_once() {
        let mut reading = read(busy(0), 0);
        assert_eq!(reading.standing(&SPEC, 0, after(3_000)), Standing::Fresh);
        assert_eq!(reading.standing(&SPEC, 0, after(3_001)), Standing::Stale);
        reading.report(Report::Dead, 0, after(1_000));
        assert_eq!(reading.standing(&SPEC, 0, after(1_000)), Standing::Dead);
        reading.report(busy(0), 0, after(2_000));
        assert_eq!(reading.standing(&SPEC, 0, after(2_000)), Standing::Fresh);
    }

    #[test]
    fn v5_a_silent_engine_that_answers_its_health_check_is_held_and_counts_as_full() {
        let mut reading = read(busy(1), 0);
        reading.report(
            Report::Hung {
                answers_health: true,
            },
            0,
            after(3_000),
        );
        assert_eq!(reading.standing(&EXCLUDE, 0, after(4_000)), Standing::Stale);
        let held = reading.standing(&SPEC, 0, after(4_000));
        assert_eq!(held, Standing::Held);
        assert_eq!(reading.load(&SPEC, held, 0, 4), 4);
        assert_eq!(reading.standing(&SPEC, 0, after(60_000)), Standing::Held);
        assert_eq!(reading.standing(&SPEC, 0, after(60_500)), Standing::Stale);
    }

    #[test]
    fn v5_an_engine_that_answers_nothing_is_held_only_while_it_works_for_us() {
        let mut reading = read(busy(1), 0);
        reading.report(
            Report::Hung {
                answers_health: false,
            },
            1,
            after(3_000),
        );
        assert_eq!(reading.standing(&SPEC, 1, after(4_000)), Standing::Held);
        assert_eq!(reading.standing(&SPEC, 0, after(4_000)), Standing::Stale);
    }

    #[test]
    fn v11_own_requests_count_once_when_corrected_and_twice_when_added() {
        let seen = read(busy(2), 2);
        let load = |spec: &LoadSpec, reading: &Reading| reading.load(spec, Standing::Fresh, 2, 4);
        assert_eq!((seen.external(), load(&SPEC, &seen)), (0, 2));
        assert!(!seen.is_full(&SPEC, Standing::Fresh, 2, 4));
        assert_eq!(load(&ADDITIVE, &seen), 4);
        assert!(seen.is_full(&ADDITIVE, Standing::Fresh, 2, 4));
        let shared = read(busy(4), 2);
        assert_eq!(load(&SPEC, &shared), 4);
        assert!(shared.is_full(&SPEC, Standing::Fresh, 2, 4));
    }

    #[test]
    fn a_peer_never_sampled_is_stale_and_an_unusable_page_ages_the_last_sample() {
        let mut reading = Reading::default();
        assert_eq!(reading.standing(&SPEC, 0, after(0)), Standing::Stale);
        reading.report(busy(3), 0, after(0));
        reading.report(Report::Unusable, 0, after(2_000));
        assert_eq!(
            reading.sample(after(2_000)).unwrap().1,
            Duration::from_secs(2)
        );
        assert_eq!(reading.external(), 3);
        assert_eq!(reading.standing(&SPEC, 0, after(3_001)), Standing::Stale);
    }

    #[test]
    fn an_engine_silent_from_the_start_is_held_for_as_long_as_one_that_fell_silent() {
        let silent = Report::Hung {
            answers_health: true,
        };
        let mut reading = read(silent, 0);
        reading.report(silent, 0, after(30_000));
        let standing = |spec: &LoadSpec, at| reading.standing(spec, 0, after(at));
        assert_eq!(standing(&EXCLUDE, 0), Standing::Stale);
        assert_eq!(standing(&SPEC, 60_000), Standing::Held);
        assert_eq!(reading.load(&SPEC, Standing::Held, 0, 4), 4);
        assert_eq!(standing(&SPEC, 60_001), Standing::Stale);
        // Whatever it says in between begins its time anew.
        reading.report(Report::Loading, 0, after(61_000));
        reading.report(silent, 0, after(62_000));
        assert_eq!(reading.standing(&SPEC, 0, after(62_000)), Standing::Held);
    }

    #[test]
    fn until_its_first_poll_ends_a_peer_in_use_counts_by_our_own_requests() {
        let mut reading = read(busy(3), 1);
        reading.begin();
        let standing = reading.standing(&SPEC, 2, after(90_000));
        assert_eq!(standing, Standing::Fresh);
        assert_eq!(reading.load(&SPEC, standing, 2, 4), 2);
        assert_eq!(reading.sample(after(90_000)), None);
        reading.report(Report::Unusable, 2, after(90_000));
        assert_eq!(reading.standing(&SPEC, 2, after(90_000)), Standing::Stale);
    }

    #[test]
    fn an_engine_without_metrics_is_fresh_by_its_health_and_loaded_by_us() {
        let reading = read(Report::Blind, 5);
        assert_eq!(reading.standing(&SPEC, 2, after(0)), Standing::Fresh);
        assert_eq!(reading.load(&SPEC, Standing::Fresh, 2, 4), 2);
        assert_eq!(reading.sample(after(0)), None);
    }

    #[test]
    fn a_reading_says_when_time_alone_will_change_it() {
        let mut reading = read(busy(1), 0);
        let changes = |reading: &Reading, spec, at: u64| {
            let until = reading.stands_until(spec, 0, after(at))?;
            let before = reading.standing(spec, 0, until - TICK);
            assert_eq!(before, reading.standing(spec, 0, after(at)));
            assert_ne!(before, reading.standing(spec, 0, until));
            Some(until.duration_since(after(0)).as_millis())
        };
        assert_eq!(changes(&reading, &SPEC, 0), Some(3_000));
        assert_eq!(changes(&reading, &SPEC, 4_000), None, "stale for good");
        reading.report(
            Report::Hung {
                answers_health: true,
            },
            0,
            after(2_000),
        );
        assert_eq!(changes(&reading, &SPEC, 2_000), Some(3_000));
        assert_eq!(changes(&reading, &SPEC, 4_000), Some(60_000));
        assert_eq!(changes(&reading, &EXCLUDE, 4_000), None);
        reading.report(Report::Dead, 0, after(5_000));
        assert_eq!(changes(&reading, &SPEC, 5_000), None);
        let silent = Report::Hung {
            answers_health: true,
        };
        assert_eq!(changes(&read(silent, 0), &SPEC, 1_000), Some(60_000));
        reading.begin();
        assert_eq!(changes(&reading, &SPEC, 6_000), None);
    }

    #[test]
    fn a_batching_engine_is_full_when_it_queues_or_its_cache_is() {
        let batching = |waiting, kv| {
            read(
                Report::Sampled(Sample {
                    running: 1,
                    waiting,
                    kv_usage: Some(kv),
                    batches: true,
                }),
                0,
            )
            .is_full(&SPEC, Standing::Fresh, 0, 100)
        };
        assert!(!batching(0, 0.94));
        assert!(batching(1, 0.1));
        assert!(batching(0, 0.95));
    }

    #[test]
    fn idleness_starts_at_the_last_release_or_at_the_sample_that_shows_it() {
        let mut reading = Reading::default();
        assert_eq!(reading.idle(0, after(0)), Idle::Always);
        reading.placed();
        assert_eq!(reading.idle(1, after(0)), Idle::Busy);
        reading.released(0, after(1_000));
        assert_eq!(
            reading.idle(0, after(3_000)),
            Idle::For(Duration::from_secs(2))
        );
        reading.report(busy(2), 0, after(4_000));
        assert_eq!(reading.idle(2, after(4_000)), Idle::Busy);
        reading.report(busy(0), 0, after(5_000));
        assert_eq!(
            reading.idle(0, after(6_000)),
            Idle::For(Duration::from_secs(1))
        );
        reading.report(Report::Sleeping, 0, after(7_000));
        assert!(reading.idle(0, after(7_000)) < Idle::For(Duration::ZERO));
    }
}
