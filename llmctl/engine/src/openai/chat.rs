//! `POST /v1/chat/completions`.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use http::HeaderMap;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{StreamOptions, add_timings, reason, stop_reason};
use crate::app::{self, App, Call, Context, Wishes};
use crate::dialect::Dialect;
use crate::failure::Failure;
use crate::generate::{Job, Usage};
use crate::prompt::{Prompt, last_user};
use crate::reply::{Api, End, Events};
use crate::tools::{self, Choice, Tool};

#[derive(Debug, Deserialize)]
struct Request {
    model: Option<String>,
    messages: Vec<Value>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    max_tokens: Option<i64>,
    max_completion_tokens: Option<i64>,
    n: Option<u64>,
    stop: Option<Value>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    response_format: Option<Value>,
    ignore_eos: Option<bool>,
}

#[derive(Debug)]
struct Chat {
    id: String,
    created: u64,
    model: String,
    dialect: Dialect,
    choices: usize,
    call: Option<Call>,
    include_usage: bool,
}

pub(crate) async fn chat(
    State(app): State<App>,
    Extension(context): Extension<Context>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Failure> {
    let request: Request = app::parse(&body)?;
    let model = app.model(request.model)?;
    let limit = match request.max_completion_tokens {
        Some(asked) => app::limit("max_completion_tokens", Some(asked))?,
        None => app::limit("max_tokens", request.max_tokens)?,
    };
    let choices = app::choices(request.n)?;
    let offered = request.tools.unwrap_or_default();
    let tools = read_tools(&offered)?;
    let choice = read_choice(request.tool_choice.as_ref());
    let said = last_user(&request.messages);
    let tool = tools::pick(&tools, &choice, said.as_deref()).map_err(|name| {
        Failure::invalid(
            "tool_choice",
            format!("The tool `{name}` is not among the tools."),
        )
    })?;
    let json_object = json!({"const": {"answer": "The quick brown fox jumps over the lazy dog."}});
    let schema =
        request
            .response_format
            .as_ref()
            .and_then(|format| match format["type"].as_str() {
                Some("json_schema") => Some(&format["json_schema"]["schema"]),
                Some("json_object") => Some(&json_object),
                _ => None,
            });
    let stops = app::stops("stop", request.stop.as_ref())?;
    let prompt = render(&offered, &request.messages)?;
    let plan = app.plan(&Wishes {
        prompt: &prompt,
        limit,
        ignore_eos: request.ignore_eos.unwrap_or(false),
        stops,
        tool,
        said: said.as_deref(),
        schema,
    });
    let api = Chat {
        id: app.reply_id("chatcmpl-", &headers),
        created: app::unix(std::time::SystemTime::now()),
        model,
        dialect: app.options.dialect,
        choices,
        call: tool.map(|tool| Call {
            id: app.id("call_"),
            name: tool.name.clone(),
        }),
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

/// The prompt of a conversation.
pub(crate) fn render(
    tools: &[Value],
    messages: &[Value],
) -> Result<Vec<crate::tokens::Token>, Failure> {
    if messages.is_empty() {
        return Err(Failure::invalid("messages", "messages must not be empty."));
    }
    let mut prompt = Prompt::default();
    prompt.tools(tools);
    for message in messages {
        let role = message["role"].as_str();
        let role =
            role.ok_or_else(|| Failure::invalid("messages", "Every message needs a role."))?;
        prompt.message(role, [&message["content"], &message["tool_calls"]]);
    }
    Ok(prompt.finish())
}

fn read_tools(offered: &[Value]) -> Result<Vec<Tool>, Failure> {
    let read = |tool: &Value| {
        let name = tool["function"]["name"].as_str()?;
        Some(Tool {
            name: name.to_owned(),
            schema: tool["function"]["parameters"].clone(),
        })
    };
    let wrong = || Failure::invalid("tools", "Every tool needs function.name.");
    offered
        .iter()
        .map(|tool| read(tool).ok_or_else(wrong))
        .collect()
}

/// `"none"`, `"auto"`, `"required"`, or a function by its name (in chat under `function`).
pub(crate) fn read_choice(choice: Option<&Value>) -> Choice {
    let Some(choice) = choice else {
        return Choice::Auto;
    };
    match choice.as_str() {
        Some("none") => Choice::None,
        Some("required") => Choice::Any,
        Some(_) => Choice::Auto,
        None => {
            let name = choice["function"]["name"]
                .as_str()
                .or_else(|| choice["name"].as_str());
            name.map_or(Choice::Auto, |name| Choice::Named(name.to_owned()))
        }
    }
}

impl Chat {
    fn chunk(&self, choices: &Value) -> Value {
        json!({
            "id": self.id, "object": "chat.completion.chunk", "created": self.created, "model": self.model,
            "choices": choices,
        })
    }

    /// Sends the same delta for every choice, one chunk each.
    fn deltas(&self, delta: &Value, out: &mut Events) {
        for index in 0..self.choices {
            let choice =
                json!({"index": index, "delta": delta, "logprobs": null, "finish_reason": null});
            out.data(&self.chunk(&json!([choice])));
        }
    }

    fn message(&self, end: &End) -> Value {
        match &self.call {
            None => json!({"role": "assistant", "content": end.text}),
            Some(call) => json!({
                "role": "assistant",
                "content": null,
                "tool_calls": [{
                    "id": call.id, "type": "function", "function": {"name": call.name, "arguments": end.text},
                }],
            }),
        }
    }
}

impl Api for Chat {
    fn whole(&self, end: &End) -> Value {
        let choice = |index| {
            json!({
                "index": index, "message": self.message(end), "logprobs": null,
                "finish_reason": reason(&end.finish), "stop_reason": stop_reason(&end.finish),
            })
        };
        let mut document = json!({
            "id": self.id, "object": "chat.completion", "created": self.created, "model": self.model,
            "choices": (0..self.choices).map(choice).collect::<Value>(),
            "usage": super::usage(end.usage),
        });
        add_timings(&mut document, self.dialect, end.usage, end.timings);
        document
    }

    fn start(&mut self, _: Usage, out: &mut Events) {
        self.deltas(&json!({"role": "assistant", "content": ""}), out);
        if let Some(call) = &self.call {
            let function = json!({"name": call.name, "arguments": ""});
            let tool = json!({"index": 0, "id": call.id, "type": "function", "function": function});
            self.deltas(&json!({"tool_calls": [tool]}), out);
        }
    }

    fn piece(&mut self, text: &str, out: &mut Events) {
        let delta = match &self.call {
            None => json!({"content": text}),
            Some(_) => json!({"tool_calls": [{"index": 0, "function": {"arguments": text}}]}),
        };
        self.deltas(&delta, out);
    }

    fn end(&mut self, end: &End, out: &mut Events) {
        for index in 0..self.choices {
            let choice = json!({
                "index": index, "delta": {}, "logprobs": null,
                "finish_reason": reason(&end.finish), "stop_reason": stop_reason(&end.finish),
            });
            let mut chunk = self.chunk(&json!([choice]));
            add_timings(&mut chunk, self.dialect, end.usage, end.timings);
            out.data(&chunk);
        }
        if self.include_usage {
            let mut chunk = self.chunk(&json!([]));
            chunk["usage"] = super::usage(end.usage);
            out.data(&chunk);
        }
        out.done();
    }
}
