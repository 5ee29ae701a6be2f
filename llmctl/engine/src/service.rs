//! The path of one request through the engine: log, body, faults, key, handler, and the answer's
//! body until its end.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;

use super::answer::{Answer, Interruption};
use super::openai::{
    chat, completions, conversations, embeddings, files, models, responses, uploads,
};
use super::{anthropic, control, metrics, realtime, status};
use crate::app::{App, Context};
use crate::connection::{Busy, Connection};
use crate::failure::{self, Failure};
use crate::faults::{self, Effects, Facts, Fault};
use crate::log::{Exchange, Origin, Outcome};

/// Maximum size of a request body: 256 MiB.
const BODY_MAX: usize = 256 << 20;

/// Closes the connection without an answer.
#[derive(Debug)]
pub(crate) struct Cut;

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cut by a fault or by the other side")
    }
}

impl std::error::Error for Cut {}

/// The paths of the engine.
pub(crate) fn routes(app: App) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(chat::chat))
        .route("/v1/completions", post(completions::completions))
        .route("/v1/embeddings", post(embeddings::embeddings))
        .route("/v1/responses", post(responses::responses))
        .route(
            "/v1/responses/{id}",
            get(responses::one).delete(responses::delete),
        )
        .route("/v1/responses/{id}/cancel", post(responses::one))
        .route(
            "/v1/responses/{id}/input_items",
            get(responses::input_items),
        )
        .route("/v1/conversations", post(conversations::create))
        .route(
            "/v1/conversations/{id}",
            get(conversations::one).delete(conversations::delete),
        )
        .route(
            "/v1/conversations/{id}/items",
            get(conversations::items).post(conversations::add_items),
        )
        .route("/v1/files", get(files::list).post(files::create))
        .route("/v1/files/{id}", get(files::one).delete(files::delete))
        .route("/v1/files/{id}/content", get(files::content))
        .route("/v1/audio/transcriptions", post(uploads::transcribe))
        .route("/v1/audio/translations", post(uploads::transcribe))
        .route("/v1/images/edits", post(uploads::edit_image))
        .route("/v1/messages", post(anthropic::messages))
        .route("/v1/messages/count_tokens", post(anthropic::count_tokens))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{*model}", get(models::one))
        .route("/health", get(status::health))
        .route("/v1/health", get(status::health))
        .route("/version", get(status::version))
        .route("/metrics", get(metrics::metrics))
        .route("/props", get(status::props))
        .route("/slots", get(status::slots))
        .route("/tokenize", post(status::tokenize))
        .route(
            "/sim/faults",
            get(control::faults)
                .post(control::set_faults)
                .delete(control::clear_faults),
        )
        .route(
            "/sim/requests",
            get(control::requests).delete(control::clear_requests),
        )
        .route("/sim/stats", get(control::stats))
        .fallback(async || Failure::new(StatusCode::NOT_FOUND, "Not Found"))
        .layer(DefaultBodyLimit::disable())
        .with_state(app)
}

/// Answers one request.
///
/// # Cancel safety
///
/// Dropping the future, or the answer's body, ends the work at once; the log then says cancelled.
pub(crate) async fn serve(
    app: App,
    routes: Router,
    connection: Arc<Connection>,
    request: Request<Incoming>,
) -> Result<Response<Answer>, Cut> {
    let busy = connection.busy();
    let on_connection = connection.served.fetch_add(1, Relaxed);
    let (head, body) = request.into_parts();
    if head.uri.path().starts_with("/sim/") {
        let response = handle(routes, &head, collect(body).await?, None).await;
        let response = failure::dress(response, head.uri.path(), app.options.dialect);
        return Ok(response.map(|body| Answer::new(body, busy, None, None)));
    }
    let origin = Origin {
        peer: connection.peer,
        connection: connection.id,
        on_connection,
    };
    let exchange = app.log.open(&head, origin);
    if realtime::is_asked_for(&head) {
        let accepted = authorise(&app, &head)
            .and_then(|()| realtime::accept(&app, &head, Arc::clone(&exchange)));
        let response = match accepted {
            Ok((response, session)) => {
                *connection.session.lock() = Some(session);
                exchange.status(response.status());
                return Ok(response.map(|body| Answer::new(body, busy, None, None)));
            }
            Err(failure) => failure.into_response(),
        };
        return Ok(finish(&app, &head, response, exchange, busy, None));
    }
    let body = collect(body).await?;
    exchange.body(body.as_ref().map_or(&Bytes::new(), |body| body));
    let facts = Facts {
        method: &head.method,
        path: head.uri.path(),
        reused: on_connection > 0,
    };
    let struck = own_faults(&head.headers).map(|own| app.faults.draw(&own, facts));
    let response = match struck {
        Err(failure) => failure.into_response(),
        Ok(effects) => {
            if effects.reset {
                connection.reset.store(true, Relaxed);
            }
            return struck_by(&app, routes, &head, body, exchange, busy, effects).await;
        }
    };
    Ok(finish(&app, &head, response, exchange, busy, None))
}

