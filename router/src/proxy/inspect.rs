//! Reads a request's model, session and pool, and applies the content rules.

use std::borrow::Cow;
use std::sync::Arc;

use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Method, header};
use router_core::book::PoolId;
use router_core::decision::Choice;
use router_core::session::Session;

use super::error::{ApiError, clip};
use super::phase::{Asked, Authorised, Inspected, Live, Received, Refused};
use super::query_model::QueryModel;
use super::stored::{self, StoredUse};
use crate::content::alias::Alias;
use crate::content::{Form, FormError, Inspection, Unreadable};
use crate::placement::{RequestContext, is_probe, rule_against, wanted_facts};
use crate::settled::no_source;
use crate::state::RouteTable;
use crate::telemetry::metrics::{Gate, Unplaced};

/// The placement needs of an inspected request, from its head and body.
pub(super) struct Question<'a> {
    /// The body's fields.
    pub(super) inspection: Inspection<'a>,
    /// The full model name.
    pub(super) model: Option<Cow<'a, str>>,
    /// Session and turn.
    pub(super) context: RequestContext<'a>,
    /// The pool that serves the model.
    pub(super) pool: PoolId,
    /// A health check by the client, or a question about a stored object. Load gates do not apply to
    /// it.
    pub(super) exempt: bool,
    /// The only peer that can serve the request, because it stores what the request names.
    pub(super) only: Option<usize>,
    /// No peer is known to store what the path names. The request visits one after the other.
    pub(super) seeks: bool,
    /// The target with the served model, where the query asked by an alias.
    pub(super) renamed: Option<PathAndQuery>,
}

/// Inspects a request whose body was read. `body` and `form` name the served model where the client
/// asked by an `alias`.
///
/// # Errors
/// A content rule refuses the request, the route has no pool for its model, or the router cannot
/// read what has to decide.
pub(super) fn inspect<'a>(
    table: &'a RouteTable,
    mut authorised: Live<Authorised>,
    parts: &'a Parts,
    body: &'a [u8],
    form: Option<&'a Result<Form, FormError>>,
    alias: Option<Box<Alias>>,
    received: Received,
) -> Result<(Live<Inspected>, Question<'a>), Box<Refused>> {
    let exempt = is_probe(authorised.path());
    let wanted = wanted_facts(&authorised.route).filter(|_| !exempt);
    let must_be_read = !exempt && (wanted.is_some() || authorised.route.reads_the_model());
    let inspection = match form {
        None => Inspection::read_for(&table.fields, wanted, body),
        Some(Ok(form)) => Inspection::read_form(&table.fields, wanted, &form.json, body.len()),
        Some(Err(_)) => Inspection::empty(&table.fields),
    };
    let mut alias = alias;
    let mut renamed = None;
    let model = inspection.model().or_else(|| {
        let QueryModel {
            model,
            alias: found,
        } = QueryModel::of(&authorised.route, &parts.uri)?;
        if let Some((names, target)) = found {
            alias = Some(names);
            renamed = Some(target);
        }
        Some(Cow::Owned(model))
    });
    let context = RequestContext::of(&authorised.route, &parts.headers, &inspection);
    if let Some(capture) = &mut authorised.capture {
        capture.asked_for_stream(inspection.stream());
        if let Session::Known(id) = &context.session {
            capture.session(&id.table_key());
        }
    }
    let path = authorised.path();
    let stored = StoredUse::of(path, &parts.method, &inspection);
    let home = stored::home(&authorised.arrival.sinks.stored, path, &inspection);
    let home = home.and_then(|home| stored::peer_of(&authorised.route, &home));
    let asked = asked(model.as_deref(), alias, stored, &context.session);
    let inspected = authorised.next(|authorised| Inspected {
        authorised,
        received,
        asked,
    });
    let route = &inspected.authorised.route;
    if let Some(Err(why)) = form
        && (must_be_read || route.aliases.is_some())
    {
        let error = ApiError::unreadable_form(*why).on_route(&route.name);
        return Err(Refused::new(inspected, error));
    }
    let exempt = exempt || stored.is_of_one();
    if !exempt && let Some((index, rule)) = rule_against(route, body, &inspection) {
        route.rules.hit(index);
        route.state.metrics.refused(Gate::Rule, None);
        let choice = Choice::Rule {
            name: Arc::clone(&rule.name),
            condition: Arc::clone(&rule.condition),
        };
        let status = route.options.reject_rules_status.value;
        let error = ApiError::rejected_by_rule(rule, status).on_route(&route.name);
        return Err(Refused::decided(inspected, choice, error));
    }
    let pool = match (home, &model) {
        (Some((pool, _)), None) => Some(pool),
        _ => route.pool(model.as_deref()),
    };
    let Some(pool) = pool else {
        if stored.is_of_one() {
            let error = ApiError::stored_not_known().on_route(&route.name);
            return Err(Refused::new(inspected, error));
        }
        route.state.metrics.unplaced(Unplaced::UnknownModel);
        let error = ApiError::model_not_supported(model.as_deref(), route.models());
        let error = error.on_route(&route.name);
        return Err(Refused::new(inspected, error));
    };
    if must_be_read
        && form.is_none()
        && let Some(why) = Unreadable::of(&inspection, body)
    {
        let declared = parts.headers.get(header::CONTENT_TYPE);
        let error = ApiError::unreadable_body(why, declared).on_route(&route.name);
        return Err(Refused::new(inspected, error));
    }
    let question = Question {
        inspection,
        model,
        context,
        pool,
        exempt,
        only: home.filter(|(at, _)| *at == pool).map(|(_, peer)| peer),
        renamed,
        seeks: home.is_none()
            && stored == StoredUse::Names
            && matches!(parts.method, Method::GET | Method::HEAD),
    };
    Ok((inspected, question))
}

fn asked(
    model: Option<&str>,
    alias: Option<Box<Alias>>,
    stored: StoredUse,
    session: &Session<'_>,
) -> Asked {
    let model = alias.as_ref().map_or(model, |alias| Some(&*alias.asked));
    Asked {
        // A receipt outlives its request, so the client's text in it is bounded.
        model: model.map(|model| Arc::from(clip(model))),
        alias,
        stored,
        session: Arc::from(&*session.routed_text()),
        source: match session {
            // A model with its own label needs no copy.
            Session::Known(id) => Arc::clone(&id.source),
            Session::None => no_source(),
            Session::Ignored(_) => Arc::from(session.source()),
        },
    }
}
