//! `_sessions`: the number of sessions that a route remembers, and the home of one session.

use std::sync::Arc;

use http::StatusCode;
use proto::admin::{AllSessions, FinishedSession, PoolSessions, SessionHome, Sessions};

use super::pool_name;
use crate::admin::answer::{self, Answer};
use crate::admin::query::{Params, Refused};
use crate::state::Route;

/// `_sessions`; with `?session_id=` also the home of that session. Reading does not renew the
/// session.
pub(super) fn status(route: &Route, params: &Params) -> Result<Answer, Refused> {
    let sessions = sessions(route, asked(params)?);
    Ok(answer::json(StatusCode::OK, &sessions))
}

/// The same for several routes together.
pub(in crate::admin) fn every<'r>(
    routes: impl IntoIterator<Item = &'r Arc<Route>>,
    params: &Params,
) -> Result<Answer, Refused> {
    let asked = asked(params)?;
    let routes = routes.into_iter().map(|route| sessions(route, asked));
    let all = AllSessions {
        routes: routes.collect(),
    };
    Ok(answer::json(StatusCode::OK, &all))
}

/// Releases the session `?session_id=` on several routes. An unknown session is no error.
pub(in crate::admin) fn finish<'r>(
    routes: impl IntoIterator<Item = &'r Arc<Route>>,
    params: &Params,
) -> Result<Answer, Refused> {
    let id = asked(params)?.filter(|id| !id.is_empty());
    let id = id.ok_or("the query needs session_id=<id>")?;
    let routes = routes.into_iter();
    let finished = FinishedSession {
        status: "ok".to_owned(),
        session_id: id.to_owned(),
        released: routes.map(|route| route.finish_session(id)).sum(),
    };
    Ok(answer::json(StatusCode::OK, &finished))
}

fn asked(params: &Params) -> Result<Option<&str>, Refused> {
    params.only(&["session_id"])?;
    params.get("session_id")
}

fn sessions(route: &Route, asked: Option<&str>) -> Sessions {
    let pools = route.pool_ids().map(|pool| {
        let memory = route.memory(pool);
        let counts = PoolSessions {
            sessions: memory.sessions,
            evicted: memory.evicted,
            expired: memory.expired,
        };
        (pool_name(route, pool), counts)
    });
    Sessions {
        route: route.name.to_string(),
        remembered: route.spec().remembers_sessions(),
        pools: pools.collect(),
        homes: asked.map(|id| homes(route, id)),
    }
}

fn homes(route: &Route, id: &str) -> Vec<SessionHome> {
    let found = route.find_session(id).into_iter();
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
