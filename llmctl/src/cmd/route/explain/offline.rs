//! Explains from files: the router's own decision, for an idle fleet in which every peer is up.

use router::explain::{SessionGiven, UnknownModel, explain as decide};

use super::super::files::{loaded, route_of};
use super::story::Case;
use super::{ExplainArgs, Request};
use crate::exit::Failure;
use crate::settings::Settings;

/// Decides as a freshly started router would.
///
/// # Errors
/// When the files are invalid, there is no such route, or the route does not serve the model.
pub(super) fn explain(
    args: &ExplainArgs,
    request: &Request,
    settings: &Settings,
) -> Result<Case, Failure> {
    let loaded = loaded(settings)?;
    let route = route_of(&loaded, &args.name)?.clone();
    let (name, balance) = (route.name.to_string(), route.options.balance.value);
    let asked = router::explain::Request {
        headers: &request.headers,
        body: &request.body,
        session: args.session.as_deref().map(|id| SessionGiven {
            id,
            source: "--session",
        }),
    };
    let found = decide(route, &asked).map_err(|unknown| not_served(&name, &unknown))?;
    Ok(Case {
        route: name,
        model: found.model,
        session: found.session,
        source: found.source,
        affinity: found.affinity,
        balance: Some(balance),
        rule: found.rule,
        explanation: found.explanation,
    })
}

fn not_served(route: &str, unknown: &UnknownModel) -> Failure {
    let asked = match &unknown.asked {
        Some(model) => format!("model `{model}`"),
        None => "a request without a model".to_owned(),
    };
    super::model_not_supported(route, &asked, &unknown.served)
}
