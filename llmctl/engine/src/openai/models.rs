//! `GET /v1/models` and `GET /v1/models/{id}`.

use std::time::SystemTime;

use axum::Json;
use axum::extract::{Path, State};
use serde_json::{Value, json};

use crate::app::{self, App};
use crate::failure::Failure;

pub(crate) async fn list(State(app): State<App>) -> Json<Value> {
    let data: Value = app
        .options
        .models
        .iter()
        .map(|model| describe(&app, model))
        .collect();
    Json(json!({"object": "list", "data": data}))
}

pub(crate) async fn one(
    State(app): State<App>,
    Path(model): Path<String>,
) -> Result<Json<Value>, Failure> {
    if app.options.models.contains(&model) {
        Ok(Json(describe(&app, &model)))
    } else {
        Err(Failure::unknown_model(&model))
    }
}

fn describe(app: &App, model: &str) -> Value {
    let dialect = app.options.dialect;
    // llama.cpp reports the time of the call, the others the time of their start.
    let created = if dialect.is_llamacpp() {
        SystemTime::now()
    } else {
        app.started
    };
    let mut described = json!({
        "id": model, "object": "model", "created": app::unix(created), "owned_by": dialect.owner(),
    });
    if dialect.is_llamacpp() {
        described["meta"] = json!({"n_ctx_train": app::CONTEXT});
        described["aliases"] = json!([model]);
    } else {
        described["root"] = json!(model);
        described["parent"] = Value::Null;
        described["max_model_len"] = json!(app::CONTEXT);
    }
    described
}
