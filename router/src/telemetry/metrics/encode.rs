//! Encodes counters as the families of a page.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;

use super::route::{PeerTally, RouteMetrics};
use super::{Metrics, UNROUTED};
use crate::content::postprocess::Outcome;

/// Labels of one series, in the order of the page.
pub(crate) type Labels<'a> = Vec<(&'static str, Cow<'a, str>)>;

/// Writes one family; skips a family without series.
pub(crate) fn family<'a, M: EncodeMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    series: impl IntoIterator<Item = (Labels<'a>, M)>,
) -> fmt::Result {
    let mut series = series.into_iter().peekable();
    let Some((_, first)) = series.peek() else {
        return Ok(());
    };
    let mut descriptor = encoder.encode_descriptor(name, help, None, first.metric_type())?;
    series.try_for_each(|(labels, metric)| metric.encode(descriptor.encode_family(&labels)?))
}

/// One unlabelled gauge.
pub(crate) fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: f64,
) -> fmt::Result {
    family(
        encoder,
        name,
        help,
        [(Labels::new(), ConstGauge::new(value))],
    )
}

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
        family(
            encoder,
            "llm_router_clients_gone",
            "Requests whose client went away, before the answer began or in its middle.",
            routes.iter().map(|route| {
                let gone = route.clients_gone.load(Ordering::Relaxed);
                let labels: Labels<'_> = vec![("route", Cow::Borrowed(&*route.route))];
                (labels, ConstCounter::new(gone))
            }),
        )?;
        per_peer(
            encoder,
            "llm_router_retries",
            "Attempts that failed on a peer and went on to another.",
            &configured,
            |t| t.retries,
        )?;
        per_peer(
            encoder,
            "llm_router_peer_bans",
            "Times a peer went from usable to banned.",
            &configured,
            |t| t.bans,
        )?;
        per_peer(
            encoder,
            "llm_router_prompt_tokens",
            "Tokens of whole prompts, cached ones included, by the peer that answered.",
            &configured,
            |t| t.prompt_tokens,
        )?;
        per_peer(
            encoder,
            "llm_router_cached_tokens",
            "Of the prompt tokens, those that a peer read from its prefix cache; never more.",
            &configured,
            |t| t.cached_tokens,
        )?;
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
                    let labels: Labels<'_> = vec![
                        ("route", Cow::Borrowed(&*route.route)),
                        ("model", model.to_string().into()),
                        ("peer", peer.to_string().into()),
                        ("code", code.to_string().into()),
                    ];
                    series.push((labels, ConstCounter::new(*count)));
                }
            }
        }
    }
    family(
        encoder,
        "llm_router_requests",
        "Requests finished, by the status sent to the client.",
        series,
    )
}

fn postprocessed(
    encoder: &mut DescriptorEncoder<'_>,
    routes: &[&Arc<RouteMetrics>],
) -> fmt::Result {
    let series = routes.iter().flat_map(|route| {
        Outcome::ALL.into_iter().map(|outcome| {
            let labels: Labels<'_> = vec![
                ("route", (&*route.route).into()),
                ("result", outcome.as_str().into()),
            ];
            (
                labels,
                ConstCounter::new(route.postprocessed_so_far(outcome)),
            )
        })
    });
    family(
        encoder,
        "llm_router_postprocessed",
        "Answers that the route's postprocess handler was meant for; passed: too long, or in an encoding that is not decoded.",
        series,
    )
}

fn refusals(encoder: &mut DescriptorEncoder<'_>, routes: &[&Arc<RouteMetrics>]) -> fmt::Result {
    let series = routes.iter().flat_map(|route| {
        let series = route.refusals.series().into_iter();
        series.map(|(gate, bucket, count)| {
            let labels: Labels<'_> = vec![
                ("route", (&*route.route).into()),
                ("gate", gate.as_str().into()),
                ("bucket", bucket.to_string().into()),
            ];
            (labels, ConstCounter::new(count))
        })
    });
    family(
        encoder,
        "llm_router_refusals",
        "Requests refused, by gate and by the first turn of their session_prio bucket.",
        series,
    )
}

