//! The head of every response on the public port: routing headers, request ids, stream hints.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use router_core::decision::Mode;

use super::error::Dialect;
use crate::state::{Peer, Route, Target};
use crate::upstream::headers::strip;

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
const NO_SOURCE: HeaderValue = HeaderValue::from_static("none");
const NO_RETRIES: HeaderValue = HeaderValue::from_static("0");

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
pub(super) fn new_request_id() -> uuid::fmt::Simple {
    uuid::Uuid::now_v7().simple()
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

/// The most headers that a stamp adds.
const STAMPED: usize = 8;

/// Stamps a response. [`translate`] has removed any headers of these names that a peer sent.
/// `routing` is absent if no peer was tried.
pub(super) fn stamp(
    headers: &mut HeaderMap,
    id: &HeaderValue,
    routing: Option<Routing<'_>>,
    dialect: Dialect,
    stamp: Stamp,
) {
    headers.reserve(STAMPED);
    if dialect == Dialect::Anthropic {
        headers.insert(ANTHROPIC_REQUEST_ID, id.clone());
    }
    headers.insert(REQUEST_ID, id.clone());
    if stamp == Stamp::IdOnly {
        return;
    }
    let Some(routing) = routing else {
        for name in [SESSION, MODE, PEER, BACKEND] {
            headers.insert(name, DASH);
        }
        headers.insert(SOURCE, NO_SOURCE);
        headers.insert(RETRIES, NO_RETRIES);
        return;
    };
    headers.insert(SESSION, text(routing.session));
    headers.insert(SOURCE, text(routing.source));
    headers.insert(MODE, HeaderValue::from_static(routing.mode.as_str()));
    headers.insert(PEER, routing.peer.target.host.clone());
    headers.insert(BACKEND, routing.peer.target.name.clone());
    let retries = match routing.retries {
        0 => NO_RETRIES,
        retries => HeaderValue::from(retries),
    };
    headers.insert(RETRIES, retries);
}

/// The kinds of bodies that the router reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Media {
    /// `text/event-stream`.
    EventStream,
    /// One JSON document.
    Json,
    /// Anything else.
    Other,
}

impl Media {
    /// The kind of a body, by its head.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let Some(value) = headers.get(header::CONTENT_TYPE) else {
            return Self::Other;
        };
        let value = value.as_bytes();
        let end = memchr::memchr(b';', value).unwrap_or(value.len());
        let kind = value[..end].trim_ascii();
        let suffix = kind.len().checked_sub(5).map(|at| &kind[at..]);
        if kind.eq_ignore_ascii_case(b"text/event-stream") {
            Self::EventStream
        } else if kind.eq_ignore_ascii_case(b"application/json")
            || suffix.is_some_and(|suffix| suffix.eq_ignore_ascii_case(b"+json"))
        {
            Self::Json
        } else {
            Self::Other
        }
    }
}

/// Headers of a peer that end here. Some control a proxy in front of the engine. The router is that
/// proxy; if it passed them on, an engine could control the proxy in front of the router. The others
/// have names that only the router may use.
fn ends_here(name: &str) -> bool {
    matches!(
        name,
        "x-accel-redirect"
            | "x-accel-limit-rate"
            | "x-accel-expires"
            | "x-accel-charset"
            | "x-sendfile"
            | "x-routed-session"
            | "x-routed-source"
            | "x-routed-mode"
            | "x-routed-peer"
            | "x-routed-retries"
            | "x-proxy-backend"
            | "x-request-id"
    )
}

/// Turns a peer's head into one of the router: removes the peer's connection headers, those that
/// end here, and its address. `prefix` is the route's part of the client's path.
pub(super) fn translate(headers: &mut HeaderMap, peer: &Target, prefix: &str) {
    strip(headers, ends_here);
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
    match value {
        "-" => DASH,
        "none" => NO_SOURCE,
        // Ids and labels are visible ASCII by construction.
        _ => HeaderValue::from_str(value).unwrap_or(DASH),
    }
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
    fn a_body_is_known_by_its_media_type_or_suffix() {
        let of = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(value));
            Media::of(&headers)
        };
        assert_eq!(of("text/event-stream"), Media::EventStream);
        assert_eq!(of("Text/Event-Stream; charset=utf-8"), Media::EventStream);
        for json in [
            "application/json",
            "Application/JSON ; charset=utf-8",
            "application/problem+json",
        ] {
            assert_eq!(of(json), Media::Json, "{json}");
        }
        for other in [
            "text/event-streams",
            "application/jsonl",
            "text/plain",
            "json",
            "",
        ] {
            assert_eq!(of(other), Media::Other, "{other}");
        }
        assert_eq!(Media::of(&HeaderMap::new()), Media::Other);
    }

    #[test]
    fn what_a_peer_may_not_say_ends_here() {
        let mut headers = HeaderMap::new();
        for name in [
            "x-routed-session",
            "x-routed-peer",
            "x-proxy-backend",
            "x-request-id",
            "x-accel-redirect",
            "transfer-encoding",
            "x-kept",
        ] {
            headers.append(name, HeaderValue::from_static("1"));
            headers.append(name, HeaderValue::from_static("2"));
        }
        strip(&mut headers, ends_here);
        let left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(left, ["x-kept"]);
    }
}
