//! Model aliases in bodies: the served name on the way to an engine, the asked-for name on the way
//! back.

use std::ops::Range;
use std::sync::Arc;

use answers::cursor::{Cursor, Span, text};
use answers::json::unescaped;

use super::reader::start;

/// The two names of one request's model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alias {
    /// The client's.
    pub asked: Arc<str>,
    /// The engine's.
    pub served: Arc<str>,
}

/// Replaces the model of a request by the one that `served` names. `None` where nothing changes: the
/// body is not a JSON object, has no `model` text, or its model has no alias.
pub fn replace_model(
    body: &[u8],
    served: impl FnOnce(&str) -> Option<String>,
) -> Option<(Alias, Vec<u8>)> {
    let mut cursor = Cursor::at(body, start(body));
    if cursor.peek()? != b'{' {
        return None;
    }
    let mut values: Vec<Span> = Vec::new();
    cursor.members(|cursor, key| {
        let is_model = &*unescaped(&body[key]) == b"model";
        let value = cursor.skip()?;
        if is_model {
            values.push(value);
        }
        Some(())
    })?;
    cursor.end()?;
    // Of duplicates the last one counts, as in the engines' parsers.
    let asked = text(body, values.last()?)?;
    let asked = std::str::from_utf8(&asked).ok()?;
    let served = served(asked)?;
    let quoted = quoted(&served);
    let mut edited = Vec::with_capacity(body.len() + quoted.len());
    let mut done = 0;
    for value in values {
        edited.extend_from_slice(&body[done..value.start]);
        edited.extend_from_slice(&quoted);
        done = value.end;
    }
    edited.extend_from_slice(&body[done..]);
    let alias = Alias {
        asked: asked.into(),
        served: served.into(),
    };
    Some((alias, edited))
}

/// A name as a JSON string.
pub fn quoted(name: &str) -> Vec<u8> {
    serde_json::to_vec(name).unwrap_or_default()
}

/// Puts `name`, a JSON string, in place of the model in the JSON object at `json` of an answer.
/// Returns whether something changed.
pub(super) fn rename_model(out: &mut Vec<u8>, json: Range<usize>, name: &[u8]) -> bool {
    let Some(found) = out.get(json.clone()).and_then(models) else {
        return false;
    };
    let mut is_changed = false;
    for value in found.into_iter().rev() {
        let at = json.start + value.start..json.start + value.end;
        if out[at.start] == b'"' && out[at.clone()] != *name {
            out.splice(at, name.iter().copied());
            is_changed = true;
        }
    }
    is_changed
}

/// The values of `model`: at the top, in Anthropic's `message` and in the `response` of the
/// Responses API.
fn models(json: &[u8]) -> Option<Vec<Span>> {
    let mut cursor = Cursor::new(json);
    if cursor.peek()? != b'{' {
        return None;
    }
    let mut found = Vec::new();
    cursor.members(|cursor, key| {
        match &json[key] {
            b"model" => found.push(cursor.skip()?),
            b"message" | b"response" => {
                cursor.members(|cursor, key| {
                    let value = cursor.skip()?;
                    if &json[key] == b"model" {
                        found.push(value);
                    }
                    Some(())
                })?;
            }
            _ => {
                cursor.skip()?;
            }
        }
        Some(())
    })?;
    cursor.end()?;
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(body: &str) -> Option<String> {
        let served = |asked: &str| (asked == "gpt-4o").then(|| "qwen\"3".to_owned());
        let (alias, body) = replace_model(body.as_bytes(), served)?;
        assert_eq!(&*alias.asked, "gpt-4o");
        Some(String::from_utf8(body).unwrap())
    }

    #[test]
    fn only_the_model_of_the_request_changes() {
        assert_eq!(
            replaced(r#"{ "model" : "gpt-4o", "x": {"model": "gpt-4o"} }"#).as_deref(),
            Some(r#"{ "model" : "qwen\"3", "x": {"model": "gpt-4o"} }"#)
        );
        assert_eq!(
            replaced(r#"{"mo\u0064el":"gpt\u002d4o"}"#).as_deref(),
            Some(r#"{"mo\u0064el":"qwen\"3"}"#)
        );
        for other in [
            r#"{"model":"llama"}"#,
            r#"{"model":7}"#,
            r#"{"x":"model"}"#,
            r#"[{"model":"gpt-4o"}]"#,
            r#"{"model":"gpt-4o""#,
            r#"{"model":"gpt-4o"} x"#,
        ] {
            assert_eq!(replaced(other), None, "{other}");
        }
    }

    #[test]
    fn every_duplicate_is_replaced_and_the_last_one_counts() {
        assert_eq!(
            replaced(r#"{"model":"llama","model":"gpt-4o"}"#).as_deref(),
            Some(r#"{"model":"qwen\"3","model":"qwen\"3"}"#)
        );
        assert_eq!(replaced(r#"{"model":"gpt-4o","model":"llama"}"#), None);
    }

    #[test]
    fn answers_of_every_dialect_name_the_model_that_was_asked_for() {
        let renamed = |json: &str| {
            let mut out = json.as_bytes().to_vec();
            let is_changed = rename_model(&mut out, 0..json.len(), b"\"gpt-4o\"");
            is_changed.then(|| String::from_utf8(out).unwrap())
        };
        for (json, expected) in [
            (
                r#"{"id":"1","model":"q","choices":[{"message":{"model":"q"}}]}"#,
                r#"{"id":"1","model":"gpt-4o","choices":[{"message":{"model":"q"}}]}"#,
            ),
            (
                r#"{"type":"message_start","message":{"model":"q","content":[]}}"#,
                r#"{"type":"message_start","message":{"model":"gpt-4o","content":[]}}"#,
            ),
            (
                r#"{"type":"response.created","response":{"model":"q"}}"#,
                r#"{"type":"response.created","response":{"model":"gpt-4o"}}"#,
            ),
        ] {
            assert_eq!(renamed(json).as_deref(), Some(expected));
        }
        for same in [r#"{"model":"gpt-4o"}"#, r#"{"model":null}"#, "[1]", "{"] {
            assert_eq!(renamed(same), None, "{same}");
        }
    }
}
