//! The HTTP port: `/metrics`, `/healthz`, `/readyz`, `/debug/checkpoint`. All paths are read-only,
//! show only counts, and need no credential, as scrapers expect.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use serde_json::json;

use crate::checkpoint::FORMAT;
use crate::families::Page;
use crate::now::Now;
use crate::shared::{Committed, Shared};
use service::exposition::Format;

/// Readiness requires a commit that is at most this old,
const COMMIT_AGE_MAX: Duration = Duration::from_secs(30);

/// and that all rows are counted, or that the newest counted row ended at most this long ago.
const LAG_MAX: Duration = Duration::from_secs(300);

#[derive(Clone, Debug)]
struct AppState {
    shared: Arc<Shared>,
    page: Arc<Page>,
}

/// The port's paths.
pub fn router(shared: Arc<Shared>, page: Page) -> Router {
    let state = AppState {
        shared,
        page: Arc::new(page),
    };
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(async || "OK\n"))
        .route("/readyz", get(ready))
        .route("/debug/checkpoint", get(checkpoint))
        .fallback(async || error(StatusCode::NOT_FOUND, "there is nothing at this path"))
        .method_not_allowed_fallback(async || {
            error(
                StatusCode::METHOD_NOT_ALLOWED,
                "this path takes GET and HEAD",
            )
        })
        .with_state(state)
}

fn error(status: StatusCode, message: &str) -> Response {
    let body = json!({ "error": { "message": message } });
    (status, axum::Json(body)).into_response()
}

async fn metrics(State(state): State<AppState>, headers: HeaderMap) -> Response {
    state.shared.scraped(Now::read().wall_ms);
    let format = Format::of(&headers);
    // Takes tens of milliseconds with many series, so it must not block a thread of other tasks.
    let page = Arc::clone(&state.page);
    match tokio::task::spawn_blocking(move || page.render(format)).await {
        Ok(Ok(body)) => ([(CONTENT_TYPE, format.content_type())], body).into_response(),
        Ok(Err(error)) => {
            tracing::error!(%error, "the metrics page cannot be shown");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn ready(State(state): State<AppState>) -> Response {
    let readiness = readiness(state.shared.committed().as_deref(), Now::read());
    let status = match readiness {
        Readiness::Ready => StatusCode::OK,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    let body = json!({ "status": readiness.as_str() });
    (status, [(CACHE_CONTROL, "no-store")], axum::Json(body)).into_response()
}

/// Whether the numbers on the page can be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Readiness {
    Ready,
    /// The last commit is too old: the disk fails, or reading hangs.
    NotCommitting,
    /// Some uncounted rows are older than the limit.
    Behind,
}

impl Readiness {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::NotCommitting => "not_committing",
            Self::Behind => "behind",
        }
    }
}

fn readiness(committed: Option<&Committed>, now: Now) -> Readiness {
    let Some(committed) = committed else {
        return Readiness::NotCommitting;
    };
    let age = now.instant.saturating_duration_since(committed.at.instant);
    if age >= COMMIT_AGE_MAX {
        return Readiness::NotCommitting;
    }
    let lag_ms = now.wall_ms.saturating_sub(committed.view.own.last_end_ms);
    if committed.is_caught_up || lag_ms < LAG_MAX.as_millis() as i64 {
        Readiness::Ready
    } else {
        Readiness::Behind
    }
}

async fn checkpoint(State(state): State<AppState>) -> Response {
    let Some(committed) = state.shared.committed() else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let troubles = state.shared.troubles();
    let (producers, requests) = committed.view.remembered;
    let body = json!({
        "format": FORMAT,
        "bytes": troubles.checkpoint_bytes,
        "errors": troubles.checkpoint_errors,
        "committed_unix_ms": committed.at.wall_ms,
        "caught_up": committed.is_caught_up,
        "lag_bytes": committed.lag_bytes,
        "hours": committed.positions.shown(),
        "series": committed.view.series.len(),
        "tenants": committed.view.tenants.len(),
        "remembered": { "producers": producers, "requests": requests },
        "counters": committed.view.own,
    });
    ([(CACHE_CONTROL, "no-store")], axum::Json(body)).into_response()
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Instant;

    use super::*;
    use crate::aggregate;
    use crate::tail::{Tail, Where};

    #[test]
    fn ready_is_committed_lately_and_caught_up_or_close() {
        let now = Now {
            instant: Instant::now() + Duration::from_secs(1000),
            wall_ms: 1_000_000,
        };
        let committed = |age_s, last_end_ms, is_caught_up| {
            let mut state = aggregate::State::default();
            state.own_mut().last_end_ms = last_end_ms;
            Committed {
                view: state.view(),
                positions: Tail::from_start(Where::rows(Path::new("nowhere"))).positions(),
                lag_bytes: 0,
                is_caught_up,
                at: Now {
                    instant: now.instant - Duration::from_secs(age_s),
                    wall_ms: 0,
                },
            }
        };
        assert_eq!(readiness(None, now), Readiness::NotCommitting);
        for (age_s, last_end_ms, is_caught_up, expected) in [
            (29, 0, true, Readiness::Ready),
            (30, 0, true, Readiness::NotCommitting),
            (0, 700_001, false, Readiness::Ready),
            (0, 700_000, false, Readiness::Behind),
        ] {
            let committed = committed(age_s, last_end_ms, is_caught_up);
            assert_eq!(readiness(Some(&committed), now), expected);
        }
    }
}
