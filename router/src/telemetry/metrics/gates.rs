//! Gauges and counters of the load gates, read from the gates' state at each scrape.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use router_core::book::status::{
    AdaptiveState, BucketCounters, PriorityState, Protection, SignalState, Trips,
};
use router_core::signal::Signal;

use super::encode::{Labels, family};
use super::route::NONE;
use crate::state::Route;

/// Milliseconds in a second: the page uses base units.
const MS: f64 = 1000.0;

/// The state of one route's gates at one scrape.
pub(super) struct SeenGates {
    route: String,
    /// By model label.
    pools: Vec<(String, Protection)>,
    trips: Trips,
    priority: PriorityState,
    /// Signals with a runtime limit, in the order of [`Signal::ALL`].
    limits_set: [bool; Signal::ALL.len()],
}

impl SeenGates {
    pub(super) fn of(route: &Route) -> Self {
        let models = route.spec().pools.iter();
        let models = models.map(|pool| pool.model.as_deref().unwrap_or(NONE).to_owned());
        Self {
            route: route.name.to_string(),
            pools: models.zip(route.protections()).collect(),
            trips: route.trips_total(),
            priority: route.priority_total(),
            limits_set: Signal::ALL.map(|signal| route.has_runtime_limit(signal)),
        }
    }

    /// The limits listed besides the switches: their name, and whether a runtime limit is set.
    pub(super) fn limits_set(&self) -> impl Iterator<Item = (&'static str, bool)> {
        let names = Signal::ALL.into_iter().map(|signal| match signal {
            Signal::Ttft => "ttft-limit",
            Signal::Tps => "tps-limit",
        });
        names.zip(self.limits_set)
    }

