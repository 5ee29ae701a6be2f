//! `_ttft_status` and `_tps_status`: thresholds and averages per pool.

use std::collections::BTreeMap;
use std::time::Duration;

use http::StatusCode;
use proto::admin::{
    AdaptiveStatus, IgnoredOverride, MetricItem, PoolSignal, Shadowed, SignalStatus, TpsStatus,
    TtftStatus,
};
use router_core::book::status::{
    AdaptiveState, MetricState, Protection, SignalState, ThresholdSource,
};
use router_core::layered::Source;
use router_core::signal::{Signal, SignalSpec};

use super::pool_name;
use crate::admin::answer::{self, Answer};
use crate::state::{Route, Switch};
use router_config::valid::SignalOptions;

/// `_ttft_status` or `_tps_status`.
pub(super) fn status(route: &Route, signal: Signal) -> Answer {
    let pools: Vec<Pool> = route
        .pool_ids()
        .map(|pool| pool_name(route, pool))
        .zip(route.protections())
        .map(|(name, now)| Pool { name, now })
        .collect();
    match signal {
        Signal::Ttft => answer::json(StatusCode::OK, &ttft(route, &pools)),
        Signal::Tps => answer::json(StatusCode::OK, &tps(route, &pools)),
    }
}

/// The current state of one pool.
struct Pool {
    name: String,
    now: Protection,
}

impl Pool {
    fn signal(&self, signal: Signal) -> &SignalState {
        match signal {
            Signal::Ttft => &self.now.ttft,
            Signal::Tps => &self.now.tps,
        }
    }
}

fn ttft(route: &Route, pools: &[Pool]) -> TtftStatus {
    let options = &route.options.ttft;
    let hard = route.switch(Switch::Ttft429);
    TtftStatus {
        signal: common(route, Signal::Ttft, pools),
        ttft_429_enabled: hard.value,
        ttft_429_source: hard.source.as_str().to_owned(),
        ttft_limit_ms: options.limit.value,
        ttft_limit_by_model: by_model(options),
        ewma_ms: averages(Signal::Ttft, pools),
    }
}

fn tps(route: &Route, pools: &[Pool]) -> TpsStatus {
    let options = &route.options.tps;
    let map = |of: fn(&SignalState) -> u64| {
        pools
            .iter()
            .map(|pool| (pool.name.clone(), of(&pool.now.tps)))
            .collect()
    };
    TpsStatus {
        signal: common(route, Signal::Tps, pools),
        opt_in: options.limit.value.is_some(),
        tps_limit_source: tps_limit_source(route, pools).to_owned(),
        tps_limit_tps: options.limit.value,
        tps_limit_by_model: by_model(options),
        ewma_tps: averages(Signal::Tps, pools),
        nousage_samples: map(|signal| signal.no_usage),
        aborted_samples: map(|signal| signal.aborted),
        adaptive_cc_on: route.spec().guard.adaptive.is_some(),
        adaptive: adaptive(route, pools),
    }
}

fn common(route: &Route, signal: Signal, pools: &[Pool]) -> SignalStatus {
    let switch = switch_of(signal);
    let (now, spec) = (route.switch(switch), spec_of(route, signal));
    let rows: Vec<PoolSignal> = pools
        .iter()
        .map(|pool| of_pool(signal, pool.name.clone(), pool.signal(signal)))
        .collect();
    SignalStatus {
        route: route.name.to_string(),
        global_enabled: switch.below(&route.options).value,
        runtime_off: now.source == Source::Runtime && !now.value,
        active: now.value,
        source: now.source.as_str().to_owned(),
        enforcing: now.value && pools.iter().any(|pool| is_compared(pool.signal(signal))),
        alpha: spec.alpha,
        window: spec.window.as_secs_f64(),
        ttl: spec.ttl.as_secs_f64(),
        probe_window: spec.probe_window.as_secs_f64(),
        probe_per_window: spec.probes_per_window,
        probe_used_cur_window: rows.iter().map(|row| u64::from(row.probe_used)).sum(),
        metrics: rows,
    }
}

/// One signal of the pool `model`.
pub(in crate::admin) fn of_pool(signal: Signal, model: String, state: &SignalState) -> PoolSignal {
    let is_declared = state.source == ThresholdSource::Declared;
    PoolSignal {
        model,
        source: source(state.source).to_owned(),
        layer: layer(state.source).to_owned(),
        items: state.metrics.iter().map(|row| item(signal, row)).collect(),
        shadowed: state.shadowed.map(|threshold| shadowed(signal, threshold)),
        ignored_override: state
            .runtime
            .filter(|_| is_declared)
            .map(|(value, _)| ignored(signal, value)),
        override_left_s: state.runtime.and_then(|(_, left)| left).map(seconds_up),
        override_age_s: state.runtime_age.map(|age| age.as_secs()),
        tripped: state.tripped,
        held: state.held,
        probe_used: state.probes_used,
    }
}

fn item(signal: Signal, row: &MetricState) -> MetricItem {
    let item = MetricItem {
        metric: row.name.to_string(),
        q: row.q,
        ..MetricItem::default()
    };
    match signal {
        Signal::Ttft => MetricItem {
            threshold_ms: row.threshold,
            ewma_ms: row.ewma,
            ..item
        },
        Signal::Tps => MetricItem {
            threshold_tps: row.threshold,
            ewma_tps: row.ewma,
            ..item
        },
    }
}

fn shadowed(signal: Signal, threshold: f64) -> Shadowed {
    let (threshold_ms, threshold_tps) = by_unit(signal, Some(threshold));
    Shadowed {
        source: STATIC.to_owned(),
        threshold_ms,
        threshold_tps,
    }
}

