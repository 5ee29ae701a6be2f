//! `/v1/responses`, stored unless the request says otherwise.

mod events;

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use axum::{Extension, Json};
use bytes::Bytes;
use http::HeaderMap;
use serde::Deserialize;
use serde_json::{Value, json};

use super::chat::read_choice;
use crate::app::{self, App, Call, Context, Wishes};
use crate::failure::Failure;
use crate::generate::{Job, Usage};
use crate::prompt::{Prompt, last_user};
use crate::reply::End;
use crate::stored::{Kind, Object, Stored};
use crate::text::Finish;
use crate::tokens::Token;
use crate::tools::{self, Tool};

#[derive(Debug, Deserialize)]
struct Request {
    model: Option<String>,
    input: Value,
    instructions: Option<Value>,
    stream: Option<bool>,
    max_output_tokens: Option<i64>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    text: Option<Value>,
    previous_response_id: Option<String>,
    conversation: Option<Value>,
    store: Option<bool>,
}

/// One response and its inputs.
#[derive(Debug)]
struct Reply {
    id: String,
    /// ID of the one output item.
    item_id: String,
    created: u64,
    model: String,
    call: Option<Call>,
    /// Parameters of the request that the response repeats.
    echo: Value,
    /// Number of the next event.
    sequence: u64,
    /// What is stored at the end; `None` for `store: false`.
    memory: Option<Memory>,
}

/// Where a response is remembered, and what it continues.
#[derive(Debug)]
struct Memory {
    stored: Arc<Stored>,
    /// The items before the response: earlier ones and its input.
    items: Vec<Value>,
    /// The conversation that it belongs to, and the number of its items that were there before.
    conversation: Option<(String, usize)>,
}

/// The items that a request continues, and the ID of its conversation.
fn history(app: &App, request: &Request) -> Result<(Vec<Value>, Option<String>), Failure> {
    if let Some(id) = &request.previous_response_id {
        let Object {
            document,
            mut items,
            ..
        } = app.stored.get(Kind::Response, id)?;
        items.extend(document["output"].as_array().cloned().unwrap_or_default());
        return Ok((items, None));
    }
    let conversation = request.conversation.as_ref();
    let id = conversation.and_then(|named| named.as_str().or_else(|| named["id"].as_str()));
    match id {
        None => Ok((Vec::new(), None)),
        Some(id) => {
            let conversation = app.stored.get(Kind::Conversation, id)?;
            Ok((conversation.items, Some(id.to_owned())))
        }
    }
}

pub(crate) async fn one(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    Ok(Json(app.stored.get(Kind::Response, &id)?.document))
}

pub(crate) async fn delete(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    app.stored.delete(Kind::Response, &id).map(Json)
}

pub(crate) async fn input_items(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    let items = app.stored.get(Kind::Response, &id)?.items;
    Ok(Json(
        json!({"object": "list", "data": items, "has_more": false}),
    ))
}

