//! Finds the route of an unprefixed path.

use std::sync::Arc;

use super::error::ApiError;
use crate::state::{Route, RouteTable};

/// The names of all routes, ascending.
pub(super) fn names(table: &RouteTable) -> Vec<&str> {
    table.entries.iter().map(|entry| &**entry.name()).collect()
}

/// The route of an unprefixed path, without reading the body.
pub(super) fn sole_route(table: &RouteTable) -> Option<&Arc<Route>> {
    match &table.server.default_route {
        Some(name) => table.get(name)?.route(),
        None => table.only_entry()?.route(),
    }
}

/// The route that serves a model, by its own name or by an alias: first by configuration, then by
/// the model lists of the peers, then by an alias alone.
pub(super) fn route_of_model<'t>(
    table: &'t RouteTable,
    model: Option<&str>,
) -> Result<&'t Arc<Route>, ApiError> {
    let Some(model) = model else {
        let message = "several routes exist and the body names no model; use /<route>/v1/…";
        return Err(ApiError::route_not_found(message, Some(names(table))));
    };
    let configured = table.routes().find(|route| {
        let served = route.served_for(model);
        let served = served.as_deref().unwrap_or(model);
        route.models().any(|known| known == served)
    });
    let learned = || {
        table.routes().find(|route| {
            let served = route.served_for(model);
            route.serves(served.as_deref().unwrap_or(model))
        })
    };
    let aliased = || {
        table
            .routes()
            .find(|route| route.served_for(model).is_some())
    };
    configured
        .or_else(learned)
        .or_else(aliased)
        .ok_or_else(|| ApiError::model_not_found(model).listing(names(table)))
}
