//! `_<switch>_toggle`: the runtime layer of a route's switches.

use std::collections::BTreeMap;

use http::StatusCode;
use proto::admin::{Toggle, Toggled};

use super::POSTS;
use crate::admin::answer::{self, Answer};
use crate::admin::query::{Params, Refused};
use crate::state::{Route, Switch};
use crate::telemetry::events::Events;

/// Parameters that change something.
const CHANGES: [&str; 3] = ["on", "reset", "reset_counters"];

/// Answers `GET`. Refuses parameters that would change something: only `POST` writes.
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
        counters: counters(route, switch),
    };
    answer::json(StatusCode::OK, &shown)
}

/// `POST ?on=0|1` sets an override, `?reset=1` removes it. `?reset_counters=1` sets the switch's
/// counters to zero, if it has any, alone or with one of the others.
pub(super) fn set(
    route: &Route,
    switch: Switch,
    params: &Params,
    events: &Events,
) -> Result<Answer, Refused> {
    let Change {
        to,
        counters: counters_reset,
    } = change(params)?;
    let below = switch.below(&route.options);
    let overrides = &route.state.overrides;
    let (before, after) = match to {
        None => (route.switch(switch), route.switch(switch)),
        Some(to) => (below.under(overrides.set(switch, to)), below.under(to)),
    };
    let source = after.source.as_str();
    if to.is_some() {
        route.obey_switches();
        let (name, before) = (switch.name(), before.value);
        events.switch_set(&route.name, name, before, after.value, source);
    }
    if counters_reset {
        reset_counters(route, switch);
        tracing::info!(
            route = &*route.name,
            switch = switch.name(),
            "counters zeroed"
        );
    }
    let toggled = Toggled {
        route: route.name.to_string(),
        switch: switch.name().to_owned(),
        before: before.value,
        source_before: before.source.as_str().to_owned(),
        after: after.value,
        enabled: after.value,
        source: source.to_owned(),
        counters_reset,
    };
    Ok(answer::json(StatusCode::OK, &toggled))
}

/// The change that a `POST` requests; at least one of the two.
struct Change {
    /// The override; `Some(None)` removes it.
    to: Option<Option<bool>>,
    counters: bool,
}

fn change(params: &Params) -> Result<Change, Refused> {
    params.only(&CHANGES)?;
    let counters = params.flag("reset_counters")?;
    let to = match (params.get("on")?, params.flag("reset")?) {
        (Some(_), true) => return Err("give either 'on' or 'reset'".to_owned()),
        (Some("1"), false) => Some(Some(true)),
        (Some("0"), false) => Some(Some(false)),
        (Some(_), false) => return Err("'on' must be 0 or 1".to_owned()),
        (None, true) => Some(None),
        (None, false) if counters => None,
        (None, false) => return Err("say on=0, on=1 or reset=1".to_owned()),
    };
    Ok(Change { to, counters })
}

fn counters(route: &Route, switch: Switch) -> BTreeMap<String, u64> {
    let counts = route.state.transforms.counts(switch);
    counts
        .into_iter()
        .map(|(name, count)| (name.to_owned(), count))
        .collect()
}

fn reset_counters(route: &Route, switch: Switch) {
    match switch {
        Switch::RateLimit => {
            route.reset_trips();
        }
        Switch::SessionPrio => route.reset_priority(),
        Switch::RejectRules => route.rules.reset_hits(),
        Switch::IncludeUsage | Switch::CchStrip | Switch::KimiNormalize | Switch::SystemHoist => {
            route.state.transforms.reset(switch);
        }
        Switch::Ttft | Switch::Ttft429 | Switch::Tps | Switch::Bodylog | Switch::Affinity => {}
    }
}
