//! `bodylog_service_*` and `bodylog_route_resolver_*`: what the cluster reports. Absent without a
//! cluster.

use std::fmt;

use service::families::Family;

use super::catalogue::cluster;
use super::encode::Writer;
use crate::resolver::{Replicas, Resolver};

/// `pods` is the number of addresses that belong to a route.
pub(super) fn write(writer: &mut Writer<'_, '_>, resolver: &Resolver, pods: usize) -> fmt::Result {
    type Get = fn(&Replicas) -> Option<u64>;
    let families: [(&Family<2>, Get); 3] = [
        (&cluster::SERVICE_REPLICAS, |replicas| {
            Some(replicas.endpoints)
        }),
        (&cluster::SERVICE_REPLICAS_READY, |replicas| {
            Some(replicas.ready)
        }),
        (&cluster::SERVICE_REPLICAS_DESIRED, |replicas| {
            replicas.desired
        }),
    ];
    for (family, get) in families {
        let series = resolver.services.iter().filter_map(|replicas| {
            let labels = [(&*replicas.service).into(), (&*replicas.route).into()];
            Some((labels, get(replicas)? as f64))
        });
        writer.gauges(family, series)?;
    }
    writer.gauge(
        &cluster::ROUTE_RESOLVER_UP,
        f64::from(u8::from(resolver.health.is_up())),
    )?;
    writer.gauge(&cluster::ROUTE_RESOLVER_PODS, pods as f64)?;
    writer.gauge(
        &cluster::ROUTE_RESOLVER_ROUTES,
        resolver.routes.len() as f64,
    )?;
    writer.counter(&cluster::ROUTE_RESOLVER_ERRORS, resolver.health.errors())
}
