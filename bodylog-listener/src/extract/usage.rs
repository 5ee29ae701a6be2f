//! Token counts, whatever they are called.

use proto::meta::Usage;
use serde_json::Value;

/// The counts of a usage object: OpenAI's names, else Anthropic's and those of the Responses API.
pub(crate) fn counts(usage: &Value) -> Usage {
    let number = |name: &str| usage.get(name).and_then(as_count);
    let nested = |name: &str, inner: &str| usage.get(name)?.get(inner).and_then(as_count);
    let prompt = number("prompt_tokens").or_else(|| number("input_tokens"));
    let completion = number("completion_tokens").or_else(|| number("output_tokens"));
    let cached = nested("prompt_tokens_details", "cached_tokens")
        .or_else(|| nested("input_tokens_details", "cached_tokens"))
        .or_else(|| number("cache_read_input_tokens"));
    let reasoning = nested("completion_tokens_details", "reasoning_tokens")
        .or_else(|| nested("output_tokens_details", "reasoning_tokens"))
        .or_else(|| number("reasoning_tokens"));
    let (prompt, completion) = (prompt.unwrap_or(0), completion.unwrap_or(0));
    Usage {
        prompt,
        completion,
        cached: cached.unwrap_or(0),
        reasoning: reasoning.unwrap_or(0),
        total: number("total_tokens").unwrap_or_else(|| prompt.saturating_add(completion)),
    }
}

/// Some engines send counts as floats.
fn as_count(value: &Value) -> Option<u64> {
    value
        .as_u64()
        .or_else(|| value.as_f64().filter(|n| *n >= 0.0).map(|n| n as u64))
}

/// Lays `more` over `known`, as when a stream reports its usage in parts: numbers that are there
/// win, null does not.
pub(super) fn overlay(known: &mut Option<Value>, more: Value) {
    match (known, more) {
        (Some(Value::Object(known)), Value::Object(more)) => {
            for (key, value) in more {
                if !value.is_null() {
                    known.insert(key, value);
                }
            }
        }
        (known, more) => *known = Some(more),
    }
}

/// The word OpenAI has for an engine's reason to stop.
pub(crate) fn finish_reason(raw: &str) -> &str {
    match raw {
        "end_turn" | "stop_sequence" | "completed" => "stop",
        "max_tokens" | "max_output_tokens" => "length",
        "tool_use" => "tool_calls",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn usage_in_each_dialect() {
        for (usage, (prompt, completion, cached, reasoning, total)) in [
            (
                json!({"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,
                    "prompt_tokens_details":{"cached_tokens":64},
                    "completion_tokens_details":{"reasoning_tokens":5}}),
                (100, 20, 64, 5, 120),
            ),
            (
                json!({"completion_tokens":9,"reasoning_tokens":4,"prompt_tokens":1}),
                (1, 9, 0, 4, 10),
            ),
            (
                json!({"input_tokens":25,"output_tokens":7}),
                (25, 7, 0, 0, 32),
            ),
            (
                json!({"input_tokens":25,"cache_read_input_tokens":10,"output_tokens":7}),
                (25, 7, 10, 0, 32),
            ),
            (json!({"prompt_tokens":8,"total_tokens":8}), (8, 0, 0, 0, 8)),
            (
                json!({"input_tokens":3,"input_tokens_details":{"cached_tokens":2},"output_tokens":4,
                    "output_tokens_details":{"reasoning_tokens":1},"total_tokens":7}),
                (3, 4, 2, 1, 7),
            ),
            (
                json!({"prompt_tokens":null,"completion_tokens":-3,"total_tokens":"9"}),
                (0, 0, 0, 0, 0),
            ),
        ] {
            let expected = Usage {
                prompt,
                completion,
                cached,
                reasoning,
                total,
            };
            assert_eq!(counts(&usage), expected, "{usage}");
        }
    }

    #[test]
    fn usage_that_comes_in_parts_is_laid_over() {
        let mut usage = None;
        overlay(
            &mut usage,
            json!({"input_tokens":25,"output_tokens":1,"cache_read_input_tokens":10}),
        );
        overlay(&mut usage, json!({"output_tokens":7,"input_tokens":null}));
        assert_eq!(
            usage,
            Some(json!({"input_tokens":25,"output_tokens":7,"cache_read_input_tokens":10}))
        );
    }
}
