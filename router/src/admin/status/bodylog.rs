//! `_bodylog_status` and `_bodylog_toggle`: which part of a route's requests is recorded, and the
//! state of delivery.

use std::str::FromStr;

use chrono::Utc;
use router_bodylog::{BodyLog, Reason};
use std::collections::BTreeMap;

use http::StatusCode;
use proto::admin::{
    BodylogStatus, BodylogToggle, BodylogToggled, Changed, Recording, Toggle, Toggled,
};
use router_core::layered::Setting;

use super::POSTS;
use crate::admin::answer::{self, Answer};
use crate::admin::query::{Params, Refused};
use crate::state::recording::CaptureSettings;
use crate::state::{Route, Switch};
use crate::telemetry::events::Events;
use router_config::valid::Bodies;

/// Parameters that change something.
const CHANGES: [&str; 5] = ["on", "pct", "bodies", "reset", "reset_counters"];

/// `GET _bodylog_status`.
pub(super) fn status(route: &Route, log: &BodyLog) -> Answer {
    let settings = route.capture();
    let (log, tally) = (log.status(), &route.state.bodylog);
    let seconds = |unix_ms: u64| unix_ms as f64 / 1000.0;
    let counts = log.counts;
    let shown = BodylogStatus {
        route: route.name.to_string(),
        listener_configured: log.is_on,
        enabled: settings.enabled.value,
        sample_pct: settings.pct.value,
        bodies: settings.bodies.value.to_string(),
        connected: counts.is_connected,
        write_count: tally.write_count(),
        drop_count: tally.drop_count(),
        last_log_ts: tally.last_unix_ms().map(seconds),
        spool_bytes: log.spool_bytes,
        spool_oldest_s: log.spool_oldest.as_secs_f64(),
        spool_error: log.spool_error,
        unacked: log.unacked,
        inflight_bytes: log.inflight_bytes,
        queued_total: counts.queued,
        acked_total: counts.acked,
        dropped: Reason::ALL
            .into_iter()
            .zip(counts.dropped)
            .map(|(reason, count)| (reason.as_str().to_owned(), count))
            .collect(),
        shed_total: counts.shed,
        now: Utc::now().timestamp_millis() as f64 / 1000.0,
    };
    answer::json(StatusCode::OK, &shown)
}

/// Answers `GET _bodylog_toggle`. Refuses parameters that would change something: only `POST`
/// writes.
pub(super) fn show(route: &Route, params: &Params) -> Answer {
    if params.has_any(&CHANGES) {
        return answer::method_not_allowed(POSTS);
    }
    let enabled = route.capture().enabled;
    let shown = BodylogToggle {
        toggle: Toggle {
            route: route.name.to_string(),
            switch: Switch::Bodylog.name().to_owned(),
            enabled: enabled.value,
            source: enabled.source.as_str().to_owned(),
            counters: BTreeMap::new(),
        },
        recording: recording(route),
    };
    answer::json(StatusCode::OK, &shown)
}

/// The current settings of the switch `bodylog`.
pub(in crate::admin) fn recording(route: &Route) -> Recording {
    let CaptureSettings { pct, bodies, .. } = route.capture();
    Recording {
        sample_pct: pct.value,
        sample_pct_source: pct.source.as_str().to_owned(),
        bodies: bodies.value.to_string(),
        bodies_source: bodies.source.as_str().to_owned(),
        age_s: route.state.capture.age().map(|age| age.as_secs()),
    }
}

/// `POST ?on=0|1&pct=0..100&bodies=full|none|truncate(<size>)` sets the given values, `?reset=1`
/// removes all of them. `?reset_counters=1` sets the route's counts to zero, alone or with the
/// others.
pub(super) fn set(route: &Route, params: &Params, events: &Events) -> Result<Answer, Refused> {
    let (change, counters_reset) = Change::of(params)?;
    let before = route.capture();
    let (overrides, capture) = (&route.state.overrides, &route.state.capture);
    if counters_reset {
        route.state.bodylog.reset();
        tracing::info!(route = &*route.name, switch = "bodylog", "counters zeroed");
    }
    let changes = !matches!(
        change,
        Change::Set {
            on: None,
            pct: None,
            bodies: None
        }
    );
    match change {
        Change::Reset => {
            overrides.set(Switch::Bodylog, None);
            capture.set_pct(None);
            capture.set_bodies(None);
        }
        Change::Set { on, pct, bodies } => {
            if on.is_some() {
                overrides.set(Switch::Bodylog, on);
            }
            if pct.is_some() {
                capture.set_pct(pct);
            }
            if bodies.is_some() {
                capture.set_bodies(bodies);
            }
        }
    }
    let after = route.capture();
    if changes {
        events.capture_set(&route.name, &before, &after);
    }
    let source = after.enabled.source.as_str();
    let toggled = BodylogToggled {
        toggled: Toggled {
            route: route.name.to_string(),
            switch: Switch::Bodylog.name().to_owned(),
            before: before.enabled.value,
            source_before: before.enabled.source.as_str().to_owned(),
            after: after.enabled.value,
            enabled: after.enabled.value,
            source: source.to_owned(),
            counters_reset,
        },
        sample_pct: changed(before.pct, after.pct, |pct| pct),
        bodies: changed(before.bodies, after.bodies, |bodies| bodies.to_string()),
    };
    Ok(answer::json(StatusCode::OK, &toggled))
}

fn changed<T, U>(before: Setting<T>, after: Setting<T>, shown: impl Fn(T) -> U) -> Changed<U> {
    Changed {
        before: shown(before.value),
        after: shown(after.value),
        source: after.source.as_str().to_owned(),
    }
}

/// The requested change.
enum Change {
    Reset,
    Set {
        on: Option<bool>,
        pct: Option<f64>,
        bodies: Option<Bodies>,
    },
}

impl Change {
    /// Parses the change, and whether to reset the counters.
    fn of(params: &Params) -> Result<(Self, bool), Refused> {
        params.only(&CHANGES)?;
        let counters = params.flag("reset_counters")?;
        let on = match params.get("on")? {
            None => None,
            Some("1") => Some(true),
            Some("0") => Some(false),
            Some(_) => return Err("'on' must be 0 or 1".to_owned()),
        };
        let pct = params.get("pct")?.map(percent).transpose()?;
        let bodies = params.get("bodies")?.map(Bodies::from_str).transpose();
        let bodies = bodies
            .map_err(|_| "'bodies' must be full, none or truncate(<size>), as truncate(64k)")?;
        let sets = on.is_some() || pct.is_some() || bodies.is_some();
        match (params.flag("reset")?, sets) {
            (true, true) => Err("give either 'reset' or what to set".to_owned()),
            (true, false) => Ok((Self::Reset, counters)),
            (false, false) if !counters => Err("say on=, pct=, bodies= or reset=1".to_owned()),
            (false, _) => Ok((Self::Set { on, pct, bodies }, counters)),
        }
    }
}

/// The comparison is written so that NaN fails.
fn percent(text: &str) -> Result<f64, Refused> {
    let is_plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    match text.parse::<f64>() {
        Ok(pct) if is_plain && (0.0..=100.0).contains(&pct) => Ok(pct),
        _ => Err("'pct' must be a number from 0 to 100".to_owned()),
    }
}
