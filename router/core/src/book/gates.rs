//! The load gates of one pool at one moment. They read everything and change nothing. The changes
//! of a decision (probe slots, the hold flag, counters) are in its [`AdmissionOutcome`], and the
//! book applies them.
//!
//! The order is concurrency, TTFT, decode rate; the first refusal decides. With the master switch
//! off all gates are evaluated and none refuses, but each gate that would have refused is recorded.

use std::time::{Duration, Instant};

use super::pool::PoolState;
use super::resolved_route::{Criteria, PoolMembers};
use super::status::ThresholdSource;
use super::{PlacementRequest, RuntimeLimits};
use crate::admission::probe::Quota;
use crate::admission::slow::{self, Compared, Finding, Tolerance, Trip};
use crate::admission::{Budget, Full, Gate, Probes, RETRY_AFTER_S_MAX, Refusal, Slow, concurrency};
use crate::aimd::{AdaptiveSpec, Bounds, Health};
use crate::decision::{Facts, GateFacts, PriorityClass, Reading};
use crate::pool::{Capacity, FullPolicy, GuardSpec, RouteSpec};
use crate::signal::{Metric, Signal, SignalSpec};
use crate::window::window_end;

/// The gates of one pool for one request at `now`.
#[derive(Clone, Copy)]
pub(super) struct Gates<'a> {
    pub(super) route: &'a RouteSpec,
    pub(super) members: &'a PoolMembers,
    /// The bounds of the adaptive limit; `None` without `adaptive_cc`.
    pub(super) bounds: Option<Bounds>,
    pub(super) pool: &'a PoolState,
    /// The route's runtime limits.
    pub(super) runtime: &'a RuntimeLimits,
    pub(super) request: PlacementRequest<'a>,
    /// The request goes past the limit, because it has waited long enough.
    pub(super) past_limit: bool,
    pub(super) epoch: Instant,
    pub(super) now: Instant,
}

/// The verdict of the gates about a request.
pub(super) struct AdmissionOutcome {
    /// The facts so far (no peer is chosen yet), or the refusal.
    pub(super) outcome: Result<Facts, Refusal>,
    /// Whether the pool is full for this request. If the request may wait, this is not a refusal
    /// yet.
    pub(super) is_full: bool,
    pub(super) effects: AdmissionEffects,
}

/// The changes that an admission causes, besides the request itself.
#[derive(Clone, Copy)]
pub(super) struct AdmissionEffects {
    /// The priority class from `session_prio`; its bucket counts the request.
    pub(super) grade: Option<PriorityClass>,
    /// The budget from which the request takes probe slots.
    pub(super) budget: Budget,
    /// The new hold flag, if the TTFT gate was evaluated and may set it.
    pub(super) hold: Option<bool>,
    /// How long a refusal for concurrency counts as demand; `None` without an adaptive limit.
    pub(super) demand: Option<Duration>,
    /// Whether the request waits when the pool is full.
    pub(super) may_wait: bool,
}

/// The thresholds of a signal that are in force.
#[derive(Clone, Copy)]
pub(super) struct Thresholds {
    /// The layer that the thresholds come from.
    pub(super) source: ThresholdSource,
    /// The one threshold of an undeclared table.
    pub(super) single: Option<f64>,
}

impl Thresholds {
    pub(super) fn any(self) -> bool {
        self.source != ThresholdSource::None
    }

    /// The threshold of a metric of the table.
    pub(super) fn of(self, metric: &Metric) -> Option<f64> {
        match self.source {
            ThresholdSource::Declared => Some(metric.threshold),
            _ => self.single,
        }
    }
}

impl<'a> Gates<'a> {
    /// Evaluates the gates. An exempt request passes them all and changes nothing.
    pub(super) fn admit(&self, capacity: &Capacity) -> AdmissionOutcome {
        let grade = self.grade();
        let mut facts = self.facts(capacity, grade);
        let mut effects = AdmissionEffects {
            grade,
            budget: self.budget(),
            hold: None,
            demand: self.adaptive().map(|spec| self.demand_life(spec)),
            may_wait: self.may_wait(),
        };
        if self.request.exempt {
            effects.grade = None;
            return AdmissionOutcome {
                outcome: Ok(facts),
                is_full: false,
                effects,
            };
        }
        facts.grade = effects.grade;
        let is_full = self.is_full(&mut facts);
        let outcome = if is_full && !effects.may_wait {
            Err(self.full(&facts))
        } else {
            self.judge_signals(capacity, &mut facts, &mut effects.hold)
                .map(|()| facts)
        };
        AdmissionOutcome {
            outcome,
            is_full,
            effects,
        }
    }

