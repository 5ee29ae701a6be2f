//! Collects the findings, and knows where to look in each object of a response.

use proto::meta::RespMeta;
use serde_json::{Value, json};

use super::json::{append_text, each_element, each_member, is_list, is_object, text, value};
use super::overlay::overlay;
use super::tools::Tools;
use super::{Extracted, Shape};

/// Most choices kept apart. Further choices are merged into the last one.
const CHOICES_MAX: usize = 128;

/// Initial capacity for the text of a choice, bytes. Avoids reallocation for short answers.
const TEXT_ROOM: usize = 256;

/// The findings so far.
#[derive(Debug, Default)]
pub(super) struct Answer {
    id: Option<String>,
    model: Option<String>,
    stop_reason: Option<String>,
    usage: Option<Value>,
    actual_usage: Option<Value>,
    error: Option<Value>,
    /// Sorted by index, ascending. Formats without choices use index 0.
    choices: Vec<Choice>,
    /// Whether deltas of a Responses answer arrived. The last event repeats their text.
    has_pieces: bool,
}

#[derive(Debug, Default)]
struct Choice {
    index: i64,
    text: String,
    reasoning: String,
    tools: Tools,
    finish_reason: Option<String>,
}

impl Choice {
    fn has_anything(&self) -> bool {
        !self.text.is_empty()
            || !self.reasoning.is_empty()
            || !self.tools.is_empty()
            || self.finish_reason.is_some()
    }
}

impl Answer {
    /// Reads one object. Returns whether `data` is an object.
    pub(super) fn take(&mut self, object: &str) -> bool {
        let mut kind = None;
        let mut index = 0;
        let mut delta = None;
        let mut block = None;
        let mut object_kind = None;
        let mut status = None;
        let mut reason = None;
        let is_object = each_member(object, |name, json| match name {
            "type" => kind = text(json),
            "index" => index = json.parse().unwrap_or(0),
            "choices" => each_element(json, |choice| self.choice(choice)),
            "delta" => delta = Some(json),
            "content_block" => block = Some(json),
            "content" if is_list(json) => each_element(json, |part| self.block(None, part)),
            // llama.cpp's own API.
            "content" => append_text(json, &mut self.at(0).text),
            "output" if is_list(json) => each_element(json, |item| self.output_item(item)),
            "message" if is_object(json) => self.message(json),
            "response" if is_object(json) => self.response(json),
            "usage" => self.usage_of(json),
            "actual_usage" => self.actual_usage = value(json).or(self.actual_usage.take()),
            "model" => self.model = text(json).or(self.model.take()),
            "id" => self.id = text(json).or(self.id.take()),
            "stop_reason" => self.stop_reason = text(json).or(self.stop_reason.take()),
            "error" => self.error = value(json).or(self.error.take()),
            "object" => object_kind = text(json),
            "status" => status = text(json),
            "incomplete_details" => reason = value_of(json, "reason"),
            _ => {}
        });
        if object_kind.as_deref() == Some("response") {
            self.ended(status, reason);
        }
        // Wait until all members are read: `type` and `index` say what the delta belongs to.
        if let Some(block) = block {
            self.block(Some(index), block);
        }
        if let Some(delta) = delta {
            self.delta(kind.as_deref(), index, delta);
        }
        is_object
    }

    /// Adds the contents of a plain chunk of a chat stream; see [`super::quick`].
    pub(super) fn add(
        &mut self,
        index: i64,
        text: &str,
        reasoning: &str,
        finish_reason: Option<&str>,
    ) {
        let choice = self.at(index);
        choice.text.push_str(text);
        choice.reasoning.push_str(reasoning);
        if let Some(reason) = finish_reason {
            choice.finish_reason = Some(reason.to_owned());
        }
    }

    /// Sets the name of the completion. Every chunk repeats it.
    pub(super) fn name(&mut self, id: &str, model: &str) {
        for (known, new) in [(&mut self.id, id), (&mut self.model, model)] {
            if !new.is_empty() && known.as_deref() != Some(new) {
                *known = Some(new.to_owned());
            }
        }
    }

    /// Whether anything was found.
    pub(super) fn found_anything(&self) -> bool {
        self.has_answer()
            || self.id.is_some()
            || self.model.is_some()
            || self.usage.is_some()
            || self.actual_usage.is_some()
    }

    /// Whether anything was found that a client would see as the answer.
    fn has_answer(&self) -> bool {
        self.error.is_some()
            || self.stop_reason.is_some()
            || self.choices.iter().any(Choice::has_anything)
    }

