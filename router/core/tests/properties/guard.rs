//! Random histories of one pool's load gates compared with a naive model. The model keeps every
//! sample and every probe, counts by iterating over them, and uses milliseconds as time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::StdRng;
use router_core::admission::priority::PrioritySpec;
use router_core::admission::{Gate, Gates, Refusal};
use router_core::aimd::AdaptiveSpec;
use router_core::book::status::{SignalState, Trips};
use router_core::book::{Book, PlacementRequest, PoolId, ResolvedRoute, Switches, Ticket, Verdict};
use router_core::decision::{Facts, Outcome};
use router_core::layered::Source;
use router_core::pool::{GuardSpec, RouteSpec};
use router_core::signal::{Limit, Metric, Sample, Signal, SignalSpec, Statistic};

use crate::gen_spec::{flat, peer};

const POOL: PoolId = PoolId(0);
/// Short windows, so that tests pass many of them.
const WINDOW: u64 = 3_000;
const TTL: u64 = 8_000;
const PROBE_WINDOW: u64 = 2_000;
const INTERVAL: u64 = 1_000;

/// The middle of a sample's bucket: a bucket is a 32nd of the power of two below the sample.
fn middle(sample: f64) -> f64 {
    let (sample, mut low) = (sample.max(0.0625), 0.0625);
    while low * 2.0 <= sample {
        low *= 2.0;
    }
    let width = low / 32.0;
    low + (((sample - low) / width).floor() + 0.5) * width
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Reserve(Option<u32>),
    Release,
    Sample(Sample),
    Tick,
    Advance(u64),
    Switch(Switches),
    SetLimit(Signal, Option<f64>),
}

fn any_switches() -> impl Strategy<Value = Switches> {
    let mostly = || proptest::bool::weighted(0.85);
    (mostly(), mostly(), mostly(), mostly(), any::<bool>()).prop_map(
        |(rate_limit, ttft, ttft_429, tps, session_prio)| Switches {
            rate_limit,
            ttft,
            ttft_429,
            tps,
            session_prio,
        },
    )
}

fn any_step() -> impl Strategy<Value = Step> {
    let turn = option::weighted(
        0.8,
        prop_oneof![3 => Just(1_u32), 2 => 2_u32..5, 1 => 30_u32..40],
    );
    let sample = prop_oneof![
        (0.0..3_000.0_f64).prop_map(Sample::Ttft),
        (0.0..60.0_f64).prop_map(Sample::Tps),
        Just(Sample::NoUsage),
    ];
    let signal = prop_oneof![Just(Signal::Ttft), Just(Signal::Tps)];
    prop_oneof![
        12 => turn.prop_map(Step::Reserve),
        5 => Just(Step::Release),
        6 => sample.prop_map(Step::Sample),
        6 => Just(Step::Tick),
        8 => (0_u64..2_500).prop_map(Step::Advance),
        1 => any_switches().prop_map(Step::Switch),
        1 => (signal, option::of(1.0..2_000.0_f64)).prop_map(|(signal, limit)| Step::SetLimit(signal, limit)),
    ]
}

fn any_signal(threshold: std::ops::Range<f64>) -> impl Strategy<Value = SignalSpec> {
    let table = option::weighted(0.3, (threshold.clone(), threshold.clone()));
    (
        table,
        option::weighted(0.8, threshold),
        0_u32..3,
        0.1..1.0_f64,
    )
        .prop_map(|(table, limit, probes_per_window, alpha)| {
            let row = |name: &str, statistic, threshold| Metric {
                name: name.into(),
                statistic,
                threshold,
            };
            SignalSpec {
                table: table.map(|(mean, tail)| {
                    Arc::from([
                        row("avg", Statistic::Mean, mean),
                        row("tail", Statistic::Quantile(0.7), tail),
                    ])
                }),
                limit: limit.map(|value| Limit {
                    value,
                    source: Source::Global,
                }),
                by_model: BTreeMap::new(),
                alpha,
                window: Duration::from_millis(WINDOW),
                ttl: Duration::from_millis(TTL),
                probe_window: Duration::from_millis(PROBE_WINDOW),
                probes_per_window,
            }
        })
}

