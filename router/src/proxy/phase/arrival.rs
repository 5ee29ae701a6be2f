//! The first phase: the head of a request was read.

use std::sync::Arc;
use std::time::Instant;

use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Uri, Version};
use router_bodylog::BodyLog;
use router_core::decision::Hop;

use super::Live;
use crate::findings::Watch;
use crate::proxy::dispatch;
use crate::proxy::head::HeadWatch;
use crate::proxy::respond;
use crate::state::StoredIds;
use crate::telemetry::access::AccessLog;
use crate::telemetry::events::Events;
use crate::telemetry::metrics::Metrics;

/// The receivers of settled exchanges.
#[derive(Debug)]
pub struct Sinks {
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Log lines with their counters.
    pub events: Arc<Events>,
    /// Access lines; `None` with `access_log: false`.
    pub access: Option<Arc<AccessLog>>,
    /// Records of exchanges.
    pub bodylog: Arc<BodyLog>,
    /// Counts for findings.
    pub findings: Arc<Watch>,
    /// Where the objects live that engines store.
    pub stored: StoredIds,
}

/// A request of which the head was read.
#[derive(Debug)]
pub(in crate::proxy) struct Arrival {
    /// `x-request-id`.
    pub(in crate::proxy) rid: Arc<str>,
    /// The same as a header value, for the engine and for the client.
    pub(in crate::proxy) id: HeaderValue,
    /// Request method.
    pub(in crate::proxy) method: Method,
    /// As the client sent it; only the path is ever logged.
    pub(in crate::proxy) uri: Uri,
    /// The HTTP version of the request.
    pub(super) version: Version,
    /// When the head was read.
    pub(in crate::proxy) at: Instant,
    /// The client's connection.
    pub(in crate::proxy) head: Arc<HeadWatch>,
    /// The receivers of the settled request.
    pub(in crate::proxy) sinks: Arc<Sinks>,
    /// The routes that could not take the request, in the order of trial.
    pub(in crate::proxy) hops: Vec<Hop>,
    pub(super) trace_id: Option<Box<str>>,
    /// False for health checks: they would fill the access log.
    pub(super) is_logged: bool,
}

impl Arrival {
    /// A request whose head was read at `at`.
    pub(in crate::proxy) fn live(
        parts: &Parts,
        head: &Arc<HeadWatch>,
        sinks: &Arc<Sinks>,
        at: Instant,
    ) -> Live<Self> {
        let (rid, id) = match respond::client_request_id(&parts.headers) {
            Some(rid) => own_id(rid),
            None => {
                let rid = respond::new_request_id();
                own_id(rid.encode_lower(&mut [0; uuid::fmt::Simple::LENGTH]))
            }
        };
        Live::new(Self {
            rid,
            id,
            method: parts.method.clone(),
            uri: own_uri(&parts.uri),
            version: parts.version,
            at,
            head: Arc::clone(head),
            sinks: Arc::clone(sinks),
            hops: Vec::new(),
            trace_id: trace_id(&parts.headers),
            is_logged: !dispatch::is_polled(parts.uri.path()),
        })
    }
}

// A slice of the head would keep hyper's buffer of 8 KiB for as long as the stream lives, so what
// outlives the head is copied.

fn own_id(rid: &str) -> (Arc<str>, HeaderValue) {
    let id = HeaderValue::from_str(rid).expect("an id is visible ASCII");
    (Arc::from(rid), id)
}

/// The path and query of a URI. The other parts are not used.
fn own_uri(uri: &Uri) -> Uri {
    let target = uri.path_and_query().map(PathAndQuery::as_str);
    let copied = target.and_then(|target| target.parse::<PathAndQuery>().ok());
    copied.map_or_else(|| uri.clone(), Uri::from)
}

/// The trace id of a W3C `traceparent`: `00-<32 hex>-<16 hex>-<2 hex>`.
fn trace_id(headers: &HeaderMap) -> Option<Box<str>> {
    let parent = headers.get("traceparent")?.to_str().ok()?;
    let id = parent.split('-').nth(1)?;
    (id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit())).then(|| id.into())
}
