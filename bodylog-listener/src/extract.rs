//! What a response says: its text, its reasoning, its tool calls, its usage. For OpenAI's chat,
//! completions, embeddings, rerank and Responses, and for Anthropic's messages; whole, streamed,
//! packed, or cut off in the middle.

mod answer;
mod json;
mod overlay;
mod packed;
mod quick;
mod request;
mod sse;
mod tail;
mod tools;

use std::borrow::Cow;

use proto::meta::RespMeta;
use serde_json::Value;

use answer::Answer;
pub(crate) use packed::{looks_like_gzip, unpacked};
use quick::Quick;
pub(crate) use request::{Asked, asked};

/// How a response was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One JSON object.
    Json,
    /// An event stream.
    Stream,
    /// The end of a JSON object whose rest is missing.
    Tail,
    /// Nothing was found.
    None,
}

impl Shape {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Json, Self::Stream, Self::Tail, Self::None];

    /// As a label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Stream => "stream",
            Self::Tail => "tail",
            Self::None => "none",
        }
    }
}

/// What was found in a response.
#[derive(Debug)]
pub(crate) struct Extracted {
    /// The text of the answer. `None` where none of text, reasoning, tool call, error and reason to
    /// stop was found: the body itself is then the record.
    pub(crate) text: Option<String>,
    /// The rest.
    pub(crate) meta: RespMeta,
    /// The choices one by one, where there are several.
    pub(crate) choices: Vec<Value>,
    /// How.
    pub(crate) shape: Shape,
}

impl Extracted {
    /// Of a response that is not read.
    pub(crate) fn nothing() -> Self {
        Self {
            text: None,
            meta: RespMeta::default(),
            choices: Vec::new(),
            shape: Shape::None,
        }
    }
}

/// Reads a response. It is not packed (see [`unpacked`]).
pub(crate) fn extract(body: &[u8]) -> Extracted {
    let mut answer = Answer::default();
    let text = match std::str::from_utf8(body) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(body),
    };
    let is_utf8 = matches!(text, Cow::Borrowed(_));
    let is_object = text.trim_ascii_start().starts_with('{');
    let is_whole = is_utf8 && is_object && answer.take(text.trim_ascii());
    if is_whole && answer.found_anything() {
        return answer.into_extracted(Shape::Json);
    }
    let mut quick = Quick::default();
    if sse::each_data(&text, |data| {
        quick.take(data, &mut answer) || answer.take(data)
    }) {
        return answer.into_extracted(Shape::Stream);
    }
    if !is_whole && is_object {
        // What the head gave stays: members are seen up to the cut.
        tail::look(body, &mut answer);
        if answer.found_anything() {
            return answer.into_extracted(Shape::Tail);
        }
    }
    answer.into_extracted(Shape::None)
}

#[cfg(test)]
mod tests;
