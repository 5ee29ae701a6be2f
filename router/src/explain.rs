//! Explains the decision of a freshly started router about one request: every peer is up and idle.
//!
//! The router's own code decides, with a table that holds only this route.

pub mod words;

use std::borrow::Cow;
use std::sync::Arc;

use http::HeaderMap;
use proto::admin::{RuleVerdict, SwitchState};
use router_core::decision::Explanation;
use router_core::load::Report;
use router_core::session::{Session, SessionId};

use crate::content::inspect::{Fields, Inspection};
use crate::placement::{PlacementLookups, RequestContext, rule_against, served_body};
use crate::state::{Route, TableBuilder};
use router_config::valid::{self, AffinityKind};

/// A request as a client would send it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The request's headers.
    pub headers: &'a HeaderMap,
    /// The complete body.
    pub body: &'a [u8],
    /// A session ID that replaces the one from headers and body.
    pub session: Option<SessionGiven<'a>>,
}

/// A session id that did not come from the request.
#[derive(Clone, Copy, Debug)]
pub struct SessionGiven<'a> {
    /// The id.
    pub id: &'a str,
    /// The source that [`Explained::source`] names.
    pub source: &'a str,
}

/// The decision about the request.
#[derive(Clone, Debug)]
pub struct Explained {
    /// The requested model.
    pub model: Option<String>,
    /// The session in the form of `X-Routed-Session`; `-` without one.
    pub session: String,
    /// The session's source in the form of `X-Routed-Source`.
    pub source: String,
    /// Whether affinity is on, and which layer decides that.
    pub affinity: SwitchState,
    /// The content rule that refuses the request before all other decisions.
    pub rule: Option<RuleVerdict>,
    /// The decision and its facts.
    pub explanation: Explanation,
}

/// The route does not serve the requested model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownModel {
    /// The requested model.
    pub asked: Option<String>,
    /// The models that the route serves.
    pub served: Vec<String>,
}

/// Decides about a request to a route.
///
/// # Errors
/// When the route serves models by name and does not have this one.
pub fn explain(route: valid::Route, request: &Request<'_>) -> Result<Explained, UnknownModel> {
    let route = TableBuilder::new(Arc::default()).attach(route);
    let fields = Fields::new(route.body_fields());
    let aliased = served_body(&route, request.body);
    let body = aliased.as_ref().map_or(request.body, |(_, body)| body);
    let inspection = Inspection::read(&fields, body);
    let model = inspection.model();
    let Some(pool) = route.pool(model.as_deref()) else {
        return Err(UnknownModel {
            asked: model.map(Cow::into_owned),
            served: route.models().map(str::to_owned).collect(),
        });
    };
    // No engine was polled, so a peer without a load reading counts as idle.
    for peer in route.distinct_peers() {
        let _ = route.report_load(&peer.spec.key, Report::Blind);
    }
    let mut context = RequestContext::of(&route, request.headers, &inspection);
    if let Some(given) = request.session {
        let id = SessionId {
            raw: Cow::Borrowed(given.id.as_bytes()),
            source: Arc::from(given.source),
        };
        context.session = Session::new(Some(id), route.affinity_acts());
    }
    let session = &context.session;
    let lookups = PlacementLookups::of(&route, pool, model.as_deref(), session, &inspection);
    let explanation = route.explain(lookups.on(context.ask(pool, false)));
    let rule = rule_against(&route, body, &inspection).map(|(_, rule)| RuleVerdict {
        name: rule.name.to_string(),
        cond: rule.condition.to_string(),
        status: rule
            .status
            .unwrap_or(route.options.reject_rules_status.value),
    });
    Ok(Explained {
        session: session.routed_text().into_owned(),
        source: session.source().to_owned(),
        model: model.map(Cow::into_owned),
        affinity: affinity(&route),
        rule,
        explanation,
    })
}

/// Whether affinity is on, and the layer of the option that decides that.
fn affinity(route: &Route) -> SwitchState {
    let options = &route.options;
    let source = if options.affinity.value == AffinityKind::None {
        options.affinity.source
    } else {
        options.affinity_enabled.source
    };
    SwitchState {
        enabled: route.affinity_acts(),
        source: source.as_str().to_owned(),
        age_s: None,
    }
}
