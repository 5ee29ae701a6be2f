//! `POST …/finish_session?session_id=…`: a client says that a conversation is over.
//!
//! Authorised, idempotent, always 200. Placement by hash keeps no table, so there is nothing to
//! release and `released` says 0; clients written for routers that do keep one work unchanged.

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response, StatusCode};
use serde_json::json;

use super::error::ApiError;
use super::local::{json_response, query_value};

/// Answers a call whose key has been checked.
///
/// # Errors
/// 405 for another method than POST, 400 without a session id.
pub(super) fn answer(parts: &Parts) -> Result<Response<Bytes>, ApiError> {
    if parts.method != Method::POST {
        return Err(ApiError::method_not_allowed("POST"));
    }
    let session_id = query_value(parts.uri.query(), "session_id").filter(|id| !id.is_empty());
    let session_id = session_id.ok_or_else(|| {
        ApiError::bad_request("missing_session_id", "the query needs session_id=<id>")
    })?;
    let answer = json!({ "status": "ok", "session_id": session_id, "released": 0 });
    Ok(json_response(StatusCode::OK, &answer))
}
