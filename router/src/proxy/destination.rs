//! Decides where a request on the public port goes, and which callers may go there.
//!
//! Every destination has exactly one policy. The handler runs only after the policy has passed.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http::request::Parts;

use super::dispatch::{PublicPath, dispatch, is_forwarded, leading_slashes};
use super::error::ApiError;
use super::guard::{self, Admitted};
use super::lookup::sole_route;
use crate::admin::status::{Endpoint, Together};
use crate::admin::{access, public};
use crate::state::{Entry, Route, RouteTable};

/// Where a request goes.
#[derive(Debug)]
pub(super) enum Destination<'t> {
    /// `/health`.
    Health,
    /// `/ready`.
    Ready,
    /// `/proxy/metrics`.
    ProxyMetrics,
    /// `/finish_session`: on every route that the key opens.
    FinishSessions,
    /// `/<route>/finish_session`.
    FinishSession(&'t Arc<Route>),
    /// `/<route>/_<name>`; `None` for an unknown name.
    Status {
        /// First segment of the path.
        route: &'t str,
        /// The status endpoint.
        endpoint: Option<Endpoint>,
    },
    /// `/_decisions` or `/_sessions`.
    Together(Together),
    /// A peer of this route.
    Serve {
        /// The route.
        route: &'t Arc<Route>,
        /// Length of the route prefix.
        path_at: usize,
    },
    /// `/v1/…` with several routes: the model in the body decides.
    ByModel,
    /// No route has this path.
    Nowhere,
    /// The path is refused, whatever routes exist.
    BadPath(ApiError),
    /// A route is not in force, or there is no route at all.
    Unserved(ApiError),
}

