//! `POST /v1/completions`, the older text API.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use http::HeaderMap;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{StreamOptions, add_timings, reason, stop_reason};
use crate::app::{self, App, Context, Wishes};
use crate::dialect::Dialect;
use crate::failure::Failure;
use crate::generate::{Job, Usage};
use crate::reply::{Api, End, Events};
use crate::tokens::{self, Token};

#[derive(Debug, Deserialize)]
struct Request {
    model: Option<String>,
    prompt: Value,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    max_tokens: Option<i64>,
    n: Option<u64>,
    stop: Option<Value>,
    ignore_eos: Option<bool>,
}

#[derive(Debug)]
struct Completion {
    id: String,
    created: u64,
    model: String,
    dialect: Dialect,
    choices: usize,
    include_usage: bool,
}

pub(crate) async fn completions(
    State(app): State<App>,
    Extension(context): Extension<Context>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Failure> {
    let request: Request = app::parse(&body)?;
    let model = app.model(request.model)?;
    let prompts = inputs("prompt", &request.prompt)?;
    let choices = app::choices(request.n)?.saturating_mul(prompts.len());
    let limit = app::limit("max_tokens", request.max_tokens)?;
    let stops = app::stops("stop", request.stop.as_ref())?;
    let prompt = prompts.concat();
    let plan = app.plan(&Wishes {
        prompt: &prompt,
        limit,
        ignore_eos: request.ignore_eos.unwrap_or(false),
        stops,
        ..Wishes::default()
    });
    let api = Completion {
        id: app.reply_id("cmpl-", &headers),
        created: app::unix(std::time::SystemTime::now()),
        model,
        dialect: app.options.dialect,
        choices,
        include_usage: request
            .stream_options
            .unwrap_or_default()
            .include_usage
            .unwrap_or(false),
    };
    let job = Job {
        prompt,
        plan,
        choices,
    };
    app.reply(context, job, api, request.stream.unwrap_or(false))
        .await
}

/// A text, a list of texts, a list of token ids, or a list of such lists.
pub(crate) fn inputs(param: &'static str, input: &Value) -> Result<Vec<Vec<Token>>, Failure> {
    let wrong = || {
        Failure::invalid(
            param,
            format!("{param} must be a text, a list of texts, or token ids."),
        )
    };
    let text = |text: &str| {
        let mut found = Vec::new();
        tokens::extend(&mut found, text);
        found
    };
    let token = |id: &Value| id.as_u64().and_then(|id| Token::try_from(id).ok());
    let one = |input: &Value| match input {
        Value::String(given) => Some(text(given)),
        Value::Array(ids) => ids.iter().map(token).collect(),
        _ => None,
    };
    match input {
        Value::Array(list) if list.is_empty() => Err(wrong()),
        Value::Array(list) if !list[0].is_number() => list
            .iter()
            .map(|input| one(input).ok_or_else(wrong))
            .collect(),
        _ => Ok(vec![one(input).ok_or_else(wrong)?]),
    }
}

impl Completion {
    fn document(&self, choices: &Value) -> Value {
        json!({
            "id": self.id, "object": "text_completion", "created": self.created, "model": self.model,
            "choices": choices,
        })
    }

    fn choice(index: usize, text: &str, end: Option<&End>) -> Value {
        json!({
            "index": index, "text": text, "logprobs": null,
            "finish_reason": end.map(|end| reason(&end.finish)),
            "stop_reason": end.map_or(Value::Null, |end| stop_reason(&end.finish)),
        })
    }
}

impl Api for Completion {
    fn whole(&self, end: &End) -> Value {
        let choices = (0..self.choices)
            .map(|index| Self::choice(index, &end.text, Some(end)))
            .collect();
        let mut document = self.document(&choices);
        document["usage"] = super::usage(end.usage);
        add_timings(&mut document, self.dialect, end.usage, end.timings);
        document
    }

    fn start(&mut self, _: Usage, _: &mut Events) {}

    fn piece(&mut self, text: &str, out: &mut Events) {
        for index in 0..self.choices {
            out.data(&self.document(&json!([Self::choice(index, text, None)])));
        }
    }

    fn end(&mut self, end: &End, out: &mut Events) {
        for index in 0..self.choices {
            let mut chunk = self.document(&json!([Self::choice(index, "", Some(end))]));
            add_timings(&mut chunk, self.dialect, end.usage, end.timings);
            out.data(&chunk);
        }
        if self.include_usage {
            let mut chunk = self.document(&json!([]));
            chunk["usage"] = super::usage(end.usage);
            out.data(&chunk);
        }
        out.done();
    }
}
