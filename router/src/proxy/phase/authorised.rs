//! The second phase: the caller may use the route.

use std::sync::Arc;
use std::time::{Duration, Instant};

use router_bodylog::Capture;

use super::{Arrival, Live};
use crate::proxy::dispatch::leading_slashes;
use crate::state::{OwnerSlot, Route};

/// A request with a caller that may use its route.
#[derive(Debug)]
pub(in crate::proxy) struct Authorised {
    /// The phase before.
    pub(in crate::proxy) arrival: Arrival,
    /// The route of the request.
    pub(in crate::proxy) route: Arc<Route>,
    /// The path without the route prefix starts here.
    pub(in crate::proxy) path_at: usize,
    /// Owner of the key; `None` on an open route.
    pub(in crate::proxy) owner: Option<Arc<str>>,
    /// The owner's place, kept to the end of the request; `None` without limits of owners.
    pub(in crate::proxy) place: Option<OwnerSlot>,
    /// The capture for the body log; `None` if the request is not recorded.
    pub(in crate::proxy) capture: Option<Box<Capture>>,
}

/// A caller's permission to use a route.
#[derive(Debug)]
pub(in crate::proxy) struct Grant<'t> {
    /// The route.
    pub(in crate::proxy) route: &'t Arc<Route>,
    /// Length of the route prefix.
    pub(in crate::proxy) path_at: usize,
    /// Owner of the key; `None` on an open route.
    pub(in crate::proxy) owner: Option<Arc<str>>,
}

impl Authorised {
    /// Builds the phase after the caller was granted the route.
    pub(in crate::proxy) fn live(
        arrival: Live<Arrival>,
        grant: Grant<'_>,
        capture: Option<Box<Capture>>,
    ) -> Live<Self> {
        arrival.next(|arrival| Self {
            arrival,
            route: Arc::clone(grant.route),
            path_at: grant.path_at,
            owner: grant.owner,
            place: None,
            capture,
        })
    }

    /// The path without the route prefix and without the query.
    pub(in crate::proxy) fn path(&self) -> &str {
        let path = self.arrival.uri.path();
        path.get(self.path_at..).unwrap_or_default()
    }

    /// The route prefix of the path, without doubled slashes: `/<route>`, or empty.
    pub(in crate::proxy) fn prefix(&self) -> &str {
        let path = self.arrival.uri.path();
        let prefix = path.get(..self.path_at).unwrap_or_default();
        prefix[leading_slashes(prefix)..].trim_end_matches('/')
    }

    /// The deadline of the whole request, and the option's value for messages.
    pub(in crate::proxy) fn deadline(&self) -> Option<(Instant, Duration)> {
        let limit = self.route.options.request_timeout.value?;
        Some((self.arrival.at + limit, limit))
    }
}
