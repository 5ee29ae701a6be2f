//! The answer of a running router, about its fleet as it is now.

use http::HeaderMap;
use proto::admin::{RouteDebug, RouteInspect, SwitchState, Toggle, UnknownModel};
use router::content::inspect::{Fields, Inspection};
use router_core::decision::Explanation;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::story::Case;
use super::{ExplainArgs, Request};
use crate::client::Router;
use crate::exit::Failure;
use crate::settings::Settings;

/// Asks the router. A session that was given is asked about by its id, wherever a request would
/// carry it; else the router looks for one in the headers and the body.
///
/// # Errors
/// When the router cannot be reached or refuses, or the route does not serve the model.
pub(super) async fn explain(
    args: &ExplainArgs,
    request: Request,
    settings: &Settings,
) -> Result<Case, Failure> {
    let router = Router::new(settings.one_router()?, settings.token.clone())?;
    let route = args.name.as_str();
    let toggle: Toggle = router.get(&[route, "_affinity_toggle"], &[]).await?;
    let affinity = SwitchState {
        enabled: toggle.enabled,
        source: toggle.source,
        age_s: None,
    };
    match &args.session {
        Some(id) => debug(&router, args, id, &request.body, affinity).await,
        None => inspect(&router, route, request, affinity).await,
    }
}

async fn debug(
    router: &Router,
    args: &ExplainArgs,
    id: &str,
    body: &[u8],
    affinity: SwitchState,
) -> Result<Case, Failure> {
    let route = args.name.as_str();
    let turn = args.turn.map(|turn| turn.to_string());
    let fields = Fields::new(std::iter::empty());
    let inspection = Inspection::read(&fields, body);
    let model = inspection.model();
    let mut query = vec![("sid", id)];
    query.extend(model.as_deref().map(|model| ("model", model)));
    query.extend(turn.as_deref().map(|turn| ("turn", turn)));
    let answer: RouteDebug<Explanation> =
        known(router.get(&[route, "_route_debug"], &query).await?, router)?;
    Ok(Case {
        route: answer.route,
        model: answer.model,
        session: answer.session_id,
        source: if answer.session_affinity_enabled {
            "--session"
        } else {
            "affinity_off"
        }
        .to_owned(),
        affinity,
        balance: None,
        rule: None,
        explanation: answer.explanation,
    })
}

async fn inspect(
    router: &Router,
    route: &str,
    request: Request,
    affinity: SwitchState,
) -> Result<Case, Failure> {
    let Request { headers, body } = request;
    let answer = router
        .post(&[route, "_route_inspect"], &[], passed_on(headers), body)
        .await?;
    let answer: RouteInspect<Explanation> = known(answer, router)?;
    Ok(Case {
        route: answer.route,
        model: answer.model,
        session: answer.session_id,
        source: answer.source,
        affinity,
        balance: None,
        rule: answer.rule,
        explanation: answer.explanation,
    })
}

/// The headers of the request in question, without those that describe its body's transport: the
/// body travels on our own terms.
fn passed_on(mut headers: HeaderMap) -> HeaderMap {
    for name in [
        http::header::HOST,
        http::header::CONTENT_LENGTH,
        http::header::TRANSFER_ENCODING,
        http::header::CONNECTION,
    ] {
        headers.remove(name);
    }
    headers
}

/// The answer, unless the route does not have the model.
fn known<T: DeserializeOwned>(answer: Value, router: &Router) -> Result<T, Failure> {
    if answer["error"] == "model_not_supported" {
        let unknown: UnknownModel = router.read_as(answer)?;
        let asked = unknown
            .model
            .map_or("no model".to_owned(), |model| format!("model `{model}`"));
        return Err(super::model_not_supported(
            &unknown.route,
            &asked,
            &unknown.supported_models,
        ));
    }
    router.read_as(answer)
}
