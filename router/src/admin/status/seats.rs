//! `_sessions`: how many sessions a route remembers, and where one of them lives.

use std::borrow::Cow;
use std::sync::Arc;

use http::StatusCode;
use proto::admin::{PoolSessions, SessionHome, Sessions};
use router_core::session::SessionId;

use super::pool_name;
use crate::admin::answer::{self, Answer};
use crate::admin::query::{Params, Refused};
use crate::state::Route;

/// `_sessions`, with `?session_id=` also where that session lives. Reading renews nothing.
pub(super) fn status(route: &Route, params: &Params) -> Result<Answer, Refused> {
    params.only(&["session_id"])?;
    let asked = params.get("session_id")?;
    let pools = route.pool_ids().map(|pool| {
        let memory = route.memory(pool);
        let counts = PoolSessions {
            sessions: memory.sessions,
            evicted: memory.evicted,
            expired: memory.expired,
        };
        (pool_name(route, pool), counts)
    });
    let sessions = Sessions {
        route: route.name.to_string(),
        remembered: route.spec().remembers_sessions(),
        pools: pools.collect(),
        homes: asked.map(|id| homes(route, id)),
    };
    Ok(answer::json(StatusCode::OK, &sessions))
}

fn homes(route: &Route, id: &str) -> Vec<SessionHome> {
    let id = SessionId {
        raw: Cow::Borrowed(id.as_bytes()),
        source: Arc::from("query.session_id"),
    };
    let found = route.find_session(&id.table_key()).into_iter();
    let home = |home: crate::state::SessionHome| {
        let spec = &route.peers[home.pool.0][home.peer].spec;
        SessionHome {
            pool: pool_name(route, home.pool),
            peer: spec.key.to_string(),
            name: spec.name.to_string(),
            age_s: home.age.as_secs_f64(),
            idle_s: home.idle.as_secs_f64(),
        }
    };
    found.map(home).collect()
}
