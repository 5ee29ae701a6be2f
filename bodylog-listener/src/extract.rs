//! Extracts text, reasoning, tool calls and usage from a response. Supports OpenAI's chat,
//! completions, embeddings, rerank and Responses APIs and Anthropic's messages, whether the body is
//! whole, streamed, compressed or truncated.

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

/// How a response was parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One JSON object.
    Json,
    /// An event stream.
    Stream,
    /// The end of a JSON object, the rest being missing.
    Tail,
    /// Nothing was found.
    None,
}

impl Shape {
    /// All variants.
    pub const ALL: [Self; 4] = [Self::Json, Self::Stream, Self::Tail, Self::None];

    /// The label value for metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Stream => "stream",
            Self::Tail => "tail",
            Self::None => "none",
        }
    }
}

/// The values found in a response.
#[derive(Debug)]
pub(crate) struct Extracted {
    /// The text of the answer. `None` if the response has no text, reasoning, tool call, error or
    /// finish reason: then the record keeps the body itself.
    pub(crate) text: Option<String>,
    /// Everything except the text.
    pub(crate) meta: RespMeta,
    /// The individual choices, if there are several.
    pub(crate) choices: Vec<Value>,
    /// How the response was parsed.
    pub(crate) shape: Shape,
}

impl Extracted {
    /// The result for a response that is not parsed.
    pub(crate) fn nothing() -> Self {
        Self {
            text: None,
            meta: RespMeta::default(),
            choices: Vec::new(),
            shape: Shape::None,
        }
    }
}

/// Parses a response. It must not be compressed (see [`unpacked`]).
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
        // Keep what the head gave: members before the cut were already read.
        tail::look(body, &mut answer);
        if answer.found_anything() {
            return answer.into_extracted(Shape::Tail);
        }
    }
    answer.into_extracted(Shape::None)
}

#[cfg(test)]
mod tests;
