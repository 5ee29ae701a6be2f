//! Converts the messages of any API into the tokens of one prompt, with a small chat template.
//!
//! `<start> role, content… <end>` for each message, then `<start> assistant` for the reply. Each
//! part is tokenised separately, and markers are separate tokens, so a growing conversation keeps
//! all tokens of the turn before.

use serde_json::Value;

use crate::tokens::{self, Token};

/// A prompt under construction.
#[derive(Debug, Default)]
pub(crate) struct Prompt(Vec<Token>);

impl Prompt {
    /// Tools come first, as in most chat templates.
    pub(crate) fn tools(&mut self, tools: &[Value]) {
        for tool in tools {
            tokens::extend(&mut self.0, &tool.to_string());
        }
    }

    /// Adds one message with its contents in order.
    pub(crate) fn message<'a>(
        &mut self,
        role: &str,
        contents: impl IntoIterator<Item = &'a Value>,
    ) {
        self.open(role);
        contents
            .into_iter()
            .for_each(|content| self.content(content));
        self.0.push(tokens::marker("end"));
    }

    /// The tokens of the prompt, up to the start of the reply.
    pub(crate) fn finish(mut self) -> Vec<Token> {
        self.open("assistant");
        self.0
    }

    fn open(&mut self, role: &str) {
        self.0.push(tokens::marker("start"));
        tokens::extend(&mut self.0, role);
    }

    /// Adds a text, a list of parts, a part, or a tool call.
    fn content(&mut self, content: &Value) {
        match content {
            Value::Null => {}
            Value::String(text) => tokens::extend(&mut self.0, text),
            Value::Array(parts) => parts.iter().for_each(|part| self.content(part)),
            Value::Object(part) => {
                if let Some(text) = part.get("text") {
                    self.content(text);
                } else if let Some(function) = part.get("function") {
                    self.content(function);
                } else if let Some(arguments) = part.get("arguments").or_else(|| part.get("input"))
                {
                    // Arguments come before the name, because a reply generates the arguments: so a
                    // call in the history continues the cached prompt.
                    self.arguments(arguments);
                    self.content(part.get("name").unwrap_or(&Value::Null));
                } else if let Some(inner) = part.get("content").or_else(|| part.get("output")) {
                    self.content(inner);
                } else {
                    tokens::extend(&mut self.0, &content.to_string());
                }
            }
            Value::Bool(_) | Value::Number(_) => tokens::extend(&mut self.0, &content.to_string()),
        }
    }

    fn arguments(&mut self, arguments: &Value) {
        match arguments {
            Value::String(json) => tokens::extend(&mut self.0, json),
            other => tokens::extend(&mut self.0, &other.to_string()),
        }
    }
}

/// Agents add texts of their own to the user's text: `<system-reminder>…`.
fn is_reminder(text: &str) -> bool {
    text.trim_start().starts_with('<')
}

/// The text of the last message if it is the user's and contains text; a tool's result does not
/// count.
pub(crate) fn last_user(messages: &[Value]) -> Option<String> {
    let last = messages
        .last()
        .filter(|message| message["role"] == "user")?;
    match &last["content"] {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) if parts.iter().all(|part| part["type"] != "tool_result") => {
            let texts = parts.iter().filter_map(|part| part["text"].as_str());
            let typed: Vec<&str> = texts.filter(|text| !is_reminder(text)).collect();
            Some(typed.join(" "))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::length::Drawn;
    use crate::text::{Finish, Plan};
    use serde_json::json;

    fn tokens_of(messages: &[Value]) -> Vec<Token> {
        let mut prompt = Prompt::default();
        for message in messages {
            prompt.message(
                message["role"].as_str().unwrap(),
                [&message["content"], &message["tool_calls"]],
            );
        }
        prompt.finish()
    }

    #[test]
    fn the_next_turn_continues_the_tokens_of_prompt_and_reply() {
        let plan = Plan::sentences(Drawn::Filled(40), None);
        let mut turns = vec![json!({"role": "user", "content": "Hi there"})];
        let mut before = tokens_of(&turns);
        before.extend(plan.pieces.iter().map(|piece| tokens::id(piece)));
        turns.push(json!({"role": "assistant", "content": plan.pieces.concat()}));
        turns.push(json!({"role": "user", "content": [{"type": "text", "text": "And then?"}]}));
        assert!(tokens_of(&turns).starts_with(&before));
    }

    #[test]
    fn a_tool_call_that_comes_back_continues_them_too() {
        let plan = Plan::text("{\"city\":\"sample\"}", None, Finish::ToolCall);
        let mut turns = vec![json!({"role": "user", "content": "weather"})];
        let mut before = tokens_of(&turns);
        before.extend(plan.pieces.iter().map(|piece| tokens::id(piece)));
        let call = json!({"id": "c", "type": "function", "function": {"name": "w", "arguments": plan.pieces.concat()}});
        turns.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
        assert!(tokens_of(&turns).starts_with(&before));
    }

    #[test]
    fn text_and_text_parts_are_the_same_prompt() {
        let text = tokens_of(&[json!({"role": "user", "content": "a b"})]);
        let parts =
            tokens_of(&[json!({"role": "user", "content": [{"type": "text", "text": "a b"}]})]);
        assert_eq!(text, parts);
    }

    #[test]
    fn only_a_user_who_speaks_last_is_heard() {
        let user = json!({"role": "user", "content": [{"type": "text", "text": "use it"}]});
        let result = json!({"role": "user", "content": [{"type": "tool_result", "content": "42"}]});
        assert_eq!(
            last_user(std::slice::from_ref(&user)).as_deref(),
            Some("use it")
        );
        assert_eq!(last_user(&[user.clone(), result]), None);
        assert_eq!(
            last_user(&[user, json!({"role": "tool", "content": "42"})]),
            None
        );
    }
}