fn placements(encoder: &mut DescriptorEncoder<'_>, routes: &[&Arc<RouteMetrics>]) -> fmt::Result {
    let mut series = Vec::new();
    for route in routes {
        for (mode, count) in &route.tally.lock().placements {
            let labels: Labels<'_> =
                vec![("route", (&*route.route).into()), ("mode", (*mode).into())];
            series.push((labels, ConstCounter::new(*count)));
        }
    }
    family(
        encoder,
        "llm_router_placements",
        "Finished requests that were placed, by how their peer was found (X-Routed-Mode).",
        series,
    )
}

fn tokens(encoder: &mut DescriptorEncoder<'_>, routes: &[&Arc<RouteMetrics>]) -> fmt::Result {
    let mut series = Vec::new();
    for route in routes {
        for (model, owner, kind, sum) in route.tally.lock().tokens.series_of_kinds() {
            let labels: Labels<'_> = vec![
                ("route", (&*route.route).into()),
                ("model", model.to_owned().into()),
                ("owner", owner.to_owned().into()),
                ("kind", kind.into()),
            ];
            series.push((labels, ConstCounter::new(sum)));
        }
    }
    family(
        encoder,
        "llm_router_tokens",
        "Tokens of the answers that told their usage.",
        series,
    )
}

fn per_peer(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    routes: &[&Arc<RouteMetrics>],
    count: impl Fn(&PeerTally) -> u64,
) -> fmt::Result {
    let mut series = Vec::new();
    for route in routes {
        for (peer, tally) in &route.tally.lock().peers {
            let labels: Labels<'_> = vec![
                ("route", (&*route.route).into()),
                ("peer", peer.to_string().into()),
            ];
            series.push((labels, ConstCounter::new(count(tally))));
        }
    }
    family(encoder, name, help, series)
}

fn histograms(
    encoder: &mut DescriptorEncoder<'_>,
    routes: &[Arc<RouteMetrics>],
    configured: &[&Arc<RouteMetrics>],
) -> fmt::Result {
    let label = |route: &RouteMetrics| -> Labels<'static> {
        vec![("route", route.route.to_string().into())]
    };
    family(
        encoder,
        "llm_router_request_seconds",
        "Arrival of a request to the last byte of its answer.",
        routes.iter().map(|r| (label(r), r.request_seconds.clone())),
    )?;
    family(
        encoder,
        "llm_router_ttft_seconds",
        "Arrival of a request to the first event of its stream with generated content.",
        configured
            .iter()
            .map(|r| (label(r), r.ttft_seconds.clone())),
    )?;
    family(
        encoder,
        "llm_router_inter_chunk_seconds",
        "Time between two chunks of a stream.",
        configured
            .iter()
            .map(|r| (label(r), r.inter_chunk_seconds.clone())),
    )?;
    family(
        encoder,
        "llm_router_overhead_seconds",
        "The router's own share of a request: from its body read to handing it to a peer.",
        configured
            .iter()
            .map(|r| (label(r), r.overhead_seconds.clone())),
    )
}

fn process_wide(encoder: &mut DescriptorEncoder<'_>, metrics: &Metrics) -> fmt::Result {
    let reload = &metrics.reload;
    let results = [("applied", &reload.applied), ("refused", &reload.refused)];
    family(
        encoder,
        "llm_router_config_reloads",
        "Loads of the configuration, the one at start included.",
        results.map(|(result, count)| {
            (
                vec![("result", result.into())],
                ConstCounter::new(count.load(Ordering::Relaxed)),
            )
        }),
    )?;
    gauge(
        encoder,
        "llm_router_config_last_reload_success",
        "1 when the last load found every file valid.",
        f64::from(u8::from(reload.is_last_success())),
    )?;
    gauge(
        encoder,
        "llm_router_config_last_reload_success_timestamp_seconds",
        "When a load last found every file valid, Unix time.",
        seconds(reload.last_success_unix_ms()),
    )?;
    family(
        encoder,
        "llm_router_log_lines_dropped",
        "Lines of stdout and stderr lost because their reader was too slow or gone.",
        [(Labels::new(), ConstCounter::new(service::log::dropped()))],
    )?;
    // The encoders add `_info` to the name.
    let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
    family(
        encoder,
        "llm_router_build",
        "What is running.",
        [(Labels::new(), build)],
    )
}

fn seconds(unix_ms: u64) -> f64 {
    unix_ms as f64 / 1000.0
}
