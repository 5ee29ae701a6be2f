//! Turns one JSON text into another: a handler and its reusable memory.

use std::ops::Range;
use std::sync::Arc;

use answers::cursor::Cursor;
use memchr::memmem::Finder;
use serde::de::IgnoredAny;

use super::repeat::Repeat;
use super::shape::Edits;
use super::{Handler, Rewriter};
use crate::content::alias::rename_model;

/// Applies a handler and a model's name to one JSON text after the other.
#[derive(Debug)]
pub struct Editor {
    handler: Option<&'static dyn Handler>,
    /// The model's name for the client, as a JSON string.
    model: Option<Arc<[u8]>>,
    key: Finder<'static>,
    escape: Finder<'static>,
    edits: Edits,
    repeat: Repeat,
}

impl Editor {
    /// An editor for one answer.
    pub fn new(rewriter: impl Into<Rewriter>) -> Self {
        let Rewriter { handler, model } = rewriter.into();
        Self {
            handler,
            model,
            key: Finder::new(handler.map_or("", Handler::key)),
            escape: Finder::new(b"\\u00"),
            edits: Edits::default(),
            repeat: Repeat::default(),
        }
    }

    /// Appends to `out` the bytes of `text` with the JSON at `json` edited. Returns `false` and
    /// leaves `out` unchanged when there is nothing to change: the JSON is not an object, or has
    /// nothing that the handler names.
    pub fn edit(&mut self, text: &[u8], json: Range<usize>, out: &mut Vec<u8>) -> bool {
        let Some(body) = text.get(json.clone()) else {
            return false;
        };
        let before = out.len();
        out.extend_from_slice(&text[..json.start]);
        let mut is_changed = match self.repeat.apply(body, out) {
            Some(is_changed) => is_changed,
            None => self.may_change(body) && self.edit_anew(body, out),
        };
        if let Some(model) = &self.model {
            let start = before + json.start;
            if !is_changed {
                out.truncate(start);
                out.extend_from_slice(body);
            }
            is_changed |= rename_model(out, start..out.len(), model);
        }
        match is_changed {
            true => out.extend_from_slice(&text[json.end..]),
            false => out.truncate(before),
        }
        is_changed
    }

    fn edit_anew(&mut self, body: &[u8], out: &mut Vec<u8>) -> bool {
        self.edits.clear();
        self.repeat.forget();
        if self.read(body).is_none() {
            return false;
        }
        let text = self.edits.text.take();
        if self.edits.splices.is_empty() {
            if let Some(text) = text {
                self.repeat.unchanged(body, &text);
            }
            return false;
        }
        // The scan checks only what it must. JSON that a client's parser would refuse stays as it
        // is.
        if serde_json::from_slice::<IgnoredAny>(body).is_err() {
            return false;
        }
        let moved = text.and_then(|text| Some((self.edits.splices.moved(text.start)?, text)));
        let before = out.len();
        if !self.edits.splices.drain_into(body, out) {
            return false;
        }
        if let Some((text_at, text)) = moved {
            self.repeat.changed(body, &text, &out[before..], text_at);
        }
        true
    }

    /// Whether the key is there, or may be there, spelled with escapes.
    fn may_change(&self, json: &[u8]) -> bool {
        if self.handler.is_none() {
            return false;
        }
        self.key.find(json).is_some() || self.escape.find(json).is_some()
    }

    fn read(&mut self, json: &[u8]) -> Option<()> {
        let mut cursor = Cursor::new(json);
        if cursor.peek()? != b'{' {
            return None;
        }
        self.handler?.edit(json, &mut cursor, &mut self.edits)?;
        cursor.end()
    }
}
