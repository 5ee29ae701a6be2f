//! The admin port, and the status paths that it shares with the public port.
//!
//! `/healthz`, `/readyz` and `/metrics` are open; [`access`] guards everything else. Handlers read
//! the current table and change only a route's runtime switches. Reload and drain are requests to
//! [`Control`].

pub mod access;
mod answer;
mod console;
mod findings;
mod openapi;
mod process;
pub mod public;
mod query;
mod routes;
pub mod status;
mod targets;
mod token;

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, Path, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use http::request;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use router_bodylog::BodyLog;

use self::access::{Caller, Denied, Token};
use self::status::{Endpoint, Together};
use crate::control::Control;
use crate::findings::Watch;
use crate::state::{Lifecycle, RouteTable};
use crate::telemetry::events::{AdminChange, Events};
use crate::telemetry::metrics::{Live, Metrics, Page};
use service::budget::ByteBudget;
use service::connections::Connections;

pub use answer::Answer;
pub use findings::watch;
pub(crate) use process::ready;

/// Shared state of the admin port's handlers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AdminState {
    tables: Arc<ArcSwap<RouteTable>>,
    lifecycle: Lifecycle,
    control: Control,
    metrics: Arc<Metrics>,
    events: Arc<Events>,
    bodylog: Arc<BodyLog>,
    findings: Arc<Watch>,
    page: Arc<Page>,
    streams: console::Streams,
}

/// The parts of the process that the admin port reads or acts on.
#[derive(Debug)]
pub struct Parts {
    /// The current routes.
    pub tables: Arc<ArcSwap<RouteTable>>,
    /// Whether the process serves or drains.
    pub lifecycle: Lifecycle,
    /// Requests for reload, drain and cut.
    pub control: Control,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Log lines and their counters.
    pub events: Arc<Events>,
    /// The budget for bodies in memory, bytes.
    pub budget: ByteBudget,
    /// Connections of the public port.
    pub connections: Connections,
    /// Records of exchanges.
    pub bodylog: Arc<BodyLog>,
    /// Counts for the findings.
    pub findings: Arc<Watch>,
}

impl AdminState {
    /// Builds the state from the process's parts.
    pub fn new(parts: Parts) -> Self {
        let Parts {
            tables,
            lifecycle,
            control,
            metrics,
            events,
            budget,
            connections,
            bodylog,
            findings,
        } = parts;
        let live = Live::new(
            Arc::clone(&tables),
            budget,
            connections,
            Arc::clone(&bodylog),
            Arc::clone(&findings),
        );
        let page = Arc::new(Page::new(&metrics, live));
        Self {
            tables,
            lifecycle,
            control,
            metrics,
            events,
            bodylog,
            findings,
            page,
            streams: console::Streams::default(),
        }
    }
}

/// The TCP peer of an admin request.
#[derive(Clone, Copy, Debug)]
pub struct PeerAddr(pub SocketAddr);

/// The admin port. Requests carry their [`PeerAddr`] as an extension; without it, endpoints that
/// check the caller refuse the request.
pub fn router(state: AdminState) -> Router {
    let reads = Router::new()
        .route("/_routes", get(process::routes))
        .route("/_keys", get(process::keys))
        .route("/_findings", get(findings::page))
        .route("/_targets", get(process::targets))
        .route("/_openapi.json", get(process::openapi))
        .route("/", get(process::pages))
        .route("/_owners", get(process::owners))
        .route(
            "/_decisions",
            get(process::together).layer(Extension(Together::Decisions)),
        )
        .route(
            "/_sessions",
            get(process::together).layer(Extension(Together::Sessions)),
        )
        .route_layer(from_fn_with_state(state.clone(), guard_read));
    let writes = Router::new()
        .route("/_reload", post(process::reload))
        .route("/_drain", post(process::drain))
        .route("/finish_session", post(process::finish_session))
        .route("/{route}/finish_session", post(process::finish_session_on))
        .route_layer(from_fn_with_state(state.clone(), guard_write));
    Router::new()
        .route("/healthz", get(process::healthz))
        .route("/readyz", get(process::readyz))
        .route("/metrics", get(process::metrics))
        // The handler checks the caller itself: whether a request writes depends on the endpoint.
        .route("/{route}/{endpoint}", any(route_status))
        .merge(reads)
        .merge(console::router(&state))
        .merge(writes)
        .fallback(|| async { answer::not_found("there is no such path").into_axum() })
        .method_not_allowed_fallback(|| async { answer::wrong_method().into_axum() })
        .with_state(state)
}