    /// The concurrency gate.
    fn is_full(&self, facts: &mut Facts) -> bool {
        let share = facts.grade.map_or(1.0, |grade| grade.share);
        let limit = facts.limit * share;
        if self.has_no_ceiling() || concurrency::admits(facts.in_flight, limit, facts.factor) {
            return false;
        }
        if !self.request.switches.rate_limit {
            facts.tripped.insert(Gate::Concurrency);
            return false;
        }
        true
    }

    /// The refusal of a full pool, and of a full queue in front of it.
    pub(super) fn full(&self, facts: &Facts) -> Refusal {
        let share = facts.grade.map_or(1.0, |grade| grade.share);
        let ceiling = concurrency::ceiling(facts.limit * share, facts.factor);
        let must_end = (facts.in_flight + 1).saturating_sub(ceiling);
        Refusal::ConcurrencyLimit(Box::new(Full {
            in_flight: facts.in_flight,
            limit: facts.limit,
            pool_limit: facts.pool_limit,
            adaptive: facts.adaptive,
            factor: facts.factor,
            share: facts.grade.map(|grade| grade.share),
            ceiling,
            must_end,
            avg_5min: self.pool.average.mean(self.now),
            healthy_peers: facts.healthy_peers,
            held: 0,
            held_s: None,
            tier: facts.tier,
            bucket: facts.grade.map(|grade| grade.bucket),
            turn: facts.grade.and_then(|grade| grade.turn),
            retry_after_s: self.pool.drain.wait_s(must_end, self.epoch, self.now),
        }))
    }

    fn judge_signals(
        &self,
        capacity: &Capacity,
        facts: &mut Facts,
        hold: &mut Option<bool>,
    ) -> Result<(), Refusal> {
        let enforced = self.request.switches.rate_limit;
        for signal in Signal::ALL {
            let thresholds = self.thresholds(signal);
            if !(thresholds.any() && self.is_on(signal)) {
                continue;
            }
            let finding = self.judge(signal, thresholds);
            let reading = self.reading(signal, thresholds, &finding);
            match signal {
                Signal::Ttft => facts.ttft = reading,
                Signal::Tps => facts.tps = reading,
            }
            if !self.gate_acts(signal) {
                continue;
            }
            if enforced && signal == Signal::Ttft && facts.grade.is_some() {
                *hold = Some(finding.is_held);
            }
            match finding.trip {
                None => {}
                Some(_) if !enforced => facts.tripped.insert(signal.into()),
                Some(trip) if self.probes_left(signal, trip) > 0 => {
                    facts.probes.insert(signal.into());
                }
                Some(trip) => return Err(self.too_slow(signal, trip, capacity, facts.grade)),
            }
        }
        Ok(())
    }

    /// The in-flight and the limit that the concurrency gate compares for a request that may fill
    /// this share. The adaptive limit applies to the whole tier. So a request of a model that only
    /// some peers serve is counted with all others against it. The limit that leaves less room
    /// decides.
    fn compared_load(&self, capacity: &Capacity, adaptive: Option<f64>, share: f64) -> (u64, f64) {
        let own = (capacity.in_flight, capacity.limit as f64);
        let Some(adaptive) = adaptive else {
            return own;
        };
        let whole = (capacity.tier_in_flight, adaptive);
        let scale = share * self.route.rt_limit_factor;
        let room = |(in_flight, limit): (u64, f64)| limit * scale - in_flight as f64;
        if room(whole) < room(own) { whole } else { own }
    }

