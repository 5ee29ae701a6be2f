//! One walk over a request that locates everything the transforms look for.
//!
//! The walk enters only `messages` (`input` of the Responses API) and `system`, and there only as
//! deep as the dialects put these parts. Look-alikes in tool arguments, metadata or a schema are
//! user data. Of duplicate keys the last one counts, as in the engines' parsers.

use answers::cursor::{Cursor, Span, text};
use answers::json::unescaped;

use super::SystemHoist;
use super::billing::header_len;
use super::hoist::Moves;
use super::kimi::Calls;
use crate::content::reader::start;

/// The parts of the messages to note. If there are none, the messages are skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Notes {
    /// Billing headers.
    pub headers: bool,
    /// Tool calls and their ids.
    pub calls: bool,
    /// System messages.
    pub systems: SystemHoist,
}

impl Notes {
    /// Nothing to note: the messages are skipped.
    pub(super) const NOTHING: Self = Self {
        headers: false,
        calls: false,
        systems: SystemHoist::Off,
    };

    fn has_systems(self) -> bool {
        self.systems != SystemHoist::Off
    }
}

/// Spans of the parts of one body, which is an object.
#[derive(Debug, Default)]
pub(super) struct EditScan {
    /// The object.
    pub top: Span,
    /// `model`.
    pub model: Option<Span>,
    /// `system`.
    pub system: Option<System>,
    /// `messages`.
    pub messages: Messages,
    /// `input`.
    pub input: Messages,
}

/// `system`.
#[derive(Debug)]
pub(super) struct System {
    /// The value.
    pub value: Span,
    /// Whether it is a list without items.
    pub is_empty: bool,
    /// Billing headers in it.
    pub headers: Vec<Span>,
}

/// A list of messages.
#[derive(Debug, Default)]
pub(super) struct Messages {
    /// Billing headers in them.
    pub headers: Vec<Span>,
    /// Tool calls in them.
    pub calls: Calls,
    /// The system messages among them.
    pub moves: Moves,
}

impl EditScan {
    /// Walks over a body. `None` when it is not an object, or is invalid where the walk reads it.
    pub(super) fn of(body: &[u8], notes: Notes) -> Option<Self> {
        let mut edit_scan = Self::default();
        let mut cursor = Cursor::at(body, start(body));
        if cursor.peek()? != b'{' {
            return None;
        }
        let walk = Walk { body, notes };
        edit_scan.top = cursor.members(|cursor, key| {
            match &*unescaped(&body[key]) {
                b"model" => edit_scan.model = Some(cursor.skip()?),
                b"system" if notes.headers || notes.has_systems() => {
                    edit_scan.system = Some(walk.system(cursor)?);
                }
                b"messages" if notes != Notes::NOTHING => {
                    edit_scan.messages = walk.messages(cursor)?;
                }
                b"input" if notes.headers => edit_scan.input = walk.messages(cursor)?,
                _ => {
                    cursor.skip()?;
                }
            }
            Some(())
        })?;
        cursor.end()?;
        Some(edit_scan)
    }
}

/// A body and the parts to note.
struct Walk<'b> {
    body: &'b [u8],
    notes: Notes,
}

impl Walk<'_> {
    fn system(&self, cursor: &mut Cursor<'_>) -> Option<System> {
        let mut headers = Vec::new();
        let mut is_empty = true;
        let value = self.texts(cursor, &mut headers, |_| is_empty = false)?;
        Some(System {
            value,
            is_empty,
            headers,
        })
    }

    fn messages(&self, cursor: &mut Cursor<'_>) -> Option<Messages> {
        let mut messages = Messages::default();
        cursor.items(|cursor| self.message(cursor, &mut messages))?;
        messages.moves.close();
        Some(messages)
    }

    fn message(&self, cursor: &mut Cursor<'_>, messages: &mut Messages) -> Option<()> {
        let headers = messages.headers.len();
        let mut calls = messages.calls.open();
        let mut is_system = false;
        let mut content = None;
        let message = cursor.members(|cursor, key| {
            match &*unescaped(&self.body[key]) {
                b"role" if self.notes.has_systems() => {
                    let role = cursor.skip()?;
                    is_system = text(self.body, &role).is_some_and(|role| *role == *b"system");
                }
                b"content" if self.notes.headers => {
                    messages.headers.truncate(headers);
                    self.texts(cursor, &mut messages.headers, |_| ())?;
                }
                b"content" if self.notes.has_systems() => content = Some(cursor.skip()?),
                b"tool_calls" if self.notes.calls => {
                    messages.calls.take(self.body, cursor, &calls)?;
                }
                b"tool_call_id" if self.notes.calls => calls.answers = Some(cursor.skip()?),
                _ => {
                    cursor.skip()?;
                }
            }
            Some(())
        })?;
        messages.calls.answer(calls);
        if self.notes.has_systems() {
            let stays = self.notes.systems == SystemHoist::Leading && messages.moves.some_stay();
            messages
                .moves
                .message(message, is_system && !stays, content);
        }
        Some(())
    }

    /// Takes a text, or a list of texts and blocks with `text`. Notes the billing headers at their
    /// beginnings.
    fn texts(
        &self,
        cursor: &mut Cursor<'_>,
        headers: &mut Vec<Span>,
        mut item: impl FnMut(&Span),
    ) -> Option<Span> {
        if cursor.peek()? == b'"' {
            let text = cursor.skip()?;
            self.note(&text, headers);
            return Some(text);
        }
        cursor.items(|cursor| {
            let mut begins = None;
            let block = cursor.members(|cursor, key| {
                let is_text = &*unescaped(&self.body[key]) == b"text";
                let value = cursor.skip()?;
                if is_text {
                    begins = Some(value);
                }
                Some(())
            })?;
            item(&block);
            if let Some(text) = begins {
                self.note(&text, headers);
            }
            Some(())
        })
    }

    fn note(&self, text: &Span, headers: &mut Vec<Span>) {
        if self.notes.headers
            && let Some(length) = header_len(&self.body[text.clone()])
        {
            headers.push(text.start + 1..text.start + 1 + length);
        }
    }
}
