//! The HTTP port. Health, readiness and metrics are open to everyone; stored data is for callers on
//! this host or with the token.

mod access;
mod details;
mod find;
mod summary;

use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, RawQuery, Request, State as Shared};
use axum::http::{StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use chrono::{DateTime, TimeDelta, Utc};
use proto::row::DetailRow;
use serde::Deserialize;
use serde_json::{Value, json};
use service::exposition::Format;
use tokio::sync::Semaphore;

use crate::config::{Config, Secret};
use crate::ingest::Ingest;
use crate::space::Level;
use crate::stream::Output;
use crate::writer::Status;
use service::http::PeerAddr;
use service::renewed::Renewed;

/// Most concurrent requests that read files. The others wait, so that readers do not starve the
/// writers of disk bandwidth.
const READERS: usize = 2;
/// How long the listener is not ready after a failed batch.
const UNREADY: TimeDelta = TimeDelta::seconds(30);

/// The shared state of the handlers.
#[derive(Clone, Debug)]
pub(crate) struct State {
    root: PathBuf,
    token: Option<Renewed<Secret>>,
    ingest: Arc<Ingest>,
    statuses: [Arc<Status>; 2],
    readers: Arc<Semaphore>,
    started: DateTime<Utc>,
}

impl State {
    /// The state for one listener.
    pub(crate) fn new(config: &Config, ingest: Arc<Ingest>, statuses: [Arc<Status>; 2]) -> Self {
        Self {
            root: config.dir.clone(),
            token: config.token.clone(),
            started: ingest.clock.now(),
            ingest,
            statuses,
            readers: Arc::new(Semaphore::new(READERS)),
        }
    }

    /// The reason frames cannot be stored at the moment, if there is one.
    fn unready(&self) -> Option<&'static str> {
        let now = self.ingest.clock.now();
        let has_failed =
            |status: &Arc<Status>| status.failed().is_some_and(|at| now - at < UNREADY);
        if self.ingest.outputs.records.is_closed() || self.ingest.outputs.details.is_closed() {
            Some("a writer is gone")
        } else if self.ingest.pressure.level() == Level::Full {
            Some("the disk is full")
        } else if self.statuses.iter().any(has_failed) {
            Some("records cannot be written")
        } else {
            None
        }
    }
}

/// All routes.
pub(crate) fn router(state: State) -> Router {
    let wrong_method = || async {
        error(
            StatusCode::METHOD_NOT_ALLOWED,
            "this path takes GET and HEAD",
        )
    };
    let guarded = Router::new()
        .route("/stats", get(stats))
        .route("/summary", get(summary_of))
        .route("/records", get(records))
        .route("/details", get(details_of))
        .route_layer(middleware::from_fn_with_state(state.clone(), access::guard));
    Router::new()
        .route("/healthz", get(|| async { "OK\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .merge(guarded)
        .fallback(|| async { error(StatusCode::NOT_FOUND, "there is nothing at this path") })
        .method_not_allowed_fallback(wrong_method)
        .with_state(state)
}

async fn readyz(Shared(state): Shared<State>) -> Response {
    match state.unready() {
        None => axum::Json(json!({"status": "ready"})).into_response(),
        Some(reason) => {
            let body = axum::Json(json!({"status": "unready", "reason": reason}));
            (StatusCode::SERVICE_UNAVAILABLE, body).into_response()
        }
    }
}

async fn metrics(
    Shared(state): Shared<State>,
    Extension(peer): Extension<PeerAddr>,
    RawQuery(query): RawQuery,
    request: Request,
) -> Response {
    // Version 1 of this program served rows at this path.
    if query.is_some_and(|query| query.split('&').any(|pair| pair.starts_with("end="))) {
        if let Some(refused) = access::refusal(&state, peer, &request) {
            return refused;
        }
        let asked = Query::try_from_uri(request.uri());
        return details_of(Shared(state), asked).await;
    }
    let format = Format::of(request.headers());
    match state.ingest.metrics.page(format) {
        Ok(page) => ([(header::CONTENT_TYPE, format.content_type())], page).into_response(),
        Err(error_) => {
            tracing::error!(error = %error_, "the metrics page cannot be rendered");
            error(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the page cannot be rendered",
            )
        }
    }
}

async fn stats(Shared(state): Shared<State>) -> Response {
    let ingest = &state.ingest;
    let outputs: serde_json::Map<String, Value> = Output::ALL
        .into_iter()
        .zip(&state.statuses)
        .map(|(output, status)| {
            let position = status.position();
            let value = json!({
                "file": position.as_ref().map(|position| position.hour.plain()),
                "bytes": position.as_ref().map(|position| position.offset),
                "lines": status.records(),
                "failed": status.failed(),
            });
            (output.as_str().to_owned(), value)
        })
        .collect();
    let streams: Vec<Value> = ingest
        .streams
        .all()
        .iter()
        .map(|stream| {
            let stored = Output::ALL.map(|output| stream.stored(output));
            json!({
                "producer": stream.id().producer,
                "epoch": stream.id().epoch,
                "records": stored[0],
                "details": stored[1],
                "heard": DateTime::from_timestamp(stream.heard(), 0),
            })
        })
        .collect();
    axum::Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "started": state.started,
        "now": ingest.clock.now(),
        "dir": state.root,
        "time_zone": "UTC",
        "disk": ingest.pressure.level().as_str(),
        "unready": state.unready(),
        "connections": ingest.metrics.connections.get(),
        "memory_bytes": ingest.budget.taken(),
        "spill_bytes": ingest.spill.bytes(),
        "outputs": outputs,
        "streams": streams,
    }))
    .into_response()
}

