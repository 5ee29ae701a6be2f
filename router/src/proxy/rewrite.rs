//! Applies a route's transforms to a request's body on its way to a peer.

use bytes::Bytes;
use http::Method;

use super::phase::Inspected;
use crate::content::transform::transform;
use service::buffers::Buffers;

/// A body to forward.
#[derive(Debug)]
pub(super) struct Rewritten {
    /// The client's own bytes if nothing changes.
    pub body: Bytes,
    /// The router asked the engine for usage that the client must not see.
    pub asked_for_usage: bool,
}

/// Applies the transforms of the route.
pub(super) fn rewrite(inspected: &Inspected, buffers: &Buffers, body: Bytes) -> Rewritten {
    let request = &inspected.authorised;
    let may_change = request.arrival.method == Method::POST && inspected.asked.is_json_object;
    if !may_change {
        return Rewritten {
            body,
            asked_for_usage: false,
        };
    }
    let wanted = request
        .route
        .transforms_for(request.path(), inspected.asked.model.as_deref());
    let counts = &request.route.state.transforms;
    if wanted.cch_strip {
        counts.parsed();
    }
    let done = transform(&body, wanted);
    counts.done(&done);
    Rewritten {
        asked_for_usage: done.asked_for_usage,
        body: match done.body {
            None => body,
            Some(edited) => {
                buffers.give(body);
                Bytes::from(edited)
            }
        },
    }
}
