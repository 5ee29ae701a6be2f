//! Gauges and counters of the load gates, read from the gates' state at each scrape.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use router_core::book::status::{
    AdaptiveState, BucketCounters, PriorityState, Protection, SignalState, Trips,
};
use router_core::signal::Signal;

use service::families::{Family, Values};

use super::catalogue::router;
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

    fn model<'a>(&'a self, model: &'a str) -> Values<'a, 2> {
        [(&*self.route).into(), model.into()]
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
            seen.pools
                .iter()
                .map(move |(model, now)| (seen.model(model), ConstGauge::new(of(now))))
        })
    };
    router::LIMIT.write(encoder, each(|now| now.limit))?;
    router::POOL_IN_FLIGHT.write(encoder, each(|now| now.in_flight as f64))?;
    router::WAITING.write(encoder, each(|now| f64::from(now.waiting)))?;
    router::CLUSTER_AVG.write(encoder, each(|now| now.average.mean))
}

/// The differences between the two signals' families.
struct SignalFamilies {
    of: fn(&Protection) -> &SignalState,
    /// Divisor for a value of the core.
    unit: f64,
    ewma: &'static Family<3>,
    threshold: &'static Family<3>,
    tripped: &'static Family<2>,
}

static SIGNALS: [SignalFamilies; 2] = [
    SignalFamilies {
        of: |now| &now.ttft,
        unit: MS,
        ewma: &router::TTFT_EWMA_SECONDS,
        threshold: &router::TTFT_THRESHOLD_SECONDS,
        tripped: &router::TTFT_TRIPPED,
    },
    SignalFamilies {
        of: |now| &now.tps,
        unit: 1.0,
        ewma: &router::TPS_EWMA,
        threshold: &router::TPS_THRESHOLD,
        tripped: &router::TPS_TRIPPED,
    },
];

fn signals(encoder: &mut DescriptorEncoder<'_>, seen: &[&SeenGates]) -> fmt::Result {
    for families in &SIGNALS {
        let metrics = |value: fn(Option<f64>, Option<f64>, f64) -> f64| {
            seen.iter().flat_map(move |seen| {
                seen.pools.iter().flat_map(move |(model, now)| {
                    let metrics = (families.of)(now).metrics.iter();
                    metrics.map(move |metric| {
                        let labels = [(&*seen.route).into(), model.into(), (&*metric.name).into()];
                        let value = value(metric.ewma, metric.threshold, families.unit);
                        (labels, ConstGauge::new(value))
                    })
                })
            })
        };
        // An average of 0 would look like a dead fleet.
        let ewma = metrics(|ewma, _, unit| ewma.map_or(f64::NAN, |ewma| ewma / unit));
        families.ewma.write(encoder, ewma)?;
        let threshold = metrics(|_, threshold, unit| match threshold {
            Some(threshold) => threshold / unit,
            // A threshold that no average reaches: above every time, below every rate.
            None if unit == MS => f64::INFINITY,
            None => 0.0,
        });
        families.threshold.write(encoder, threshold)?;
        let tripped = seen.iter().flat_map(|seen| {
            seen.pools.iter().map(move |(model, now)| {
                let is_tripped = u64::from((families.of)(now).tripped);
                (seen.model(model), ConstGauge::new(is_tripped))
            })
        });
        families.tripped.write(encoder, tripped)?;
    }
    Ok(())
}

fn adaptive(encoder: &mut DescriptorEncoder<'_>, seen: &[&SeenGates]) -> fmt::Result {
    let each = |of: fn(&AdaptiveState) -> f64| {
        seen.iter().flat_map(move |seen| {
            seen.pools.iter().filter_map(move |(model, now)| {
                let state = now.adaptive.as_ref()?;
                Some((seen.model(model), ConstGauge::new(of(state))))
            })
        })
    };
    router::ADAPTIVE_LIMIT.write(
        encoder,
        each(|state| state.stored.unwrap_or(state.init as f64)),
    )?;
    router::ADAPTIVE_LIMIT_MIN.write(encoder, each(|state| state.min as f64))?;
    router::ADAPTIVE_LIMIT_MAX.write(encoder, each(|state| state.max as f64))?;
    router::ADAPTIVE_HAS_SIGNAL.write(encoder, each(|state| f64::from(u8::from(state.has_signal))))
}

fn trips(encoder: &mut DescriptorEncoder<'_>, seen: &[&SeenGates]) -> fmt::Result {
    let series = seen.iter().flat_map(|seen| {
        let Trips {
            concurrency,
            ttft,
            tps,
        } = seen.trips;
        let counts = [("concurrency", concurrency), ("ttft", ttft), ("tps", tps)];
        counts.map(|(gate, count)| {
            (
                [(&*seen.route).into(), gate.into()],
                ConstCounter::new(count),
            )
        })
    });
    router::RATE_LIMIT_TRIPS.write(encoder, series)
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
                let labels = [(&*seen.route).into(), bucket.clone().into(), result.into()];
                (labels, ConstCounter::new(count))
            })
        })
    });
    router::SESSION_PRIO_REQUESTS.write(encoder, graded)?;
    let without = seen.iter().flat_map(|seen| {
        results(&seen.priority.no_header).map(|(result, count)| {
            (
                [(&*seen.route).into(), result.into()],
                ConstCounter::new(count),
            )
        })
    });
    router::SESSION_PRIO_NOHDR.write(encoder, without)?;
    let tokens = seen.iter().flat_map(|seen| {
        buckets(seen).into_iter().flat_map(move |(bucket, tally)| {
            let kinds = [
                ("prompt", tally.prompt_tokens),
                ("cached", tally.cached_tokens),
            ];
            kinds.map(|(kind, count)| {
                let labels = [(&*seen.route).into(), bucket.clone().into(), kind.into()];
                (labels, ConstCounter::new(count))
            })
        })
    });
    router::SESSION_PRIO_TOKENS.write(encoder, tokens)
}
