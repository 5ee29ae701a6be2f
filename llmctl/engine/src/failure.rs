//! Errors of requests, in the form of the imitated engine.
//!
//! A handler returns a [`Failure`]. It travels as an extension of an empty response, and [`dress`]
//! adds the body when the path and the dialect are known.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use serde_json::{Value, json};

use crate::dialect::Dialect;

/// An error answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    /// The invalid field, in OpenAI's notation.
    pub(crate) param: Option<&'static str>,
}

impl Failure {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            param: None,
        }
    }

    pub(crate) fn invalid(param: &'static str, message: impl Into<String>) -> Self {
        Self {
            param: Some(param),
            ..Self::new(StatusCode::BAD_REQUEST, message)
        }
    }

    pub(crate) fn unknown_model(model: &str) -> Self {
        let message = format!("The model `{model}` does not exist.");
        Self {
            param: Some("model"),
            ..Self::new(StatusCode::NOT_FOUND, message)
        }
    }

    fn body(&self, anthropic: bool, dialect: Dialect) -> Value {
        let code = self.status.as_u16();
        let message = &self.message;
        if anthropic {
            return json!({"type": "error", "error": {"type": anthropic_type(code), "message": message}});
        }
        match dialect {
            Dialect::Vllm => json!({"error": {
                "message": message, "type": vllm_type(code), "param": self.param, "code": code,
            }}),
            Dialect::Sglang => json!({
                "object": "error", "message": message, "type": vllm_type(code), "param": self.param, "code": code,
            }),
            Dialect::Llamacpp | Dialect::LlamacppOld => json!({"error": {
                "code": code, "message": message, "type": llamacpp_type(code),
            }}),
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// Writes the body of a failure into the response, if the response carries one.
pub(crate) fn dress(mut response: Response, path: &str, dialect: Dialect) -> Response {
    if let Some(failure) = response.extensions_mut().remove::<Failure>() {
        let body = failure
            .body(path.starts_with("/v1/messages"), dialect)
            .to_string();
        let json = http::HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        // axum has already set the length of the empty body.
        response.headers_mut().remove(header::CONTENT_LENGTH);
        *response.body_mut() = Body::from(body);
    }
    response
}

fn vllm_type(code: u16) -> &'static str {
    match code {
        401 => "AuthenticationError",
        404 => "NotFoundError",
        429 => "RateLimitError",
        503 => "ServiceUnavailableError",
        500.. => "InternalServerError",
        _ => "BadRequestError",
    }
}

fn llamacpp_type(code: u16) -> &'static str {
    match code {
        401 => "authentication_error",
        404 => "not_found_error",
        501 => "not_supported_error",
        503 => "unavailable_error",
        500.. => "server_error",
        _ => "invalid_request_error",
    }
}

fn anthropic_type(code: u16) -> &'static str {
    match code {
        401 => "authentication_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 => "overloaded_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_dialect_and_the_anthropic_path_have_their_own_shape() {
        let failure = Failure::unknown_model("m");
        assert_eq!(
            failure.body(false, Dialect::Vllm),
            json!({"error": {"message": "The model `m` does not exist.", "type": "NotFoundError", "param": "model", "code": 404}})
        );
        assert_eq!(failure.body(false, Dialect::Sglang)["object"], "error");
        assert_eq!(
            failure.body(false, Dialect::Llamacpp)["error"]["type"],
            "not_found_error"
        );
        assert_eq!(
            failure.body(true, Dialect::Vllm)["error"]["type"],
            "not_found_error"
        );
    }
}
