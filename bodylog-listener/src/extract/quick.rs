//! A one-pass reader for the common chunk of a chat stream. Most bytes of most responses are such
//! chunks. Chunks with other members or unexpected types go through the full parser.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::answer::Answer;

/// A chunk that contains only its names, text and usage.
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

/// Reads the common chunks of one stream.
#[derive(Debug, Default)]
pub(super) struct Quick {
    last: Option<Frame>,
}

/// The bytes around the text of a chunk. Chunks of a stream often differ only in the text, and a
/// chunk with the same frame needs no parsing.
#[derive(Debug)]
struct Frame {
    /// The bytes up to and including the opening quote of the text.
    before: Box<str>,
    /// The bytes from the closing quote on.
    after: Box<str>,
    index: i64,
    is_reasoning: bool,
}

impl Quick {
    /// Reads a chunk if it is a common one. Returns whether it was.
    pub(super) fn take(&mut self, data: &str, answer: &mut Answer) -> bool {
        if let Some(last) = &self.last
            && let Some(text) = last.text_of(data)
        {
            let (content, reasoning) = match last.is_reasoning {
                false => (&*text, ""),
                true => ("", &*text),
            };
            answer.add(last.index, content, reasoning, None);
            return true;
        }
        self.last = None;
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
        self.last = Frame::of(data, &chunk);
        for choice in chunk.choices {
            let delta = choice.delta.unwrap_or_default();
            answer.add(
                choice.index.unwrap_or(0),
                delta.content.unwrap_or_default(),
                delta.reasoning().unwrap_or_default(),
                choice.finish_reason.filter(|reason| !reason.is_empty()),
            );
        }
        if let Some(usage) = chunk.usage {
            answer.usage_of(usage.get());
        }
        true
    }
}

impl Frame {
    /// The frame of a chunk that has exactly one text and no finish reason or usage.
    fn of(data: &str, chunk: &Chunk<'_>) -> Option<Self> {
        if chunk.usage.is_some() {
            return None;
        }
        let [choice] = &chunk.choices[..] else {
            return None;
        };
        let delta = choice.delta.as_ref()?;
        let filled = |text: Option<&'_ str>| text.is_some_and(|text| !text.is_empty());
        let (text, is_reasoning) = match (filled(delta.content), filled(delta.reasoning())) {
            (true, false) => (delta.content?, false),
            (false, true) => (delta.reasoning()?, true),
            _ => return None,
        };
        if filled(choice.finish_reason) {
            return None;
        }
        // The text is borrowed from `data`, so it had no escapes.
        let from = (text.as_ptr() as usize).checked_sub(data.as_ptr() as usize)?;
        let (before, after) = (data.get(..from)?, data.get(from + text.len()..)?);
        Some(Self {
            before: before.into(),
            after: after.into(),
            index: choice.index.unwrap_or(0),
            is_reasoning,
        })
    }

    /// The text of a chunk, if the chunk has this same frame.
    fn text_of<'d>(&self, data: &'d str) -> Option<Cow<'d, str>> {
        let text = data.strip_prefix(&*self.before)?;
        let text = text.strip_suffix(&*self.after)?;
        if !text
            .bytes()
            .any(|byte| matches!(byte, 0..0x20 | b'"' | b'\\'))
        {
            return Some(text.into());
        }
        let quoted = &data[self.before.len() - 1..=self.before.len() + text.len()];
        serde_json::from_str::<String>(quoted).ok().map(Cow::Owned)
    }
}

impl<'a> Delta<'a> {
    fn reasoning(&self) -> Option<&'a str> {
        self.reasoning.or(self.reasoning_content)
    }
}

impl Chunk<'_> {
    fn is_plain(&self) -> bool {
        let more = [
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
        // If both are present, their order matters, so the full parser must read them.
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
        let mut reader = Quick::default();
        let mut quick = 0;
        for event in events {
            if is_quick && reader.take(event, &mut answer) {
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
            (json!({"choices":[],"usage":{"prompt_tokens":1}}), true),
            (
                json!({"choices":[],"actual_usage":{"prompt_tokens":1}}),
                false,
            ),
            (json!({"choices":[{"delta":{"content":"a\nb"}}]}), false),
            (json!({"choices":[{"delta":{"tool_calls":[]}}]}), false),
            (json!({"choices":[{"text":"once"}]}), false),
            (json!({"type":"ping"}), false),
        ] {
            assert_eq!(
                Quick::default().take(&event.to_string(), &mut Answer::default()),
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

    /// Chunks of one stream that differ only in their text, which may be valid or not.
    fn any_stream() -> impl Strategy<Value = Vec<String>> {
        let piece = prop::sample::select(vec![
            "a",
            "é",
            "",
            "\\n",
            "\\u0041",
            "\\\"",
            "\\",
            "\"",
            "\u{1}",
            "\",\"x\":\"",
            "\"},\"finish_reason\":\"stop\"},{\"delta\":{\"content\":\"",
        ]);
        let text = prop::collection::vec(piece, 0..3).prop_map(|pieces| pieces.concat());
        let name = prop::sample::select(vec!["content", "reasoning", "reasoning_content"]);
        (name, prop::collection::vec(text, 0..8)).prop_map(|(name, texts)| {
            let chunk = |text| format!(r#"{{"id":"c","choices":[{{"index":1,"delta":{{"{name}":"{text}"}},"finish_reason":null}}]}}"#);
            texts.into_iter().map(chunk).collect()
        })
    }

    #[test]
    fn a_chunk_that_differs_in_its_text_alone_is_not_parsed() {
        let chunk =
            |text: &str| json!({"id": "c", "choices": [{"delta": {"content": text}}]}).to_string();
        let mut reader = Quick::default();
        let mut answer = Answer::default();
        assert!(reader.take(&chunk("a"), &mut answer));
        let frame = reader.last.as_ref().expect("the next one may be alike");
        assert_eq!(frame.text_of(&chunk("b")).as_deref(), Some("b"));
        assert_eq!(frame.text_of(&chunk("\"\n")).as_deref(), Some("\"\n"));
        let another = json!({"id": "d", "choices": [{"delta": {"content": "b"}}]}).to_string();
        assert_eq!(frame.text_of(&another), None);
        assert!(reader.take(&another, &mut answer) && reader.take(&chunk("b"), &mut answer));
        assert_eq!(
            answer.into_extracted(Shape::Stream).meta.id.as_deref(),
            Some("c")
        );
    }

    proptest! {
        #[test]
        fn what_is_alike_is_found_as_if_it_were_parsed(events in any_stream()) {
            prop_assert_eq!(found(&events, true).1, found(&events, false).1);
        }

        #[test]
        fn the_quick_way_finds_what_the_thorough_one_does(events in prop::collection::vec(any_event(), 0..6)) {
            prop_assert_eq!(found(&events, true).1, found(&events, false).1);
        }
    }
}
