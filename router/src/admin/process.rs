//! Endpoints about the process: health, readiness, metrics, routes, reload, drain.

use axum::extract::{Extension, Path, Request, State};
use axum::response::Response;
use http::header::HeaderMap;
use http::{StatusCode, Uri};
use proto::admin::{Drain, Owner, Owners, Readiness, ReadyStatus, Reload};
use service::exposition::Format;

use super::query::Params;
use super::status::Together;
use super::{AdminState, Answer, IntoAxum, answer, openapi, routes as listing, status, targets};
use crate::state::{Lifecycle, OwnerUse, Phase, RouteTable};
use router_config::keys::Digest;

/// `GET /healthz`: the process is up.
pub(super) async fn healthz() -> Response {
    answer::typed(StatusCode::OK, "text/plain; charset=utf-8", "ok\n").into_axum()
}

/// `GET /readyz`: at least one route has a usable peer or `server.ready_without_peers` is set, and
/// the process is not draining.
pub(super) async fn readyz(State(state): State<AdminState>) -> Response {
    ready(&state.tables.load(), &state.lifecycle).into_axum()
}

/// The readiness of the process; the same on both ports.
pub(crate) fn ready(table: &RouteTable, lifecycle: &Lifecycle) -> Answer {
    let readiness = readiness(table, lifecycle);
    let status = if readiness.status == ReadyStatus::Ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    answer::json(status, &readiness)
}

fn readiness(table: &RouteTable, lifecycle: &Lifecycle) -> Readiness {
    let usable_routes = table.routes().filter(|route| route.is_usable()).count();
    let has_routes = table.routes().next().is_some();
    let status = match (lifecycle.phase(), usable_routes) {
        (Phase::Serving, 0) if !(table.server.ready_without_peers && has_routes) => {
            ReadyStatus::Unready
        }
        (Phase::Serving, _) => ReadyStatus::Ready,
        (Phase::DrainDelay | Phase::Draining | Phase::Stopped, _) => ReadyStatus::Draining,
    };
    Readiness {
        status,
        usable_routes,
        routes: table.entries.len(),
    }
}

/// `GET /metrics`.
pub(super) async fn metrics(State(state): State<AdminState>, headers: HeaderMap) -> Response {
    let format = Format::of(&headers);
    match state.page.render(format) {
        Ok(page) => answer::typed(StatusCode::OK, format.content_type(), page).into_axum(),
        Err(error) => {
            tracing::error!(%error, "the metrics page cannot be rendered");
            let message = "the metrics page cannot be rendered";
            answer::error(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", message).into_axum()
        }
    }
}

/// `GET /_routes`.
pub(super) async fn routes(State(state): State<AdminState>) -> Response {
    let routes = listing::routes(
        &state.tables.load(),
        state.metrics.reload(),
        state.lifecycle.phase(),
    );
    answer::json(StatusCode::OK, &routes).into_axum()
}

/// `GET /_targets`.
pub(super) async fn targets(State(state): State<AdminState>) -> Response {
    answer::json(StatusCode::OK, &targets::targets(&state.tables.load())).into_axum()
}

/// `GET /_openapi.json`.
pub(super) async fn openapi() -> Response {
    let document = openapi::DOCUMENT.as_str();
    answer::typed(StatusCode::OK, "application/json", document).into_axum()
}

/// `GET /`.
pub(super) async fn pages() -> Response {
    answer::typed(
        StatusCode::OK,
        "text/plain; charset=utf-8",
        openapi::pages(),
    )
    .into_axum()
}

/// `GET /_owners`.
pub(super) async fn owners(State(state): State<AdminState>) -> Response {
    let table = state.tables.load();
    let uses = table.owners.as_ref().map(|book| book.uses());
    let owner = |seen: OwnerUse| Owner {
        owner: seen.owner.to_string(),
        in_flight: seen.in_flight,
        max_concurrency: seen.limits.max_concurrency,
        requests_per_minute: seen.limits.requests_per_minute,
        refused_concurrency: seen.refused_concurrency,
        refused_rate: seen.refused_rate,
    };
    let page = Owners {
        limited: uses.is_some(),
        owners: uses.unwrap_or_default().into_iter().map(owner).collect(),
    };
    answer::json(StatusCode::OK, &page).into_axum()
}

/// `GET /_keys`.
pub(super) async fn keys(State(state): State<AdminState>, uri: Uri) -> Response {
    let table = state.tables.load_full();
    let answered = Params::of(&uri).and_then(|params| {
        params.only(&["fingerprint"])?;
        let asked = match params.get("fingerprint")? {
            Some(hex) => Some(
                Digest::parse(hex)
                    .ok_or_else(|| "'fingerprint' must be 64 hexadecimal digits".to_owned())?,
            ),
            None => None,
        };
        Ok(answer::json(
            StatusCode::OK,
            &listing::keys_answer(&table.keys, asked),
        ))
    });
    answered.unwrap_or_else(answer::bad_request).into_axum()
}

/// `GET /_decisions` and `GET /_sessions` for all routes together.
pub(super) async fn together(
    State(state): State<AdminState>,
    Extension(what): Extension<Together>,
    request: Request,
) -> Response {
    let (parts, _) = request.into_parts();
    status::together(what, state.tables.load_full().routes(), &parts).into_axum()
}

/// `POST /finish_session?session_id=` on every route.
pub(super) async fn finish_session(State(state): State<AdminState>, uri: Uri) -> Response {
    let table = state.tables.load_full();
    let answered = Params::of(&uri).and_then(|params| status::finish(table.routes(), &params));
    answered.unwrap_or_else(answer::bad_request).into_axum()
}

/// `POST /<route>/finish_session?session_id=`.
pub(super) async fn finish_session_on(
    State(state): State<AdminState>,
    Path(route): Path<String>,
    uri: Uri,
) -> Response {
    let table = state.tables.load_full();
    let route = match status::in_force(&table, &route) {
        Ok(route) => route,
        Err(refusal) => return refusal.into_axum(),
    };
    let answered = Params::of(&uri).and_then(|params| status::finish([route], &params));
    answered.unwrap_or_else(answer::bad_request).into_axum()
}

/// `POST /_reload`: 200 when all files are in force as they are on disk, else 422 with the reasons.
pub(super) async fn reload(State(state): State<AdminState>) -> Response {
    match state.control.reload().await {
        Some(reloaded) => reload_answer(reloaded).into_axum(),
        None => answer::ending().into_axum(),
    }
}

fn reload_answer(reloaded: crate::control::Reloaded) -> Answer {
    let (errors, warnings): (Vec<_>, Vec<_>) = reloaded
        .problems
        .iter()
        .partition(|problem| problem.is_error());
    let is_whole = reloaded.is_whole();
    let status = if is_whole {
        StatusCode::OK
    } else {
        StatusCode::UNPROCESSABLE_ENTITY
    };
    let body = Reload {
        ok: is_whole,
        routes: reloaded.routes,
        errors: listing::problems(errors),
        warnings: listing::problems(warnings),
    };
    answer::json(status, &body)
}

/// `POST /_drain`: readiness turns off, and the process ends after its last request. Further calls
/// change nothing.
pub(super) async fn drain(State(state): State<AdminState>) -> Response {
    tracing::info!("drain asked for through the admin port");
    state.control.drain();
    answer::json(StatusCode::OK, &Drain { draining: true }).into_axum()
}
