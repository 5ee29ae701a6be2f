//! `GET /v1/realtime`: a WebSocket over which a client converses in text, by the events of OpenAI's
//! Realtime API. Audio is not simulated.

use std::sync::Arc;
use std::time::Duration;

use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures_util::{SinkExt as _, StreamExt as _};
use http::request::Parts;
use http::{Method, StatusCode, header};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_websockets::{Limits, Message, ServerBuilder, WebSocketStream};

use crate::app::{App, Wishes};
use crate::failure::Failure;
use crate::generate::{Job, Pending, Usage};
use crate::log::{Exchange, Outcome};
use crate::prompt::{Prompt, last_user};
use crate::text::Finish;

/// Most items of a conversation. The oldest one goes first.
const ITEMS_MAX: usize = 1024;

/// Longest event of a client, bytes.
const EVENT_MAX: usize = 1 << 20;

/// What RFC 6455 adds to a client's key.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// A session that begins when its connection has left HTTP.
#[derive(Debug)]
pub(crate) struct Session {
    app: App,
    model: String,
    exchange: Arc<Exchange>,
    items: Vec<Value>,
}

/// Whether a request asks for a session.
pub(crate) fn is_asked_for(head: &Parts) -> bool {
    head.method == Method::GET
        && head.uri.path() == "/v1/realtime"
        && head.headers.contains_key(header::UPGRADE)
}

/// Accepts a session.
///
/// # Errors
/// 400 without a key, 404 for an unknown model.
pub(crate) fn accept(
    app: &App,
    head: &Parts,
    exchange: Arc<Exchange>,
) -> Result<(Response, Session), Failure> {
    let Some(key) = head.headers.get(header::SEC_WEBSOCKET_KEY) else {
        let message = "The header sec-websocket-key is missing.";
        return Err(Failure::new(StatusCode::BAD_REQUEST, message));
    };
    let pairs = head.uri.query().unwrap_or_default().split('&');
    let asked = pairs.filter_map(|pair| pair.strip_prefix("model=")).next();
    let model = app.model(asked.map(str::to_owned))?;
    let proof = digest(
        &SHA1_FOR_LEGACY_USE_ONLY,
        &[key.as_bytes(), GUID.as_bytes()].concat(),
    );
    let accept = BASE64_STANDARD.encode(proof);
    let headers = [
        (header::CONNECTION, "upgrade"),
        (header::UPGRADE, "websocket"),
        (header::SEC_WEBSOCKET_ACCEPT, &accept),
    ];
    let mut response = (StatusCode::SWITCHING_PROTOCOLS, headers).into_response();
    let offers = head.headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    let mut offers = offers.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    if offers.any(|offer| offer.trim_ascii() == b"realtime") {
        let chosen = http::HeaderValue::from_static("realtime");
        response
            .headers_mut()
            .insert(header::SEC_WEBSOCKET_PROTOCOL, chosen);
    }
    let session = Session {
        app: app.clone(),
        model,
        exchange,
        items: Vec::new(),
    };
    Ok((response, session))
}

impl Session {
    /// Converses until the client leaves.
    pub(crate) async fn run(mut self, io: impl AsyncRead + AsyncWrite + Unpin) {
        let limits = Limits::default().max_payload_len(Some(EVENT_MAX));
        let mut socket = ServerBuilder::new().limits(limits).serve(io);
        let session = json!({
            "type": "realtime", "object": "realtime.session", "id": self.app.unique_id("sess_"),
            "model": self.model, "output_modalities": ["text"],
        });
        let created = json!({"type": "session.created", "session": session});
        if send(&mut socket, &created).await.is_none() {
            return;
        }
        while let Some(Ok(message)) = socket.next().await {
            let Some(text) = message.as_text() else {
                continue;
            };
            let event = serde_json::from_str(text).unwrap_or(Value::Null);
            if self.answer(&mut socket, &event, &session).await.is_none() {
                return;
            }
        }
        self.exchange.end(Outcome::Completed);
    }

    /// `None` when the client has left.
    async fn answer<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        socket: &mut WebSocketStream<S>,
        event: &Value,
        session: &Value,
    ) -> Option<()> {
        match event["type"].as_str() {
            Some("session.update") => {
                let updated = json!({"type": "session.updated", "session": session});
                send(socket, &updated).await
            }
            Some("conversation.item.create") => {
                let mut item = event["item"].clone();
                if item["id"].is_null() && item.is_object() {
                    item["id"] = json!(self.app.unique_id("item_"));
                }
                self.add(item.clone());
                for kind in ["conversation.item.added", "conversation.item.done"] {
                    send(socket, &json!({"type": kind, "item": item})).await?;
                }
                Some(())
            }
            Some("response.create") => self.respond(socket).await,
            _ => {
                let message = "The event is not JSON, or its `type` is none of session.update, \
                               conversation.item.create and response.create.";
                let error = json!({"type": "invalid_request_error", "message": message});
                send(socket, &json!({"type": "error", "error": error})).await
            }
        }
    }

    fn add(&mut self, item: Value) {
        if self.items.len() == ITEMS_MAX {
            self.items.remove(0);
        }
        self.items.push(item);
    }

    async fn respond<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        socket: &mut WebSocketStream<S>,
    ) -> Option<()> {
        let id = self.app.unique_id("resp_");
        let item_id = self.app.unique_id("item_");
        let mut prompt = Prompt::default();
        for item in &self.items {
            let role = item["role"].as_str().unwrap_or("user");
            prompt.message(role, [&item["content"]]);
        }
        let prompt = prompt.finish();
        let said = last_user(&self.items);
        let plan = self.app.plan(&Wishes {
            prompt: &prompt,
            said: said.as_deref(),
            ..Wishes::default()
        });
        let job = Job {
            prompt,
            plan,
            choices: 1,
        };
        let exchange = Arc::clone(&self.exchange);
        let Ok(pending) = Pending::enqueue(&self.app.core, job, exchange, Duration::ZERO) else {
            let error = json!({"type": "server_error", "message": "The request queue is full."});
            return send(socket, &json!({"type": "error", "error": error})).await;
        };
        let begun =
            json!({"id": id, "object": "realtime.response", "status": "in_progress", "output": []});
        send(
            socket,
            &json!({"type": "response.created", "response": begun}),
        )
        .await?;
        let mut generation = pending.begin().await;
        let place =
            json!({"response_id": id, "item_id": item_id, "output_index": 0, "content_index": 0});
        let mut text = String::new();
        while let Some(piece) = generation.next().await {
            text.push_str(piece);
            let mut delta = place.clone();
            delta["type"] = json!("response.output_text.delta");
            delta["delta"] = json!(piece);
            send(socket, &delta).await?;
        }
        let mut done = place;
        done["type"] = json!("response.output_text.done");
        done["text"] = json!(text);
        send(socket, &done).await?;
        let item = json!({
            "id": item_id, "type": "message", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": text}],
        });
        let status = match generation.finish() {
            Finish::Length => "incomplete",
            _ => "completed",
        };
        let response = json!({
            "id": id, "object": "realtime.response", "status": status, "output": [item],
            "usage": usage(generation.usage()),
        });
        self.add(item);
        send(
            socket,
            &json!({"type": "response.done", "response": response}),
        )
        .await
    }
}

/// Sends an event. `None` when the client has left.
async fn send<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut WebSocketStream<S>,
    event: &Value,
) -> Option<()> {
    socket.send(Message::text(event.to_string())).await.ok()
}

fn usage(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.prompt, "output_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "input_token_details": {"cached_tokens": usage.cached},
    })
}
