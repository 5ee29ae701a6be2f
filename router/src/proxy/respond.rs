//! The head of every response on the public port: routing headers, request ids, stream hints.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use router_core::decision::Mode;

use super::error::Dialect;
use crate::state::{Peer, Route, Target};
use crate::upstream::headers::strip_hop_by_hop;

const SESSION: HeaderName = HeaderName::from_static("x-routed-session");
const SOURCE: HeaderName = HeaderName::from_static("x-routed-source");
const MODE: HeaderName = HeaderName::from_static("x-routed-mode");
const PEER: HeaderName = HeaderName::from_static("x-routed-peer");
const RETRIES: HeaderName = HeaderName::from_static("x-routed-retries");
const BACKEND: HeaderName = HeaderName::from_static("x-proxy-backend");
/// Clients may send this header to name their request.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const ANTHROPIC_REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

const DASH: HeaderValue = HeaderValue::from_static("-");

/// Longest `x-request-id` accepted from a client.
const REQUEST_ID_MAX: usize = 128;

/// Which headers a response gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stamp {
    /// An API response of a route that exposes how it was routed.
    Routed,
    /// Only the request id.
    IdOnly,
}

impl Stamp {
    /// The stamp of a route's API responses.
    pub(super) fn of(route: &Route) -> Self {
        match route.options.expose_routing_headers.value {
            true => Self::Routed,
            false => Self::IdOnly,
        }
    }
}

/// The client's own id if it is 1 to 128 visible ASCII characters.
pub(super) fn client_request_id(headers: &HeaderMap) -> Option<&str> {
    let id = headers.get(&REQUEST_ID)?.to_str().ok()?;
    ((1..=REQUEST_ID_MAX).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic()))
        .then_some(id)
}

/// A fresh id.
pub(super) fn new_request_id() -> String {
    uuid::Uuid::now_v7().simple().to_string()
}

/// How a request was routed, for the response headers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Routing<'a> {
    /// The session, or `-`.
    pub session: &'a str,
    /// Where the session id was found.
    pub source: &'a str,
    /// How the peer was found.
    pub mode: Mode,
    /// The peer that answered, or the last one tried.
    pub peer: &'a Peer,
    /// Number of attempts after the first.
    pub retries: usize,
}

/// Stamps a response. Replaces any headers of these names that the peer sent. `routing` is absent
/// if no peer was tried.
pub(super) fn stamp(
    headers: &mut HeaderMap,
    rid: &str,
    routing: Option<Routing<'_>>,
    dialect: Dialect,
    stamp: Stamp,
) {
    for name in [SESSION, SOURCE, MODE, PEER, RETRIES, BACKEND, REQUEST_ID] {
        headers.remove(name);
    }
    let id = text(rid);
    if dialect == Dialect::Anthropic {
        headers.insert(ANTHROPIC_REQUEST_ID, id.clone());
    }
    headers.insert(REQUEST_ID, id);
    if stamp == Stamp::IdOnly {
        return;
    }
    let Some(routing) = routing else {
        for name in [SESSION, MODE, PEER, BACKEND] {
            headers.insert(name, DASH);
        }
        headers.insert(SOURCE, HeaderValue::from_static("none"));
        headers.insert(RETRIES, HeaderValue::from_static("0"));
        return;
    };
    headers.insert(SESSION, text(routing.session));
    headers.insert(SOURCE, text(routing.source));
    headers.insert(MODE, HeaderValue::from_static(routing.mode.as_str()));
    headers.insert(PEER, routing.peer.target.host.clone());
    headers.insert(BACKEND, routing.peer.target.name.clone());
    headers.insert(RETRIES, HeaderValue::from(routing.retries));
}

/// Whether a response is an event stream.
pub(super) fn is_event_stream(headers: &HeaderMap) -> bool {
    media_type(headers).is_some_and(|kind| kind.eq_ignore_ascii_case(b"text/event-stream"))
}

/// Whether a response is one JSON document.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    media_type(headers).is_some_and(|kind| {
        let suffix = kind.len().checked_sub(5).map(|at| &kind[at..]);
        kind.eq_ignore_ascii_case(b"application/json")
            || suffix.is_some_and(|suffix| suffix.eq_ignore_ascii_case(b"+json"))
    })
}

fn media_type(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::CONTENT_TYPE)?.as_bytes();
    Some(value.split(|b| *b == b';').next()?.trim_ascii())
}

/// Headers that control a proxy in front of the engine. The router is that proxy. If it passed them
/// on, an engine could control the proxy in front of the router.
const PROXY_ORDERS: [HeaderName; 5] = [
    HeaderName::from_static("x-accel-redirect"),
    HeaderName::from_static("x-accel-limit-rate"),
    HeaderName::from_static("x-accel-expires"),
    HeaderName::from_static("x-accel-charset"),
    HeaderName::from_static("x-sendfile"),
];

/// Turns a peer's head into one of the router: removes the peer's connection headers, its proxy
/// control headers and its address. `prefix` is the route's part of the client's path.
pub(super) fn translate(headers: &mut HeaderMap, peer: &Target, prefix: &str) {
    if headers.contains_key(header::TRANSFER_ENCODING) {
        // The transfer encoding takes precedence (RFC 9112 section 6.3); the length would truncate
        // the body.
        headers.remove(header::CONTENT_LENGTH);
    }
    strip_hop_by_hop(headers);
    for name in PROXY_ORDERS {
        headers.remove(name);
    }
    let location = headers.get(header::LOCATION);
    if let Some(local) = location.and_then(|location| peer.relative(location, prefix)) {
        headers.insert(header::LOCATION, local);
    }
}

/// Keeps caches and buffering proxies from delaying an event stream, unless the engine set these
/// headers itself.
pub(super) fn hint_stream(headers: &mut HeaderMap) {
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-cache"));
    headers
        .entry(ACCEL_BUFFERING)
        .or_insert(HeaderValue::from_static("no"));
}

fn text(value: &str) -> HeaderValue {
    // Ids and labels are visible ASCII by construction.
    HeaderValue::from_str(value).unwrap_or(DASH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_short_visible_id_is_taken_over() {
        let of = |value: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(REQUEST_ID, HeaderValue::from_bytes(value).unwrap());
            client_request_id(&headers).map(str::to_owned)
        };
        assert_eq!(of(b"abc-123").as_deref(), Some("abc-123"));
        assert_eq!(of(&[b'a'; 128]).map(|id| id.len()), Some(128));
        for bad in [&b""[..], b"a b", b"a\tb", &[b'a'; 129], "é".as_bytes()] {
            assert_eq!(of(bad), None);
        }
    }

    #[test]
    fn an_event_stream_is_known_by_its_media_type() {
        let of = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(value));
            is_event_stream(&headers)
        };
        assert!(of("text/event-stream") && of("Text/Event-Stream; charset=utf-8"));
        assert!(!of("application/json") && !of("text/event-streams"));
    }

    #[test]
    fn a_json_document_is_known_by_its_media_type_or_suffix() {
        let of = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(value));
            is_json(&headers)
        };
        assert!(of("application/json") && of("Application/JSON ; charset=utf-8"));
        assert!(of("application/problem+json"));
        assert!(!of("application/jsonl") && !of("text/plain") && !of("json"));
    }
}