    /// The facts before a peer is chosen.
    fn facts(&self, capacity: &Capacity, grade: Option<PriorityClass>) -> Facts {
        let adaptive = self.adaptive_limit();
        let share = grade.map_or(1.0, |grade| grade.share);
        let (in_flight, limit) = self.compared_load(capacity, adaptive, share);
        Facts {
            tier: capacity.tier,
            limit,
            pool_limit: capacity.limit,
            adaptive,
            factor: self.route.rt_limit_factor,
            in_flight,
            healthy_peers: capacity.healthy_peers,
            ..Facts::default()
        }
    }

    /// Every gate with its numbers, in order, regardless of the other gates.
    pub(super) fn explain(&self, capacity: &Capacity) -> Vec<GateFacts> {
        let grade = self.grade().filter(|_| !self.request.exempt);
        let share = grade.map_or(1.0, |grade| grade.share);
        let (in_flight, limit) = self.compared_load(capacity, self.adaptive_limit(), share);
        let limit = limit * share;
        let factor = self.route.rt_limit_factor;
        let acts = !(self.request.exempt || self.has_no_ceiling());
        let concurrency = GateFacts {
            gate: Gate::Concurrency,
            acts: acts && self.request.switches.rate_limit,
            trips: acts && !concurrency::admits(in_flight, limit, factor),
            metric: None,
            value: Some(in_flight as f64),
            limit: Some(limit * factor),
            probes_left: None,
            held: false,
        };
        let signals = Signal::ALL.map(|signal| self.explain_signal(signal));
        std::iter::once(concurrency).chain(signals).collect()
    }

    fn explain_signal(&self, signal: Signal) -> GateFacts {
        let thresholds = self.thresholds(signal);
        let finding = self.judge(signal, thresholds);
        let acts = self.gate_acts(signal);
        let trip = finding.trip.filter(|_| acts);
        let shown = trip.map(|trip| trip.by).or(finding.nearest);
        let metrics = &self.criteria(signal).metrics;
        let metric = shown.map_or(0, |shown| shown.metric);
        let threshold = metrics.get(metric).and_then(|metric| thresholds.of(metric));
        let limit = threshold.map(|threshold| slow::admits_at(signal, threshold, self.tolerance()));
        GateFacts {
            gate: signal.into(),
            acts: acts && self.request.switches.rate_limit,
            trips: trip.is_some(),
            metric: metrics.get(metric).map(|metric| metric.name.clone()),
            value: shown.map(|shown| shown.ewma),
            limit: trip.map(|trip| trip.admits_at).or(limit),
            probes_left: acts.then(|| {
                let (budget, quota) = (self.budget(), self.quota(signal));
                let probes = &self.pool.signal(signal).probes;
                trip.map_or_else(
                    || probes.left(budget, quota, self.now),
                    |trip| self.probes_left(signal, trip),
                )
            }),
            held: finding.is_held,
        }
    }

    /// Compares the signal's averages with the thresholds for this request.
    pub(super) fn judge(&self, signal: Signal, thresholds: Thresholds) -> Finding {
        slow::judge(signal, self.compared(signal, thresholds), self.tolerance())
    }

    fn compared(
        &self,
        signal: Signal,
        thresholds: Thresholds,
    ) -> impl Iterator<Item = Compared> + Clone {
        let (meter, ttl, now) = (
            &self.pool.signal(signal).meter,
            self.spec(signal).ttl,
            self.now,
        );
        let metrics = self.criteria(signal).metrics.iter().enumerate();
        metrics.filter_map(move |(index, metric)| {
            Some(Compared {
                metric: index,
                threshold: thresholds.of(metric)?,
                ewma: meter.ewma(&metric.name, ttl, now)?,
            })
        })
    }

    fn reading(
        &self,
        signal: Signal,
        thresholds: Thresholds,
        finding: &Finding,
    ) -> Option<Reading> {
        let shown = finding.trip.map(|trip| trip.by).or(finding.nearest);
        let cold = || {
            let first = self.criteria(signal).metrics.first()?;
            Some(Reading {
                metric: 0,
                ewma: None,
                threshold: thresholds.of(first)?,
            })
        };
        let warm = shown.map(|shown| Reading {
            metric: shown.metric as u32,
            ewma: Some(shown.ewma),
            threshold: shown.threshold,
        });
        warm.or_else(cold)
    }