pub(crate) async fn responses(
    State(app): State<App>,
    Extension(context): Extension<Context>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Failure> {
    let request: Request = app::parse(&body)?;
    let (mut input, conversation) = history(&app, &request)?;
    let conversation = conversation.map(|id| (id, input.len()));
    let model = app.model(request.model)?;
    let limit = app::limit("max_output_tokens", request.max_output_tokens)?;
    let offered = request.tools.unwrap_or_default();
    input.extend(messages(request.input)?);
    let tools = read_tools(&offered);
    let choice = read_choice(request.tool_choice.as_ref());
    let said = last_user(&input);
    let tool = tools::pick(&tools, &choice, said.as_deref()).map_err(|name| {
        Failure::invalid(
            "tool_choice",
            format!("The tool `{name}` is not among the tools."),
        )
    })?;
    let schema = request
        .text
        .as_ref()
        .map(|text| &text["format"]["schema"])
        .filter(|schema| schema.is_object());
    let prompt = render(&offered, request.instructions.as_ref(), &input);
    let plan = app.plan(&Wishes {
        prompt: &prompt,
        limit,
        tool,
        said: said.as_deref(),
        schema,
        ..Wishes::default()
    });
    let item_prefix = if tool.is_some() { "fc_" } else { "msg_" };
    let api = Reply {
        id: app.reply_id("resp_", &headers),
        item_id: app.id(item_prefix),
        created: app::unix(std::time::SystemTime::now()),
        memory: (request.store != Some(false)).then(|| Memory {
            stored: Arc::clone(&app.stored),
            items: input,
            conversation,
        }),
        model,
        call: tool.map(|tool| Call {
            id: app.id("call_"),
            name: tool.name.clone(),
        }),
        echo: json!({
            "instructions": request.instructions, "previous_response_id": request.previous_response_id,
            "max_output_tokens": request.max_output_tokens, "tools": offered,
            "tool_choice": request.tool_choice.unwrap_or_else(|| json!("auto")),
            "text": request.text.unwrap_or_else(|| json!({"format": {"type": "text"}})),
        }),
        sequence: 0,
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

/// The input as a list; a plain text becomes one user message.
fn messages(input: Value) -> Result<Vec<Value>, Failure> {
    match input {
        Value::String(text) => Ok(vec![json!({"role": "user", "content": text})]),
        Value::Array(items) if !items.is_empty() => Ok(items),
        _ => Err(Failure::invalid(
            "input",
            "input must be a text or a list of items that is not empty.",
        )),
    }
}

fn render(tools: &[Value], instructions: Option<&Value>, input: &[Value]) -> Vec<Token> {
    let mut prompt = Prompt::default();
    prompt.tools(tools);
    if let Some(instructions) = instructions {
        prompt.message("system", [instructions]);
    }
    for item in input {
        match (item["role"].as_str(), item["type"].as_str()) {
            (Some(role), _) => prompt.message(role, [&item["content"]]),
            (None, Some("function_call_output")) => prompt.message("tool", [&item["output"]]),
            (None, _) => prompt.message("assistant", [item]),
        }
    }
    prompt.finish()
}

/// The functions. Tools that OpenAI itself runs are never called.
fn read_tools(offered: &[Value]) -> Vec<Tool> {
    let read = |tool: &Value| {
        let name = tool["name"]
            .as_str()
            .filter(|_| tool["type"] == "function")?;
        Some(Tool {
            name: name.to_owned(),
            schema: tool["parameters"].clone(),
        })
    };
    offered.iter().filter_map(read).collect()
}

impl Reply {
    /// Stores the finished response.
    fn remember(&self, document: &Value) {
        let Some(memory) = &self.memory else { return };
        if let Some((conversation, known)) = &memory.conversation {
            let mut items = memory.items[*known..].to_vec();
            items.extend(document["output"].as_array().cloned().unwrap_or_default());
            memory.stored.extend(conversation, items);
        }
        let object = Object::new(Kind::Response, document.clone(), memory.items.clone());
        memory.stored.put(&self.id, object);
    }

    /// The response in its current state; it has an output after the end.
    fn document(&self, end: Option<&End>) -> Value {
        let at_length = end.is_some_and(|end| end.finish == Finish::Length);
        let status = match end {
            None => "in_progress",
            Some(_) if at_length => "incomplete",
            Some(_) => "completed",
        };
        let mut document = json!({
            "id": self.id, "object": "response", "created_at": self.created, "model": self.model, "status": status,
            "error": null, "incomplete_details": null, "metadata": {}, "parallel_tool_calls": true,
            "temperature": 1.0, "top_p": 1.0, "previous_response_id": null, "output": [], "usage": null,
        });
        if let (Some(members), Some(echo)) = (document.as_object_mut(), self.echo.as_object()) {
            members.extend(echo.clone());
        }
        if let Some(end) = end {
            document["output"] = json!([self.item(status, Some(&end.text))]);
            document["usage"] = usage(end.usage);
        }
        if at_length {
            document["incomplete_details"] = json!({"reason": "max_output_tokens"});
        }
        document
    }

    /// The output item; without content before the end.
    fn item(&self, status: &str, text: Option<&str>) -> Value {
        match &self.call {
            Some(call) => json!({
                "id": self.item_id, "type": "function_call", "status": status, "call_id": call.id, "name": call.name,
                "arguments": text.unwrap_or_default(),
            }),
            None => json!({
                "id": self.item_id, "type": "message", "status": status, "role": "assistant",
                "content": text.map(part).into_iter().collect::<Value>(),
            }),
        }
    }
}

fn part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

fn usage(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt + usage.completion,
    })
}
