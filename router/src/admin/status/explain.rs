//! `_route_debug` and `_route_inspect`: explain the decision about a request, without sending or
//! counting it.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use proto::admin::{ErrorBody, RouteDebug, RouteInspect, RuleVerdict, Score, UnknownModel};
use router_core::admission::Refusal;
use router_core::affinity::{Affinity, Hash, hash};
use router_core::book::{PlacementRequest, PoolId};
use router_core::decision::{Explanation, Outcome, PeerFacts};
use router_core::pool::Role;
use router_core::rules::Rule;
use router_core::session::{Session, SessionId};

use super::{has_no_peers, no_peers, transforms};
use crate::admin::answer::{self, Answer};
use crate::admin::query::{Params, Refused};
use crate::content::Inspection;
use crate::placement::{PlacementLookups, RequestContext, rule_against, served_body};
use crate::state::{Route, RouteTable};

/// The default session of `_route_debug`.
const DEFAULT_SESSION: &str = "default";

/// The source name of a session from the query.
const FROM_QUERY: &str = "query.sid";

/// The highest turn that a session header may give.
const TURN_MAX: usize = 1_000_000_000;

/// Adds the active tier's priority to the answer of `_route_inspect`.
const ACTIVE_LEVEL: HeaderName = HeaderName::from_static("x-routed-active-level");

/// `_route_debug`.
pub(super) fn debug(table: &RouteTable, route: &Route, params: &Params) -> Result<Answer, Refused> {
    let sid = params.get("sid")?.unwrap_or(DEFAULT_SESSION);
    let model = params.get("model")?;
    let turn = params.number("turn", 1..=TURN_MAX)?;
    if has_no_peers(route) {
        return Ok(answer::json(
            StatusCode::SERVICE_UNAVAILABLE,
            &ErrorBody { error: no_peers() },
        ));
    }
    let Some(pool) = route.pool(model) else {
        return Ok(unknown_model(route, model));
    };
    let acts = route.affinity_acts();
    let session = Session::new(Some(named(sid)), acts);
    let nothing = Inspection::empty(&table.fields);
    let lookups = PlacementLookups::of(route, pool, model, &session, &nothing);
    let explanation = route.explain(lookups.on(PlacementRequest {
        turn: turn.and_then(|turn| turn.try_into().ok()),
        switches: route.switches(),
        ..PlacementRequest::new(pool, session.placed())
    }));
    let natural = natural(route, pool, sid);
    let natural = natural.and_then(|(key, score)| {
        explanation
            .peers
            .iter()
            .find(|peer| peer.peer.as_str() == key)
            .map(|peer| (peer, score))
    });
    let actual = Actual::of(&explanation);
    let debug = RouteDebug {
        route: route.name.to_string(),
        model: route.spec().pools[pool.0]
            .model
            .as_deref()
            .map(str::to_owned),
        session_id: sid.to_owned(),
        algorithm: algorithm(route),
        natural_target: natural.map(|(peer, _)| peer.name.clone()),
        natural_peer: natural.map(|(peer, _)| peer.peer.to_string()),
        natural_hash: natural.map(|(_, score)| score),
        natural_banned: natural.map(|(peer, _)| peer.banned),
        actual_pick: actual.name,
        actual_peer: actual.peer,
        actual_hash: actual.hash,
        actual_mode: actual.mode,
        session_affinity_enabled: acts,
        scores: explanation.peers.iter().enumerate().map(score).collect(),
        explanation,
    };
    Ok(answer::json(StatusCode::OK, &debug))
}

/// A session ID from the query.
fn named(sid: &str) -> SessionId<'_> {
    SessionId {
        raw: Cow::Borrowed(sid.as_bytes()),
        source: Arc::from(FROM_QUERY),
    }
}

