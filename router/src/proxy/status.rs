//! `/<route>/_…` on the public port: whether this caller may ask, then the same answer that the
//! admin port gives.

use std::net::IpAddr;

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use hyper::body::Incoming;

use super::error::ApiError;
use super::handle::Proxy;
use crate::state::RouteTable;

/// Answers a status path.
///
/// # Errors
/// 404 where nobody may ask, or there is nothing of that name.
pub(super) async fn answer(
    _proxy: &Proxy,
    _table: &RouteTable,
    _route: &str,
    _name: &str,
    _parts: &Parts,
    _body: Incoming,
    _peer: IpAddr,
) -> Result<Response<Bytes>, ApiError> {
    Err(ApiError::route_not_found("no such status path", None))
}
