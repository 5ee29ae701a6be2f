//! The snapshot that every request starts with.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::owners::{OwnerBook, OwnerStates};
use super::{Route, RouteState};
use crate::content::Fields;
use crate::telemetry::metrics::{Metrics, RouteLabels};
use router_config::keys::KeyState;
use router_config::owners::Owners;
use router_config::report::Problem;
use router_config::valid::{self, Bodylog, Server};

/// One route of a table, or the reason why it is unusable.
#[derive(Clone, Debug)]
pub enum Entry {
    /// The route is in force.
    Ready {
        /// The route.
        route: Arc<Route>,
        /// Why a newer version of the file was refused. Empty if the version in force is the file
        /// on disk.
        stale: Arc<[Problem]>,
        /// Settings in the version in force that the router does not support.
        flaws: Arc<[Problem]>,
    },
    /// The file was invalid at start: the route answers 503 `route_invalid`.
    Invalid {
        /// The route's name, from the file's stem.
        name: Arc<str>,
        /// The file.
        path: PathBuf,
        /// The errors in the file.
        problems: Arc<[Problem]>,
    },
}

impl Entry {
    /// The route's name.
    pub fn name(&self) -> &Arc<str> {
        match self {
            Self::Ready { route, .. } => &route.name,
            Self::Invalid { name, .. } => name,
        }
    }

    /// The route, when it is in force.
    pub fn route(&self) -> Option<&Arc<Route>> {
        match self {
            Self::Ready { route, .. } => Some(route),
            Self::Invalid { .. } => None,
        }
    }
}

/// All settings for a request that a reload may change. A reload replaces the whole table.
#[derive(Debug)]
pub struct RouteTable {
    /// `server:`.
    pub server: Arc<Server>,
    /// The limits of owners; `None` when nobody is limited.
    pub owners: Option<OwnerBook>,
    /// `bodylog:`.
    pub bodylog: Arc<Bodylog>,
    /// The shared keys in force and their source.
    pub keys: Arc<KeyState>,
    /// By name, ascending.
    pub entries: Vec<Entry>,
    /// Errors outside of route files that keep the files on disk out of force: the main file, the
    /// directory of routes. Empty if the files are in force.
    pub problems: Arc<[Problem]>,
    /// The fields to read from a request body: the union over all routes.
    pub fields: Fields,
    by_name: HashMap<Arc<str>, usize>,
}

impl RouteTable {
    /// The route for the first segment of a path.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.by_name.get(name).map(|&i| &self.entries[i])
    }

    /// The route of an unprefixed path if nothing else decides: the only route in force, else the
    /// only file. If a route is in force, invalid files do not count.
    pub fn only_entry(&self) -> Option<&Entry> {
        let mut in_force = self.entries.iter().filter(|entry| entry.route().is_some());
        match (in_force.next(), in_force.next(), &*self.entries) {
            (Some(only), None, _) | (None, _, [only]) => Some(only),
            _ => None,
        }
    }

    /// The routes in force, by name.
    pub fn routes(&self) -> impl Iterator<Item = &Arc<Route>> {
        self.entries.iter().filter_map(Entry::route)
    }

    /// The largest body that any route accepts: the limit for a body that decides its own route.
    pub fn max_body_size(&self) -> u64 {
        self.routes()
            .map(|r| r.options.max_body_size.value)
            .max()
            .unwrap_or(self.server.max_body_size)
    }
}

impl RouteTable {
    fn labels(&self) -> Vec<RouteLabels> {
        let labels = |route: &Arc<Route>| RouteLabels {
            route: Arc::clone(&route.name),
            pools: route
                .spec()
                .pools
                .iter()
                .map(|pool| {
                    (
                        pool.model.clone(),
                        pool.peers.iter().map(|peer| peer.key.clone()).collect(),
                    )
                })
                .collect(),
            buckets: route
                .spec()
                .guard
                .priority
                .table
                .iter()
                .map(|bucket| bucket.min_turn)
                .collect(),
            fallbacks: route.options.fallback.value.0.iter().cloned().collect(),
            aliases: route
                .aliases
                .iter()
                .flat_map(|aliases| aliases.exact())
                .map(|(asked, served)| (asked.into(), served.into()))
                .collect(),
        };
        self.routes().map(labels).collect()
    }
}

/// Builds tables and owns the states that outlive them.
#[derive(Debug)]
pub struct TableBuilder {
    states: HashMap<Arc<str>, Arc<RouteState>>,
    metrics: Arc<Metrics>,
    limits: Arc<Owners>,
    owners: Arc<OwnerStates>,
}

impl TableBuilder {
    /// Limits owners from the next table on.
    pub fn limit_owners(&mut self, limits: &Arc<Owners>) {
        self.limits = Arc::clone(limits);
    }

    /// A builder without routes.
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            states: HashMap::new(),
            metrics,
            limits: Arc::default(),
            owners: Arc::default(),
        }
    }

    /// Attaches a valid route to the state of its name. Creates the state for a new name.
    pub fn attach(&mut self, route: valid::Route) -> Arc<Route> {
        let state = self.state(&route.name);
        Arc::new(Route::attach(route, state))
    }

    /// The state of a route's name, which is created for a new name.
    pub fn state(&mut self, name: &Arc<str>) -> Arc<RouteState> {
        let state = self.states.entry(Arc::clone(name));
        let fresh = || RouteState::new(Arc::clone(name), self.metrics.route(name));
        Arc::clone(state.or_insert_with(fresh))
    }

    /// Builds a table of these entries. The state of a removed route is dropped with its last
    /// request.
    pub fn build(
        &mut self,
        server: Arc<Server>,
        bodylog: Arc<Bodylog>,
        keys: Arc<KeyState>,
        mut entries: Vec<Entry>,
        problems: Arc<[Problem]>,
    ) -> RouteTable {
        entries.sort_by(|a, b| a.name().cmp(b.name()));
        let by_name: HashMap<_, _> = entries
            .iter()
            .enumerate()
            .map(|(i, e)| (Arc::clone(e.name()), i))
            .collect();
        self.states.retain(|name, _| by_name.contains_key(name));
        let fields = Fields::new(
            entries
                .iter()
                .filter_map(Entry::route)
                .flat_map(|route| route.body_fields()),
        );
        let table = RouteTable {
            server,
            owners: OwnerBook::new(&self.limits, &self.owners),
            bodylog,
            keys,
            entries,
            problems,
            fields,
            by_name,
        };
        self.metrics.sync(&table.labels());
        table
    }
}
