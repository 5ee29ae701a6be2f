//! Which transforms a request meets, and what becomes of its body.

use bytes::Bytes;
use http::Method;

use super::buffers::Buffers;
use super::exchange::Exchange;
use crate::content::transform::{Wanted, transform};
use crate::state::{Route, Switch};

/// The body to forward: `body` itself where nothing is to be changed.
pub(super) fn rewrite(
    exchange: &mut Exchange,
    route: &Route,
    buffers: &Buffers,
    body: Bytes,
) -> Bytes {
    if exchange.method != Method::POST || route.options.transparent.value {
        return body;
    }
    let done = transform(&body, wanted(route, exchange.path()));
    let Some(edited) = done.body else { return body };
    if done.asked_for_usage {
        route.state.transforms.asked_for_usage();
        exchange.asked_for_usage = true;
    }
    buffers.give(body);
    Bytes::from(edited)
}

fn wanted(route: &Route, path: &str) -> Wanted {
    let tells_usage_when_asked = matches!(path, "/v1/chat/completions" | "/v1/completions");
    Wanted {
        include_usage: tells_usage_when_asked && route.switch(Switch::IncludeUsage).value,
    }
}