fn any_guard() -> impl Strategy<Value = (u32, GuardSpec)> {
    let adaptive = (any::<bool>(), any::<bool>(), option::of(1_u32..8)).prop_map(
        |(use_ttft, hold_when_idle, init)| AdaptiveSpec {
            interval: Duration::from_millis(INTERVAL),
            dec: 0.7,
            inc: 1.4,
            headroom: 1.0,
            ttl: Duration::from_millis(TTL),
            init,
            use_ttft,
            hold_when_idle,
            ..AdaptiveSpec::default()
        },
    );
    let parts = (
        1_u32..12,
        any_signal(200.0..2_500.0),
        any_signal(5.0..50.0),
        option::of(adaptive),
        0_u32..3,
    );
    parts.prop_map(|(slots, ttft, tps, adaptive, t1_probes)| {
        let guard = GuardSpec {
            ttft,
            tps,
            adaptive,
            priority: PrioritySpec {
                t1_probes,
                ..PrioritySpec::graded(0.5, 4, 1.4)
            },
            ..GuardSpec::default()
        };
        (slots, guard)
    })
}

/// The model's memory of a signal.
#[derive(Default)]
struct Measured {
    /// (window, samples with their times) that no fold has evaluated yet.
    open: Option<(u64, Vec<(u64, f64)>)>,
    /// Value and time of the last fold, by metric.
    ewma: BTreeMap<String, (f64, u64)>,
    /// (time, whether it came from turn 1's own budget) of every probe.
    probes: Vec<(u64, bool)>,
    runtime: Option<f64>,
}

struct Model {
    guard: GuardSpec,
    slots: u32,
    now: u64,
    running: u64,
    switches: Switches,
    ttft: Measured,
    tps: Measured,
    is_held: bool,
    stored: Option<(f64, Option<u64>)>,
    refused: (u64, u64),
    due: Option<u64>,
    trips: Trips,
}

/// The result that the model expects for a request.
#[derive(Debug, PartialEq)]
struct Expected {
    refused_by: Option<Gate>,
    limit: f64,
    probes: Gates,
    tripped: Gates,
}

impl Model {
    fn measured(&mut self, signal: Signal) -> &mut Measured {
        match signal {
            Signal::Ttft => &mut self.ttft,
            Signal::Tps => &mut self.tps,
        }
    }

    fn known(&self, signal: Signal) -> &Measured {
        match signal {
            Signal::Ttft => &self.ttft,
            Signal::Tps => &self.tps,
        }
    }

    /// Metrics and thresholds; the first one is the live one.
    fn metrics(&self, signal: Signal) -> Vec<(Metric, Option<f64>)> {
        let spec = self.guard.signal(signal);
        if let Some(table) = &spec.table {
            let rows = table.iter().cloned();
            return rows.map(|row| (row.clone(), Some(row.threshold))).collect();
        }
        let q = if signal == Signal::Ttft { 0.8 } else { 0.2 };
        let p80 = Metric {
            name: "p80".into(),
            statistic: Statistic::Quantile(q),
            threshold: 0.0,
        };
        let limit = self.known(signal).runtime;
        vec![(p80, limit.or(spec.limit.map(|limit| limit.value)))]
    }

    fn ewma(&self, signal: Signal, name: &str) -> Option<f64> {
        let (value, at) = self.known(signal).ewma.get(name)?;
        (self.now - at < TTL).then_some(*value)
    }

    /// (average, threshold) of every metric that has both, with its index.
    fn compared(&self, signal: Signal) -> Vec<(usize, f64, f64)> {
        let metrics = self.metrics(signal).into_iter().enumerate();
        metrics
            .filter_map(|(i, (metric, threshold))| {
                Some((i, self.ewma(signal, &metric.name)?, threshold?))
            })
            .collect()
    }

