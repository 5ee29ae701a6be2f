//! The engine's information pages besides its metrics: `/health`, `/version`, `/props`, `/slots`,
//! and the tokeniser.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::openai::chat;
use crate::app::{self, App, CONTEXT};
use crate::dialect::Dialect;
use crate::failure::Failure;
use crate::tokens::{self, Token};

pub(crate) async fn health(State(app): State<App>) -> Response {
    if app.options.dialect.is_llamacpp() {
        Json(json!({"status": "ok"})).into_response()
    } else {
        StatusCode::OK.into_response()
    }
}

pub(crate) async fn version() -> Json<Value> {
    Json(json!({"version": concat!("llmctl-engine-", env!("CARGO_PKG_VERSION"))}))
}

/// llama.cpp only.
pub(crate) async fn props(State(app): State<App>) -> Response {
    let model = app.options.models.first().cloned().unwrap_or_default();
    llamacpp_only(&app, || {
        json!({
            "total_slots": app.options.slots,
            "model_alias": model,
            "model_path": model,
            "modalities": {"vision": false, "audio": false},
            "build_info": concat!("llmctl-engine-", env!("CARGO_PKG_VERSION")),
            "is_sleeping": false,
            "endpoint_slots": true,
            "endpoint_metrics": true,
            "default_generation_settings": {"n_ctx": CONTEXT},
        })
    })
}

/// llama.cpp only.
pub(crate) async fn slots(State(app): State<App>) -> Response {
    let old = app.options.dialect == Dialect::LlamacppOld;
    llamacpp_only(&app, || {
        let slot = |(id, busy): (usize, bool)| {
            let mut slot = json!({"id": id, "n_ctx": CONTEXT, "speculative": false, "params": {}, "next_token": {}});
            if old {
                slot["state"] = json!(u8::from(busy));
            } else {
                slot["is_processing"] = json!(busy);
            }
            slot
        };
        app.core
            .slots
            .busy()
            .into_iter()
            .enumerate()
            .map(slot)
            .collect()
    })
}

fn llamacpp_only(app: &App, value: impl FnOnce() -> Value) -> Response {
    if app.options.dialect.is_llamacpp() {
        Json(value()).into_response()
    } else {
        Failure::new(StatusCode::NOT_FOUND, "Not Found").into_response()
    }
}

#[derive(Debug, Deserialize)]
struct Tokenize {
    /// llama.cpp's name.
    content: Option<String>,
    /// vLLM's names.
    prompt: Option<String>,
    messages: Option<Vec<Value>>,
}

pub(crate) async fn tokenize(State(app): State<App>, body: Bytes) -> Result<Json<Value>, Failure> {
    let request: Tokenize = app::parse(&body)?;
    let found: Vec<Token> = match (request.content.or(request.prompt), request.messages) {
        (Some(text), _) => tokens::pieces(&text).map(tokens::id).collect(),
        (None, Some(messages)) => chat::render(&[], &messages)?,
        (None, None) => {
            return Err(Failure::invalid(
                "prompt",
                "A prompt, messages or content is needed.",
            ));
        }
    };
    Ok(Json(if app.options.dialect.is_llamacpp() {
        json!({"tokens": found})
    } else {
        json!({"count": found.len(), "max_model_len": CONTEXT, "tokens": found})
    }))
}