    fn too_slow(
        &self,
        signal: Signal,
        trip: Trip,
        capacity: &Capacity,
        grade: Option<PriorityClass>,
    ) -> Refusal {
        let spec = self.spec(signal);
        let probes = self.probes(signal, trip);
        let renewed = if probes.per_window == 0 {
            window_end(self.epoch, spec.window, self.now)
        } else {
            self.probe_window_end(signal)
        };
        let metric = &self.criteria(signal).metrics[trip.by.metric];
        let slow = Box::new(Slow {
            metric: metric.name.clone(),
            ewma: trip.by.ewma,
            threshold: trip.by.threshold,
            tolerance: grade.map(|grade| grade.tolerance),
            severe: grade.map(|_| self.guard().priority.severe),
            held: trip.is_hold,
            admits_at: trip.admits_at,
            probes,
            healthy_peers: capacity.healthy_peers,
            tier: capacity.tier,
            bucket: grade.map(|grade| grade.bucket),
            turn: grade.and_then(|grade| grade.turn),
            retry_after_s: ceil_s(renewed - self.now).clamp(1, RETRY_AFTER_S_MAX),
        });
        match signal {
            Signal::Ttft => Refusal::TtftLimit(slow),
            Signal::Tps => Refusal::TpsLimit(slow),
        }
    }

    fn probes(&self, signal: Signal, trip: Trip) -> Probes {
        let (quota, window) = (self.quota(signal), &self.pool.signal(signal).probes);
        let budget = budget_of(self.budget(), trip);
        let warm = window.used(self.now);
        let (used, per_window) = match budget {
            Budget::All | Budget::Warm => (warm, quota.shared),
            Budget::FirstTurn => (window.used_by_first(self.now), quota.first),
            Budget::None => (0, 0),
        };
        Probes {
            budget,
            used,
            per_window,
            used_by_warm: (budget == Budget::FirstTurn).then_some(warm),
            window_left_s: ceil_s(self.probe_window_end(signal) - self.now),
        }
    }

    fn probes_left(&self, signal: Signal, trip: Trip) -> u32 {
        let budget = budget_of(self.budget(), trip);
        let probes = &self.pool.signal(signal).probes;
        probes.left(budget, self.quota(signal), self.now)
    }

    fn probe_window_end(&self, signal: Signal) -> Instant {
        let aligned = window_end(self.epoch, self.spec(signal).probe_window, self.now);
        self.pool.signal(signal).probes.ends(aligned, self.now)
    }

    fn quota(&self, signal: Signal) -> Quota {
        Quota {
            shared: self.spec(signal).probes_per_window,
            first: self.guard().priority.t1_probes,
        }
    }

    fn budget(&self) -> Budget {
        match self.bucket() {
            None => Budget::All,
            Some(bucket) if self.guard().priority.is_first(bucket) => Budget::FirstTurn,
            Some(_) => Budget::Warm,
        }
    }

    /// Index of the request's bucket, while `session_prio` is on.
    fn bucket(&self) -> Option<usize> {
        let on = self.request.switches.session_prio;
        on.then(|| self.guard().priority.bucket(self.request.turn))
    }

    fn grade(&self) -> Option<PriorityClass> {
        let bucket = self.guard().priority.table.get(self.bucket()?)?;
        Some(PriorityClass {
            bucket: bucket.min_turn,
            turn: self.request.turn,
            share: bucket.share,
            tolerance: bucket.tol,
        })
    }

    fn tolerance(&self) -> Option<Tolerance> {
        let (index, priority) = (self.bucket()?, &self.guard().priority);
        Some(Tolerance {
            tol: priority.table.get(index)?.tol,
            release: priority.release,
            is_first: priority.is_first(index),
            was_held: self.pool.is_held,
        })
    }

    /// Whether the pool may exceed its limit without a refusal.
    fn has_no_ceiling(&self) -> bool {
        self.past_limit || self.route.full_policy == FullPolicy::Overflow
    }

    /// Whether this request waits when the pool is full.
    fn may_wait(&self) -> bool {
        let acts = self.request.switches.rate_limit && !self.request.exempt && !self.past_limit;
        acts && self.route.full_policy == FullPolicy::Wait
    }

