//! Where a request on the public port goes, and who may go there.
//!
//! Every destination names its one policy; the handler runs only after the policy has passed.

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
    /// `/<route>/_<name>`; `None` for a name that means nothing.
    Status {
        /// First segment.
        route: &'t str,
        /// What is asked.
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
    /// `/v1/…` where several routes exist: the body's model decides.
    ByModel,
    /// No route has this path.
    Nowhere,
    /// The path means the same whatever routes there are, and is refused.
    BadPath(ApiError),
    /// A route, or the lack of one, is why nothing is served.
    Unserved(ApiError),
}

/// Who may reach a destination.
#[derive(Debug)]
pub(super) enum Policy<'t> {
    /// Anybody.
    Open,
    /// Callers with any key, where any key exists: an open route beside it opens nothing here.
    AnyKey,
    /// Callers whose key opens at least one route.
    AnyRoute,
    /// Callers whose key opens this route.
    Route(&'t Arc<Route>),
    /// Callers that `status_access` lets see this endpoint of this route.
    Status(&'t str, Option<Endpoint>),
    /// Callers that `status_access` lets see routes together.
    StatusTogether,
}

/// Why a caller is turned away.
#[derive(Debug)]
pub(super) enum Denied {
    /// An error of the API.
    Api(ApiError),
    /// An answer of the status endpoints.
    Status(Response<Bytes>),
}

impl<'t> Destination<'t> {
    /// Where a raw path leads.
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

    /// `/v1/…`: the default route, else the only route, else the route of the body's model.
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

    /// A path under no route: an engine-native path of the one route that unprefixed paths mean.
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

    /// Whether a router that drains turns requests away here.
    pub(super) fn takes_new_work(&self) -> bool {
        matches!(self, Self::Serve { .. } | Self::ByModel)
    }

    /// Who may reach it.
    pub(super) fn policy(&self) -> Policy<'t> {
        match self {
            Self::Health | Self::Ready | Self::BadPath(_) => Policy::Open,
            // To a caller without a key every name looks like that of a route with keys.
            Self::Nowhere | Self::Unserved(_) | Self::ProxyMetrics => Policy::AnyKey,
            Self::FinishSessions | Self::ByModel => Policy::AnyRoute,
            Self::FinishSession(route) | Self::Serve { route, .. } => Policy::Route(route),
            Self::Status { route, endpoint } => Policy::Status(route, *endpoint),
            Self::Together(_) => Policy::StatusTogether,
        }
    }
}

impl Policy<'_> {
    /// Whether the caller of a request may pass. `peer` is the address of the connection.
    ///
    /// # Errors
    /// Why not.
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
