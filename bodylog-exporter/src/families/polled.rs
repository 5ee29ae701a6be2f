//! `openresty_*`: what routers report about themselves. The names are llm-openresty's, so that its
//! dashboards keep working; the prefix can be changed.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::encoding::EncodeMetric;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use service::families::Family;

use super::catalogue::{POLL_PREFIX, own, polled as families};
use super::encode::Writer;
use super::own::seconds;
use crate::aggregate::{Refusals, View};
use crate::poll::{ENDPOINTS, Limiter, PeerState, Polled, RoutePoll, RouteState, RouterPoll};

/// Reasons for which every polled route has a counter, at zero from the start.
const REASONS: [&str; 3] = ["concurrency", "ttft", "tps"];

/// Labels of one series: those of its family, and `router` where several are polled.
type Labels = Vec<(&'static str, Cow<'static, str>)>;

/// Where a reading comes from.
#[derive(Clone, Copy, Debug)]
struct Place<'p> {
    service: &'p str,
    route: &'p str,
    /// Only if several routers are polled: with one, the series are those of llm-openresty.
    router: Option<&'p str>,
}

impl Place<'_> {
    /// The labels of `family`; `more` are the values of those besides `service` and `route`.
    fn labels<const N: usize>(
        self,
        family: &Family<N>,
        more: impl IntoIterator<Item = Cow<'static, str>>,
    ) -> Labels {
        let mut more = more.into_iter();
        let mut labels = Labels::with_capacity(N + 1);
        for name in family.labels {
            let value = match name {
                "service" => self.service.to_owned().into(),
                "route" => self.route.to_owned().into(),
                _ => more.next().unwrap_or_default(),
            };
            labels.push((name, value));
            if let ("route", Some(router)) = (name, self.router) {
                labels.push(("router", router.to_owned().into()));
            }
        }
        labels
    }
}

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
    /// What `get` finds in each route of each router.
    fn each<T>(&self, get: impl Fn(&RoutePoll, Place<'_>) -> Vec<T>) -> Vec<T> {
        let mut found = Vec::new();
        for RouterPoll { router, routes, .. } in &self.polled.routers {
            for (name, route) in routes {
                found.extend(get(route, self.place(router, name)));
            }
        }
        found
    }

    /// The service of a route is the cluster's, else the route's own name.
    fn place<'p>(&'p self, router: &'p str, route: &'p str) -> Place<'p> {
        let service = self.view.and_then(|view| view.services.get(route));
        Place {
            service: service.map_or(route, |service| &**service),
            route,
            router: (self.polled.routers.len() > 1).then_some(router),
        }
    }

    /// Writes a family; `--poll-prefix` replaces the beginning of a polled family's name.
    fn family<const N: usize, M: EncodeMetric>(
        &self,
        writer: &mut Writer<'_, '_>,
        family: &Family<N>,
        suffix: &str,
        series: impl IntoIterator<Item = (Labels, M)>,
    ) -> fmt::Result {
        let name = match family.name.strip_prefix(POLL_PREFIX) {
            Some(name) => Cow::Owned(format!("{}{name}", self.prefix)),
            None => Cow::Borrowed(family.name),
        };
        writer.family(&name, suffix, family.help, series)
    }

    /// Writes a family of gauges: `get` returns the values of a route, each with its further labels.
    fn gauges<const N: usize, L: IntoIterator<Item = Cow<'static, str>>>(
        &self,
        writer: &mut Writer<'_, '_>,
        family: &Family<N>,
        get: impl Fn(&RoutePoll) -> Vec<(L, f64)>,
    ) -> fmt::Result {
        let series = self.each(|route, place| {
            let values = get(route).into_iter();
            values
                .map(|(more, value)| (place.labels(family, more), ConstGauge::new(value)))
                .collect()
        });
        self.family(writer, family, "", series)
    }

    fn routes(&self, writer: &mut Writer<'_, '_>) -> fmt::Result {
        type Get = fn(&RouteState) -> Option<f64>;
        let of_routes: [(&Family<2>, Get); 3] = [
            (&families::ROUTE_ACTIVE_LEVEL, |state| state.active_level),
            (&families::ROUTE_ACTIVE_LIMIT, |state| state.limit),
            (&families::ROUTE_HEALTHY_PEERS, |state| {
                state.healthy_peers_in_level
            }),
        ];
        for (family, get) in of_routes {
            self.gauges(writer, family, |route| {
                let value = route.state.value.as_ref().and_then(get);
                value.map(|value| ([], value)).into_iter().collect()
            })?;
        }
        Ok(())
    }

    fn peers(&self, writer: &mut Writer<'_, '_>) -> fmt::Result {
        type Get = fn(&PeerState) -> Option<f64>;
        let of_peers: [(&Family<5>, Get); 3] = [
            (&families::PEER_ACTIVE_CONNS, |peer| peer.active),
            (&families::PEER_BANNED, |peer| peer.banned),
            (&families::PEER_MAX_CONCURRENCY, |peer| peer.max),
        ];
        for (family, get) in of_peers {
            self.gauges(writer, family, |route| {
                let peers = route.state.value.iter().flat_map(RouteState::peers);
                let series = peers.filter_map(|peer| {
                    let value = get(&peer)?;
                    Some((
                        [peer.peer.into(), peer.name.into(), peer.priority.into()],
                        value,
                    ))
                });
                series.collect()
            })?;
        }
        Ok(())
    }

    fn limiters(&self, writer: &mut Writer<'_, '_>) -> fmt::Result {
        let active = |limiter: &Option<Limiter>| {
            let active = limiter.as_ref().and_then(|limiter| limiter.active);
            let value = active.map(|active| ([], f64::from(u8::from(active))));
            value.into_iter().collect()
        };
        self.gauges(writer, &families::TPS_LIMITER_ACTIVE, |route| {
            active(&route.tps.value)
        })?;
        self.gauges(writer, &families::TTFT_LIMITER_ACTIVE, |route| {
            active(&route.ttft.value)
        })?;
        type Get = fn(&Limiter) -> &BTreeMap<String, f64>;
        let by_model = |limiter: &Option<Limiter>, get: Get| {
            let numbers = limiter.as_ref().map(get).into_iter().flatten();
            let numbers = numbers.map(|(model, value)| ([model.clone().into()], *value));
            numbers.collect()
        };
        self.gauges(writer, &families::TTFT_EWMA_MS, |route| {
            by_model(&route.ttft.value, |limiter| &limiter.ewma_ms)
        })?;
        let of_rates: [(&Family<3>, Get); 6] = [
            (&families::TPS_EWMA, |limiter| &limiter.ewma_tps),
            (&families::ADAPTIVE_CC, |limiter| &limiter.adaptive_cc),
            (&families::ADAPTIVE_CC_MIN, |limiter| {
                &limiter.adaptive_cc_min
            }),
            (&families::ADAPTIVE_CC_MAX, |limiter| {
                &limiter.adaptive_cc_max
            }),
            (&families::ADAPTIVE_CC_CONC, |limiter| {
                &limiter.adaptive_cc_conc
            }),
            (&families::ADAPTIVE_CC_REJ, |limiter| {
                &limiter.adaptive_cc_rej
            }),
        ];
        for (family, get) in of_rates {
            self.gauges(writer, family, |route| by_model(&route.tps.value, get))?;
        }
        Ok(())
    }

    fn gauge(&self, writer: &mut Writer<'_, '_>, family: &Family<0>, value: f64) -> fmt::Result {
        self.family(
            writer,
            family,
            "",
            [(Labels::new(), ConstGauge::new(value))],
        )
    }

    fn calls(&self, writer: &mut Writer<'_, '_>) -> fmt::Result {
        let polled = self.polled;
        let is_up = f64::from(u8::from(polled.is_up == Some(true)));
        self.gauge(writer, &families::POLL_UP, is_up)?;
        if let Some(at) = polled.last_success_ms {
            self.gauge(writer, &families::POLL_LAST_SUCCESS_SECONDS, seconds(at))?;
        }
        let errors = ConstCounter::new(polled.errors);
        self.family(
            writer,
            &families::POLL_ERRORS,
            "_total",
            [(Labels::new(), errors)],
        )?;
        self.gauges(writer, &own::POLL_UP, |route| {
            let calls = ENDPOINTS.into_iter().zip(route.up());
            calls
                .map(|(endpoint, is_up)| ([endpoint.into()], f64::from(u8::from(is_up))))
                .collect()
        })?;
        let now_ms = chrono::Utc::now().timestamp_millis();
        self.gauges(writer, &own::POLL_AGE_SECONDS, |route| {
            let age = route.answered_ms().map(|at| seconds(now_ms - at));
            age.map(|age| ([], age.max(0.0))).into_iter().collect()
        })
    }

    /// Refusals, from the committed counts, so that a router's restart does not reset them.
    fn refused(&self, writer: &mut Writer<'_, '_>) -> fmt::Result {
        let Self { polled, view, .. } = self;
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
            let place = self.place(router, route);
            let labels = place.labels(&families::REJECTED, [reason.to_owned().into()]);
            (labels, ConstCounter::new(total))
        });
        self.family(writer, &families::REJECTED, "_total", series)
    }
}
