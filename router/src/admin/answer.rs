//! Answers of the admin endpoints: JSON with a final newline, errors in OpenAI's shape.

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Response, StatusCode};
use proto::admin::{ErrorBody, ErrorDetail};
use serde::Serialize;

use super::access::Denied;

/// A complete answer. Bodies are small and built at once.
pub type Answer = Response<Bytes>;

/// A JSON answer.
pub(super) fn json<T: Serialize>(status: StatusCode, value: &T) -> Answer {
    let mut body = serde_json::to_vec(value).expect("an admin answer is JSON");
    body.push(b'\n');
    typed(status, "application/json", body)
}

/// An answer of the given media type.
pub(super) fn typed(status: StatusCode, media: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(body.into());
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// The error in the common error form.
pub(super) fn detail(status: StatusCode, code: &str, message: impl Into<String>) -> ErrorDetail {
    let kind = match status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        400..500 => "invalid_request_error",
        503 => "unavailable_error",
        _ => "server_error",
    };
    ErrorDetail {
        message: message.into(),
        kind: kind.to_owned(),
        code: code.to_owned(),
        param: None,
    }
}

/// An error. As on the client port, `x-should-retry: false` marks errors that a retry cannot fix.
pub(super) fn error(status: StatusCode, code: &str, message: impl Into<String>) -> Answer {
    let error = detail(status, code, message);
    let mut answer = json(status, &ErrorBody { error });
    if status.is_client_error() {
        let no = HeaderValue::from_static("false");
        answer.headers_mut().insert("x-should-retry", no);
    }
    answer
}

/// 400: the request is invalid, and nothing was changed.
pub(super) fn bad_request(message: impl Into<String>) -> Answer {
    error(StatusCode::BAD_REQUEST, "bad_request", message)
}

/// 404.
pub(super) fn not_found(message: &str) -> Answer {
    error(StatusCode::NOT_FOUND, "not_found", message)
}

/// 405 with the allowed methods.
pub(super) fn method_not_allowed(allow: &'static str) -> Answer {
    let message = format!("this endpoint takes {allow}");
    let mut answer = error(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        message,
    );
    answer
        .headers_mut()
        .insert(header::ALLOW, HeaderValue::from_static(allow));
    answer
}

/// 405, when axum's router lists the allowed methods in `Allow`.
pub(super) fn wrong_method() -> Answer {
    let message = "this endpoint does not take this method";
    error(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        message,
    )
}

/// 413 with the limit in bytes.
pub(super) fn too_large(limit: u64) -> Answer {
    error(
        StatusCode::PAYLOAD_TOO_LARGE,
        "body_too_large",
        format!("the request body is larger than {limit} bytes"),
    )
}

/// 503 with `draining`: the process is ending.
pub(super) fn ending() -> Answer {
    error(
        StatusCode::SERVICE_UNAVAILABLE,
        "draining",
        "this router is shutting down",
    )
}

impl Denied {
    /// The answer for a refused caller. It reveals nothing but the refusal.
    pub fn answer(self) -> Answer {
        match self {
            Denied::Hidden => not_found("no such path"),
            Denied::NoKey => {
                let message = "missing or invalid API key; send it as 'Authorization: Bearer <key>' or 'x-api-key: <key>'";
                unauthorized("invalid_api_key", message)
            }
            Denied::NoToken => {
                let message =
                    "this endpoint needs the admin token: 'Authorization: Bearer <token>'";
                unauthorized("invalid_admin_token", message)
            }
            Denied::Forbidden => {
                let message = "this endpoint answers callers on the router's own host, by its own name and without a proxy";
                error(StatusCode::FORBIDDEN, "forbidden", message)
            }
            Denied::FromAPage => error(
                StatusCode::FORBIDDEN,
                "cross_site_request",
                "web pages may not change anything here",
            ),
        }
    }
}

fn unauthorized(code: &str, message: &str) -> Answer {
    let mut answer = error(StatusCode::UNAUTHORIZED, code, message);
    let headers = answer.headers_mut();
    headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    answer
}
