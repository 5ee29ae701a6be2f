//! Merges a usage object that a stream sends in parts.

use serde_json::{Map, Value};

/// Merges `more` into `known`. Null and zero do not overwrite a value: some engines end a stream
/// with zeros for counts that they reported at its start.
pub(super) fn overlay(known: &mut Option<Value>, more: Value) {
    match (known, more) {
        (Some(Value::Object(known)), Value::Object(more)) => over(known, more),
        (known, more) => *known = Some(more),
    }
}

fn over(known: &mut Map<String, Value>, more: Map<String, Value>) {
    for (key, value) in more {
        match (known.get_mut(&key), value) {
            (_, Value::Null) => {}
            (Some(Value::Object(known)), Value::Object(more)) => {
                // A usage object has only two levels.
                known.extend(more.into_iter().filter(|(_, value)| !is_nothing(value)));
            }
            (Some(_), value) if is_nothing(&value) => {}
            (_, value) => {
                known.insert(key, value);
            }
        }
    }
}

fn is_nothing(value: &Value) -> bool {
    value.is_null() || value.as_f64() == Some(0.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn usage_that_comes_in_parts_is_laid_over() {
        let mut usage = None;
        for part in [
            json!({"input_tokens":25,"output_tokens":1,"cache_read_input_tokens":10,
                "input_tokens_details":{"cached_tokens":4}}),
            json!({"output_tokens":7,"input_tokens":null,"cache_read_input_tokens":0,
                "input_tokens_details":{"cached_tokens":0,"audio":1},"server":0}),
        ] {
            overlay(&mut usage, part);
        }
        assert_eq!(
            usage,
            Some(
                json!({"input_tokens":25,"output_tokens":7,"cache_read_input_tokens":10,
                "input_tokens_details":{"cached_tokens":4,"audio":1},"server":0})
            )
        );
    }
}
