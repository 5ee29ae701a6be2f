//! The known load of one peer, and how far it can be trusted at a given time.

use std::time::{Duration, Instant};

use super::{Freshness, Idle, IdleSince, LoadModel, LoadSpec, Report, Sample, StalePolicy};

/// An engine makes no progress if its counts of running and queued requests stay the same for this
/// long.
const STUCK_AFTER: Duration = Duration::from_secs(30);

/// The resolution of the clock.
const TICK: Duration = Duration::from_nanos(1);

/// The known load of one peer. Lives as long as the peer's in-flight count.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    sample: Option<Taken>,
    last: Last,
    /// Polling has just begun on a peer in use, and no poll has ended yet.
    unasked: bool,
    /// For a peer that never gave a sample: since when its engine has been silent.
    silent_since: Option<Instant>,
    sleeping: bool,
    /// When its load last went to zero.
    idle_since: Option<Instant>,
    /// When two consecutive samples last differed.
    changed: Option<Instant>,
    /// Whether the peer was ever seen busy, or ever served one of our requests.
    was_used: bool,
}

#[derive(Clone, Copy, Debug)]
struct Taken {
    sample: Sample,
    at: Instant,
    /// Our requests in flight when the sample came.
    own: u32,
    /// The engine answers its health check instead of a sample: the load is our own.
    blind: bool,
}

/// The last poll result that was not a sample.
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
    /// Begins polling of a peer that was in use without it. Until the first poll has ended, the
    /// peer stays a candidate and its load is our own requests. Otherwise a reload would take every
    /// peer out at once.
    pub fn begin(&mut self) {
        *self = Self {
            unasked: true,
            idle_since: self.idle_since,
            was_used: self.was_used,
            ..Self::default()
        };
    }

    /// Records the result of a poll. `own`: our requests in flight on the peer now.
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
                if self
                    .sample
                    .is_none_or(|taken| taken.blind || taken.sample != sample)
                {
                    self.changed = Some(now);
                }
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
            // The engine answers, so it is not too busy to answer, and there is no reason to hold
            // it.
            Report::Unusable => match self.last {
                Last::Hung { .. } => Last::Nothing,
                last => last,
            },
        };
        self.last = last;
    }

    /// Records that one of our requests was placed on the peer.
    pub fn placed(&mut self) {
        self.was_used = true;
        self.sleeping = false;
    }

    /// Records that one of our requests ended; `own` are left.
    pub fn released(&mut self, own: u32, now: Instant) {
        if own == 0 && self.external() == 0 {
            self.idle_since = Some(now);
        }
    }

    /// Freshness of the reading. `own`: our requests in flight on the peer now.
    pub fn freshness(&self, spec: &LoadSpec, own: u32, now: Instant) -> Freshness {
        match self.last {
            Last::Dead => return Freshness::Dead,
            Last::Loading => return Freshness::Loading,
            Last::Misconfigured => return Freshness::Misconfigured,
            Last::Nothing | Last::Hung { .. } => {}
        }
        if self.unasked {
            return Freshness::Fresh;
        }
        let age_of = |at: Instant| now.saturating_duration_since(at);
        let age = match self.sample {
            Some(taken) if age_of(taken.at) <= spec.stale_after => return Freshness::Fresh,
            Some(taken) => age_of(taken.at),
            // The engine was silent from the start. This happens when it prefills while the router
            // restarts.
            None => match self.silent_since {
                Some(since) => age_of(since),
                None => return Freshness::Stale,
            },
        };
        let alive = match self.last {
            Last::Hung { answers_health } => answers_health || own > 0,
            _ => false,
        };
        if alive && spec.stale_policy == StalePolicy::Hold && age <= spec.hold_max {
            Freshness::Held
        } else {
            Freshness::Stale
        }
    }

    /// The first instant at which time alone changes the freshness; `None` when it never will.
    pub fn stands_until(&self, spec: &LoadSpec, own: u32, now: Instant) -> Option<Instant> {
        let life = match self.freshness(spec, own, now) {
            Freshness::Fresh => spec.stale_after,
            Freshness::Held => spec.hold_max,
            Freshness::Stale | Freshness::Dead | Freshness::Loading | Freshness::Misconfigured => {
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

    /// Requests on the peer, including those of others. A held peer counts as full.
    pub fn load(&self, spec: &LoadSpec, freshness: Freshness, own: u32, slots: u32) -> u32 {
        let busy = self.sample.map_or(0, |taken| taken.sample.busy());
        if freshness == Freshness::Held {
            return busy.max(slots).max(own);
        }
        match spec.model {
            LoadModel::Corrected => self.external().saturating_add(own),
            LoadModel::Additive => busy.saturating_add(own),
        }
    }

    /// Whether the peer has no room, whatever its slots: its engine reports so, or is too busy to
    /// answer the poll.
    pub fn is_saturated(&self, freshness: Freshness) -> bool {
        self.shows_saturation() || freshness == Freshness::Held
    }

    /// Whether the engine's last sample shows that it has no room.
    pub fn shows_saturation(&self) -> bool {
        self.sample.is_some_and(|taken| taken.sample.is_saturated())
    }

    /// How long the peer could not be read: since its last sample, or since its engine fell silent.
    /// `None` for a peer that was never polled.
    pub fn silent_for(&self, now: Instant) -> Option<Duration> {
        let since = self.sample.map(|taken| taken.at).or(self.silent_since)?;
        Some(now.saturating_duration_since(since))
    }

    /// Idle time of the peer, given its `load`.
    pub fn idle(&self, load: u32, now: Instant) -> Idle {
        self.idle_since(load).idle(now)
    }

    /// Since when the peer has been idle, given its `load`.
    pub(crate) fn idle_since(&self, load: u32) -> IdleSince {
        if load > 0 {
            return IdleSince::Busy;
        }
        if self.sleeping {
            return IdleSince::Asleep;
        }
        match self.idle_since {
            Some(since) => IdleSince::Since(since),
            None if self.was_used => IdleSince::Unknown,
            None => IdleSince::Always,
        }
    }

    /// Whether fresh samples have shown the same load, above 0, for `STUCK_AFTER`.
    pub fn is_stuck(&self, spec: &LoadSpec, now: Instant) -> bool {
        let same_for = self
            .changed
            .map(|changed| now.saturating_duration_since(changed));
        same_for.is_some_and(|same_for| same_for >= STUCK_AFTER)
            && self.sample.is_some_and(|taken| {
                let age = now.saturating_duration_since(taken.at);
                !taken.blind && taken.sample.busy() > 0 && age <= spec.stale_after
            })
    }

    /// Requests of others, from the last sample.
    pub fn external(&self) -> u32 {
        self.sample
            .map_or(0, |taken| taken.sample.busy().saturating_sub(taken.own))
    }

    /// The last sample and its age; `None` before the first one, and for an engine that provides
    /// none.
    pub fn sample(&self, now: Instant) -> Option<(Sample, Duration)> {
        let taken = self.sample.filter(|taken| !taken.blind)?;
        Some((taken.sample, now.saturating_duration_since(taken.at)))
    }
}

#[cfg(test)]
mod tests;
