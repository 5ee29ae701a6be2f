//! `/<route>/_…` and, of many routes together, `/_…` on the public port.

use std::net::IpAddr;

use http::request::Parts;

use super::access::{Caller, Denied, public_read, public_write};
use super::status::Endpoint;
use crate::state::RouteTable;
use router_config::valid::StatusAccess;

/// The endpoint of a status path, when this caller may use it. `peer` is the TCP peer; `has_key`
/// says whether the caller's key opens the route, open routes included (false for a route that is
/// not in force). Answer a pass with [`status::answer`](super::status::answer), after reading the
/// body if [`Endpoint::reads_body`].
///
/// # Errors
/// Why not; [`Denied::answer`] says it.
pub fn admit(
    table: &RouteTable,
    name: &str,
    parts: &Parts,
    peer: IpAddr,
    has_key: bool,
) -> Result<Endpoint, Denied> {
    let class = table.server.status_access;
    let caller = Caller::of(peer, parts);
    let endpoint = Endpoint::of(name);
    let allowed = match endpoint {
        Some(endpoint) if endpoint.writes(&parts.method) => public_write(class, caller),
        // A key opens its own route and shows no other.
        Some(endpoint) if class == StatusAccess::Key && endpoint.spans_routes(parts) => {
            public_read(StatusAccess::Loopback, caller, has_key)
        }
        // Who may not read does not learn which endpoints there are.
        _ => public_read(class, caller, has_key),
    };
    allowed?;
    endpoint.ok_or(Denied::Hidden)
}

/// What a caller sees of an endpoint at the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every route.
    All,
    /// The routes that its key opens, open ones included.
    Opened,
}

/// Which routes this caller may look at together. `has_key`: the caller's key opens at least one.
///
/// # Errors
/// Why none.
pub fn admit_together(
    table: &RouteTable,
    parts: &Parts,
    peer: IpAddr,
    has_key: bool,
) -> Result<Scope, Denied> {
    let class = table.server.status_access;
    public_read(class, Caller::of(peer, parts), has_key)?;
    Ok(match class {
        StatusAccess::Key => Scope::Opened,
        StatusAccess::Off | StatusAccess::Loopback | StatusAccess::Open => Scope::All,
    })
}
