//! `/<route>/_…` and `/_…` on the public port: the same answers as on the admin port.

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use hyper::body::Incoming;

use super::body::{self, Limits};
use super::error::ApiError;
use super::guard;
use super::handle::Proxy;
use crate::admin::public::{self, Scope};
use crate::admin::status::{self, Endpoint, Together};
use crate::state::{Entry, RouteTable};

/// Answers a status path at the root.
pub(super) fn answer_together(
    table: &RouteTable,
    what: Together,
    parts: &Parts,
) -> Response<Bytes> {
    match public::scope(table) {
        Scope::All => status::together(what, table.routes(), parts),
        Scope::Opened => status::together(what, guard::opened(table, &parts.headers), parts),
    }
}

/// Answers a status path.
///
/// # Errors
/// The body of an inspection request cannot be read.
pub(super) async fn answer(
    proxy: &Proxy,
    table: &RouteTable,
    route: &str,
    endpoint: Endpoint,
    parts: &Parts,
    body: Incoming,
) -> Result<Response<Bytes>, ApiError> {
    let in_force = table.get(route).and_then(Entry::route);
    let collected = if endpoint.reads_body() {
        let limits = Limits {
            body: in_force.map_or(0, |route| route.options.max_body_size.value),
            buffered: table.server.max_buffered_bytes,
        };
        Some(body::collect(body, limits, &proxy.budget).await?)
    } else {
        None
    };
    let bytes = collected
        .as_ref()
        .map_or_else(Bytes::new, |body| body.bytes.clone());
    Ok(status::answer(
        endpoint,
        table,
        route,
        parts,
        &bytes,
        &proxy.sinks.events,
        &proxy.sinks.bodylog,
    ))
}