/// The parameters of a request, or the reason they are invalid.
type Asked<T> = Result<Query<T>, QueryRejection>;

/// The response to a request with invalid parameters.
fn unreadable(rejection: &QueryRejection) -> Response {
    error(StatusCode::BAD_REQUEST, &rejection.body_text())
}

async fn summary_of(Shared(state): Shared<State>, asked: Asked<summary::Asked>) -> Response {
    let asked = match asked {
        Ok(Query(asked)) => asked,
        Err(rejection) => return unreadable(&rejection),
    };
    let asked = match asked.read() {
        Ok(wanted) => wanted,
        Err(message) => return error(StatusCode::BAD_REQUEST, &message),
    };
    let (root, now) = (state.root.clone(), state.ingest.clock.now());
    read(&state, move || summary::of(&root, &asked, now)).await
}

async fn details_of(Shared(state): Shared<State>, asked: Asked<details::Asked>) -> Response {
    let asked = match asked {
        Ok(Query(asked)) => asked,
        Err(rejection) => return unreadable(&rejection),
    };
    match asked.read() {
        Ok(wanted) => {
            let root = state.root.clone();
            read(&state, move || details::page(&root, &wanted)).await
        }
        Err(message) => error(StatusCode::BAD_REQUEST, &message),
    }
}

/// Parses the row in a line. An unreadable line is counted, an empty line is ignored.
fn row<'l>(line: &'l [u8], bad: &mut u64) -> Option<DetailRow<'l>> {
    let row = serde_json::from_slice(line).ok();
    let row = row.filter(|row: &DetailRow<'_>| row.is_readable());
    *bad += u64::from(row.is_none() && !line.trim_ascii().is_empty());
    row
}

/// The query for one record.
#[derive(Debug, Deserialize)]
struct Wanted {
    request_id: Option<String>,
    /// How many hours back to search.
    hours: Option<String>,
}

async fn records(Shared(state): Shared<State>, wanted: Asked<Wanted>) -> Response {
    let wanted = match wanted {
        Ok(Query(wanted)) => wanted,
        Err(rejection) => return unreadable(&rejection),
    };
    let id = wanted.request_id.unwrap_or_default();
    if id.is_empty() || id.len() > 256 {
        return error(
            StatusCode::BAD_REQUEST,
            "'request_id' must have 1 to 256 bytes",
        );
    }
    let hours = match wanted.hours.map(|hours| hours.parse::<u32>()) {
        None => find::HOURS,
        Some(Ok(hours)) => hours.clamp(1, find::HOURS_MAX),
        Some(Err(_)) => {
            return error(
                StatusCode::BAD_REQUEST,
                "'hours' must be a number of hours to look back",
            );
        }
    };
    let (root, now) = (state.root.clone(), state.ingest.clock.now());
    let found = blocking(&state, move || find::record(&root, &id, hours, now)).await;
    match found {
        Some(Ok(Some(line))) => {
            ([(header::CONTENT_TYPE, "application/json")], line).into_response()
        }
        Some(Ok(None)) => error(
            StatusCode::NOT_FOUND,
            "there is no such record in the hours looked at",
        ),
        Some(Err(cause)) => failed(&cause),
        None => error(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the files cannot be read",
        ),
    }
}

async fn read(
    state: &State,
    work: impl FnOnce() -> std::io::Result<Value> + Send + 'static,
) -> Response {
    match blocking(state, work).await {
        Some(Ok(value)) => axum::Json(value).into_response(),
        Some(Err(cause)) => failed(&cause),
        None => error(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the files cannot be read",
        ),
    }
}

async fn blocking<T: Send + 'static>(
    state: &State,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let permit = Arc::clone(&state.readers).acquire_owned().await.ok()?;
    tokio::task::spawn_blocking(move || {
        let _permit = permit;
        work()
    })
    .await
    .ok()
}

fn failed(cause: &std::io::Error) -> Response {
    tracing::warn!(error = %cause, "stored files cannot be read");
    error(
        StatusCode::INTERNAL_SERVER_ERROR,
        "the files cannot be read",
    )
}

fn error(status: StatusCode, message: &str) -> Response {
    (status, axum::Json(json!({"error": {"message": message}}))).into_response()
}