    /// Sets a usage object that replaces all earlier ones.
    pub(super) fn usage(&mut self, usage: Value) {
        self.usage = Some(usage);
    }

    /// Sets the model, unless it is already known.
    pub(super) fn model(&mut self, model: String) {
        self.model.get_or_insert(model);
    }

    /// Sets the finish reason, unless it is already known. OpenAI has it in each choice, Anthropic
    /// in the message.
    pub(super) fn ended_by(&mut self, is_of_choice: bool, reason: String) {
        if is_of_choice {
            self.at(0).finish_reason.get_or_insert(reason);
        } else {
            self.stop_reason.get_or_insert(reason);
        }
    }

    /// Merges a usage object, or a part of one.
    pub(super) fn usage_of(&mut self, json: &str) {
        if let Some(usage) = value(json) {
            overlay(&mut self.usage, usage);
        }
    }

    fn at(&mut self, index: i64) -> &mut Choice {
        let place = match self
            .choices
            .binary_search_by_key(&index, |choice| choice.index)
        {
            Ok(place) => place,
            Err(_) if self.choices.len() >= CHOICES_MAX => CHOICES_MAX - 1,
            Err(place) => {
                let choice = Choice {
                    index,
                    // The text grows one word at a time.
                    text: String::with_capacity(TEXT_ROOM),
                    ..Choice::default()
                };
                self.choices.insert(place, choice);
                place
            }
        };
        &mut self.choices[place]
    }

    /// Reads an element of OpenAI's `choices`.
    fn choice(&mut self, json: &str) {
        let mut index = 0;
        let mut finish_reason = None;
        let mut found = Vec::new();
        each_member(json, |name, json| match name {
            "index" => index = json.parse().unwrap_or(0),
            "finish_reason" => finish_reason = text(json),
            "text" | "delta" | "message" => found.push((name == "text", json)),
            _ => {}
        });
        let choice = self.at(index);
        if finish_reason.is_some() {
            choice.finish_reason = finish_reason;
        }
        for (is_text, json) in found {
            if is_text {
                append_text(json, &mut choice.text);
                continue;
            }
            each_member(json, |name, json| match name {
                "content" => append_text(json, &mut choice.text),
                "reasoning" | "reasoning_content" => append_text(json, &mut choice.reasoning),
                "tool_calls" => each_element(json, |call| {
                    if let Some(call) = value(call) {
                        choice.tools.add(call);
                    }
                }),
                _ => {}
            });
        }
    }

    /// Reads a block of Anthropic's content: a whole block, or the start of one whose deltas follow
    /// under the same index.
    fn block(&mut self, index: Option<i64>, json: &str) {
        let choice = self.at(0);
        let mut is_tool = false;
        each_member(json, |name, json| match name {
            "type" => is_tool = text(json).as_deref() == Some("tool_use"),
            "text" => append_text(json, &mut choice.text),
            "thinking" => append_text(json, &mut choice.reasoning),
            _ => {}
        });
        if is_tool && let Some(Value::Object(mut call)) = value(json) {
            if let Some(index) = index {
                call.insert("index".into(), index.into());
            }
            choice.tools.add(Value::Object(call));
        }
    }

    /// Adds the delta of an event. Anthropic's delta is an object, that of the Responses API a
    /// string.
    fn delta(&mut self, kind: Option<&str>, index: i64, json: &str) {
        match kind {
            Some("response.output_text.delta") => {
                self.has_pieces = true;
                append_text(json, &mut self.at(0).text);
            }
            Some("response.reasoning_text.delta" | "response.reasoning_summary_text.delta") => {
                self.has_pieces = true;
                append_text(json, &mut self.at(0).reasoning);
            }
            Some(kind) if kind.starts_with("response.") => {}
            _ if is_object(json) => {
                let mut stop_reason = None;
                let choice = self.at(0);
                each_member(json, |name, json| match name {
                    "text" => append_text(json, &mut choice.text),
                    "thinking" => append_text(json, &mut choice.reasoning),
                    "partial_json" => {
                        if let Some(piece) = text(json) {
                            choice.tools.grow(index, "input", &piece);
                        }
                    }
                    "stop_reason" => stop_reason = text(json),
                    _ => {}
                });
                self.stop_reason = stop_reason.or(self.stop_reason.take());
            }
            _ => {}
        }
    }