    /// Whether a signal's switch is on.
    fn is_on(&self, signal: Signal) -> bool {
        match signal {
            Signal::Ttft => self.request.switches.ttft,
            Signal::Tps => self.request.switches.tps,
        }
    }

    /// Whether a signal can refuse this request, without regard to the master switch.
    pub(super) fn gate_acts(&self, signal: Signal) -> bool {
        let may = match signal {
            Signal::Ttft => self.request.switches.ttft_429,
            Signal::Tps => self.adaptive().is_none(),
        };
        may && !self.request.exempt && self.is_on(signal) && self.thresholds(signal).any()
    }

    /// Whether a signal moves the adaptive limit.
    fn drives(&self, signal: Signal, spec: &AdaptiveSpec) -> bool {
        (signal == Signal::Tps || spec.use_ttft)
            && self.is_on(signal)
            && self.thresholds(signal).any()
    }

    /// The route's adaptive options, while a signal drives them.
    pub(super) fn adaptive(&self) -> Option<&'a AdaptiveSpec> {
        let spec = self.guard().adaptive.as_ref()?;
        let driven = Signal::ALL
            .into_iter()
            .any(|signal| self.drives(signal, spec));
        driven.then_some(spec)
    }

    /// The adaptive value in force, stored or start point.
    pub(super) fn adaptive_limit(&self) -> Option<f64> {
        self.adaptive()?;
        let stored = self.pool.adaptive.stored(self.now);
        stored.or_else(|| Some(self.bounds?.init as f64))
    }

    /// The state of the pool according to the driving signals. A signal is present when the first
    /// metric of its table has an average.
    pub(super) fn health(&self, spec: &AdaptiveSpec) -> Health {
        let mut health = Health::Unknown;
        for signal in Signal::ALL {
            if !self.drives(signal, spec) {
                continue;
            }
            let mut compared = self.compared(signal, self.thresholds(signal)).peekable();
            if health == Health::Unknown && compared.peek().is_some_and(|first| first.metric == 0) {
                health = Health::Fine;
            }
            let is_past = |metric: Compared| match signal {
                Signal::Ttft => metric.ewma > metric.threshold,
                Signal::Tps => metric.ewma < metric.threshold,
            };
            if compared.any(is_past) {
                return Health::Overloaded;
            }
        }
        health
    }

    /// How long refusals for concurrency count as demand.
    pub(super) fn demand_life(&self, spec: &AdaptiveSpec) -> Duration {
        self.guard().tps.ttl.max(spec.interval * 3)
    }

    /// The thresholds in force. Precedence: table, runtime limit of the pool, then of the route,
    /// model, route, global default.
    pub(super) fn thresholds(&self, signal: Signal) -> Thresholds {
        let criteria = self.criteria(signal);
        if criteria.is_declared {
            return Thresholds {
                source: ThresholdSource::Declared,
                single: None,
            };
        }
        let pool = self.pool.signal(signal).runtime.get(self.now);
        let pool = pool.map(|limit| (limit, ThresholdSource::ModelOverride));
        let (single, source) = pool
            .or_else(|| {
                let route = self.runtime.of(signal).get(self.now);
                route.map(|limit| (limit, ThresholdSource::Override))
            })
            .or(criteria.configured)
            .map_or((None, ThresholdSource::None), |(limit, source)| {
                (Some(limit), source)
            });
        Thresholds { source, single }
    }

    pub(super) fn criteria(&self, signal: Signal) -> &'a Criteria {
        self.members.criteria(signal)
    }

    pub(super) fn spec(&self, signal: Signal) -> &'a SignalSpec {
        self.guard().signal(signal)
    }

    fn guard(&self) -> &'a GuardSpec {
        &self.route.guard
    }
}

/// While the pool is held, turn 1 has no probe slots at all.
fn budget_of(budget: Budget, trip: Trip) -> Budget {
    if trip.is_hold { Budget::None } else { budget }
}

/// Rounds up to seconds.
fn ceil_s(left: Duration) -> u64 {
    left.as_nanos().div_ceil(1_000_000_000) as u64
}