fn ignored(signal: Signal, value: f64) -> IgnoredOverride {
    let (override_ms, override_tps) = by_unit(signal, Some(value));
    IgnoredOverride {
        override_ms,
        override_tps,
        reason: declared_wins(signal),
    }
}

/// The reason why an override has no effect when a table is declared.
pub(super) fn declared_wins(signal: Signal) -> String {
    format!("{signal}_metrics is declared and beats every limit")
}

/// A value as milliseconds and as tokens per second; only the signal's own unit is present.
fn by_unit(signal: Signal, value: Option<f64>) -> (Option<f64>, Option<f64>) {
    match signal {
        Signal::Ttft => (value, None),
        Signal::Tps => (None, value),
    }
}

/// The switch of a signal.
pub(super) fn switch_of(signal: Signal) -> Switch {
    match signal {
        Signal::Ttft => Switch::Ttft,
        Signal::Tps => Switch::Tps,
    }
}

/// The route's options for a signal.
pub(super) fn spec_of(route: &Route, signal: Signal) -> &SignalSpec {
    match signal {
        Signal::Ttft => &route.spec().guard.ttft,
        Signal::Tps => &route.spec().guard.tps,
    }
}

/// Whether the signal has any threshold.
pub(in crate::admin) fn is_compared(state: &SignalState) -> bool {
    state.metrics.iter().any(|row| row.threshold.is_some())
}

/// The remaining time in whole seconds, rounded up.
pub(super) fn seconds_up(left: Duration) -> u64 {
    left.as_secs() + u64::from(left.subsec_nanos() > 0)
}

/// Thresholds by model.
pub(super) fn by_model(options: &SignalOptions) -> BTreeMap<String, f64> {
    let limits = options.limit_by_model.value.iter();
    limits
        .map(|(model, limit)| (model.to_string(), *limit))
        .collect()
}

const STATIC: &str = "static";

/// The layer in llm-openresty's terms.
fn source(source: ThresholdSource) -> &'static str {
    match source {
        ThresholdSource::Declared => "declared",
        ThresholdSource::ModelOverride | ThresholdSource::Override => "override",
        ThresholdSource::Model | ThresholdSource::Route | ThresholdSource::Global => STATIC,
        ThresholdSource::None => "none",
    }
}

/// The full name of the layer.
pub(super) fn layer(source: ThresholdSource) -> &'static str {
    match source {
        ThresholdSource::Declared => "declared",
        ThresholdSource::ModelOverride => "model_override",
        ThresholdSource::Override => "override",
        ThresholdSource::Model => "model",
        ThresholdSource::Route => "route",
        ThresholdSource::Global => "global",
        ThresholdSource::None => "none",
    }
}

/// `declared`, else `override` when any pool has one, else the layer of the files.
fn tps_limit_source(route: &Route, pools: &[Pool]) -> &'static str {
    let any = |wanted: &str| {
        pools
            .iter()
            .any(|pool| source(pool.now.tps.source) == wanted)
    };
    let limit = route.options.tps.limit;
    match limit.value {
        _ if route.options.tps.metrics.value.is_some() => "declared",
        _ if any("override") => "override",
        None if !any(STATIC) => "none",
        Some(_) if limit.source != Source::Route => "global_default",
        _ => "route",
    }
}

fn averages(signal: Signal, pools: &[Pool]) -> BTreeMap<String, f64> {
    let first = |pool: &Pool| pool.signal(signal).metrics.first()?.ewma;
    pools
        .iter()
        .filter_map(|pool| Some((pool.name.clone(), first(pool)?)))
        .collect()
}

fn adaptive(route: &Route, pools: &[Pool]) -> Option<AdaptiveStatus> {
    let spec = route.spec().guard.adaptive.as_ref()?;
    let states: Vec<(&Pool, AdaptiveState)> = pools
        .iter()
        .filter_map(|pool| Some((pool, pool.now.adaptive?)))
        .collect();
    Some(AdaptiveStatus {
        adaptive_cc: states
            .iter()
            .filter_map(|(pool, state)| Some((pool.name.clone(), state.stored?)))
            .collect(),
        adaptive_cc_limit: states
            .iter()
            .map(|(pool, _)| (pool.name.clone(), pool.now.limit))
            .collect(),
        adaptive_cc_min: each(&states, |state| state.min),
        adaptive_cc_max: each(&states, |state| state.max),
        adaptive_cc_init: each(&states, |state| state.init),
        adaptive_cc_hold_when_idle: spec.hold_when_idle,
        adaptive_cc_conc: each(&states, |state| state.concurrency),
        adaptive_cc_at_pressure: each(&states, |state| state.at_pressure),
        adaptive_cc_at_slack: each(&states, |state| state.at_slack),
        adaptive_cc_has_signal: each(&states, |state| state.has_signal),
        adaptive_cc_acting: each(&states, |state| state.acting),
        adaptive_cc_pressure_frac: spec.pressure_frac,
        adaptive_cc_slack_frac: spec.slack_frac,
        adaptive_cc_abs: spec.headroom,
        adaptive_cc_rej: each(&states, |state| state.rejected),
        adaptive_cc_interval: spec.interval.as_secs_f64(),
    })
}

fn each<T>(
    states: &[(&Pool, AdaptiveState)],
    of: impl Fn(&AdaptiveState) -> T,
) -> BTreeMap<String, T> {
    states
        .iter()
        .map(|(pool, state)| (pool.name.clone(), of(state)))
        .collect()
}
