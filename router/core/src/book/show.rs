//! The state of the gates for status pages. Counts nothing and changes nothing.

use super::gates::Gates;
use super::pool::slot;
use super::status::{
    AdaptiveState, Average, MetricState, Protection, SignalState, ThresholdSource,
};
use crate::aimd::{Fit, Health, fit};
use crate::layered::Override;
use crate::pool::Capacity;
use crate::signal::{Signal, Statistic};
use crate::window::window_number;

/// Every gate of a pool. `capacity` is the capacity of its active tier.
pub(super) fn protection(
    gates: &Gates<'_>,
    capacity: Option<Capacity>,
    waiting: u32,
) -> Protection {
    let in_flight = capacity.map_or(0, |capacity| capacity.in_flight);
    let pool_limit = capacity.map_or(0, |capacity| capacity.limit);
    Protection {
        in_flight,
        pool_limit,
        limit: in_force(pool_limit, gates.adaptive_limit()),
        waiting,
        ttft: signal_state(gates, Signal::Ttft),
        tps: signal_state(gates, Signal::Tps),
        adaptive: adaptive_state(gates, in_flight),
        average: average(gates),
    }
}

/// The smaller of the pool's own limit and the adaptive one.
fn in_force(pool_limit: u64, adaptive: Option<f64>) -> f64 {
    let pool_limit = pool_limit as f64;
    adaptive.map_or(pool_limit, |adaptive| adaptive.min(pool_limit))
}

fn signal_state(gates: &Gates<'_>, signal: Signal) -> SignalState {
    let (ledger, now) = (gates.pool.signal(signal), gates.now);
    let (thresholds, ttl) = (gates.thresholds(signal), gates.spec(signal).ttl);
    let metrics = gates.criteria(signal).metrics.iter();
    let metrics = metrics.map(|metric| MetricState {
        name: metric.name.clone(),
        q: match metric.statistic {
            Statistic::Mean => None,
            Statistic::Quantile(q) => Some(q),
        },
        threshold: thresholds.of(metric),
        ewma: ledger.meter.ewma(&metric.name, ttl, now),
    });
    let finding = gates.judge(signal, thresholds);
    SignalState {
        metrics: metrics.collect(),
        source: thresholds.source,
        runtime: runtime(gates, signal).and_then(|held| Some((held.get(now)?, held.left(now)))),
        runtime_age: runtime(gates, signal).and_then(|held| held.age(now)),
        shadowed: shadowed(gates, signal, thresholds.source),
        probes_used: ledger.probes.used(now) + ledger.probes.used_by_first(now),
        tripped: gates.gate_acts(signal) && finding.trip.is_some(),
        held: finding.is_held,
        no_usage: ledger.no_usage,
        aborted: ledger.aborted,
    }
}

/// The runtime limit nearest to the pool, even if it is not effective.
fn runtime<'a>(gates: &'a Gates<'_>, signal: Signal) -> Option<&'a Override<f64>> {
    let own = &gates.pool.signal(signal).runtime;
    let held = [own, gates.runtime.of(signal)];
    held.into_iter().find(|held| held.get(gates.now).is_some())
}

/// The threshold that would apply without the runtime limit in force.
fn shadowed(gates: &Gates<'_>, signal: Signal, source: ThresholdSource) -> Option<f64> {
    let configured = gates.criteria(signal).configured.map(|(limit, _)| limit);
    match source {
        ThresholdSource::ModelOverride => gates.runtime.of(signal).get(gates.now).or(configured),
        ThresholdSource::Override => configured,
        _ => None,
    }
}

fn adaptive_state(gates: &Gates<'_>, in_flight: u64) -> Option<AdaptiveState> {
    let spec = gates.route.guard.adaptive.as_ref()?;
    let (bounds, now) = (gates.bounds?, gates.now);
    let stored = gates.pool.adaptive.stored(now);
    let limit = stored.unwrap_or(bounds.init as f64);
    let fit = fit(spec, limit, in_flight);
    Some(AdaptiveState {
        acting: gates.adaptive().is_some(),
        stored,
        min: bounds.min,
        max: bounds.max,
        init: bounds.init,
        concurrency: in_flight,
        rejected: gates.pool.adaptive.refused(gates.demand_life(spec), now),
        at_pressure: fit == Fit::Pressure,
        at_slack: fit == Fit::Slack,
        has_signal: gates.health(spec) != Health::Unknown,
    })
}

fn average(gates: &Gates<'_>) -> Average {
    let average = &gates.pool.average;
    let every = gates.route.guard.cluster_avg_interval;
    Average {
        slots: average.slots(gates.now).collect(),
        current: slot(window_number(gates.epoch, every, gates.now)) as u32,
        mean: average.mean(gates.now),
    }
}