    fn labels<const N: usize>(&self, more: [(&'static str, &str); N]) -> Labels<'static> {
        let route = ("route", self.route.clone().into());
        let more = more
            .into_iter()
            .map(|(name, value)| (name, value.to_owned().into()));
        std::iter::once(route).chain(more).collect()
    }
}

/// Writes every family.
pub(super) fn encode<'s>(
    encoder: &mut DescriptorEncoder<'_>,
    seen: impl Iterator<Item = &'s SeenGates>,
) -> fmt::Result {
    let seen: Vec<&SeenGates> = seen.collect();
    let seen = &*seen;
    rooms(encoder, seen)?;
    signals(encoder, seen)?;
    adaptive(encoder, seen)?;
    trips(encoder, seen)?;
    priority(encoder, seen)
}

fn rooms(encoder: &mut DescriptorEncoder<'_>, seen: &[&SeenGates]) -> fmt::Result {
    let each = |of: fn(&Protection) -> f64| {
        seen.iter().flat_map(move |seen| {
            seen.pools.iter().map(move |(model, now)| {
                (seen.labels([("model", model)]), ConstGauge::new(of(now)))
            })
        })
    };
    family(
        encoder,
        "llm_router_limit",
        "Concurrency limit of a pool in force: the sum over the active tier's unbanned peers, or the adaptive limit below it, before rt_limit_factor.",
        each(|now| now.limit),
    )?;
    family(
        encoder,
        "llm_router_pool_in_flight",
        "Requests in flight on the peers that the limit counts.",
        each(|now| now.in_flight as f64),
    )?;
    family(
        encoder,
        "llm_router_waiting",
        "Requests that wait for a slot of a full pool.",
        each(|now| f64::from(now.waiting)),
    )?;
    family(
        encoder,
        "llm_router_cluster_avg",
        "Five-minute average of a pool's requests in flight.",
        each(|now| now.average.mean),
    )
}

/// The differences between the two signals' families.
struct SignalFamilies {
    of: fn(&Protection) -> &SignalState,
    /// Divisor for a value of the core.
    unit: f64,
    ewma: (&'static str, &'static str),
    threshold: (&'static str, &'static str),
    tripped: (&'static str, &'static str),
}

const SIGNALS: [SignalFamilies; 2] = [
    SignalFamilies {
        of: |now| &now.ttft,
        unit: MS,
        ewma: (
            "llm_router_ttft_ewma_seconds",
            "Smoothed time to first token of a pool; NaN while nothing was measured lately.",
        ),
        threshold: (
            "llm_router_ttft_threshold_seconds",
            "At this average the TTFT gate refuses; +Inf without a threshold.",
        ),
        tripped: (
            "llm_router_ttft_tripped",
            "1 while the TTFT gate refuses, probe slots aside.",
        ),
    },
    SignalFamilies {
        of: |now| &now.tps,
        unit: 1.0,
        ewma: (
            "llm_router_tps_ewma",
            "Smoothed decode rate of a pool, tokens per second; NaN while nothing was measured lately.",
        ),
        threshold: (
            "llm_router_tps_threshold",
            "At this average the decode rate gate refuses; 0 without a threshold.",
        ),
        tripped: (
            "llm_router_tps_tripped",
            "1 while the decode rate gate refuses, probe slots aside.",
        ),
    },
];

fn signals(encoder: &mut DescriptorEncoder<'_>, seen: &[&SeenGates]) -> fmt::Result {
    for families in &SIGNALS {
        let metrics = |value: fn(Option<f64>, Option<f64>, f64) -> f64| {
            seen.iter().flat_map(move |seen| {
                seen.pools.iter().flat_map(move |(model, now)| {
                    let metrics = (families.of)(now).metrics.iter();
                    metrics.map(move |metric| {
                        let labels = seen.labels([("model", model), ("metric", &metric.name)]);
                        let value = value(metric.ewma, metric.threshold, families.unit);
                        (labels, ConstGauge::new(value))
                    })
                })
            })
        };
        let (name, help) = families.ewma;
        // An average of 0 would look like a dead fleet.
        let ewma = metrics(|ewma, _, unit| ewma.map_or(f64::NAN, |ewma| ewma / unit));
        family(encoder, name, help, ewma)?;
        let (name, help) = families.threshold;
        let threshold = metrics(|_, threshold, unit| match threshold {
            Some(threshold) => threshold / unit,
            // A threshold that no average reaches: above every time, below every rate.
            None if unit == MS => f64::INFINITY,
            None => 0.0,
        });
        family(encoder, name, help, threshold)?;
        let (name, help) = families.tripped;
        let tripped = seen.iter().flat_map(|seen| {
            seen.pools.iter().map(move |(model, now)| {
                let is_tripped = u64::from((families.of)(now).tripped);
                (seen.labels([("model", model)]), ConstGauge::new(is_tripped))
            })
        });
        family(encoder, name, help, tripped)?;
    }
    Ok(())
}

fn adaptive(encoder: &mut DescriptorEncoder<'_>, seen: &[&SeenGates]) -> fmt::Result {
    let each = |of: fn(&AdaptiveState) -> f64| {
        seen.iter().flat_map(move |seen| {
            seen.pools.iter().filter_map(move |(model, now)| {
                let state = now.adaptive.as_ref()?;
                Some((seen.labels([("model", model)]), ConstGauge::new(of(state))))
            })
        })
    };
    family(
        encoder,
        "llm_router_adaptive_limit",
        "Adaptive concurrency limit of a pool: the stored value, else the start point.",
        each(|state| state.stored.unwrap_or(state.init as f64)),
    )?;
    family(
        encoder,
        "llm_router_adaptive_limit_min",
        "Floor of the adaptive limit.",
        each(|state| state.min as f64),
    )?;
    family(
        encoder,
        "llm_router_adaptive_limit_max",
        "Ceiling of the adaptive limit.",
        each(|state| state.max as f64),
    )?;
    family(
        encoder,
        "llm_router_adaptive_has_signal",
        "1 while a signal moves the adaptive limit; without one it stands still.",
        each(|state| f64::from(u8::from(state.has_signal))),
    )
}

fn trips(encoder: &mut DescriptorEncoder<'_>, seen: &[&SeenGates]) -> fmt::Result {
    let series = seen.iter().flat_map(|seen| {
        let Trips {
            concurrency,
            ttft,
            tps,
        } = seen.trips;
        let counts = [("concurrency", concurrency), ("ttft", ttft), ("tps", tps)];
        counts.map(|(gate, count)| (seen.labels([("gate", gate)]), ConstCounter::new(count)))
    });
    family(
        encoder,
        "llm_router_rate_limit_trips",
        "Requests let through that tripped a gate while load_rate_limit was off. Never part of the refusals.",
        series,
    )
}

fn priority(encoder: &mut DescriptorEncoder<'_>, seen: &[&SeenGates]) -> fmt::Result {
    let buckets = |seen: &SeenGates| -> Vec<(String, BucketCounters)> {
        let rows = seen.priority.buckets.iter();
        rows.map(|row| (row.bucket.min_turn.to_string(), row.counters))
            .collect()
    };
    let results =
        |tally: &BucketCounters| [("admitted", tally.admitted), ("refused", tally.refused)];
    let graded = seen.iter().flat_map(|seen| {
        buckets(seen).into_iter().flat_map(move |(bucket, tally)| {
            results(&tally).map(|(result, count)| {
                let labels = seen.labels([("bucket", &bucket), ("result", result)]);
                (labels, ConstCounter::new(count))
            })
        })
    });
    family(
        encoder,
        "llm_router_session_prio_requests",
        "Requests graded by their session's turn, by the first turn of the bucket.",
        graded,
    )?;
    let without = seen.iter().flat_map(|seen| {
        results(&seen.priority.no_header)
            .map(|(result, count)| (seen.labels([("result", result)]), ConstCounter::new(count)))
    });
    family(
        encoder,
        "llm_router_session_prio_nohdr",
        "Requests without a usable session header while session_prio was on.",
        without,
    )?;
    let tokens = seen.iter().flat_map(|seen| {
        buckets(seen).into_iter().flat_map(move |(bucket, tally)| {
            let kinds = [
                ("prompt", tally.prompt_tokens),
                ("cached", tally.cached_tokens),
            ];
            kinds.map(|(kind, count)| {
                let labels = seen.labels([("bucket", &bucket), ("kind", kind)]);
                (labels, ConstCounter::new(count))
            })
        })
    });
    family(
        encoder,
        "llm_router_session_prio_tokens",
        "Prompt tokens of graded requests, and how many of them came from a cache.",
        tokens,
    )
}
