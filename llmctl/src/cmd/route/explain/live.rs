//! Explains with a running router, from the current state of its fleet.

use http::{HeaderMap, StatusCode};
use proto::admin::{RouteInspect, SwitchState, Toggle, UnknownModel};
use router_core::decision::Explanation;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::story::Case;
use super::{ExplainArgs, Request};
use crate::client::Router;
use crate::exit::Failure;
use crate::settings::Settings;

/// Asks the router. A session from the command line counts wherever a request would carry it;
/// otherwise the router looks for one in the headers and the body. When every peer is banned, the
/// router answers 503 with the explanation in it.
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
    let query: Vec<_> = args.session.iter().map(|id| ("sid", id.as_str())).collect();
    let answer = router
        .post_or(
            &[route, "_route_inspect"],
            &query,
            passed_on(request.headers),
            request.body,
            StatusCode::SERVICE_UNAVAILABLE,
        )
        .await?;
    let answer: RouteInspect<Explanation> = known(answer, &router)?;
    Ok(Case {
        route: answer.route,
        model: answer.model,
        session: answer.session_id,
        source: match answer.source.as_str() {
            "query.sid" => "--session".to_owned(),
            _ => answer.source,
        },
        affinity: SwitchState {
            enabled: toggle.enabled,
            source: toggle.source,
            age_s: None,
        },
        balance: None,
        rule: answer.rule,
        explanation: answer.explanation,
    })
}

/// The headers of the explained request, without those that describe the transport of its body: the
/// body travels in a request of our own.
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

/// Reads the answer, unless the route does not have the model.
fn known<T: DeserializeOwned>(answer: Value, router: &Router) -> Result<T, Failure> {
    if answer["error"] == "model_not_supported" {
        let unknown: UnknownModel = router.read_as(answer)?;
        let asked = unknown
            .model
            .map_or("a request without a model".to_owned(), |model| {
                format!("model `{model}`")
            });
        return Err(super::model_not_supported(
            &unknown.route,
            &asked,
            &unknown.supported_models,
        ));
    }
    router.read_as(answer)
}