async fn guard_read(State(state): State<AdminState>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    match may_read(&state, &parts).await {
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
        Err(why) => why.answer().into_axum(),
    }
}

async fn guard_write(State(state): State<AdminState>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let token = match may_write(&state, &parts).await {
        Ok(token) => token,
        Err(why) => return why.answer().into_axum(),
    };
    let change = change(&parts, token);
    let response = next.run(Request::from_parts(parts, body)).await;
    state.events.admin_change(&change, response.status());
    response
}

async fn may_read(state: &AdminState, parts: &request::Parts) -> Result<(), Denied> {
    let server = Arc::clone(&state.tables.load().server);
    let token = token::check(server.admin_token_file.as_deref(), &parts.headers).await;
    access::admin_read(server.admin_read, caller(parts), token)
}

async fn may_write(state: &AdminState, parts: &request::Parts) -> Result<Token, Denied> {
    let server = Arc::clone(&state.tables.load().server);
    let token = token::check(server.admin_token_file.as_deref(), &parts.headers).await;
    let mut caller = caller(parts);
    if server.console && access::is_from_the_console(parts) {
        caller.is_from_a_page = false;
    }
    access::admin_write(caller, token)?;
    Ok(token)
}

/// Who asks for which change. The query is left out: it may name a session.
fn change(parts: &request::Parts, token: Token) -> AdminChange {
    AdminChange {
        by: match token {
            Token::Right => "admin token",
            Token::Wrong | Token::NotConfigured => "loopback",
        },
        address: parts.extensions.get::<PeerAddr>().map(|peer| peer.0.ip()),
        through: match parts.headers.contains_key(access::CONSOLE_HEADER) {
            true => "console",
            false => "api",
        },
        path: parts.uri.path().to_owned(),
    }
}

fn caller(parts: &request::Parts) -> Caller {
    let mut caller = Caller {
        is_loopback: false,
        is_from_a_page: access::is_from_a_page(&parts.headers),
    };
    if let Some(PeerAddr(peer)) = parts.extensions.get::<PeerAddr>() {
        caller = Caller::of(peer.ip(), parts);
    }
    caller
}

/// Answers `/<route>/_…`.
async fn route_status(
    State(state): State<AdminState>,
    Path((route, name)): Path<(String, String)>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let endpoint = Endpoint::of(&name);
    let allowed = match endpoint {
        Some(endpoint) if endpoint.writes(&parts.method) => {
            may_write(&state, &parts).await.map(Some)
        }
        _ => may_read(&state, &parts).await.map(|()| None),
    };
    let written_by = match allowed {
        Ok(token) => token.map(|token| change(&parts, token)),
        Err(why) => return why.answer().into_axum(),
    };
    let Some(endpoint) = endpoint else {
        return Denied::Hidden.answer().into_axum();
    };
    let table = state.tables.load_full();
    let body = if endpoint.reads_body() {
        collect(body, table.max_body_size()).await
    } else {
        Ok(Bytes::new())
    };
    let answer = match body {
        Ok(body) => {
            let (events, bodylog) = (&state.events, &state.bodylog);
            status::answer(endpoint, &table, &route, &parts, &body, events, bodylog)
        }
        Err(refusal) => refusal,
    };
    if let Some(change) = written_by {
        state.events.admin_change(&change, answer.status());
    }
    answer.into_axum()
}

async fn collect(body: Body, limit: u64) -> Result<Bytes, Answer> {
    let limit_bytes = usize::try_from(limit).unwrap_or(usize::MAX);
    match Limited::new(body, limit_bytes).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(answer::too_large(limit)),
        Err(_) => Err(answer::bad_request("the request body broke off")),
    }
}

/// Converts our answers to axum's.
trait IntoAxum {
    fn into_axum(self) -> Response;
}

impl IntoAxum for Answer {
    fn into_axum(self) -> Response {
        self.map(Body::from).into_response()
    }
}

#[cfg(test)]
mod tests;
