//! `fallback`: which route gets a request that its own route could not place.

use std::collections::VecDeque;
use std::sync::Arc;

use super::dispatch::is_forwarded;
use super::phase::Refused;
use crate::state::{Entry, Route, RouteTable};

/// Routes that one request may visit after its own.
const HOPS_MAX: usize = 4;

/// The routes that one request may still visit.
#[derive(Debug)]
pub(super) struct Fallbacks {
    visited: Vec<Arc<str>>,
    /// Nearest first.
    waiting: VecDeque<Arc<str>>,
}

impl Fallbacks {
    /// The fallbacks of a request's own route.
    pub(super) fn new(route: &Route) -> Self {
        Self {
            visited: vec![Arc::clone(&route.name)],
            waiting: route.options.fallback.value.0.iter().cloned().collect(),
        }
    }

    /// The next route for a refused request. A route is visited once, whatever loops the lists form;
    /// routes that do not forward the path, or do not serve the model, are left out. The fallbacks of
    /// a fallback come before the rest of the first list.
    pub(super) fn next<'t>(
        &mut self,
        table: &'t RouteTable,
        refused: &Refused,
    ) -> Option<&'t Arc<Route>> {
        let progress = &refused.progress;
        while self.visited.len() <= HOPS_MAX {
            let name = self.waiting.pop_front()?;
            let Some(route) = table.get(&name).and_then(Entry::route) else {
                continue;
            };
            let is_new = !self.visited.contains(&name);
            let path = progress.path();
            let takes_path = is_forwarded(path, &route.options.extra_paths.value);
            if !is_new || !takes_path || !serves(route, progress.model()) {
                continue;
            }
            self.visited.push(name);
            for further in route.options.fallback.value.0.iter().rev() {
                self.waiting.push_front(Arc::clone(further));
            }
            return Some(route);
        }
        None
    }
}

/// Whether a route has a pool for a model that clients ask for.
fn serves(route: &Route, model: Option<&str>) -> bool {
    let served = model.and_then(|model| route.served_for(model));
    route.pool(served.as_deref().or(model)).is_some()
}
