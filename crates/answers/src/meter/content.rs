//! Detects whether an event carries generated content: text, reasoning, or a tool call's name or
//! arguments.
//!
//! Only the places where the dialects put content are searched. So a role alone, an empty delta, a
//! ping or the event that opens a stream does not count, and neither does a repetition of the
//! client's request.

use crate::cursor::Cursor;
use crate::json::unescaped;

/// A place in an event that may hold content, directly or below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The event itself: llama.cpp's own API, and the deltas of the Responses API.
    Event,
    /// `choices`, or a list of parts below it.
    Choice,
    /// `delta` or `message` of a choice, or `delta` of an Anthropic event.
    Delta,
    /// A tool call, a function, a content block or an output item. Its name is content.
    Named,
    /// `response` of a Responses event.
    Response,
}

/// How the search treats a member.
enum Member {
    /// Content if it is a non-empty text.
    Text,
    /// An object, or a list of objects, to search.
    Below(Place),
    /// Either of the two.
    TextOrBelow(Place),
    Other,
}

impl Place {
    fn member(self, key: &[u8]) -> Member {
        use Member::{Below, Other, Text, TextOrBelow};
        match (self, key) {
            (Self::Event, b"choices") => Below(Self::Choice),
            (Self::Event, b"delta") => TextOrBelow(Self::Delta),
            (Self::Event, b"content_block" | b"item" | b"part") => Below(Self::Named),
            (Self::Event, b"response") => Below(Self::Response),
            (Self::Event, b"content" | b"audio") | (Self::Choice, b"text") => Text,
            (Self::Choice, b"delta" | b"message") => Below(Self::Delta),
            (Self::Response, b"output") => Below(Self::Named),
            (
                Self::Delta,
                b"text" | b"reasoning" | b"reasoning_content" | b"refusal" | b"thinking"
                | b"partial_json",
            )
            | (Self::Named, b"name" | b"arguments" | b"text" | b"thinking") => Text,
            (Self::Delta | Self::Named, b"content") => TextOrBelow(Self::Named),
            (Self::Delta, b"tool_calls" | b"function_call") | (Self::Named, b"function") => {
                Below(Self::Named)
            }
            _ => Other,
        }
    }
}

/// The greatest depth of content: event, `choices`, choice, `delta`, `tool_calls`, call,
/// `function`.
const DEPTH_MAX: u8 = 8;

/// Whether the data of an event holds content.
pub(super) fn is_in(data: &[u8]) -> bool {
    let mut search = Search { data, found: false };
    // `None` means an early end: content was found, or the data is not JSON.
    let _ = search.below(Place::Event, DEPTH_MAX, &mut Cursor::new(data));
    search.found
}

struct Search<'d> {
    data: &'d [u8],
    found: bool,
}

impl Search<'_> {
    /// Searches an object or a list of objects; skips any other value.
    fn below(&mut self, place: Place, depth: u8, cursor: &mut Cursor<'_>) -> Option<()> {
        let Some(depth) = depth.checked_sub(1) else {
            return cursor.skip().map(|_| ());
        };
        if cursor.peek()? == b'[' {
            cursor.items(|cursor| self.below(place, depth, cursor))?;
            return Some(());
        }
        cursor.members(|cursor, key| {
            let (text, below) = match place.member(&unescaped(&self.data[key])) {
                Member::Text => (true, None),
                Member::Below(place) => (false, Some(place)),
                Member::TextOrBelow(place) => (true, Some(place)),
                Member::Other => (false, None),
            };
            match (cursor.peek()?, below) {
                (b'"', _) => {
                    let value = cursor.skip()?;
                    self.found |= text && value.len() > 2;
                    (!self.found).then_some(())
                }
                (b'{' | b'[', Some(place)) => self.below(place, depth, cursor),
                _ => cursor.skip().map(|_| ()),
            }
        })?;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_reasoning_and_tool_calls_are_content() {
        for event in [
            r#"{"choices":[{"delta":{"content":"x"}}]}"#,
            r#"{"choices":[{"delta":{}},{"delta":{"reasoning":"x"}}]}"#,
            r#"{"choices":[{"delta":{"content":"","reasoning_content":"x"}}]}"#,
            r#"{"choices":[{"delta":{"content":[{"type":"text","text":"x"}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"f"}}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"{"}}]}}]}"#,
            r#"{"choices":[{"delta":{"function_call":{"name":"f"}}}]}"#,
            r#"{"choices":[{"text":"x"}]}"#,
            r#"{"choices":[{"\u0074ext":"x"}]}"#,
            r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"x"}}"#,
            r#"{"type":"content_block_delta","delta":{"thinking":"x"}}"#,
            r#"{"type":"content_block_delta","delta":{"partial_json":"{"}}"#,
            r#"{"type":"content_block_start","content_block":{"type":"tool_use","name":"f"}}"#,
            r#"{"type":"response.output_text.delta","delta":"x"}"#,
            r#"{"type":"response.output_item.added","item":{"type":"function_call","name":"f"}}"#,
            r#"{"type":"response.completed","response":{"output":[{"content":[{"text":"x"}]}]}}"#,
            r#"{"content":"x","stop":false}"#,
        ] {
            assert!(is_in(event.as_bytes()), "{event}");
        }
    }

    #[test]
    fn roles_pings_empty_deltas_and_openings_are_not() {
        for event in [
            "",
            "[DONE]",
            r#"{"choices":[{"delta":{"role":"assistant"}}]}"#,
            r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#,
            r#"{"choices":[{"delta":{"role":"assistant","content":null},"finish_reason":null}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"id":"t","type":"function","function":{"name":"","arguments":""}}]}}]}"#,
            r#"{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":1}}"#,
            r#"{"choices":[]}"#,
            r#"{"type":"message_start","message":{"id":"m","role":"assistant","content":[]}}"#,
            r#"{"type":"ping"}"#,
            r#"{"type":"content_block_start","content_block":{"type":"text","text":""}}"#,
            r#"{"type":"content_block_delta","delta":{"type":"signature_delta","signature":"x"}}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#,
            r#"{"type":"response.created","response":{"instructions":"x","tools":[{"name":"f"}],"output":[]}}"#,
            r#"{"type":"response.output_item.added","item":{"id":"i","type":"message","content":[]}}"#,
            r#"{"type":"response.content_part.added","part":{"type":"output_text","text":""}}"#,
            r#"{"content":"","stop":false,"tokens":[1]}"#,
            r#"{"error":{"message":"x"}}"#,
            r#"{"metadata":{"content":"x"},"text":{"content":"x"}}"#,
        ] {
            assert!(!is_in(event.as_bytes()), "{event}");
        }
    }

    #[test]
    fn deep_events_cost_no_stack() {
        let deep = format!(
            "{{\"choices\":[{{\"delta\":{{\"content\":{}",
            "[".repeat(1 << 20)
        );
        assert!(!is_in(deep.as_bytes()));
    }
}