/// Which callers may reach a destination.
#[derive(Debug)]
pub(super) enum Policy<'t> {
    /// Any caller.
    Open,
    /// If any key is configured: callers with any of the keys. An open route next to keyed ones
    /// does not open this destination.
    AnyKey,
    /// Callers whose key opens at least one route.
    AnyRoute,
    /// Callers whose key opens this route.
    Route(&'t Arc<Route>),
    /// Callers that `status_access` allows to see this endpoint of this route.
    Status(&'t str, Option<Endpoint>),
    /// Callers that `status_access` allows to see several routes together.
    StatusTogether,
}

/// Why a caller is refused.
#[derive(Debug)]
pub(super) enum Denied {
    /// An error of the API.
    Api(ApiError),
    /// An answer of the status endpoints.
    Status(Response<Bytes>),
}

impl<'t> Destination<'t> {
    /// Maps a raw path to its destination.
    pub(super) fn of(table: &'t RouteTable, path: &'t str) -> Self {
        let path_kind = match dispatch(path) {
            Ok(kind) => kind,
            Err(bad) => return Self::BadPath(ApiError::bad_request("bad_path", bad.message())),
        };
        match path_kind {
            PublicPath::Health => Self::Health,
            PublicPath::Ready => Self::Ready,
            PublicPath::ProxyMetrics => Self::ProxyMetrics,
            PublicPath::Together(what) => Self::Together(what),
            PublicPath::Status { route, name } => Self::Status {
                route,
                endpoint: Endpoint::of(name),
            },
            PublicPath::FinishSession { route: None } => Self::FinishSessions,
            PublicPath::FinishSession { route: Some(name) } => match table.get(name) {
                Some(Entry::Ready { route, .. }) => Self::FinishSession(route),
                Some(Entry::Invalid { name, .. }) => Self::Unserved(ApiError::route_invalid(name)),
                None => Self::below_no_route(table, path),
            },
            PublicPath::Nowhere => Self::below_no_route(table, path),
            PublicPath::Unprefixed { path: rest } => {
                Self::unprefixed(table, path.len() - rest.len())
            }
            PublicPath::Route { route, path: rest } => {
                Self::below_route(table, path, route, path.len() - rest.len())
            }
        }
    }

    fn below_route(table: &'t RouteTable, path: &'t str, name: &str, path_at: usize) -> Self {
        match table.get(name) {
            Some(Entry::Ready { route, .. })
                if is_forwarded(&path[path_at..], &route.options.extra_paths.value) =>
            {
                Self::Serve { route, path_at }
            }
            Some(Entry::Ready { .. }) => {
                let message = "no such path on this route";
                Self::Unserved(ApiError::route_not_found(message, None))
            }
            Some(Entry::Invalid { name, .. }) => Self::Unserved(ApiError::route_invalid(name)),
            None => Self::below_no_route(table, path),
        }
    }

    /// Resolves `/v1/…`: the default route, else the only route, else the route of the body's
    /// model.
    fn unprefixed(table: &'t RouteTable, path_at: usize) -> Self {
        let entry = match &table.server.default_route {
            Some(name) => table.get(name),
            None => match table.only_entry() {
                Some(only) => Some(only),
                None => return Self::ByModel,
            },
        };
        match entry {
            Some(Entry::Ready { route, .. }) => Self::Serve { route, path_at },
            Some(Entry::Invalid { name, .. }) => Self::Unserved(ApiError::route_invalid(name)),
            None => {
                let message = "the default route does not exist";
                Self::Unserved(ApiError::route_not_found(message, None))
            }
        }
    }

    /// Resolves a path under no route: an engine-native path of the route that unprefixed paths
    /// belong to.
    fn below_no_route(table: &'t RouteTable, path: &'t str) -> Self {
        let path_at = leading_slashes(path);
        let rest = &path[path_at..];
        match sole_route(table) {
            Some(route)
                if !rest.starts_with("/v1/")
                    && is_forwarded(rest, &route.options.extra_paths.value) =>
            {
                Self::Serve { route, path_at }
            }
            _ => Self::Nowhere,
        }
    }

    /// Whether a draining router refuses requests here.
    pub(super) fn takes_new_work(&self) -> bool {
        matches!(self, Self::Serve { .. } | Self::ByModel)
    }

    /// The policy of this destination.
    pub(super) fn policy(&self) -> Policy<'t> {
        match self {
            Self::Health | Self::Ready | Self::BadPath(_) => Policy::Open,
            // For a caller without a key, every name must look like a route with keys.
            Self::Nowhere | Self::Unserved(_) | Self::ProxyMetrics => Policy::AnyKey,
            Self::FinishSessions | Self::ByModel => Policy::AnyRoute,
            Self::FinishSession(route) | Self::Serve { route, .. } => Policy::Route(route),
            Self::Status { route, endpoint } => Policy::Status(route, *endpoint),
            Self::Together(_) => Policy::StatusTogether,
        }
    }
}

impl Policy<'_> {
    /// Checks whether the caller of a request may pass. `peer` is the remote address of the
    /// connection.
    ///
    /// # Errors
    /// The reason for the refusal.
    pub(super) fn admit(
        &self,
        table: &RouteTable,
        parts: &Parts,
        peer: IpAddr,
    ) -> Result<Admitted, Box<Denied>> {
        let headers = &parts.headers;
        let api = |error| Box::new(Denied::Api(error));
        let status = |denied: access::Denied| Box::new(Denied::Status(denied.answer()));
        match self {
            Self::Open => Ok(Admitted::unknown()),
            Self::AnyKey => guard::admit_holder(table, headers).map_err(api),
            Self::AnyRoute => guard::admit_any(table, headers).map_err(api),
            Self::Route(route) => guard::admit(table, route, headers).map_err(api),
            Self::Status(route, endpoint) => {
                let route = table.get(route).and_then(Entry::route);
                let has_key = route.is_some_and(|it| guard::admit(table, it, headers).is_ok());
                public::admit(table, *endpoint, parts, peer, has_key).map_err(status)?;
                Ok(Admitted::unknown())
            }
            Self::StatusTogether => {
                let has_key = !guard::opened(table, headers).is_empty();
                public::admit_together(table, parts, peer, has_key).map_err(status)?;
                Ok(Admitted::unknown())
            }
        }
    }
}
