//! Reads forms (`multipart/form-data`, RFC 7578): the text fields as JSON, and where the `model`
//! stands.
//!
//! Parsers of engines disagree about forms that bend the grammar, and the model that a form names
//! may decide its route, its limits and its rules. So [`FormScan`] accepts the strict form alone,
//! and its caller refuses the rest where the contents decide. It holds one part head or one text
//! field at a time, and of a file no more than a boundary could be.

mod params;
mod scan;
#[cfg(test)]
mod tests;

use std::ops::Range;

use bytes::Bytes;
use http::{HeaderMap, header};
use serde_json::{Map, Number, Value};

use super::alias::Alias;
pub use scan::FormScan;

/// Longest head of one part, bytes.
const HEAD_MAX: usize = 8 << 10;

/// Most bytes of all text fields together.
const TEXT_MAX: usize = 1 << 20;

/// Most parts of a form.
const PARTS_MAX: usize = 1000;

/// Longest name of a model, bytes.
const MODEL_MAX: usize = 256;

/// Why a form cannot be read. `Display` is a whole sentence without a full stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormError {
    /// `Content-Type` names no boundary, two, or one that is no boundary.
    #[error("`Content-Type` of a form names one boundary of 1 to 70 printable characters")]
    Boundary,
    /// The body begins with something else than the boundary.
    #[error("the form does not begin with the boundary that `Content-Type` names")]
    Begin,
    /// The line of a boundary goes on.
    #[error("each boundary of a form is alone on its line, which ends with CRLF")]
    BoundaryLine,
    /// The body ends before the closing boundary.
    #[error("the form ends before its closing boundary")]
    Cut,
    /// A head of more than 8 KiB.
    #[error("a part of the form has a head of more than {HEAD_MAX} bytes")]
    HeadTooLarge,
    /// A head without one `Content-Disposition: form-data` that has one plain `name`.
    #[error(
        "each part of a form has one header `Content-Disposition: form-data` with one `name` in \
         plain or quoted text"
    )]
    Disposition,
    /// Text fields of more than 1 MiB.
    #[error("the text fields of the form exceed {TEXT_MAX} bytes")]
    TextTooLong,
    /// More than 1000 parts.
    #[error("the form has more than {PARTS_MAX} parts")]
    TooManyParts,
    /// Two fields `model`.
    #[error("the form has two fields `model`; one is allowed")]
    TwoModels,
    /// `model` as a file, encoded, empty, too long, or with bytes that no name has.
    #[error(
        "the field `model` of the form is text of 1 to {MODEL_MAX} bytes in UTF-8, without a file \
         name, an encoding or control characters"
    )]
    Model,
}

/// What a form says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Form {
    /// The text fields as a JSON object: numbers and `stream` by their type, all others as strings.
    pub json: Bytes,
    /// Where the value of `model` stands in the body.
    model: Option<Range<usize>>,
}

impl Form {
    #[cfg(test)]
    fn read(headers: &HeaderMap, body: &[u8]) -> Option<Result<Self, FormError>> {
        if !is_form(headers) {
            return None;
        }
        let read = || {
            let mut scan = FormScan::new(headers)?;
            scan.feed(body)?;
            scan.end()
        };
        Some(read())
    }

    fn of(fields: Vec<(String, String)>, model: Option<Range<usize>>) -> Self {
        let json: Map<String, Value> = fields
            .into_iter()
            .map(|(name, text)| {
                let value = typed(&name, text);
                (name, value)
            })
            .collect();
        Self {
            json: serde_json::to_vec(&json).unwrap_or_default().into(),
            model,
        }
    }

    /// Replaces the model by the one that `served` names, in the form and in the beginning of the
    /// body that was read so far. `None` where the model has no alias.
    pub fn replace_model(
        &mut self,
        body: &[u8],
        served: impl FnOnce(&str) -> Option<String>,
    ) -> Option<(Alias, Bytes)> {
        let at = self.model.clone()?;
        let asked = std::str::from_utf8(body.get(at.clone())?).ok()?;
        let served = served(asked)?;
        let alias = Alias {
            asked: asked.into(),
            served: served.as_str().into(),
        };
        let body = [&body[..at.start], served.as_bytes(), &body[at.end..]].concat();
        let mut json: Map<String, Value> = serde_json::from_slice(&self.json).ok()?;
        self.model = Some(at.start..at.start + served.len());
        json.insert("model".to_owned(), served.into());
        self.json = serde_json::to_vec(&json).ok()?.into();
        Some((alias, body.into()))
    }
}

/// Whether a request's head says that its body is a form.
pub fn is_form(headers: &HeaderMap) -> bool {
    const FORM: &[u8] = b"multipart/form-data";
    let declared = headers.get(header::CONTENT_TYPE);
    let start = declared.and_then(|declared| declared.as_bytes().get(..FORM.len()));
    start.is_some_and(|start| start.eq_ignore_ascii_case(FORM))
}

/// A field's value by the type that the same field has in JSON.
fn typed(name: &str, text: String) -> Value {
    match name {
        "model" => Value::String(text),
        "stream" if text.eq_ignore_ascii_case("true") => Value::Bool(true),
        "stream" if text.eq_ignore_ascii_case("false") => Value::Bool(false),
        _ => match text.parse::<Number>() {
            // A number that does not keep every digit stays a text, because it may be an id.
            Ok(number) if number.to_string() == text => Value::Number(number),
            _ => Value::String(text),
        },
    }
}
