//! `GET /proxy/metrics`: the placement state of the peers of all routes that the caller's key
//! opens.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use service::exposition::Format;

use super::error::ApiError;
use super::local::json_response;
use crate::state::Route;
use crate::telemetry::metrics::{Backends, Page};

/// Answers a call whose key opens `routes`: a page for scrapers, or JSON if `Accept` asks for it.
///
/// # Errors
/// 405 for a method that does not read.
pub(super) fn answer(parts: &Parts, routes: &[&Arc<Route>]) -> Result<Response<Bytes>, ApiError> {
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        return Err(ApiError::method_not_allowed("GET, HEAD"));
    }
    let backends = Backends::of(routes.iter().map(|route| &***route));
    let accept = accepted(&parts.headers);
    if names_json(&accept) {
        return Ok(json_response(
            StatusCode::OK,
            &serde_json::json!(backends.into_json()),
        ));
    }
    let format = Format::of(&parts.headers);
    let page = Page::only(backends)
        .render(format)
        .map_err(|_| ApiError::internal("the metrics page cannot be rendered"))?;
    let mut response = Response::new(Bytes::from(page));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static(format.content_type()),
    );
    Ok(response)
}

/// Several Accept headers are equivalent to one with commas.
fn accepted(headers: &HeaderMap) -> String {
    let values = headers.get_all(header::ACCEPT).iter();
    let texts: Vec<&str> = values.filter_map(|value| value.to_str().ok()).collect();
    texts.join(",")
}

fn names_json(accept: &str) -> bool {
    accept.split(',').any(|range| {
        let media = range.split(';').next().unwrap_or_default();
        media.trim().eq_ignore_ascii_case("application/json")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_for_those_who_name_it() {
        assert!(names_json("text/html, Application/JSON;q=0.9"));
        for other in ["", "*/*", "text/plain;version=0.0.4", "application/jsonl"] {
            assert!(!names_json(other), "{other}");
        }
    }
}
