//! `/<route>/_…` and, of many routes together, `/_…` on the public port.

use std::net::IpAddr;

use http::request::Parts;

use super::access::{Caller, Denied, public_read, public_write};
use super::status::Endpoint;
use crate::state::RouteTable;
use router_config::valid::StatusAccess;

/// Whether a caller may use an endpoint of a route; nobody may use one that does not exist. `peer` is
/// the TCP peer; `has_key` says whether the caller's key opens the route, open routes included
/// (false for a route that is not in force).
///
/// # Errors
/// Why not; [`Denied::answer`] says it.
pub fn admit(
    table: &RouteTable,
    endpoint: Option<Endpoint>,
    parts: &Parts,
    peer: IpAddr,
    has_key: bool,
) -> Result<(), Denied> {
    let class = table.server.status_access;
    let caller = Caller::of(peer, parts);
    let allowed = match endpoint {
        Some(endpoint) if endpoint.writes(&parts.method) => public_write(class, caller),
        // A key opens its own route and shows no other.
        Some(endpoint) if class == StatusAccess::Key && endpoint.spans_routes(parts) => {
            public_read(StatusAccess::Loopback, caller, has_key)
        }
        // A caller that may not read does not learn which endpoints there are.
        _ => public_read(class, caller, has_key),
    };
    allowed?;
    match endpoint {
        Some(_) => Ok(()),
        None => Err(Denied::Hidden),
    }
}

/// What a caller sees of an endpoint at the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every route.
    All,
    /// The routes that its key opens, open ones included.
    Opened,
}

/// Whether this caller may look at routes together. `has_key`: the caller's key opens at least one.
///
/// # Errors
/// Why none.
pub fn admit_together(
    table: &RouteTable,
    parts: &Parts,
    peer: IpAddr,
    has_key: bool,
) -> Result<(), Denied> {
    public_read(table.server.status_access, Caller::of(peer, parts), has_key)
}

/// What a caller that was admitted sees.
pub fn scope(table: &RouteTable) -> Scope {
    match table.server.status_access {
        StatusAccess::Key => Scope::Opened,
        StatusAccess::Off | StatusAccess::Loopback | StatusAccess::Open => Scope::All,
    }
}
