//! `_session_status`: the settings and counters of `session_prio`.

use http::StatusCode;
use proto::admin::{SessionBucket, SessionStatus};
use router_core::book::status::{BucketCounters, BucketState};

use super::pool_name;
use crate::admin::answer::{self, Answer};
use crate::state::{Route, Switch};

/// `_session_status`.
pub(super) fn status(route: &Route) -> Answer {
    let now = route.switch(Switch::SessionPrio);
    let state = route.priority();
    let spec = &route.spec().guard.priority;
    let without = state.no_header;
    let tallies = state
        .buckets
        .iter()
        .map(|row| row.counters)
        .chain([without]);
    let (mut ptok, mut ctok) = (0_u64, 0_u64);
    for tally in tallies {
        ptok = ptok.saturating_add(tally.prompt_tokens);
        ctok = ctok.saturating_add(tally.cached_tokens);
    }
    let held = route.pool_ids().zip(route.protections());
    let status = SessionStatus {
        route: route.name.to_string(),
        enabled: now.value,
        source: now.source.as_str().to_owned(),
        table: state.buckets.iter().map(row).collect(),
        nohdr: without.admitted + without.refused,
        nohdr_admitted: without.admitted,
        nohdr_refused: without.refused,
        ptok,
        ctok,
        hit_rate: hit_rate(ptok, ctok),
        severe: spec.severe,
        release: spec.release,
        t1_probes: spec.t1_probes,
        warn_frac: spec.warn_frac,
        held: held
            .map(|(pool, now)| (pool_name(route, pool), now.ttft.held))
            .collect(),
    };
    answer::json(StatusCode::OK, &status)
}

fn row(state: &BucketState) -> SessionBucket {
    let BucketState { bucket, counters } = state;
    let BucketCounters {
        admitted,
        refused,
        prompt_tokens: ptok,
        cached_tokens: ctok,
    } = *counters;
    SessionBucket {
        min_turn: bucket.min_turn,
        share: bucket.share,
        tol: bucket.tol,
        admitted,
        refused,
        ptok,
        ctok,
        hit_rate: hit_rate(ptok, ctok),
    }
}

fn hit_rate(ptok: u64, ctok: u64) -> Option<f64> {
    (ptok > 0).then(|| ctok as f64 / ptok as f64)
}
