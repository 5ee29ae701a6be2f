//! `/v1/conversations`: lists of items that responses continue.

use axum::Json;
use axum::extract::{Path, State};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::{self, App};
use crate::failure::Failure;
use crate::stored::{Kind, Object};

#[derive(Debug, Default, Deserialize)]
struct Request {
    #[serde(default)]
    items: Vec<Value>,
    metadata: Option<Value>,
}

pub(crate) async fn create(State(app): State<App>, body: Bytes) -> Result<Json<Value>, Failure> {
    let request: Request = match body.is_empty() {
        true => Request::default(),
        false => app::parse(&body)?,
    };
    let id = app.unique_id("conv_");
    let document = json!({
        "id": id, "object": "conversation", "created_at": app::unix(std::time::SystemTime::now()),
        "metadata": request.metadata.unwrap_or_else(|| json!({})),
    });
    let object = Object::new(Kind::Conversation, document.clone(), request.items);
    app.stored.put(&id, object);
    Ok(Json(document))
}

pub(crate) async fn one(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    Ok(Json(app.stored.get(Kind::Conversation, &id)?.document))
}

pub(crate) async fn delete(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    app.stored.delete(Kind::Conversation, &id).map(Json)
}

pub(crate) async fn items(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    let items = app.stored.get(Kind::Conversation, &id)?.items;
    Ok(Json(
        json!({"object": "list", "data": items, "has_more": false}),
    ))
}

pub(crate) async fn add_items(
    State(app): State<App>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Json<Value>, Failure> {
    let request: Request = app::parse(&body)?;
    app.stored.get(Kind::Conversation, &id)?;
    app.stored.extend(&id, request.items.clone());
    Ok(Json(
        json!({"object": "list", "data": request.items, "has_more": false}),
    ))
}
