//! The key check, before any of the body is read.

use std::sync::Arc;

use http::HeaderMap;

use super::error::ApiError;
use crate::state::{Route, RouteKeys, RouteTable};
use router_config::keys::{Access, presented};

/// A caller that may use a route.
#[derive(Clone, Debug)]
pub(super) struct Admitted {
    /// Owner of the key; `None` on an open route.
    pub owner: Option<Arc<str>>,
}

impl Admitted {
    /// A caller whose key is not checked.
    pub(super) fn unknown() -> Self {
        Self { owner: None }
    }
}

/// Checks the caller's key against a route.
///
/// # Errors
/// 401; a missing and a wrong key look the same.
pub(super) fn admit(
    table: &RouteTable,
    route: &Route,
    headers: &HeaderMap,
) -> Result<Admitted, ApiError> {
    let key = presented(headers);
    let access = match &route.keys {
        RouteKeys::Shared => table.keys.access(key),
        RouteKeys::Own(keys) if keys.is_empty() => Access::Open,
        RouteKeys::Own(keys) => key
            .and_then(|key| keys.owner(key))
            .map_or(Access::Denied, Access::Granted),
    };
    match access {
        Access::Open => Ok(Admitted { owner: None }),
        Access::Granted(owner) => Ok(Admitted { owner: Some(owner) }),
        Access::Denied => Err(ApiError::invalid_api_key()),
    }
}

/// If any key is configured, checks that the caller holds one of them. An open route next to keyed
/// ones does not admit the caller here.
///
/// # Errors
/// 401 if the key is neither in the shared file nor on any route.
pub(super) fn admit_holder(table: &RouteTable, headers: &HeaderMap) -> Result<Admitted, ApiError> {
    let demands = |access: &Access| matches!(access, Access::Denied);
    let has_own = |route: &Route| matches!(&route.keys, RouteKeys::Own(keys) if !keys.is_empty());
    let keys_exist =
        demands(&table.keys.access(None)) || table.routes().any(|route| has_own(route));
    let is_holder = || {
        matches!(table.keys.access(presented(headers)), Access::Granted(_))
            || table
                .routes()
                .filter_map(|route| admit(table, route, headers).ok())
                .any(|admitted| admitted.owner.is_some())
    };
    if !keys_exist || is_holder() {
        return Ok(Admitted::unknown());
    }
    Err(ApiError::invalid_api_key())
}

/// The routes that the caller's key opens, open ones included.
pub(super) fn opened<'t>(table: &'t RouteTable, headers: &HeaderMap) -> Vec<&'t Arc<Route>> {
    table
        .routes()
        .filter(|route| admit(table, route, headers).is_ok())
        .collect()
}

/// Checks the caller's key against every route. Where the body decides the route, the key must open
/// at least one of them before the body is read.
///
/// # Errors
/// 401 when no route is open to this caller.
pub(super) fn admit_any(table: &RouteTable, headers: &HeaderMap) -> Result<Admitted, ApiError> {
    let mut routes = table.routes().peekable();
    if routes.peek().is_none() {
        return match table.keys.access(presented(headers)) {
            Access::Denied => Err(ApiError::invalid_api_key()),
            Access::Open | Access::Granted(_) => Ok(Admitted::unknown()),
        };
    }
    if routes.any(|route| admit(table, route, headers).is_ok()) {
        return Ok(Admitted::unknown());
    }
    Err(ApiError::invalid_api_key())
}
