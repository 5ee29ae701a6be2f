//! The console: pages for people, below `/console/` on the admin port.
//!
//! The shell, its script and its stylesheet are open and reveal nothing. The views are fragments of
//! HTML that are rendered from the values behind the JSON pages; reading them takes the same rights.
//! Changes go to the JSON endpoints.

mod events;
mod facts;
mod fleet;
mod parts;
mod receipt;
mod requests;
mod route;
mod shell;
mod view;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use http::header::{self, HeaderValue};

pub(super) use self::events::Streams;
pub(super) use self::facts::sample;
use super::{AdminState, IntoAxum, answer, guard_read};

/// No source outside of this port, no inline code, no frame around the console.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The paths of the console.
pub(super) fn router(state: &AdminState) -> Router<AdminState> {
    let views = Router::new()
        .route("/console/view", get(view::once))
        .route("/console/events", get(events::live))
        .route_layer(from_fn_with_state(state.clone(), guard_read));
    Router::new()
        .route(
            "/console",
            get(|| async { Redirect::permanent("/console/") }),
        )
        .route("/console/", get(shell::page))
        .route("/console/console.js", get(shell::script))
        .route("/console/console.css", get(shell::stylesheet))
        .route("/console/icon.svg", get(shell::icon))
        .merge(views)
        .route_layer(from_fn_with_state(state.clone(), guard))
}

/// Hides the console where it is switched off, and protects its pages in the browser.
async fn guard(State(state): State<AdminState>, request: Request, next: Next) -> Response {
    if !state.tables.load().server.console {
        return answer::not_found("the console is switched off: server.console").into_axum();
    }
    let mut response = next.run(request).await.into_response();
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(
        "cross-origin-resource-policy",
        HeaderValue::from_static("same-origin"),
    );
    response
}

#[cfg(test)]
mod tests;
