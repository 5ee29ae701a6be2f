//! Metric families. [`Metrics`] holds the counters; [`Page`] renders the page for scrapers.
//!
//! Series start at zero when a route or a peer is configured, and disappear together with it.

mod backends;
mod bodylog;
mod catalogue;
mod encode;
mod gates;
mod live;
mod page;
mod placement;
mod process;
mod refusals;
mod route;
mod tokens;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::RwLock;
use router_core::load::Report;
use router_core::pool::PeerKey;

pub use backends::Backends;
pub use live::Live;
pub use page::Page;
pub use placement::{Reason, WaitTimer};
pub use refusals::{Gate, Unplaced};
pub use route::RouteMetrics;

/// The route label of requests without a route: unknown paths, and keys that were refused before
/// the body selected a route.
pub const UNROUTED: &str = "-";

/// The labels for which a route must have series.
#[derive(Clone, Debug)]
pub struct RouteLabels {
    /// The route.
    pub route: Arc<str>,
    /// The route's pools: the `peers_by_model` key, or `None`, and the peers.
    pub pools: Vec<(Option<Arc<str>>, Vec<PeerKey>)>,
    /// The first turns of the route's `session_prio` buckets.
    pub buckets: Vec<u32>,
    /// The routes in `fallback`.
    pub fallbacks: Vec<Arc<str>>,
    /// The exact aliases, each with the model that is served.
    pub aliases: Vec<(Arc<str>, Arc<str>)>,
}

/// All counters. One per process.
#[derive(Debug)]
pub struct Metrics {
    routes: RwLock<BTreeMap<Arc<str>, Arc<RouteMetrics>>>,
    unrouted: Arc<RouteMetrics>,
    reload: ReloadTally,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            routes: RwLock::default(),
            unrouted: Arc::new(RouteMetrics::new(UNROUTED.into())),
            reload: ReloadTally::default(),
        }
    }
}

impl Metrics {
    /// The counters of a route, created at the first call. Look it up once per snapshot, not per
    /// request.
    pub fn route(&self, route: &Arc<str>) -> Arc<RouteMetrics> {
        if let Some(known) = self.routes.read().get(route) {
            return Arc::clone(known);
        }
        let mut routes = self.routes.write();
        let slot = routes.entry(Arc::clone(route));
        Arc::clone(slot.or_insert_with(|| Arc::new(RouteMetrics::new(Arc::clone(route)))))
    }

    /// The counters of requests without a route.
    pub fn unrouted(&self) -> &Arc<RouteMetrics> {
        &self.unrouted
    }

    /// Counts a ban of a configured peer. A removed route does not get its series back.
    pub(super) fn banned(&self, route: &str, peer: &str) {
        if let Some(known) = self.routes.read().get(route) {
            known.banned(peer);
        }
    }

    /// Counts an ejection of a configured peer. A removed route does not get its series back.
    pub(super) fn ejected(&self, route: &str, peer: &str) {
        if let Some(known) = self.routes.read().get(route) {
            known.ejected(peer);
        }
    }

    /// Counts a poll of a configured peer. A removed route does not get its series back.
    pub(super) fn polled(&self, route: &str, peer: &str, report: Report) {
        if let Some(known) = self.routes.read().get(route) {
            known.polled(peer, report);
        }
    }

    /// Adapts the series to the configured routes: new ones start at zero, those of removed routes
    /// and peers disappear. A request that still runs on a removed route keeps its own handle; its
    /// counts are lost.
    pub fn sync(&self, configured: &[RouteLabels]) {
        for labels in configured {
            self.route(&labels.route).sync(labels);
        }
        self.routes
            .write()
            .retain(|name, _| configured.iter().any(|labels| labels.route == *name));
    }

    /// The counters of reloads.
    pub fn reload(&self) -> &ReloadTally {
        &self.reload
    }

    /// Every set of route counters, by name; the unrouted one first.
    fn every_route(&self) -> Vec<Arc<RouteMetrics>> {
        let routes = self.routes.read();
        std::iter::once(&self.unrouted)
            .chain(routes.values())
            .cloned()
            .collect()
    }
}

/// The results of configuration reloads. The load at the start counts as the first.
#[derive(Debug, Default)]
pub struct ReloadTally {
    last_success: AtomicBool,
    last_success_unix_ms: AtomicU64,
    applied: AtomicU64,
    refused: AtomicU64,
}

impl ReloadTally {
    /// Records a load whose files were all valid.
    pub fn applied(&self, wall_unix_ms: u64) {
        self.last_success_unix_ms
            .store(wall_unix_ms, Ordering::Relaxed);
        self.last_success.store(true, Ordering::Relaxed);
        self.applied.fetch_add(1, Ordering::Relaxed);
    }

    /// Records a load that left an old version of some file in force.
    pub fn refused(&self) {
        self.last_success.store(false, Ordering::Relaxed);
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether all files were valid in the last load.
    pub fn is_last_success(&self) -> bool {
        self.last_success.load(Ordering::Relaxed)
    }

    /// Time of the last load with only valid files, milliseconds since the Unix epoch; 0 before the
    /// first.
    pub fn last_success_unix_ms(&self) -> u64 {
        self.last_success_unix_ms.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
impl Metrics {
    /// The counters as 0.0.4 text, without the process's own numbers.
    pub(crate) fn text(self: &Arc<Self>) -> String {
        let mut registry = prometheus_client::registry::Registry::default();
        registry.register_collector(Box::new(encode::Counted(Arc::clone(self))));
        let mut page = String::new();
        prometheus_client::encoding::prometheus_text::encode(&mut page, &registry)
            .expect("writing to a String cannot fail");
        page
    }
}

#[cfg(test)]
mod tests;
