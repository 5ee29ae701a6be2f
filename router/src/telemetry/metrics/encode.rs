//! Encodes counters as the families of a page.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::histogram::Histogram;
use service::families::Family;

use super::catalogue::router;
use super::route::{PeerTally, RouteMetrics};
use super::{Metrics, UNROUTED};
use crate::content::postprocess::Outcome;

/// The families of [`Metrics`].
#[derive(Debug)]
pub(super) struct Counted(pub(super) Arc<Metrics>);

impl Collector for Counted {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        let routes = self.0.every_route();
        requests(encoder, &routes)?;
        let configured: Vec<_> = routes.iter().filter(|r| &*r.route != UNROUTED).collect();
        refusals(encoder, &configured)?;
        router::CLIENTS_GONE.write(
            encoder,
            routes.iter().map(|route| {
                let gone = route.clients_gone.load(Ordering::Relaxed);
                ([(&*route.route).into()], ConstCounter::new(gone))
            }),
        )?;
        type Count = fn(&PeerTally) -> u64;
        let by_peer: [(&Family<2>, Count); 5] = [
            (&router::RETRIES, |tally| tally.retries),
            (&router::PEER_BANS, |tally| tally.bans),
            (&router::PEER_EJECTIONS, |tally| tally.ejections),
            (&router::PROMPT_TOKENS, |tally| tally.prompt_tokens),
            (&router::CACHED_TOKENS, |tally| tally.cached_tokens),
        ];
        for (family, count) in by_peer {
            per_peer(encoder, family, &configured, count)?;
        }
        aliased(encoder, &configured)?;
        fallbacks(encoder, &configured)?;
        postprocessed(encoder, &configured)?;
        placements(encoder, &configured)?;
        tokens(encoder, &configured)?;
        histograms(encoder, &routes, &configured)?;
        process_wide(encoder, &self.0)
    }
}

fn requests(encoder: &mut DescriptorEncoder<'_>, routes: &[Arc<RouteMetrics>]) -> fmt::Result {
    let mut series = Vec::new();
    for route in routes {
        for (model, by_peer) in &route.tally.lock().requests {
            for (peer, by_code) in by_peer {
                for (code, count) in by_code {
                    let labels = [
                        (&*route.route).into(),
                        model.to_string().into(),
                        peer.to_string().into(),
                        code.to_string().into(),
                    ];
                    series.push((labels, ConstCounter::new(*count)));
                }
            }
        }
    }
    router::REQUESTS.write(encoder, series)
}

fn postprocessed(
    encoder: &mut DescriptorEncoder<'_>,
    routes: &[&Arc<RouteMetrics>],
) -> fmt::Result {
    let series = routes.iter().flat_map(|route| {
        Outcome::ALL.into_iter().map(|outcome| {
            let labels = [(&*route.route).into(), outcome.as_str().into()];
            let count = route.postprocessed_so_far(outcome);
            (labels, ConstCounter::new(count))
        })
    });
    router::POSTPROCESSED.write(encoder, series)
}

fn aliased(encoder: &mut DescriptorEncoder<'_>, routes: &[&Arc<RouteMetrics>]) -> fmt::Result {
    let mut series = Vec::new();
    for route in routes {
        for ((asked, model), count) in &route.tally.lock().aliased {
            let labels = [
                (&*route.route).into(),
                asked.to_string().into(),
                model.to_string().into(),
            ];
            series.push((labels, ConstCounter::new(*count)));
        }
    }
    router::ALIASED.write(encoder, series)
}

fn fallbacks(encoder: &mut DescriptorEncoder<'_>, routes: &[&Arc<RouteMetrics>]) -> fmt::Result {
    let mut series = Vec::new();
    for route in routes {
        for (to, count) in &route.tally.lock().fallbacks {
            let labels = [(&*route.route).into(), to.to_string().into()];
            series.push((labels, ConstCounter::new(*count)));
        }
    }
    router::FALLBACKS.write(encoder, series)
}

