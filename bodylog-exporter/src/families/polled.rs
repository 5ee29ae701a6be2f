//! `openresty_*`: what routers report about themselves. The names are llm-openresty's, so that its
//! dashboards keep working; the prefix can be changed.

use std::collections::BTreeMap;
use std::fmt;

use super::encode::{Labels, Writer};
use super::own::seconds;
use crate::aggregate::{Refusals, View};
use crate::poll::{ENDPOINTS, Limiter, Polled, RoutePoll, RouterPoll};

/// Reasons for which every polled route has a counter, at zero from the start.
const REASONS: [&str; 3] = ["concurrency", "ttft", "tps"];

type Gauge = (Labels<'static>, f64);

pub(super) fn write(
    writer: &mut Writer<'_, '_>,
    polled: &Polled,
    view: Option<&View>,
    prefix: &str,
) -> fmt::Result {
    let page = Polling {
        polled,
        view,
        prefix,
    };
    if polled.is_up.is_none() {
        // No router is polled yet. Refusals counted before are still shown.
        return page.refused(writer);
    }
    page.routes(writer)?;
    page.peers(writer)?;
    page.limiters(writer)?;
    page.refused(writer)?;
    page.calls(writer)
}

struct Polling<'p> {
    polled: &'p Polled,
    view: Option<&'p View>,
    prefix: &'p str,
}

