//! `GET /_findings`: the current problems.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use tokio_util::sync::CancellationToken;

use super::{AdminState, IntoAxum, answer, console, routes as listing};
use crate::clock::now;

/// Interval of the evaluation. It bounds the delay until a finding starts when nobody asks for the
/// page.
const JUDGED_EVERY: Duration = Duration::from_secs(5);

/// `GET /_findings`.
pub(super) async fn page(State(state): State<AdminState>) -> Response {
    state.judge();
    answer::json(StatusCode::OK, &state.findings.page(now())).into_axum()
}

/// Evaluates the findings at this interval until cancelled. Cancel safe: an evaluation is not
/// interrupted.
pub async fn watch(state: AdminState, cancelled: CancellationToken) {
    loop {
        tokio::select! {
            () = cancelled.cancelled() => return,
            () = tokio::time::sleep(JUDGED_EVERY) => {
                state.judge();
                console::sample(&state);
            }
        }
    }
}

impl AdminState {
    fn judge(&self) {
        let table = self.tables.load_full();
        let status = listing::routes(&table, self.metrics.reload(), self.lifecycle.phase());
        let drain = table.server.drain_delay + table.server.drain_timeout;
        let drain_left = self
            .lifecycle
            .drain_began()
            .map(|began| drain.saturating_sub(now().saturating_duration_since(began)));
        self.findings
            .judge(&table, &status, &self.bodylog, drain_left, now());
    }
}