fn refusals(encoder: &mut DescriptorEncoder<'_>, routes: &[&Arc<RouteMetrics>]) -> fmt::Result {
    let series = routes.iter().flat_map(|route| {
        let series = route.refusals.series().into_iter();
        series.map(|(gate, bucket, count)| {
            let labels = [
                (&*route.route).into(),
                gate.as_str().into(),
                bucket.to_string().into(),
            ];
            (labels, ConstCounter::new(count))
        })
    });
    router::REFUSALS.write(encoder, series)
}

fn placements(encoder: &mut DescriptorEncoder<'_>, routes: &[&Arc<RouteMetrics>]) -> fmt::Result {
    let mut series = Vec::new();
    for route in routes {
        for (mode, count) in &route.tally.lock().placements {
            let labels = [(&*route.route).into(), (*mode).into()];
            series.push((labels, ConstCounter::new(*count)));
        }
    }
    router::PLACEMENTS.write(encoder, series)
}

fn tokens(encoder: &mut DescriptorEncoder<'_>, routes: &[&Arc<RouteMetrics>]) -> fmt::Result {
    let mut series = Vec::new();
    for route in routes {
        for (model, owner, kind, sum) in route.tally.lock().tokens.series_of_kinds() {
            let labels = [
                (&*route.route).into(),
                model.to_owned().into(),
                owner.to_owned().into(),
                kind.into(),
            ];
            series.push((labels, ConstCounter::new(sum)));
        }
    }
    router::TOKENS.write(encoder, series)
}

fn per_peer(
    encoder: &mut DescriptorEncoder<'_>,
    family: &Family<2>,
    routes: &[&Arc<RouteMetrics>],
    count: impl Fn(&PeerTally) -> u64,
) -> fmt::Result {
    let mut series = Vec::new();
    for route in routes {
        for (peer, tally) in &route.tally.lock().peers {
            let labels = [(&*route.route).into(), peer.to_string().into()];
            series.push((labels, ConstCounter::new(count(tally))));
        }
    }
    family.write(encoder, series)
}

fn histograms(
    encoder: &mut DescriptorEncoder<'_>,
    routes: &[Arc<RouteMetrics>],
    configured: &[&Arc<RouteMetrics>],
) -> fmt::Result {
    let each = |of: fn(&RouteMetrics) -> &Histogram| {
        configured
            .iter()
            .map(move |route| ([(&*route.route).into()], of(route).clone()))
    };
    let all = routes.iter();
    router::REQUEST_SECONDS.write(
        encoder,
        all.map(|route| ([(&*route.route).into()], route.request_seconds.clone())),
    )?;
    router::TTFT_SECONDS.write(encoder, each(|route| &route.ttft_seconds))?;
    router::INTER_CHUNK_SECONDS.write(encoder, each(|route| &route.inter_chunk_seconds))?;
    router::OVERHEAD_SECONDS.write(encoder, each(|route| &route.overhead_seconds))
}

fn process_wide(encoder: &mut DescriptorEncoder<'_>, metrics: &Metrics) -> fmt::Result {
    let reload = &metrics.reload;
    let results = [("applied", &reload.applied), ("refused", &reload.refused)];
    router::CONFIG_RELOADS.write(
        encoder,
        results.map(|(result, count)| {
            let count = count.load(Ordering::Relaxed);
            ([result.into()], ConstCounter::new(count))
        }),
    )?;
    let succeeded = f64::from(u8::from(reload.is_last_success()));
    router::CONFIG_LAST_RELOAD_SUCCESS.gauge(encoder, succeeded)?;
    let at = seconds(reload.last_success_unix_ms());
    router::CONFIG_LAST_RELOAD_SUCCESS_TIMESTAMP_SECONDS.gauge(encoder, at)?;
    router::LOG_LINES_DROPPED.counter(encoder, service::log::dropped())?;
    router::BUILD.info(encoder, env!("CARGO_PKG_VERSION"))
}

fn seconds(unix_ms: u64) -> f64 {
    unix_ms as f64 / 1000.0
}
