//! `GET /_findings`: what is wrong right now.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use tokio_util::sync::CancellationToken;

use super::{AdminState, IntoAxum, answer, routes as listing};
use crate::clock::now;

/// Pause between two judgements. It bounds how late a finding begins that nobody asks for.
const JUDGED_EVERY: Duration = Duration::from_secs(5);

/// `GET /_findings`.
pub(super) async fn page(State(state): State<AdminState>) -> Response {
    state.judge();
    answer::json(StatusCode::OK, &state.findings.page(now())).into_axum()
}

/// Judges from time to time until cancelled. Cancel safe: a judgement is not interrupted.
pub async fn watch(state: AdminState, cancelled: CancellationToken) {
    loop {
        tokio::select! {
            () = cancelled.cancelled() => return,
            () = tokio::time::sleep(JUDGED_EVERY) => state.judge(),
        }
    }
}

impl AdminState {
    fn judge(&self) {
        let table = self.tables.load_full();
        let status = listing::routes(&table, self.metrics.reload(), self.lifecycle.phase());
        self.findings.judge(&table, &status, &self.bodylog, now());
    }
}
