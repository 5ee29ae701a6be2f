//! Anthropic's API: `POST /v1/messages` and `POST /v1/messages/count_tokens`.

use axum::extract::State;
use axum::response::Response;
use axum::{Extension, Json};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::{self, App, Call, Context, Wishes};
use crate::failure::Failure;
use crate::generate::{Job, Usage};
use crate::prompt::{Prompt, last_user};
use crate::reply::{Api, End, Events};
use crate::text::Finish;
use crate::tokens::Token;
use crate::tools::{self, Choice, Tool};

#[derive(Debug, Deserialize)]
struct Request {
    model: Option<String>,
    messages: Vec<Value>,
    max_tokens: Option<i64>,
    system: Option<Value>,
    stream: Option<bool>,
    stop_sequences: Option<Value>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    output_config: Option<Value>,
}

#[derive(Debug)]
struct Messages {
    id: String,
    model: String,
    call: Option<Call>,
}

pub(crate) async fn messages(
    State(app): State<App>,
    Extension(context): Extension<Context>,
    body: Bytes,
) -> Result<Response, Failure> {
    let request: Request = app::parse(&body)?;
    if request.max_tokens.is_none() {
        return Err(Failure::invalid("max_tokens", "max_tokens: Field required"));
    }
    let limit = app::limit("max_tokens", request.max_tokens)?;
    let prompt = render(&request)?;
    let tools: Vec<Tool> = request
        .tools
        .iter()
        .flatten()
        .filter_map(read_tool)
        .collect();
    let choice = read_choice(request.tool_choice.as_ref());
    let said = last_user(&request.messages);
    let tool = tools::pick(&tools, &choice, said.as_deref()).map_err(|name| {
        Failure::invalid(
            "tool_choice",
            format!("tool_choice: the tool `{name}` is not among the tools"),
        )
    })?;
    let stops = app::stops("stop_sequences", request.stop_sequences.as_ref())?;
    let schema = request
        .output_config
        .as_ref()
        .map(|config| &config["format"]["schema"]);
    let schema = schema.filter(|schema| schema.is_object());
    let plan = app.plan(&Wishes {
        prompt: &prompt,
        limit,
        stops,
        tool,
        said: said.as_deref(),
        schema,
        ..Wishes::default()
    });
    let api = Messages {
        id: app.id("msg_"),
        model: app.model(request.model)?,
        call: tool.map(|tool| Call {
            id: app.id("toolu_"),
            name: tool.name.clone(),
        }),
    };
    app.reply(
        context,
        Job {
            prompt,
            plan,
            choices: 1,
        },
        api,
        request.stream.unwrap_or(false),
    )
    .await
}

pub(crate) async fn count_tokens(
    State(app): State<App>,
    body: Bytes,
) -> Result<Json<Value>, Failure> {
    let request: Request = app::parse(&body)?;
    let prompt = render(&request)?;
    app.model(request.model)?;
    Ok(Json(json!({"input_tokens": prompt.len()})))
}

fn render(request: &Request) -> Result<Vec<Token>, Failure> {
    if request.messages.is_empty() {
        return Err(Failure::invalid(
            "messages",
            "messages: at least one message is required",
        ));
    }
    let mut prompt = Prompt::default();
    prompt.tools(request.tools.as_deref().unwrap_or_default());
    if let Some(system) = &request.system {
        prompt.message("system", [system]);
    }
    for message in &request.messages {
        let role = message["role"].as_str();
        let role = role
            .ok_or_else(|| Failure::invalid("messages", "messages: every message needs a role"))?;
        prompt.message(role, [&message["content"]]);
    }
    Ok(prompt.finish())
}

/// A tool with a schema. Tools that Anthropic itself runs are never called.
fn read_tool(tool: &Value) -> Option<Tool> {
    let schema = tool.get("input_schema")?.clone();
    Some(Tool {
        name: tool["name"].as_str()?.to_owned(),
        schema,
    })
}

fn read_choice(choice: Option<&Value>) -> Choice {
    let Some(choice) = choice else {
        return Choice::Auto;
    };
    match (choice["type"].as_str(), choice["name"].as_str()) {
        (Some("none"), _) => Choice::None,
        (Some("any"), _) => Choice::Any,
        (Some("tool"), Some(name)) => Choice::Named(name.to_owned()),
        _ => Choice::Auto,
    }
}

/// `usage`; input tokens do not include the cached ones.
fn usage(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.prompt - usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.completion,
    })
}

/// `stop_reason` and `stop_sequence`.
fn stop(finish: &Finish) -> (&'static str, Value) {
    match finish {
        Finish::Stop => ("end_turn", Value::Null),
        Finish::Length => ("max_tokens", Value::Null),
        Finish::StopSequence(sequence) => ("stop_sequence", json!(sequence)),
        Finish::ToolCall => ("tool_use", Value::Null),
    }
}

impl Messages {
    fn message(&self, content: &Value, usage: Usage) -> Value {
        json!({
            "id": self.id, "type": "message", "role": "assistant", "model": self.model, "content": content,
            "stop_reason": null, "stop_sequence": null, "usage": self::usage(usage),
        })
    }
}

impl Api for Messages {
    fn whole(&self, end: &End) -> Value {
        let block = match &self.call {
            None => json!({"type": "text", "text": end.text}),
            // Arguments that the limit cut short are no valid JSON. Anthropic then sends the part
            // that it could parse, which may be empty.
            Some(call) => json!({
                "type": "tool_use", "id": call.id, "name": call.name,
                "input": serde_json::from_str(&end.text).unwrap_or_else(|_| json!({})),
            }),
        };
        let mut message = self.message(&json!([block]), end.usage);
        let (reason, sequence) = stop(&end.finish);
        message["stop_reason"] = json!(reason);
        message["stop_sequence"] = sequence;
        message
    }

    fn start(&mut self, before: Usage, out: &mut Events) {
        let message = self.message(&json!([]), before);
        out.named(
            "message_start",
            &json!({"type": "message_start", "message": message}),
        );
        let block = match &self.call {
            None => json!({"type": "text", "text": ""}),
            Some(call) => {
                json!({"type": "tool_use", "id": call.id, "name": call.name, "input": {}})
            }
        };
        let start = json!({"type": "content_block_start", "index": 0, "content_block": block});
        out.named("content_block_start", &start);
        out.named("ping", &json!({"type": "ping"}));
    }

    fn piece(&mut self, text: &str, out: &mut Events) {
        let delta = match &self.call {
            None => json!({"type": "text_delta", "text": text}),
            Some(_) => json!({"type": "input_json_delta", "partial_json": text}),
        };
        let event = json!({"type": "content_block_delta", "index": 0, "delta": delta});
        out.named("content_block_delta", &event);
    }

    fn end(&mut self, end: &End, out: &mut Events) {
        out.named(
            "content_block_stop",
            &json!({"type": "content_block_stop", "index": 0}),
        );
        let (reason, sequence) = stop(&end.finish);
        let delta = json!({"stop_reason": reason, "stop_sequence": sequence});
        let event = json!({"type": "message_delta", "delta": delta, "usage": usage(end.usage)});
        out.named("message_delta", &event);
        out.named("message_stop", &json!({"type": "message_stop"}));
    }
}
