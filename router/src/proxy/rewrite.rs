//! Applies a route's transforms to a request's body on its way to a peer.

use bytes::Bytes;
use http::Method;

use super::phase::Inspected;
use crate::content::transform::{Places, transform};
use crate::upstream::RequestBody;

/// A body to forward.
#[derive(Debug)]
pub(super) struct Rewritten {
    /// The client's own bytes if nothing changes, else slices of them around the edits.
    pub body: RequestBody,
    /// The router asked the engine for usage that the client must not see.
    pub asked_for_usage: bool,
}

/// Applies the transforms of the route. `places` is `None` when the body is not a JSON object.
pub(super) fn rewrite(inspected: &Inspected, places: Option<&Places>, body: &Bytes) -> Rewritten {
    let request = &inspected.authorised;
    let places = places.filter(|_| request.arrival.method == Method::POST);
    let Some(places) = places else {
        return Rewritten {
            body: body.clone().into(),
            asked_for_usage: false,
        };
    };
    let wanted = request
        .route
        .transforms_for(request.path(), inspected.asked.served_model());
    let counts = &request.route.state.transforms;
    if wanted.cch_strip {
        counts.parsed();
    }
    let done = transform(body, places, wanted);
    counts.done(&done);
    Rewritten {
        asked_for_usage: done.asked_for_usage,
        body: match &done.body {
            None => body.clone().into(),
            Some(edited) => edited.into(),
        },
    }
}
