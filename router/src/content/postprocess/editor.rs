//! Turns one JSON text into another: a handler and its reusable memory.

use std::ops::Range;

use answers::cursor::Cursor;
use memchr::memmem::Finder;
use serde::de::IgnoredAny;

use super::Handler;
use super::repeat::Repeat;
use super::shape::Edits;

/// Applies a handler to one JSON text after the other.
#[derive(Debug)]
pub struct Editor {
    handler: &'static dyn Handler,
    key: Finder<'static>,
    escape: Finder<'static>,
    edits: Edits,
    repeat: Repeat,
}

impl Editor {
    /// An editor for one answer.
    pub fn new(handler: &'static dyn Handler) -> Self {
        Self {
            handler,
            key: Finder::new(handler.key()),
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
        let is_changed = match self.repeat.apply(body, out) {
            Some(is_changed) => is_changed,
            None => self.may_change(body) && self.edit_anew(body, out),
        };
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
        self.key.find(json).is_some() || self.escape.find(json).is_some()
    }

    fn read(&mut self, json: &[u8]) -> Option<()> {
        let mut cursor = Cursor::new(json);
        if cursor.peek()? != b'{' {
            return None;
        }
        self.handler.edit(json, &mut cursor, &mut self.edits)?;
        cursor.end()
    }
}