impl Polling<'_> {
    /// Every route with its labels. The router is a label only if several are polled: with one, the
    /// series are those of llm-openresty.
    fn each<T>(&self, get: impl Fn(&RoutePoll, Labels<'static>) -> Vec<T>) -> Vec<T> {
        let is_alone = self.polled.routers.len() == 1;
        let mut found = Vec::new();
        for RouterPoll { router, routes, .. } in &self.polled.routers {
            for (name, route) in routes {
                found.extend(get(route, self.labels(is_alone, router, name)));
            }
        }
        found
    }

    fn gauges(
        &self,
        writer: &mut Writer<'_, '_>,
        name: &str,
        help: &str,
        get: impl Fn(&RoutePoll, Labels<'static>) -> Vec<Gauge>,
    ) -> fmt::Result {
        writer.gauges(&format!("{}{name}", self.prefix), help, self.each(get))
    }

    fn routes(&self, writer: &mut Writer<'_, '_>) -> fmt::Result {
        type Get = fn(&crate::poll::RouteState) -> Option<f64>;
        let families: [(&str, &str, Get); 3] = [
            (
                "route_active_level",
                "Priority of the tier in use.",
                |state| state.active_level,
            ),
            (
                "route_active_limit",
                "Room of the tier in use, requests.",
                |state| state.limit,
            ),
            (
                "route_healthy_peers",
                "Usable peers of the tier in use.",
                |state| state.healthy_peers_in_level,
            ),
        ];
        for (name, help, get) in families {
            self.gauges(writer, name, help, |route, labels| {
                let value = route.state.value.as_ref().and_then(get);
                value.map(|value| (labels, value)).into_iter().collect()
            })?;
        }
        Ok(())
    }

    fn peers(&self, writer: &mut Writer<'_, '_>) -> fmt::Result {
        type Get = fn(&crate::poll::PeerState) -> Option<f64>;
        let families: [(&str, &str, Get); 3] = [
            ("peer_active_conns", "Requests on the peer.", |peer| {
                peer.active
            }),
            ("peer_banned", "1 while the peer is banned.", |peer| {
                peer.banned
            }),
            (
                "peer_max_concurrency",
                "Most requests the peer may have.",
                |peer| peer.max,
            ),
        ];
        for (name, help, get) in families {
            self.gauges(writer, name, help, |route, labels| {
                let Some(state) = &route.state.value else {
                    return Vec::new();
                };
                let peers = state.peers().into_iter().filter_map(|peer| {
                    let value = get(&peer)?;
                    let mut labels = labels.clone();
                    labels.push(("peer", peer.peer.into()));
                    labels.push(("name", peer.name.into()));
                    labels.push(("priority", peer.priority.into()));
                    Some((labels, value))
                });
                peers.collect()
            })?;
        }
        Ok(())
    }

    fn limiters(&self, writer: &mut Writer<'_, '_>) -> fmt::Result {
        let active = |limiter: &Option<Limiter>, labels| {
            let active = limiter.as_ref().and_then(|limiter| limiter.active);
            let value = active.map(|active| (labels, f64::from(u8::from(active))));
            value.into_iter().collect()
        };
        self.gauges(
            writer,
            "tps_limiter_active",
            "1 while the output rate is watched.",
            |route, labels| active(&route.tps.value, labels),
        )?;
        self.gauges(
            writer,
            "ttft_limiter_active",
            "1 while the time to the first token is watched.",
            |route, labels| active(&route.ttft.value, labels),
        )?;
        type Get = fn(&Limiter) -> &BTreeMap<String, f64>;
        let by_model = |limiter: &Option<Limiter>, get: Get, labels: Labels<'static>| {
            let numbers = limiter.as_ref().map(get).into_iter().flatten();
            let numbers = numbers.map(|(model, value)| {
                let mut labels = labels.clone();
                labels.push(("model", model.clone().into()));
                (labels, *value)
            });
            numbers.collect()
        };
        self.gauges(
            writer,
            "ttft_ewma_ms",
            "Average time to the first token, milliseconds.",
            |route, labels| by_model(&route.ttft.value, |limiter| &limiter.ewma_ms, labels),
        )?;
        let families: [(&str, &str, Get); 6] = [
            ("tps_ewma", "Average output rate, tokens per second.", |l| {
                &l.ewma_tps
            }),
            ("adaptive_cc", "Adaptive concurrency limit.", |l| {
                &l.adaptive_cc
            }),
            ("adaptive_cc_min", "Its floor.", |l| &l.adaptive_cc_min),
            ("adaptive_cc_max", "Its ceiling.", |l| &l.adaptive_cc_max),
            (
                "adaptive_cc_conc",
                "Requests in flight as it reads them.",
                |l| &l.adaptive_cc_conc,
            ),
            ("adaptive_cc_rej", "Refusals it has not used yet.", |l| {
                &l.adaptive_cc_rej
            }),
        ];
        for (name, help, get) in families {
            self.gauges(writer, name, help, |route, labels| {
                by_model(&route.tps.value, get, labels)
            })?;
        }
        Ok(())
    }

    fn calls(&self, writer: &mut Writer<'_, '_>) -> fmt::Result {
        let Self { polled, prefix, .. } = self;
        writer.gauge(
            &format!("{prefix}poll_up"),
            "1 when every call of the last round was answered.",
            f64::from(u8::from(polled.is_up == Some(true))),
        )?;
        if let Some(at) = polled.last_success_ms {
            writer.gauge(
                &format!("{prefix}poll_last_success_seconds"),
                "When every call of a round was last answered, Unix time.",
                seconds(at),
            )?;
        }
        writer.counter(
            &format!("{prefix}poll_errors"),
            "Rounds in which some call was not answered.",
            polled.errors,
        )?;
        let up = self.each(|route, labels| {
            let calls = ENDPOINTS
                .into_iter()
                .zip(route.up())
                .map(|(endpoint, is_up)| {
                    let mut labels = without_service(&labels);
                    labels.push(("endpoint", endpoint.into()));
                    (labels, f64::from(u8::from(is_up)))
                });
            calls.collect()
        });
        writer.gauges(
            "bodylog_exporter_poll_up",
            "1 when the call of the last round was answered.",
            up,
        )?;
        let now_ms = chrono::Utc::now().timestamp_millis();
        let age = self.each(|route, labels| {
            let age = route.answered_ms().map(|at| seconds(now_ms - at));
            let series = age.map(|age| (without_service(&labels), age.max(0.0)));
            series.into_iter().collect()
        });
        writer.gauges(
            "bodylog_exporter_poll_age_seconds",
            "Age of the oldest last answer of the route.",
            age,
        )
    }

    /// The service of a route: from the cluster, else its own name.
    fn labels(&self, is_alone: bool, router: &str, route: &str) -> Labels<'static> {
        let service = self.view.and_then(|view| view.services.get(route));
        let service = service.map_or(route, |service| &**service);
        let mut labels: Labels<'static> = vec![
            ("service", service.to_owned().into()),
            ("route", route.to_owned().into()),
        ];
        if !is_alone {
            labels.push(("router", router.to_owned().into()));
        }
        labels
    }

    /// Refusals, from the committed counts, so that a router's restart does not reset them.
    fn refused(&self, writer: &mut Writer<'_, '_>) -> fmt::Result {
        let Self {
            polled,
            view,
            prefix,
        } = self;
        let refusals = view.map(|view| &view.refusals);
        let is_alone = polled.routers.len() <= 1;
        // Without the router as a label its counters are one sum, including those of a router that
        // was polled under another address before.
        let key = |router, route, reason| match is_alone {
            true => ("", route, reason),
            false => (router, route, reason),
        };
        let mut counts: BTreeMap<(&str, &str, &str), u64> = BTreeMap::new();
        for RouterPoll { router, routes, .. } in &polled.routers {
            for route in routes.keys() {
                for reason in REASONS {
                    counts.insert(key(&**router, &**route, reason), 0);
                }
            }
        }
        for (router, route, reason, total) in refusals.into_iter().flat_map(Refusals::totals) {
            *counts.entry(key(router, route, reason)).or_default() += total;
        }
        let series = counts.into_iter().map(|((router, route, reason), total)| {
            let mut labels = self.labels(is_alone, router, route);
            labels.push(("reason", reason.to_owned().into()));
            (labels, total)
        });
        writer.counters(
            &format!("{prefix}rejected"),
            "Requests refused, as the routers count.",
            series,
        )
    }
}

fn without_service(labels: &Labels<'static>) -> Labels<'static> {
    let labels = labels.iter().filter(|(name, _)| *name != "service");
    labels.cloned().collect()
}