    fn fold(&mut self, signal: Signal) {
        let (now, metrics) = (self.now, self.metrics(signal));
        let alpha = self.guard.signal(signal).alpha;
        let measured = self.measured(signal);
        let Some((window, samples)) = measured.open.take() else {
            return;
        };
        if now / WINDOW == window {
            measured.open = Some((window, samples));
            return;
        }
        let ended = (window + 1) * WINDOW;
        if now - samples[0].0 >= TTL && now - ended >= WINDOW {
            return;
        }
        for (metric, _) in metrics {
            let values: Vec<f64> = samples.iter().map(|(_, value)| *value).collect();
            let value = match metric.statistic {
                Statistic::Mean => values.iter().sum::<f64>() / values.len() as f64,
                Statistic::Quantile(q) => {
                    let mut values = values.clone();
                    values.sort_by(f64::total_cmp);
                    let nth = (values.len() as f64 * q - 1e-9).ceil() as usize;
                    let value = middle(values[nth.max(1) - 1]);
                    value.clamp(values[0], values[values.len() - 1])
                }
            };
            let old = measured.ewma.get(&*metric.name).copied();
            let value = match old {
                Some((old, at)) if now - at < TTL => alpha * value + (1.0 - alpha) * old,
                _ => value,
            };
            measured.ewma.insert(metric.name.to_string(), (value, now));
        }
    }

    fn sample(&mut self, sample: Sample) {
        let (signal, value) = match sample {
            Sample::Ttft(value) => (Signal::Ttft, value),
            Sample::Tps(value) => (Signal::Tps, value),
            _ => return,
        };
        self.fold(signal);
        let now = self.now;
        let open = &mut self.measured(signal).open;
        let (_, samples) = open.get_or_insert((now / WINDOW, Vec::new()));
        samples.push((now, value));
    }

    fn is_on(&self, signal: Signal) -> bool {
        let on = match signal {
            Signal::Ttft => self.switches.ttft,
            Signal::Tps => self.switches.tps,
        };
        on && self.metrics(signal)[0].1.is_some()
    }

    fn drivers(&self) -> Vec<Signal> {
        let Some(adaptive) = &self.guard.adaptive else {
            return Vec::new();
        };
        let drives =
            |signal: &Signal| self.is_on(*signal) && (*signal == Signal::Tps || adaptive.use_ttft);
        Signal::ALL.into_iter().filter(drives).collect()
    }

    /// min, max, init.
    fn bounds(&self) -> (f64, f64, f64) {
        let max = f64::from(self.slots);
        let min = (max * 0.4 + 1e-9).floor().max(1.0);
        let init = self.guard.adaptive.as_ref().and_then(|spec| spec.init);
        let init = init.map_or(min, |init| f64::from(init).max(min).min(max));
        (min, max, init)
    }

    fn adaptive(&self) -> Option<f64> {
        if self.drivers().is_empty() {
            return None;
        }
        let live = |(_, until): &(f64, Option<u64>)| until.is_none_or(|until| self.now < until);
        let stored = self.stored.filter(live).map(|(limit, _)| limit);
        Some(stored.unwrap_or(self.bounds().2))
    }

    fn limit(&self) -> f64 {
        let slots = f64::from(self.slots);
        self.adaptive().map_or(slots, |limit| limit.min(slots))
    }

    fn refused(&self) -> u64 {
        let life = TTL.max(3 * INTERVAL);
        let (count, last) = self.refused;
        if self.now - last < life { count } else { 0 }
    }

    fn tick(&mut self) {
        Signal::ALL.into_iter().for_each(|signal| self.fold(signal));
        let Some(spec) = self.guard.adaptive else {
            return;
        };
        match self.due {
            None => self.due = Some(self.now + INTERVAL),
            Some(due) if self.now >= due => {
                self.due = Some(self.now + INTERVAL);
                self.adapt(&spec);
            }
            Some(_) => {}
        }
    }

    fn adapt(&mut self, spec: &AdaptiveSpec) {
        let drivers = self.drivers();
        let live = |signal: &Signal| self.compared(*signal).iter().any(|(i, ..)| *i == 0);
        let over = drivers.iter().any(|signal| {
            let past = |(_, ewma, threshold): &(usize, f64, f64)| match signal {
                Signal::Ttft => ewma > threshold,
                Signal::Tps => ewma < threshold,
            };
            self.compared(*signal).iter().any(past)
        });
        if !over && !drivers.iter().any(live) {
            return;
        }
        let Some(old) = self.adaptive() else { return };
        let (min, max, init) = self.bounds();
        let load = self.running as f64;
        let target = (load / 0.8).max(load + 1.0);
        let new = if over {
            old * spec.dec
        } else if self.refused() > 0 {
            old * spec.inc
        } else {
            let followed = if load >= 0.9 * old || old - load < 1.0 {
                (old * spec.inc).min(target)
            } else if load > 0.0
                && load < 0.7 * old
                && old - load > 1.0
                && old > init
                && !spec.hold_when_idle
            {
                (old * spec.dec).max(target).max(init)
            } else {
                old
            };
            if old < init {
                followed.max((old * spec.inc).min(init))
            } else {
                followed
            }
        };
        self.refused = (0, self.now);
        let until = (!spec.hold_when_idle).then(|| self.now + TTL);
        self.stored = Some((new.clamp(min, max), until));
    }

