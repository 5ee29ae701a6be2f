//! Assembles tool calls from their fragments.

use serde_json::{Map, Value};

/// The calls of one choice, in the order in which they began.
#[derive(Debug, Default)]
pub(super) struct Tools {
    calls: Vec<(Option<i64>, Map<String, Value>)>,
}

impl Tools {
    /// Adds a fragment. Fragments with the same `index` form one call; a fragment without an index
    /// is a call of its own. The first value of a key is kept, except that `function.arguments`
    /// grows.
    pub(super) fn add(&mut self, fragment: Value) {
        let Value::Object(fragment) = fragment else {
            return;
        };
        let index = fragment.get("index").and_then(Value::as_i64);
        let known = self
            .calls
            .iter_mut()
            .find(|(at, _)| at.is_some() && *at == index);
        match known {
            Some((_, call)) => merge(call, fragment),
            None => self.calls.push((index, fragment)),
        }
    }

    /// Appends text to a key of the call with this index. Anthropic sends `input` in pieces.
    pub(super) fn grow(&mut self, index: i64, key: &str, text: &str) {
        let known = self.calls.iter_mut().find(|(at, _)| *at == Some(index));
        if let Some((_, call)) = known {
            match call.get_mut(key) {
                Some(Value::String(value)) => value.push_str(text),
                _ => {
                    call.insert(key.to_owned(), Value::String(text.to_owned()));
                }
            }
        }
    }

    /// Whether there are no calls.
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// The calls. An assembled `input` is parsed as JSON if it is valid.
    pub(super) fn into_calls(self) -> Vec<Value> {
        self.calls
            .into_iter()
            .map(|(_, mut call)| {
                if let Some(input) = call.get_mut("input")
                    && let Value::String(text) = input
                    && let Ok(parsed) = serde_json::from_str(text)
                {
                    *input = parsed;
                }
                Value::Object(call)
            })
            .collect()
    }
}

fn merge(call: &mut Map<String, Value>, fragment: Map<String, Value>) {
    for (key, value) in fragment {
        match (call.get_mut(&key), value) {
            (Some(Value::Object(known)), Value::Object(more)) if key == "function" => {
                for (key, value) in more {
                    match (known.get_mut(&key), value) {
                        (Some(Value::String(known)), Value::String(more)) if key == "arguments" => {
                            known.push_str(&more);
                        }
                        (None | Some(Value::Null), value) => {
                            known.insert(key, value);
                        }
                        _ => {}
                    }
                }
            }
            (None | Some(Value::Null), value) => {
                call.insert(key, value);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn merged(fragments: &Value) -> Value {
        let mut tools = Tools::default();
        for fragment in fragments.as_array().unwrap() {
            tools.add(fragment.clone());
        }
        Value::Array(tools.into_calls())
    }

    #[test]
    fn fragments_are_merged_by_index() {
        assert_eq!(
            merged(&json!([
                {"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}},
                {"index":0,"function":{"arguments":"{\"x\""}},
                {"index":1,"id":"b","function":{"name":"g","arguments":"{}"}},
                {"index":0,"function":{"arguments":":1}"}},
            ])),
            json!([
                {"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}},
                {"index":1,"id":"b","function":{"name":"g","arguments":"{}"}},
            ])
        );
    }

    #[test]
    fn calls_without_an_index_keep_their_order() {
        let calls = json!([{"id":"a","function":{"name":"f"}}, {"id":"b","function":{"name":"g"}}]);
        assert_eq!(merged(&calls), calls);
    }

    #[test]
    fn what_is_no_object_is_no_call() {
        assert_eq!(merged(&json!([1, null, "x"])), json!([]));
    }
}
