//! `bodylog_service_*` and `bodylog_route_resolver_*`: what the cluster reports. Absent without a
//! cluster.

use std::fmt;

use super::encode::{Labels, Writer};
use crate::resolver::{Replicas, Resolver};

/// `pods` is the number of addresses that belong to a route.
pub(super) fn write(writer: &mut Writer<'_, '_>, resolver: &Resolver, pods: usize) -> fmt::Result {
    type Get = fn(&Replicas) -> Option<u64>;
    let families: [(&str, &str, Get); 3] = [
        (
            "bodylog_service_replicas",
            "Endpoints of the service.",
            |replicas| Some(replicas.endpoints),
        ),
        (
            "bodylog_service_replicas_ready",
            "Endpoints of the service that are ready.",
            |replicas| Some(replicas.ready),
        ),
        (
            "bodylog_service_replicas_desired",
            "Replicas that the topmost owner of the service's pods wants.",
            |replicas| replicas.desired,
        ),
    ];
    for (name, help, get) in families {
        let series = resolver.services.iter().filter_map(|replicas| {
            let labels: Labels<'_> = vec![
                ("service", (&*replicas.service).into()),
                ("route", (&*replicas.route).into()),
            ];
            Some((labels, get(replicas)? as f64))
        });
        writer.gauges(name, help, series)?;
    }
    writer.gauge(
        "bodylog_route_resolver_up",
        "1 while the cluster's API server answers for every route.",
        f64::from(u8::from(resolver.health.is_up())),
    )?;
    writer.gauge(
        "bodylog_route_resolver_pods",
        "Addresses that map to a route, those that went within 15 minutes included.",
        pods as f64,
    )?;
    writer.gauge(
        "bodylog_route_resolver_routes",
        "Routes that routers can be asked about.",
        resolver.routes.len() as f64,
    )?;
    writer.counter(
        "bodylog_route_resolver_errors",
        "Answers of the cluster's API server that were not as they should be, since the start.",
        resolver.health.errors(),
    )
}