/// Handles the request with the faults selected for it.
async fn struck_by(
    app: &App,
    routes: Router,
    head: &Parts,
    body: Result<Bytes, Failure>,
    exchange: Arc<Exchange>,
    busy: Busy,
    effects: Effects,
) -> Result<Response<Answer>, Cut> {
    if let Some(delay) = effects.slow_header {
        tokio::time::sleep(delay).await;
    }
    if effects.cut_before_headers || effects.reset {
        exchange.end(Outcome::Cut);
        return Err(Cut);
    }
    if effects.hang == Some(None) {
        return std::future::pending().await;
    }
    let response = if let Some(status) = effects.status {
        Failure::new(status, "Simulated fault.").into_response()
    } else if let Err(failure) = authorise(app, head) {
        failure.into_response()
    } else {
        let context = Context {
            exchange: Arc::clone(&exchange),
            big_chunk: effects.big_chunk,
            slow_ttft: effects.slow_ttft,
        };
        handle(routes, head, body, Some(context)).await
    };
    let interruption = interruption(&effects);
    Ok(finish(app, head, response, exchange, busy, interruption))
}

fn interruption(effects: &Effects) -> Option<Interruption> {
    let cut = effects.cut_stream.map(|after| Interruption::Cut { after });
    let end = effects.end_stream.map(|after| Interruption::End { after });
    let hang = effects
        .hang
        .flatten()
        .map(|after| Interruption::Hang { after });
    let stall = effects
        .stall
        .map(|(after, pause)| Interruption::Stall { after, pause });
    cut.or(end).or(hang).or(stall)
}

fn finish(
    app: &App,
    head: &Parts,
    response: Response,
    exchange: Arc<Exchange>,
    busy: Busy,
    interruption: Option<Interruption>,
) -> Response<Answer> {
    let response = failure::dress(response, head.uri.path(), app.options.dialect);
    exchange.status(response.status());
    if head.method == http::Method::HEAD {
        // hyper drops the body of an answer to HEAD unread.
        exchange.end(Outcome::Completed);
    }
    response.map(|body| Answer::new(body, busy, Some(exchange), interruption))
}

/// The whole body, an error answer when it is too large, or `Cut` when the client disconnected.
async fn collect(body: Incoming) -> Result<Result<Bytes, Failure>, Cut> {
    match Limited::new(body, BODY_MAX).collect().await {
        Ok(body) => Ok(Ok(body.to_bytes())),
        Err(error) if error.is::<LengthLimitError>() => Ok(Err(Failure::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("The body exceeds {BODY_MAX} bytes."),
        ))),
        Err(_) => Err(Cut),
    }
}

async fn handle(
    routes: Router,
    head: &Parts,
    body: Result<Bytes, Failure>,
    context: Option<Context>,
) -> Response {
    let body = match body {
        Ok(body) => body,
        Err(failure) => return failure.into_response(),
    };
    let mut request = Request::from_parts(head.clone(), axum::body::Body::from(body));
    if let Some(context) = context {
        request.extensions_mut().insert(context);
    }
    let Ok(response) = TowerToHyperService::new(routes).call(request).await;
    response
}

fn own_faults(headers: &HeaderMap) -> Result<Vec<Fault>, Failure> {
    let mut own = Vec::new();
    for value in headers.get_all(faults::HEADER) {
        let text = String::from_utf8_lossy(value.as_bytes());
        let read = Fault::list(&text).map_err(|error| error.to_string());
        let read =
            read.and_then(
                |list| match list.iter().find(|fault| fault.kind.is_of_connections()) {
                    Some(fault) => Err(format!(
                        "fault `{fault}`: is about connections, not about one request"
                    )),
                    None => Ok(list),
                },
            );
        own.extend(read.map_err(|error| {
            Failure::new(
                StatusCode::BAD_REQUEST,
                format!("{}: {error}", faults::HEADER),
            )
        })?);
    }
    Ok(own)
}

/// Checks the key on the API's paths. Health and metrics need no key, as on real engines.
fn authorise(app: &App, head: &Parts) -> Result<(), Failure> {
    let Some(key) = app
        .options
        .api_key
        .as_deref()
        .filter(|_| head.uri.path().starts_with("/v1/"))
    else {
        return Ok(());
    };
    let text = |name| head.headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = text("authorization").and_then(|value| value.strip_prefix("Bearer "));
    if bearer.or_else(|| text("x-api-key")) == Some(key) {
        Ok(())
    } else {
        Err(Failure::new(StatusCode::UNAUTHORIZED, "Invalid API Key"))
    }
}
