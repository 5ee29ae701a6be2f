//! Decides when a reply is a tool call, and with which arguments.
//!
//! A tool is called when the request forces it, or when the last message is the user's and asks for
//! one in whole words: by the tool's name, by a word of its name with four letters or more
//! ("weather" for `get_weather`), or by the word "tool". The arguments are the smallest value that
//! the tool's schema allows; the first text gets the text in backquotes from the message ("run
//! `make test`").

use std::collections::HashSet;

use serde_json::{Map, Value, json};

/// The value of a text without restrictions in the schema.
const SAMPLE: &str = "sample";

/// Maximum depth of a schema; deeper values are null.
const DEPTH_MAX: usize = 16;

/// A tool that the request offers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tool {
    pub(crate) name: String,
    pub(crate) schema: Value,
}

/// Which tools may or must be called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Choice {
    #[default]
    Auto,
    None,
    Any,
    Named(String),
}

/// The tool to call, if any.
///
/// # Errors
///
/// The name of a forced tool that the request does not offer.
pub(crate) fn pick<'a>(
    tools: &'a [Tool],
    choice: &Choice,
    last_user: Option<&str>,
) -> Result<Option<&'a Tool>, String> {
    match choice {
        Choice::None => Ok(None),
        Choice::Any => Ok(tools.first()),
        Choice::Named(name) => match tools.iter().find(|tool| tool.name == *name) {
            Some(tool) => Ok(Some(tool)),
            None => Err(name.clone()),
        },
        Choice::Auto => {
            let text = last_user.unwrap_or_default().to_lowercase();
            let words: HashSet<&str> = text.split(is_break).collect();
            let mentioned = tools.iter().find(|tool| is_mentioned(&tool.name, &words));
            Ok(mentioned.or_else(|| tools.first().filter(|_| words.contains("tool"))))
        }
    }
}

/// The arguments of a call as JSON text.
pub(crate) fn arguments(tool: &Tool, said: Option<&str>) -> String {
    let mut arguments = sample(&tool.schema);
    let quoted = said.and_then(|said| said.split('`').nth(1));
    let texts = arguments.as_object_mut().into_iter().flatten();
    let first = texts.map(|(_, value)| value).find(|value| *value == SAMPLE);
    if let (Some(quoted), Some(first)) = (quoted, first) {
        *first = json!(quoted);
    }
    arguments.to_string()
}

/// The smallest value that a JSON schema allows.
pub(crate) fn sample(schema: &Value) -> Value {
    value(schema, schema, DEPTH_MAX)
}

fn is_mentioned(name: &str, words: &HashSet<&str>) -> bool {
    let name = name.to_lowercase();
    let mut parts = name.split(is_break);
    words.contains(name.as_str()) || parts.any(|part| part.len() >= 4 && words.contains(part))
}

fn is_break(c: char) -> bool {
    !c.is_alphanumeric()
}

fn value(schema: &Value, root: &Value, depth: usize) -> Value {
    let Some(deeper) = depth.checked_sub(1) else {
        return Value::Null;
    };
    if let Some(given) = ["const", "default"].iter().find_map(|key| schema.get(key)) {
        return given.clone();
    }
    if let Some(first) = schema["enum"].get(0) {
        return first.clone();
    }
    if let Some(target) = schema["$ref"].as_str() {
        let found = target
            .strip_prefix('#')
            .and_then(|pointer| root.pointer(pointer));
        return found.map_or(Value::Null, |found| value(found, root, deeper));
    }
    if let Some(first) = ["anyOf", "oneOf", "allOf"]
        .iter()
        .find_map(|key| schema[key].get(0))
    {
        return value(first, root, deeper);
    }
    let kind = schema["type"]
        .as_str()
        .or_else(|| schema["type"][0].as_str());
    match kind.unwrap_or("object") {
        "string" => json!(SAMPLE),
        "integer" => json!(schema["minimum"].as_i64().unwrap_or(1)),
        "number" => json!(schema["minimum"].as_f64().unwrap_or(1.0)),
        "boolean" => json!(true),
        "null" => Value::Null,
        "array" => {
            let len = schema["minItems"]
                .as_u64()
                .unwrap_or(1)
                .min(DEPTH_MAX as u64);
            (0..len)
                .map(|_| value(&schema["items"], root, deeper))
                .collect()
        }
        _ => object(schema, root, deeper),
    }
}

/// The required properties; all of them when the schema lists none as required.
fn object(schema: &Value, root: &Value, depth: usize) -> Value {
    let required = schema["required"].as_array();
    let wanted = |name: &str| required.is_none_or(|names| names.iter().any(|n| n == name));
    let properties = schema["properties"].as_object();
    let members = properties
        .into_iter()
        .flatten()
        .filter(|(name, _)| wanted(name));
    Value::Object(
        members
            .map(|(name, of)| (name.clone(), value(of, root, depth)))
            .collect::<Map<_, _>>(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weather() -> Tool {
        let schema = json!({
            "type": "object",
            "properties": {
                "city": {"type": "string"}, "unit": {"enum": ["c", "f"]}, "days": {"type": ["integer", "null"], "minimum": 2},
                "at": {"$ref": "#/$defs/At"}, "note": {"type": "string"},
            },
            "required": ["city", "unit", "days", "at"],
            "$defs": {"At": {"type": "array", "items": {"anyOf": [{"type": "number"}]}, "minItems": 2}},
        });
        Tool {
            name: "get_weather".into(),
            schema,
        }
    }

    #[test]
    fn arguments_fit_the_schema() {
        let sample: Value = serde_json::from_str(&arguments(&weather(), None)).unwrap();
        assert_eq!(
            sample,
            json!({"city": "sample", "unit": "c", "days": 2, "at": [1.0, 1.0]})
        );
    }

    #[test]
    fn the_first_text_takes_what_the_message_quotes() {
        let shell = Tool {
            name: "Bash".into(),
            schema: json!({"type": "object", "properties": {
                "timeout": {"type": "integer"}, "command": {"type": "string"},
            }}),
        };
        let called = arguments(&shell, Some("Use bash to run `echo hi` please"));
        let called: Value = serde_json::from_str(&called).unwrap();
        assert_eq!(called, json!({"command": "echo hi", "timeout": 1}));
    }

    #[test]
    fn a_schema_that_refers_to_itself_ends() {
        assert!(sample(&json!({"$ref": "#"})).is_null());
        let nested = sample(&json!({"properties": {"a": {"$ref": "#"}}}));
        assert!(nested.is_object());
    }

    #[test]
    fn a_tool_is_called_when_forced_or_mentioned() {
        let tools = [weather()];
        let called = |choice: Choice, text| pick(&tools, &choice, text).unwrap().is_some();
        assert!(called(Choice::Any, None));
        assert!(called(Choice::Named("get_weather".into()), None));
        assert!(called(Choice::Auto, Some("What's the Weather in Paris?")));
        assert!(called(Choice::Auto, Some("Please use a tool.")));
        assert!(!called(Choice::Auto, Some("Tell me a joke; no toolbox")));
        assert!(!called(Choice::Auto, Some("The weathered barn")));
        assert!(!called(Choice::Auto, None));
        assert!(!called(Choice::None, Some("get_weather")));
        assert_eq!(
            pick(&tools, &Choice::Named("other".into()), None),
            Err("other".into())
        );
    }
}
