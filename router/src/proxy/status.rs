//! `/<route>/_…` and `/_…` on the public port: whether this caller may ask, then the same answer that the
//! admin port gives.

use std::net::IpAddr;

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use hyper::body::Incoming;

use super::body::{self, Limits};
use super::error::ApiError;
use super::guard;
use super::handle::Proxy;
use crate::admin::public::Scope;
use crate::admin::status::Together;
use crate::admin::{public, status};
use crate::state::{Entry, RouteTable};

/// Answers a status path at the root.
pub(super) fn answer_together(
    table: &RouteTable,
    what: Together,
    parts: &Parts,
    peer: IpAddr,
) -> Response<Bytes> {
    let opened = guard::opened(table, &parts.headers);
    match public::admit_together(table, parts, peer, !opened.is_empty()) {
        Ok(Scope::All) => status::together(what, table.routes(), parts),
        Ok(Scope::Opened) => status::together(what, opened, parts),
        Err(why) => why.answer(),
    }
}

/// Answers a status path.
///
/// # Errors
/// When the body of a request to inspect cannot be read.
pub(super) async fn answer(
    proxy: &Proxy,
    table: &RouteTable,
    route: &str,
    name: &str,
    parts: &Parts,
    body: Incoming,
    peer: IpAddr,
) -> Result<Response<Bytes>, ApiError> {
    let in_force = table.get(route).and_then(Entry::route);
    let has_key = in_force.is_some_and(|route| guard::admit(table, route, &parts.headers).is_ok());
    let endpoint = match public::admit(table, name, parts, peer, has_key) {
        Ok(endpoint) => endpoint,
        Err(why) => return Ok(why.answer()),
    };
    let collected = if endpoint.reads_body() {
        let limits = Limits {
            body: in_force.map_or(0, |route| route.options.max_body_size.value),
            buffered: table.server.max_buffered_bytes,
        };
        Some(body::collect(body, limits, &proxy.budget).await?)
    } else {
        None
    };
    let bytes = collected.as_ref().map_or(&[][..], |body| &body.bytes[..]);
    Ok(status::answer(
        endpoint,
        table,
        route,
        parts,
        bytes,
        &proxy.sinks.events,
        &proxy.sinks.bodylog,
    ))
}
