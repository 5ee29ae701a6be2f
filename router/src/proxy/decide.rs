//! Session, pool and reservation: the one step that chooses, by asking the core.

use std::borrow::Cow;
use std::sync::Arc;

use http::HeaderMap;
use http::request::Parts;
use router_core::book::{Ask, PoolId};
use router_core::decision::Choice;
use router_core::session::{Place, Session, is_blank, pick};

use super::error::{ApiError, clip};
use super::exchange::{self, Exchange};
use super::local;
use crate::content::Inspection;
use crate::state::{Route, RouteTable};

/// Session, pool and reservation; fills in the exchange.
pub(super) fn decide(
    table: &RouteTable,
    exchange: &mut Exchange,
    route: &Arc<Route>,
    parts: &Parts,
    body: &[u8],
) -> Result<(PoolId, usize), ApiError> {
    let inspection = match body {
        [] => Inspection::empty(&table.fields),
        body => Inspection::read(&table.fields, body),
    };
    let model = inspection
        .model()
        .or_else(|| local::query_value(parts.uri.query(), "model").map(Cow::Owned));
    // A receipt outlives its request: what it remembers of a client's text is bounded.
    exchange.model = model.as_deref().map(|model| Arc::from(clip(model)));
    let pool = route.pool(model.as_deref());
    let pool = pool.ok_or_else(|| {
        ApiError::model_not_supported(model.as_deref(), route.models()).on_route(&route.name)
    })?;
    let session = session_of(route, &parts.headers, &inspection);
    let ask = Ask::new(pool, session.placed());
    match route.reserve(ask) {
        Ok(placed) => {
            exchange.session = Arc::from(&*session.routed_text());
            exchange.source = source_of(&session);
            exchange.reservation = Some(placed.reservation);
            exchange.choice = Some(Choice::Send {
                mode: placed.mode,
                facts: placed.facts,
            });
            Ok((pool, placed.peer))
        }
        Err(refusal) => {
            if let Some(gate) = refusal.gate() {
                route.state.metrics.refused(gate.into(), refusal.bucket());
            }
            let served = route.spec().pools[pool.0].model.as_deref();
            let full_status = route.options.full_status.value;
            let error = ApiError::refused(&refusal, full_status, served).on_route(&route.name);
            exchange.session = Arc::from(&*session.routed_text());
            exchange.source = source_of(&session);
            exchange.choice = Some(Choice::Refuse(refusal));
            Err(error)
        }
    }
}

/// The session a request names on a route, with the affinity switch applied.
pub fn session_of<'a>(
    route: &Route,
    headers: &'a HeaderMap,
    inspection: &Inspection<'a>,
) -> Session<'a> {
    let found = pick(&route.options.session_sources.value, |place| match place {
        Place::Header(name) => headers
            .get_all(&**name)
            .iter()
            .map(|value| value.as_bytes())
            .find(|value| !is_blank(value))
            .map(Cow::Borrowed),
        Place::Body(path) => inspection.text(path),
    });
    Session::new(found, route.affinity_acts())
}

/// The label of a session's source, without a copy where it has one of its own.
fn source_of(session: &Session<'_>) -> Arc<str> {
    match session {
        Session::Known(id) => Arc::clone(&id.source),
        Session::None => exchange::no_source(),
        Session::Ignored(_) => Arc::from(session.source()),
    }
}
