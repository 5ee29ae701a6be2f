//! `/sim/…`: control requests of tests to a running engine. Real engines do not have these paths.
//! Faults do not apply to these requests, and they are not logged.

use axum::Json;
use axum::extract::State;
use bytes::Bytes;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::{self, App};
use crate::failure::Failure;
use crate::faults::Fault;
use crate::stats::Stats;

/// `{"faults": ["429=0.5", …]}`, the complete new set.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewFaults {
    faults: Vec<String>,
}

pub(crate) async fn faults(State(app): State<App>) -> Json<Value> {
    Json(json!({"faults": app.faults.list()}))
}

/// Replaces the set of faults. Changes nothing when any fault is invalid.
pub(crate) async fn set_faults(
    State(app): State<App>,
    body: Bytes,
) -> Result<Json<Value>, Failure> {
    let new: NewFaults = app::parse(&body)?;
    let read: Result<Vec<Fault>, _> = new.faults.iter().map(|fault| fault.parse()).collect();
    app.faults
        .replace(read.map_err(|error| Failure::new(StatusCode::BAD_REQUEST, error.to_string()))?);
    Ok(Json(json!({"faults": app.faults.list()})))
}

pub(crate) async fn clear_faults(State(app): State<App>) -> StatusCode {
    app.faults.replace(Vec::new());
    StatusCode::NO_CONTENT
}

pub(crate) async fn requests(State(app): State<App>) -> Json<Value> {
    Json(json!({"requests": app.log.read()}))
}

pub(crate) async fn clear_requests(State(app): State<App>) -> StatusCode {
    app.log.clear();
    StatusCode::NO_CONTENT
}

pub(crate) async fn stats(State(app): State<App>) -> Json<Stats> {
    Json(app.core.stats())
}
