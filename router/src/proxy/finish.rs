//! `POST …/finish_session?session_id=…`: a client says that a conversation is over.
//!
//! Authorised, idempotent, always 200. `released` says in how many tables the session lived;
//! placement by hash keeps none, and clients written for routers that do work unchanged.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response, StatusCode};
use router_core::session::SessionId;
use serde_json::json;

use super::error::ApiError;
use super::local::{json_response, query_value};
use crate::state::Route;

/// Answers a call whose key opens `routes`.
///
/// # Errors
/// 405 for another method than POST, 400 without a session id.
pub(super) fn answer(parts: &Parts, routes: &[&Arc<Route>]) -> Result<Response<Bytes>, ApiError> {
    if parts.method != Method::POST {
        return Err(ApiError::method_not_allowed("POST"));
    }
    let session_id = query_value(parts.uri.query(), "session_id").filter(|id| !id.is_empty());
    let session_id = session_id.ok_or_else(|| {
        ApiError::bad_request("missing_session_id", "the query needs session_id=<id>")
    })?;
    let id = SessionId {
        raw: Cow::Borrowed(session_id.as_bytes()),
        source: Arc::from("query.session_id"),
    };
    let key = id.table_key();
    let released: u32 = routes.iter().map(|route| route.finish_session(&key)).sum();
    let answer = json!({ "status": "ok", "session_id": &*session_id, "released": released });
    Ok(json_response(StatusCode::OK, &answer))
}
