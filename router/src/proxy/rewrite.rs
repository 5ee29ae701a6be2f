//! Which transforms a request meets, and what becomes of its body.

use bytes::Bytes;
use http::Method;

use super::exchange::Exchange;
use crate::content::transform::{Wanted, is_kimi, transform};
use crate::state::{Route, Switch};
use service::buffers::Buffers;

/// The body to forward: `body` itself where nothing is to be changed.
pub(super) fn rewrite(
    exchange: &mut Exchange,
    route: &Route,
    buffers: &Buffers,
    body: Bytes,
) -> Bytes {
    let may_change = exchange.method == Method::POST && exchange.is_json_object;
    if !may_change {
        return body;
    }
    let wanted = transforms_for(route, exchange.path(), exchange.model.as_deref());
    let counts = &route.state.transforms;
    if wanted.cch_strip {
        counts.parsed();
    }
    let done = transform(&body, wanted);
    counts.done(&done);
    exchange.asked_for_usage = done.asked_for_usage;
    let Some(edited) = done.body else { return body };
    buffers.give(body);
    Bytes::from(edited)
}

/// What is wanted of a request for `path`, below the route's prefix, whose body names `model`.
pub fn transforms_for(route: &Route, path: &str, model: Option<&str>) -> Wanted {
    let is_on = |switch| route.switch(switch).value;
    if route.options.transparent.value || !path.starts_with("/v1/") {
        return Wanted::default();
    }
    let tells_usage_when_asked = matches!(path, "/v1/chat/completions" | "/v1/completions");
    let strategy = &route.options.kimi_normalize_strategy;
    Wanted {
        include_usage: tells_usage_when_asked && is_on(Switch::IncludeUsage),
        cch_strip: is_on(Switch::CchStrip),
        kimi_normalize: (model.is_some_and(is_kimi) && is_on(Switch::KimiNormalize))
            .then_some(strategy.value),
        system_hoist: path == "/v1/messages" && is_on(Switch::SystemHoist),
    }
}
