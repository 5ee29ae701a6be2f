//! The answer from files: the router's own code, over an idle fleet in which every peer is up.

use std::borrow::Cow;
use std::sync::Arc;

use proto::admin::{RuleVerdict, SwitchState};
use router::config::valid::AffinityKind;
use router::content::inspect::{Fields, Inspection};
use router::proxy::{PlacementLookups, RequestContext, rule_against};
use router::state::{Route, TableBuilder};
use router_core::load::Report;
use router_core::session::{Session, SessionId};

use super::super::{loaded, route_of};
use super::story::Case;
use super::{ExplainArgs, Request};
use crate::exit::Failure;
use crate::settings::Settings;

/// Decides as a router that just started would.
///
/// # Errors
/// When the files are invalid, there is no such route, or the route does not serve the model.
pub(super) fn explain(
    args: &ExplainArgs,
    request: &Request,
    settings: &Settings,
) -> Result<Case, Failure> {
    let loaded = loaded(settings)?;
    let valid = route_of(&loaded, &args.name)?.clone();
    let route = TableBuilder::new(Arc::default()).attach(valid);
    let fields = Fields::new(route.body_fields());
    let inspection = Inspection::read(&fields, &request.body);
    let model = inspection.model();
    let Some(pool) = route.pool(model.as_deref()) else {
        let models: Vec<&str> = route.models().collect();
        let asked = model
            .as_deref()
            .map_or("a request without a model".to_owned(), |model| {
                format!("model `{model}`")
            });
        return Err(super::model_not_supported(&route.name, &asked, &models));
    };
    // Nobody was asked, so every engine that would be counts as idle.
    for peer in route.distinct_peers() {
        let _ = route.report_load(&peer.spec.key, Report::Blind);
    }
    let mut asker = RequestContext::of(&route, &request.headers, &inspection);
    if let Some(id) = &args.session {
        asker.session = Session::new(Some(given(id)), route.affinity_acts());
    }
    let session = &asker.session;
    let lookups = PlacementLookups::of(&route, pool, model.as_deref(), session, &inspection);
    let explanation = route.explain(lookups.on(asker.ask(pool, false)));
    let rule = rule_against(&route, &request.body, &inspection).map(|(_, rule)| RuleVerdict {
        name: rule.name.to_string(),
        cond: rule.condition.to_string(),
        status: rule
            .status
            .unwrap_or(route.options.reject_rules_status.value),
    });
    Ok(Case {
        route: route.name.to_string(),
        model: model.map(Cow::into_owned),
        session: session.routed_text().into_owned(),
        source: session.source().to_owned(),
        affinity: affinity(&route),
        balance: Some(route.options.balance.value),
        rule,
        explanation,
    })
}

/// Whether sessions are placed, and the option that says so.
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

/// The id of `--session`.
fn given(id: &str) -> SessionId<'_> {
    SessionId {
        raw: Cow::Borrowed(id.as_bytes()),
        source: Arc::from("--session"),
    }
}