    /// Reads Anthropic's `message_start`.
    fn message(&mut self, json: &str) {
        each_member(json, |name, json| match name {
            "id" => self.id = text(json).or(self.id.take()),
            "model" => self.model = text(json).or(self.model.take()),
            "usage" => self.usage_of(json),
            _ => {}
        });
    }

    /// Reads the response object inside an event of the Responses API.
    fn response(&mut self, json: &str) {
        let has_pieces = self.has_pieces;
        let mut status = None;
        let mut reason = None;
        each_member(json, |name, json| match name {
            "id" => self.id = text(json).or(self.id.take()),
            "model" => self.model = text(json).or(self.model.take()),
            "usage" => self.usage_of(json),
            "error" => self.error = value(json).or(self.error.take()),
            "output" => each_element(json, |item| {
                let is_call = value_of(item, "type").as_deref() == Some("function_call");
                if !has_pieces || is_call {
                    self.output_item(item);
                }
            }),
            "status" => status = text(json),
            "incomplete_details" => reason = value_of(json, "reason"),
            _ => {}
        });
        self.ended(status, reason);
    }

    /// Sets how a response of the Responses API ended, if it has ended.
    fn ended(&mut self, status: Option<String>, reason: Option<String>) {
        if let Some("completed" | "incomplete") = status.as_deref() {
            self.at(0).finish_reason = reason.or(status);
        }
    }

    /// Reads an element of `output` of the Responses API.
    fn output_item(&mut self, json: &str) {
        let kind = value_of(json, "type");
        if kind.as_deref() == Some("function_call") {
            let call = json!({
                "id": value_of(json, "call_id"),
                "type": "function",
                "function": {
                    "name": value_of(json, "name"),
                    "arguments": value_of(json, "arguments").unwrap_or_default(),
                },
            });
            self.at(0).tools.add(call);
            return;
        }
        let is_reasoning = kind.as_deref() == Some("reasoning");
        let choice = self.at(0);
        each_member(json, |name, json| {
            if matches!(name, "content" | "summary") {
                each_element(json, |part| {
                    let text = value_of(part, "text").unwrap_or_default();
                    let to = if is_reasoning {
                        &mut choice.reasoning
                    } else {
                        &mut choice.text
                    };
                    to.push_str(&text);
                });
            }
        });
    }

    /// Finishes and returns the findings.
    pub(super) fn into_extracted(self, shape: Shape) -> Extracted {
        let has_answer = self.has_answer();
        let are_several = self.choices.len() > 1;
        let mut choices: Vec<Value> = Vec::new();
        let mut tool_calls = Vec::new();
        let mut finish_reason = None;
        let mut first = None;
        for choice in self.choices {
            let calls = choice.tools.into_calls();
            if are_several {
                choices.push(described(
                    choice.index,
                    &choice.text,
                    &choice.reasoning,
                    &calls,
                    choice.finish_reason.as_deref(),
                ));
            }
            tool_calls.extend(calls);
            finish_reason = choice.finish_reason.or(finish_reason);
            first.get_or_insert((choice.text, choice.reasoning));
        }
        let (text, reasoning) = first.unwrap_or_default();
        let meta = RespMeta {
            id: self.id,
            model: self.model,
            finish_reason,
            stop_reason: self.stop_reason,
            usage: self.usage,
            actual_usage: self.actual_usage,
            reasoning: Some(reasoning).filter(|reasoning| !reasoning.is_empty()),
            tool_calls,
            error: self.error,
        };
        let is_nothing = meta.is_empty() && !has_answer;
        // If nothing was found in a truncated body, the record keeps the body itself.
        let is_text = |text: &String| shape != Shape::Tail || !text.is_empty();
        Extracted {
            text: has_answer.then_some(text).filter(is_text),
            meta,
            choices,
            shape: if is_nothing { Shape::None } else { shape },
        }
    }
}

fn described(
    index: i64,
    text: &str,
    reasoning: &str,
    calls: &[Value],
    finish_reason: Option<&str>,
) -> Value {
    let mut out = json!({"index": index, "text": text});
    if !reasoning.is_empty() {
        out["reasoning"] = reasoning.into();
    }
    if !calls.is_empty() {
        out["tool_calls"] = calls.into();
    }
    if let Some(reason) = finish_reason {
        out["finish_reason"] = reason.into();
    }
    out
}

/// The text of one member of an object.
fn value_of(json: &str, wanted: &str) -> Option<String> {
    let mut found = None;
    each_member(json, |name, json| {
        if name == wanted {
            found = text(json);
        }
    });
    found
}
