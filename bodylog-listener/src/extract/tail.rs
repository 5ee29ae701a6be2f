//! Parses a JSON response whose middle or end is missing. The usage and the finish reason are
//! usually near the end.

use serde_json::Value;

use super::answer::Answer;

/// How far from the end to search for the usage.
const TAIL: usize = 64 << 10;
/// How far from the start to search for the model.
const HEAD: usize = 4 << 10;

/// Takes the last complete `"usage"` object, the last finish reason, and the first `"model"`.
pub(super) fn look(body: &[u8], answer: &mut Answer) {
    let tail = String::from_utf8_lossy(&body[body.len().saturating_sub(TAIL)..]);
    if let Some(usage) = last(&tail, "\"usage\"", Value::is_object) {
        answer.usage(usage);
    }
    for name in ["\"finish_reason\"", "\"stop_reason\""] {
        if let Some(Value::String(reason)) = last(&tail, name, is_word) {
            answer.ended_by(name == "\"finish_reason\"", reason);
        }
    }
    let head = String::from_utf8_lossy(&body[..body.len().min(HEAD)]);
    if let Some(at) = head.find("\"model\"")
        && let Some(Value::String(model)) = value_behind(&head[at..])
    {
        answer.model(model);
    }
}

/// The value of the last member with this name that passes `wanted`. Inside a text, the quotes
/// would be escaped, so they do not match.
fn last(tail: &str, name: &str, wanted: impl Fn(&Value) -> bool) -> Option<Value> {
    let places = tail.rmatch_indices(name);
    let mut values = places.filter_map(|(at, _)| value_behind(&tail[at..]));
    values.find(wanted)
}

/// A real finish reason is one word; text that a model generates rarely is.
fn is_word(value: &Value) -> bool {
    let is_of_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    value
        .as_str()
        .is_some_and(|text| (1..=64).contains(&text.len()) && text.bytes().all(is_of_word))
}

/// The value of the member at the start of `text`.
fn value_behind(text: &str) -> Option<Value> {
    let (_, rest) = text.split_once(':')?;
    serde_json::Deserializer::from_str(rest)
        .into_iter()
        .next()?
        .ok()
}
