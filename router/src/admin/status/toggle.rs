//! `_<switch>_toggle`: the runtime layer of a route's switches.

use http::StatusCode;
use proto::admin::{Toggle, Toggled};

use super::POSTS;
use crate::admin::answer::{self, Answer};
use crate::admin::query::{Params, Refused};
use crate::state::{Route, Switch};
use crate::telemetry::events::Events;

/// Parameters that change something.
const CHANGES: [&str; 2] = ["on", "reset"];

/// `GET`. With a parameter that would change something it is refused: only `POST` writes.
pub(super) fn show(route: &Route, switch: Switch, params: &Params) -> Answer {
    if params.has_any(&CHANGES) {
        return answer::method_not_allowed(POSTS);
    }
    let now = route.switch(switch);
    let shown = Toggle {
        route: route.name.to_string(),
        switch: switch.name().to_owned(),
        enabled: now.value,
        source: now.source.as_str().to_owned(),
    };
    answer::json(StatusCode::OK, &shown)
}

/// `POST ?on=0|1` sets an override, `?reset=1` removes it.
pub(super) fn set(
    route: &Route,
    switch: Switch,
    params: &Params,
    events: &Events,
) -> Result<Answer, Refused> {
    let to = change(params)?;
    let below = switch.below(&route.options);
    let before = below.under(route.state.overrides.set(switch, to));
    let after = below.under(to);
    let source = after.source.as_str();
    events.switch_set(
        &route.name,
        switch.name(),
        before.value,
        after.value,
        source,
    );
    let toggled = Toggled {
        route: route.name.to_string(),
        switch: switch.name().to_owned(),
        before: before.value,
        source_before: before.source.as_str().to_owned(),
        after: after.value,
        enabled: after.value,
        source: source.to_owned(),
    };
    Ok(answer::json(StatusCode::OK, &toggled))
}

/// The override asked for; `None` removes it.
fn change(params: &Params) -> Result<Option<bool>, Refused> {
    params.only(&CHANGES)?;
    match (params.get("on")?, params.get("reset")?) {
        (Some("1"), None) => Ok(Some(true)),
        (Some("0"), None) => Ok(Some(false)),
        (None, Some("1")) => Ok(None),
        (Some(_), None) => Err("'on' must be 0 or 1".to_owned()),
        (None, Some(_)) => Err("'reset' must be 1".to_owned()),
        (Some(_), Some(_)) => Err("give either 'on' or 'reset'".to_owned()),
        (None, None) => Err("say on=0, on=1 or reset=1".to_owned()),
    }
}
