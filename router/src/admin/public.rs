//! `/<route>/_…` on the public port, and `/_…` for many routes together.

use std::net::IpAddr;

use http::request::Parts;

use super::access::{Caller, Denied, public_read, public_write};
use super::status::Endpoint;
use crate::state::RouteTable;
use router_config::valid::StatusAccess;

/// Whether a caller may use an endpoint of a route; unknown endpoints are always refused. `peer` is
/// the TCP peer. `has_key` is true when the caller's key opens the route, also for an open route
/// (false for a route that is not in force).
///
/// # Errors
/// The reason for the refusal; [`Denied::answer`] converts it to an answer.
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
        // A key opens its own route and reveals no other route.
        Some(endpoint) if class == StatusAccess::Key && endpoint.spans_routes(parts) => {
            public_read(StatusAccess::Loopback, caller, has_key)
        }
        // A caller without read access does not learn which endpoints exist.
        _ => public_read(class, caller, has_key),
    };
    allowed?;
    match endpoint {
        Some(_) => Ok(()),
        None => Err(Denied::Hidden),
    }
}

/// The routes that a caller sees at an endpoint of the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every route.
    All,
    /// The routes that the caller's key opens, open ones included.
    Opened,
}

/// Whether this caller may read many routes together. `has_key`: the caller's key opens at least
/// one route.
///
/// # Errors
/// The reason for the refusal.
pub fn admit_together(
    table: &RouteTable,
    parts: &Parts,
    peer: IpAddr,
    has_key: bool,
) -> Result<(), Denied> {
    public_read(table.server.status_access, Caller::of(peer, parts), has_key)
}

/// The scope of an admitted caller.
pub fn scope(table: &RouteTable) -> Scope {
    match table.server.status_access {
        StatusAccess::Key => Scope::Opened,
        StatusAccess::Off | StatusAccess::Loopback | StatusAccess::Open => Scope::All,
    }
}