    /// Probes in the current window: from the shared budget, and from turn 1's.
    fn probed(&self, signal: Signal) -> (u32, u32) {
        let window = self.now / PROBE_WINDOW;
        let probes = &self.known(signal).probes;
        let of = |own: bool| {
            let probes = probes.iter();
            probes
                .filter(|(at, first)| at / PROBE_WINDOW == window && *first == own)
                .count() as u32
        };
        (of(false), of(true))
    }

    /// Decides one request and applies its changes.
    fn reserve(&mut self, turn: Option<u32>) -> Expected {
        let prio = self.switches.session_prio;
        let table = Arc::clone(&self.guard.priority.table);
        let index = turn.map_or(table.len() - 1, |turn| {
            let bucket = table.iter().rposition(|row| row.min_turn <= turn);
            bucket.expect("a table starts at turn 1")
        });
        let (share, tol) = if prio {
            (table[index].share, table[index].tol)
        } else {
            (1.0, 1.0)
        };
        let is_first = prio && index == 0;
        let enforced = self.switches.rate_limit;
        let mut expected = Expected {
            refused_by: None,
            limit: self.limit(),
            probes: Gates::default(),
            tripped: Gates::default(),
        };
        if self.running as f64 >= expected.limit * share - 1e-9 {
            if enforced {
                if self.adaptive().is_some() {
                    self.refused = (self.refused() + 1, self.now);
                }
                expected.refused_by = Some(Gate::Concurrency);
                return expected;
            }
            expected.tripped.insert(Gate::Concurrency);
        }
        let mut takes = Vec::new();
        for signal in Signal::ALL {
            let acts = self.is_on(signal)
                && match signal {
                    Signal::Ttft => self.switches.ttft_429,
                    Signal::Tps => self.drivers().is_empty(),
                };
            if !acts {
                continue;
            }
            let compared = self.compared(signal);
            let tripped = compared.iter().any(|(_, ewma, threshold)| match signal {
                Signal::Ttft => *ewma >= threshold * tol,
                Signal::Tps if prio => *ewma < threshold / tol,
                Signal::Tps => ewma <= threshold,
            });
            let held = prio && signal == Signal::Ttft && {
                let in_band = |(_, ewma, threshold): &(usize, f64, f64)| {
                    *ewma >= threshold * 0.9 && ewma < threshold
                };
                let reached = compared
                    .iter()
                    .any(|(_, ewma, threshold)| ewma >= threshold);
                let was_held = self.is_held;
                let held = reached || (was_held && compared.iter().any(in_band));
                if enforced {
                    self.is_held = held;
                }
                is_first && held && !tripped && compared.iter().any(in_band)
            };
            if !(tripped || held) {
                continue;
            }
            if !enforced {
                expected.tripped.insert(signal.into());
                continue;
            }
            let (shared, first) = self.probed(signal);
            let has_slot = if held {
                false
            } else if is_first {
                shared == 0 && first < self.guard.priority.t1_probes
            } else {
                shared < self.guard.signal(signal).probes_per_window
            };
            if !has_slot {
                expected.refused_by = Some(signal.into());
                return expected;
            }
            expected.probes.insert(signal.into());
            takes.push(signal);
        }
        for signal in takes {
            let now = self.now;
            self.measured(signal).probes.push((now, is_first));
        }
        let tripped = |gate| u64::from(expected.tripped.contains(gate));
        self.trips.concurrency += tripped(Gate::Concurrency);
        self.trips.ttft += tripped(Gate::Ttft);
        self.trips.tps += tripped(Gate::Tps);
        self.running += 1;
        expected
    }
}

