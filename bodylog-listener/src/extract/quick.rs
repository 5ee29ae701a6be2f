//! The common chunk of a chat stream, read in one pass: most bytes of most responses are such
//! chunks. Whatever has more in it, or anything of an unexpected type, is left to the thorough way.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::answer::Answer;

/// A chunk that says nothing but its names and pieces of text.
#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(default, borrow)]
    id: Option<&'a str>,
    #[serde(default, borrow)]
    model: Option<&'a str>,
    #[serde(borrow)]
    choices: Vec<Choice<'a>>,
    #[serde(default, borrow)]
    usage: Option<&'a RawValue>,
    #[serde(default, borrow)]
    actual_usage: Option<&'a RawValue>,
    #[serde(default, borrow)]
    error: Option<&'a RawValue>,
    #[serde(default, borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(default, borrow)]
    delta: Option<&'a RawValue>,
    #[serde(default, borrow)]
    content: Option<&'a RawValue>,
    #[serde(default, borrow)]
    content_block: Option<&'a RawValue>,
    #[serde(default, borrow)]
    message: Option<&'a RawValue>,
    #[serde(default, borrow)]
    response: Option<&'a RawValue>,
    #[serde(default, borrow)]
    output: Option<&'a RawValue>,
    #[serde(default, borrow)]
    stop_reason: Option<&'a RawValue>,
    #[serde(default, borrow)]
    status: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(default)]
    index: Option<i64>,
    #[serde(default, borrow)]
    delta: Option<Delta<'a>>,
    #[serde(default, borrow)]
    finish_reason: Option<&'a str>,
    #[serde(default, borrow)]
    text: Option<&'a RawValue>,
    #[serde(default, borrow)]
    message: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct Delta<'a> {
    #[serde(default, borrow)]
    content: Option<&'a str>,
    #[serde(default, borrow)]
    reasoning: Option<&'a str>,
    #[serde(default, borrow)]
    reasoning_content: Option<&'a str>,
    #[serde(default, borrow)]
    tool_calls: Option<&'a RawValue>,
}

/// Takes a chunk if it is a common one.
pub(super) fn take(data: &str, answer: &mut Answer) -> bool {
    let Ok(chunk) = serde_json::from_str::<Chunk<'_>>(data) else {
        return false;
    };
    if !chunk.is_plain() {
        return false;
    }
    answer.name(
        chunk.id.unwrap_or_default(),
        chunk.model.unwrap_or_default(),
    );
    for choice in chunk.choices {
        let delta = choice.delta.unwrap_or_default();
        answer.add(
            choice.index.unwrap_or(0),
            delta.content.unwrap_or_default(),
            delta
                .reasoning
                .or(delta.reasoning_content)
                .unwrap_or_default(),
            choice.finish_reason.filter(|reason| !reason.is_empty()),
        );
    }
    true
}

impl Chunk<'_> {
    fn is_plain(&self) -> bool {
        let more = [
            self.usage,
            self.actual_usage,
            self.error,
            self.kind,
            self.delta,
            self.content,
            self.content_block,
            self.message,
            self.response,
            self.output,
            self.stop_reason,
            self.status,
        ];
        more.iter().all(Option::is_none) && self.choices.iter().all(Choice::is_plain)
    }
}

impl Choice<'_> {
    fn is_plain(&self) -> bool {
        let delta = self.delta.as_ref();
        // Both at once would have to be put in the order they stand in.
        let both = delta
            .is_some_and(|delta| delta.reasoning.is_some() && delta.reasoning_content.is_some());
        let tools = delta.is_some_and(|delta| delta.tool_calls.is_some());
        self.text.is_none() && self.message.is_none() && !both && !tools
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::extract::Shape;

    fn found(events: &[String], is_quick: bool) -> (usize, String) {
        let mut answer = Answer::default();
        let mut quick = 0;
        for event in events {
            if is_quick && take(event, &mut answer) {
                quick += 1;
            } else {
                answer.take(event);
            }
        }
        (quick, format!("{:?}", answer.into_extracted(Shape::Stream)))
    }

    #[test]
    fn a_plain_chunk_is_taken_and_others_are_not() {
        for (event, is_taken) in [
            (
                json!({"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"Hi"},"logprobs":null,"finish_reason":null}],"usage":null}),
                true,
            ),
            (
                json!({"choices":[{"delta":{"reasoning_content":"hm"},"finish_reason":"stop"}]}),
                true,
            ),
            (json!({"choices":[],"usage":{"prompt_tokens":1}}), false),
            (json!({"choices":[{"delta":{"content":"a\nb"}}]}), false),
            (json!({"choices":[{"delta":{"tool_calls":[]}}]}), false),
            (json!({"choices":[{"text":"once"}]}), false),
            (json!({"type":"ping"}), false),
        ] {
            assert_eq!(
                take(&event.to_string(), &mut Answer::default()),
                is_taken,
                "{event}"
            );
        }
    }

    fn any_event() -> impl Strategy<Value = String> {
        let text = prop_oneof![
            Just(json!("a")),
            Just(json!("x\n")),
            Just(json!("")),
            Just(Value::Null),
            Just(json!(3))
        ];
        let delta = (text.clone(), text.clone(), text.clone(), any::<[bool; 4]>()).prop_map(
            |(a, b, c, has)| {
                let mut delta = serde_json::Map::new();
                for (name, value, has) in [
                    ("content", a, has[0]),
                    ("reasoning", b, has[1]),
                    ("reasoning_content", c, has[2]),
                    ("tool_calls", json!([{"id":"t"}]), has[3]),
                ] {
                    if has {
                        delta.insert(name.into(), value);
                    }
                }
                Value::Object(delta)
            },
        );
        (delta, text.clone(), text, 0..3_i64, any::<[bool; 4]>()).prop_map(
            |(delta, finish, id, index, has)| {
                let mut event =
                    json!({"choices":[{"index":index,"delta":delta,"finish_reason":finish}]});
                for (name, value, has) in [
                    ("id", id.clone(), has[0]),
                    ("model", id, has[1]),
                    ("usage", json!({"n":1}), has[2]),
                    ("error", Value::Null, has[3]),
                ] {
                    if has {
                        event[name] = value;
                    }
                }
                event.to_string()
            },
        )
    }

    proptest! {
        #[test]
        fn the_quick_way_finds_what_the_thorough_one_does(events in prop::collection::vec(any_event(), 0..6)) {
            prop_assert_eq!(found(&events, true).1, found(&events, false).1);
        }
    }
}
