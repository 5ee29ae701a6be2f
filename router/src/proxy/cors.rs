//! Cross-origin requests: which web pages a browser lets call the router.
//!
//! Browsers send no key with a preflight, so the router answers it before it asks for a key.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Response, StatusCode};

use super::dispatch::{PublicPath, dispatch};
use super::error::ApiError;
use super::limits;
use crate::state::RouteTable;
use router_config::valid::Cors;

/// How long a browser may remember a preflight.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");

const ALL: HeaderValue = HeaderValue::from_static("*");

/// What a preflight without `Access-Control-Request-Headers` may send.
const USUAL_HEADERS: HeaderValue =
    HeaderValue::from_static("authorization, content-type, x-api-key");

/// Headers of an engine that the router's own replace.
const OF_THE_ENGINE: [HeaderName; 6] = [
    header::ACCESS_CONTROL_ALLOW_ORIGIN,
    header::ACCESS_CONTROL_ALLOW_CREDENTIALS,
    header::ACCESS_CONTROL_ALLOW_HEADERS,
    header::ACCESS_CONTROL_ALLOW_METHODS,
    header::ACCESS_CONTROL_EXPOSE_HEADERS,
    header::ACCESS_CONTROL_MAX_AGE,
];

/// The web page behind a request, on a router with CORS.
#[derive(Debug)]
pub(super) struct Page {
    /// The value of `Access-Control-Allow-Origin`; `None` if the page is not admitted, or if no page
    /// sent the request.
    allowed: Option<HeaderValue>,
    /// Whether the answer depends on the `Origin`.
    varies: bool,
}

impl Page {
    /// `None` where CORS is off, and for status pages: a page of a foreign origin in an operator's
    /// browser would be a loopback caller there.
    pub(super) fn of(table: &RouteTable, parts: &Parts) -> Option<Box<Self>> {
        let cors = table.server.cors.as_ref()?;
        let is_status = matches!(
            dispatch(parts.uri.path()),
            Ok(PublicPath::Status { .. } | PublicPath::Together(_))
        );
        (!is_status).then(|| Box::new(Self::new(cors, &parts.headers)))
    }

    fn new(cors: &Cors, headers: &HeaderMap) -> Self {
        let origin = headers.get(header::ORIGIN);
        let admitted = origin.filter(|value| value.to_str().is_ok_and(|it| cors.admits(it)));
        let is_for_all = cors.is_for_all();
        Self {
            allowed: admitted.map(|origin| if is_for_all { ALL } else { origin.clone() }),
            varies: !is_for_all,
        }
    }

    /// The answer to a preflight; `None` for any other request.
    pub(super) fn preflight(&self, parts: &Parts) -> Option<Result<Response<Bytes>, ApiError>> {
        let headers = &parts.headers;
        let origin = headers.get(header::ORIGIN)?;
        let asks = parts.method == Method::OPTIONS
            && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
        if !asks {
            return None;
        }
        if self.allowed.is_none() {
            let origin = origin.to_str().unwrap_or("?");
            return Some(Err(ApiError::origin_not_allowed(origin)));
        }
        let mut answer = Response::new(Bytes::new());
        *answer.status_mut() = StatusCode::NO_CONTENT;
        let asked = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS);
        let map = answer.headers_mut();
        self.stamp(map);
        map.remove(header::ACCESS_CONTROL_EXPOSE_HEADERS);
        let methods = HeaderValue::from_static(limits::METHODS);
        map.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
        let allowed = asked.cloned().unwrap_or(USUAL_HEADERS);
        map.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, allowed);
        map.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
        let asked = HeaderValue::from_static("Access-Control-Request-Headers");
        map.append(header::VARY, asked);
        Some(Ok(answer))
    }

    /// Adds the headers that let the page read an answer.
    pub(super) fn stamp(&self, headers: &mut HeaderMap) {
        for name in OF_THE_ENGINE {
            headers.remove(name);
        }
        if self.varies {
            headers.append(header::VARY, HeaderValue::from_static("Origin"));
        }
        if let Some(allowed) = &self.allowed {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, allowed.clone());
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, ALL);
        }
    }
}