struct Run {
    book: Book,
    resolved: ResolvedRoute,
    held: Vec<Ticket>,
    epoch: Instant,
    model: Model,
}

impl Run {
    fn new(slots: u32, guard: GuardSpec, epoch: Instant) -> Self {
        let mut book = Book::default();
        let spec = RouteSpec {
            guard: guard.clone(),
            ..flat(vec![peer("a:1", 0, slots)])
        };
        let resolved = book.attach(spec);
        let model = Model {
            guard,
            slots,
            now: 0,
            running: 0,
            switches: Switches::DEFAULT,
            ttft: Measured::default(),
            tps: Measured::default(),
            is_held: false,
            stored: None,
            refused: (0, 0),
            due: None,
            trips: Trips::default(),
        };
        let mut run = Self {
            book,
            resolved,
            held: Vec::new(),
            epoch,
            model,
        };
        // The book's clock starts when it first reads the time.
        run.tick();
        run
    }

    fn now(&self) -> Instant {
        self.epoch + Duration::from_millis(self.model.now)
    }

    fn tick(&mut self) {
        self.model.tick();
        let now = self.now();
        let next = self.book.tick(&self.resolved, self.model.switches, now);
        assert!(next > now);
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        let now = self.now();
        match step {
            Step::Reserve(turn) => {
                self.reserve(turn)?;
            }
            Step::Release => {
                if let Some(ticket) = self.held.pop() {
                    self.model.running -= 1;
                    self.book.release(ticket, now);
                }
            }
            Step::Sample(sample) => {
                self.model.sample(sample);
                self.book.sample(&self.resolved, POOL, sample, now);
            }
            Step::Tick => self.tick(),
            Step::Advance(ms) => self.model.now += ms,
            Step::Switch(switches) => self.model.switches = switches,
            Step::SetLimit(signal, limit) => {
                let runtime = &mut self.model.measured(signal).runtime;
                let before = std::mem::replace(runtime, limit).map(|limit| (limit, None));
                let limit = limit.map(|limit| (limit, None));
                let answer = self
                    .book
                    .set_limit(&self.resolved, signal, None, limit, now);
                prop_assert_eq!(answer, before);
            }
        }
        self.book.check();
        self.compare()
    }

    /// Makes one request, after an explanation of it.
    fn reserve(&mut self, turn: Option<u32>) -> Result<Expected, TestCaseError> {
        let now = self.now();
        let request = PlacementRequest {
            turn,
            switches: self.model.switches,
            ..PlacementRequest::new(POOL, None)
        };
        let rng = || StdRng::seed_from_u64(1);
        let explained = self.book.explain(&self.resolved, request, now, &mut rng());
        self.compare()?;
        let expected = self.model.reserve(turn);
        match self.book.reserve(&self.resolved, request, now, &mut rng()) {
            Verdict::Send(placement) => {
                let Facts {
                    limit,
                    probes,
                    tripped,
                    ..
                } = placement.facts;
                self.held.push(placement.ticket);
                let found = Expected {
                    refused_by: None,
                    limit,
                    probes,
                    tripped,
                };
                prop_assert_eq!(&found, &expected);
                let same = matches!(explained.outcome, Outcome::Send { facts, .. } if facts == placement.facts);
                prop_assert!(same, "explained as {:?}", explained.outcome);
            }
            Verdict::Wait(_) => unreachable!("no route here lets requests wait"),
            Verdict::Refuse(refusal) => {
                prop_assert_eq!(refusal.gate(), expected.refused_by, "{:?}", refusal);
                prop_assert!(refusal.retry_after_s() >= 1);
                check_numbers(&refusal)?;
                prop_assert_eq!(explained.outcome, Outcome::Refuse(refusal));
            }
        }
        Ok(expected)
    }

