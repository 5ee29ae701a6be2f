//! `/v1/files`, uploaded as forms.

use axum::Json;
use axum::extract::{Multipart, Path, State};
use bytes::Bytes;
use serde_json::{Value, json};

use super::form::Form;
use crate::app::{self, App};
use crate::failure::Failure;
use crate::stored::{Kind, Object};

pub(crate) async fn create(
    State(app): State<App>,
    form: Multipart,
) -> Result<Json<Value>, Failure> {
    let form = Form::read(form).await?;
    let (name, contents) = form.file("file")?;
    let id = app.unique_id("file-");
    let document = json!({
        "id": id, "object": "file", "bytes": contents.len(), "filename": name, "status": "processed",
        "created_at": app::unix(std::time::SystemTime::now()), "purpose": form.text("purpose").unwrap_or("user_data"),
    });
    let object = Object {
        contents: contents.clone(),
        ..Object::new(Kind::File, document.clone(), Vec::new())
    };
    app.stored.put(&id, object);
    Ok(Json(document))
}

pub(crate) async fn list(State(app): State<App>) -> Json<Value> {
    Json(json!({"object": "list", "data": app.stored.list(Kind::File), "has_more": false}))
}

pub(crate) async fn one(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    Ok(Json(app.stored.get(Kind::File, &id)?.document))
}

pub(crate) async fn content(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Bytes, Failure> {
    Ok(app.stored.get(Kind::File, &id)?.contents)
}

pub(crate) async fn delete(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    app.stored.delete(Kind::File, &id).map(Json)
}
