//! `POST …/finish_session?session_id=…`: a client says that a conversation is over.
//!
//! Authorised, idempotent, always 200. `released` is the number of tables that held the session.
//! Placement by hash keeps no table; clients written for routers with tables work unchanged.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response, StatusCode};
use proto::admin::FinishedSession;
use serde_json::json;

use super::error::ApiError;
use super::local::{json_response, query_value};
use crate::state::Route;

/// Answers a call whose key opens `routes`.
///
/// # Errors
/// 405 for a method other than POST, 400 without a session id.
pub(super) fn answer(parts: &Parts, routes: &[&Arc<Route>]) -> Result<Response<Bytes>, ApiError> {
    if parts.method != Method::POST {
        return Err(ApiError::method_not_allowed("POST"));
    }
    let session_id = query_value(parts.uri.query(), "session_id").filter(|id| !id.is_empty());
    let session_id = session_id.ok_or_else(|| {
        ApiError::bad_request("missing_session_id", "the query needs session_id=<id>")
    })?;
    let released = routes
        .iter()
        .map(|route| route.finish_session(&session_id))
        .sum();
    let finished = FinishedSession {
        status: "ok".to_owned(),
        session_id,
        released,
    };
    Ok(json_response(StatusCode::OK, &json!(finished)))
}