    fn compare(&self) -> Result<(), TestCaseError> {
        let model = &self.model;
        let shown = self
            .book
            .protection(&self.resolved, POOL, model.switches, self.now());
        prop_assert_eq!(shown.in_flight, model.running);
        prop_assert!(
            (shown.limit - model.limit()).abs() < 1e-9,
            "{:?}",
            shown.adaptive
        );
        prop_assert_eq!(self.book.trips(), model.trips);
        self.compare_signal(Signal::Ttft, &shown.ttft)?;
        self.compare_signal(Signal::Tps, &shown.tps)?;
        if let Some(adaptive) = shown.adaptive {
            let (min, max, init) = model.bounds();
            let bounds = (
                adaptive.min as f64,
                adaptive.max as f64,
                adaptive.init as f64,
            );
            prop_assert_eq!(bounds, (min, max, init));
            prop_assert_eq!(adaptive.rejected, model.refused());
            prop_assert!(
                adaptive
                    .stored
                    .is_none_or(|limit| (min..=max).contains(&limit))
            );
        }
        Ok(())
    }

    fn compare_signal(&self, signal: Signal, shown: &SignalState) -> Result<(), TestCaseError> {
        let metrics = self.model.metrics(signal);
        prop_assert_eq!(shown.metrics.len(), metrics.len());
        for (shown, (metric, threshold)) in shown.metrics.iter().zip(metrics) {
            prop_assert_eq!(shown.threshold, threshold);
            let ewma = self.model.ewma(signal, &metric.name);
            let close = match (shown.ewma, ewma) {
                (Some(found), Some(expected)) => (found - expected).abs() < 1e-6,
                (found, expected) => found == expected,
            };
            prop_assert!(
                close,
                "{signal} {}: {:?}, {ewma:?}",
                metric.name,
                shown.ewma
            );
        }
        let (shared, first) = self.model.probed(signal);
        prop_assert_eq!(shown.probes_used, shared + first);
        // A granted slot is not taken back, so the quota holds at every moment.
        prop_assert!(shared <= self.model.guard.signal(signal).probes_per_window);
        prop_assert!(first <= self.model.guard.priority.t1_probes);
        Ok(())
    }

    /// In every state with room, a warm request passes at the latest when a new probe window
    /// begins, and every request passes when the averages have expired.
    fn no_gate_is_shut(&mut self) -> Result<(), TestCaseError> {
        let now = self.now();
        self.model.running = 0;
        self.held
            .drain(..)
            .for_each(|ticket| self.book.release(ticket, now));
        self.model.now = (self.model.now / PROBE_WINDOW + 1) * PROBE_WINDOW;
        let guard = &self.model.guard;
        let has_probes = guard.ttft.probes_per_window > 0 && guard.tps.probes_per_window > 0;
        let warm = self.reserve(Some(9))?;
        prop_assert!(!has_probes || warm.refused_by.is_none(), "{warm:?}");
        let now = self.now();
        self.model.running = 0;
        self.held
            .drain(..)
            .for_each(|ticket| self.book.release(ticket, now));
        // The open window may still be evaluated, and its average then lives another `ttl`.
        self.model.now += WINDOW;
        self.tick();
        self.model.now += TTL;
        self.tick();
        let first = self.reserve(Some(1))?;
        prop_assert_eq!(first.refused_by, None);
        Ok(())
    }
}

/// The numbers of a refusal must justify it.
fn check_numbers(refusal: &Refusal) -> Result<(), TestCaseError> {
    match refusal {
        Refusal::NoHealthyPeer { .. } => {}
        Refusal::ConcurrencyLimit(full) => {
            prop_assert!(full.in_flight >= full.ceiling && full.must_end >= 1);
            prop_assert_eq!(full.must_end, full.in_flight + 1 - full.ceiling);
        }
        Refusal::TtftLimit(slow) => prop_assert!(slow.ewma >= slow.admits_at),
        Refusal::TpsLimit(slow) => prop_assert!(slow.ewma <= slow.admits_at),
    }
    Ok(())
}

proptest! {
    /// Covers: windows, averages and their expiry, thresholds of every layer, both graded gates,
    /// probe quotas, the hold flag, the adaptive limit, switches and trips; an explanation agrees
    /// and changes nothing.
    #[test]
    fn the_gates_agree_with_the_naive_model(
        (slots, guard) in any_guard(),
        steps in vec(any_step(), 0..150),
    ) {
        let mut run = Run::new(slots, guard, crate::start());
        for step in steps {
            run.step(step)?;
        }
        run.no_gate_is_shut()?;
    }
}