/// `_route_inspect`. `?sid=` is the session, wherever the request would carry it; the other
/// parameters belong to the request.
pub(super) fn inspect(
    table: &RouteTable,
    route: &Route,
    parts: &Parts,
    params: &Params,
    body: &Bytes,
) -> Result<Answer, Refused> {
    let sid = params.get("sid")?;
    if has_no_peers(route) {
        return Ok(answer::json(
            StatusCode::SERVICE_UNAVAILABLE,
            &ErrorBody { error: no_peers() },
        ));
    }
    let aliased = served_body(route, body).map(|(_, body)| Bytes::from(body));
    let body = aliased.as_ref().unwrap_or(body);
    let inspection = Inspection::read(&table.fields, body);
    let model = inspection.model();
    let Some(pool) = route.pool(model.as_deref()) else {
        return Ok(unknown_model(route, model.as_deref()));
    };
    let mut asker = RequestContext::of(route, &parts.headers, &inspection);
    if let Some(sid) = sid {
        asker.session = Session::new(Some(named(sid)), route.affinity_acts());
    }
    let session = &asker.session;
    let lookups = PlacementLookups::of(route, pool, model.as_deref(), session, &inspection);
    let explanation = route.explain(lookups.on(asker.ask(pool, false)));
    let actual = Actual::of(&explanation);
    let status = match &explanation.outcome {
        Outcome::Refuse(Refusal::NoHealthyPeer { .. }) => StatusCode::SERVICE_UNAVAILABLE,
        Outcome::Refuse(_) | Outcome::Wait { .. } | Outcome::Send { .. } => StatusCode::OK,
    };
    let active_level = route.limits(pool).tier.unwrap_or_default();
    let put_right = transforms::put_right(route, transforms::DEFAULT_PATH, &inspection, body);
    let inspected = RouteInspect {
        route: route.name.to_string(),
        model: model.map(Cow::into_owned),
        session_id: session.routed_text().into_owned(),
        source: session.source().to_owned(),
        mode: actual.mode,
        hash: actual.hash,
        rule: rule_against(route, body, &inspection).map(|(_, rule)| verdict(route, rule)),
        pick: actual.name,
        peer: actual.peer,
        active_level,
        cch_stripped: put_right.headers_stripped > 0,
        explanation,
    };
    let mut answer = answer::json(status, &inspected);
    answer
        .headers_mut()
        .insert(ACTIVE_LEVEL, HeaderValue::from(active_level));
    Ok(answer)
}

fn verdict(route: &Route, rule: &Rule) -> RuleVerdict {
    RuleVerdict {
        name: rule.name.to_string(),
        cond: rule.condition.to_string(),
        status: rule
            .status
            .unwrap_or(route.options.reject_rules_status.value),
    }
}

/// Status 200: the question was valid, and this is its answer.
pub(super) fn unknown_model(route: &Route, model: Option<&str>) -> Answer {
    let unknown = UnknownModel {
        route: route.name.to_string(),
        error: "model_not_supported".to_owned(),
        hint: "name one of supported_models".to_owned(),
        model: model.map(str::to_owned),
        supported_models: route.models().map(str::to_owned).collect(),
    };
    answer::json(StatusCode::OK, &unknown)
}

/// The last part of an explanation, the same for both endpoints.
#[derive(Default)]
struct Actual {
    name: Option<String>,
    peer: Option<String>,
    mode: Option<String>,
    hash: Option<u64>,
}

impl Actual {
    fn of(explanation: &Explanation) -> Self {
        match &explanation.outcome {
            Outcome::Send {
                peer,
                name,
                mode,
                facts,
            } => Self {
                name: Some(name.clone()),
                peer: Some(peer.to_string()),
                mode: Some(mode.as_str().to_owned()),
                hash: facts.home.map(|home| home.score),
            },
            Outcome::Wait { .. } | Outcome::Refuse(_) => Self::default(),
        }
    }
}

fn score((idx, peer): (usize, &PeerFacts)) -> Score {
    Score {
        idx,
        name: peer.name.clone(),
        peer: peer.peer.to_string(),
        hash: peer.score,
        banned: peer.banned,
    }
}

fn placement(route: &Route) -> Option<Hash> {
    match route.spec().affinity {
        Affinity::Hash { hash, .. } => Some(hash),
        Affinity::Sticky | Affinity::None => None,
    }
}

fn algorithm(route: &Route) -> String {
    let name = match placement(route) {
        Some(Hash::Crc32) => "crc32",
        Some(Hash::Rendezvous) => "rendezvous",
        Some(Hash::RendezvousMd5) => "rendezvous_md5",
        None if route.spec().affinity == Affinity::Sticky => "sticky_least_loaded",
        None => "none",
    };
    name.to_owned()
}

/// The home of a session when no peer is banned: in the highest tier with an enabled peer.
fn natural<'r>(route: &'r Route, pool: PoolId, sid: &str) -> Option<(&'r str, u64)> {
    let enabled = || {
        route.spec().pools[pool.0]
            .peers
            .iter()
            .filter(|peer| peer.enabled && peer.role == Role::Regular)
    };
    let tier = enabled().map(|peer| peer.priority).max()?;
    let keys: Vec<&str> = enabled()
        .filter(|peer| peer.priority == tier)
        .map(|peer| peer.key.as_str())
        .collect();
    let (index, score) = hash::home(placement(route)?, sid.as_bytes(), keys.iter().copied())?;
    keys.get(index).map(|key| (*key, score))
}
