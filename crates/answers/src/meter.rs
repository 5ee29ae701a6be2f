//! Extracts from an answer its token counts, its finish reason and its model.
//!
//! The meter sees each chunk as it passes and never delays one. In a stream it parses only events
//! that can matter: the first ones, the terminal kinds, and those in which a search finds one of a
//! few keys with a value. It searches the deltas in between but does not parse them. It reads a
//! body that is one JSON document as it arrives, in one pass and without keeping it, so its length
//! does not matter. It understands OpenAI's chat, completions, embeddings and Responses,
//! Anthropic's messages, and llama.cpp's `timings`. It does not meter compressed bodies, because
//! decoding costs more than the numbers are worth.

mod content;
mod members;
mod telling;

use self::members::{Answer, Member};
use self::telling::is_telling;
use crate::finish::chat_word;
use crate::json::unescaped;
use crate::sse::{Event, Events};
use crate::usage::{Counts, Usage};

/// The first events are always parsed, until id and model are known, at most this many.
const FIRST_EVENTS: u8 = 4;

/// Events that end a stream, in the APIs that name their events.
const LAST_EVENTS: [&[u8]; 4] = [
    b"message_stop",
    b"response.completed",
    b"response.incomplete",
    b"response.failed",
];

/// Reads one answer of a peer.
#[derive(Debug)]
pub struct Meter {
    input: Input,
    found: Found,
}

#[derive(Debug)]
enum Input {
    Stream { events: Events, first: u8 },
    Document(Answer),
}

/// The findings so far.
#[derive(Debug, Default)]
struct Found {
    counts: Counts,
    usage: Vec<u8>,
    actual_usage: Vec<u8>,
    id: Option<Box<str>>,
    model: Option<Box<str>>,
    finish: Option<Box<str>>,
    status: Option<Box<str>>,
    incomplete: Option<Box<str>>,
    complete: bool,
    events: u64,
    /// Whether an event carried generated content.
    has_content: bool,
}

impl Meter {
    /// A meter for a `text/event-stream`.
    pub fn stream() -> Self {
        let events = Events::default();
        Self::new(Input::Stream { events, first: 0 })
    }

    /// A meter for a JSON body.
    pub fn document() -> Self {
        Self::new(Input::Document(Answer::default()))
    }

    fn new(input: Input) -> Self {
        Self {
            input,
            found: Found::default(),
        }
    }

    /// Reads the next bytes of the body, as the peer sent them. Allocates only for what it finds
    /// and for a line that spans two chunks. Returns `true` once: when the first event with
    /// generated content of a stream ends in this chunk.
    pub fn feed(&mut self, chunk: &[u8]) -> bool {
        let found = &mut self.found;
        let had_content = found.has_content;
        match &mut self.input {
            Input::Stream { events, first } => {
                // One search of the chunk spares one in each event that lies in it. The data of
                // any other event is searched by itself.
                let chunk_tells = is_telling(chunk);
                let lies_in_chunk = |data: &[u8]| chunk.as_ptr_range().contains(&data.as_ptr());
                events.feed(chunk, |event| {
                    let may_tell = chunk_tells || !lies_in_chunk(event.data);
                    found.event(event, first, may_tell);
                });
            }
            Input::Document(answer) => {
                answer.feed(chunk, |member, value| found.member(member, value));
                found.complete |= answer.is_closed();
            }
        }
        found.has_content && !had_content
    }

    /// Called after the last byte: reads the unfinished last line. Call it once, before the
    /// getters.
    pub fn finish(&mut self) {
        let found = &mut self.found;
        if let Input::Stream { events, first } = &mut self.input {
            events.finish(|event| found.event(event, first, true));
        }
    }

    /// Events of a stream so far.
    pub fn events(&self) -> u64 {
        self.found.events
    }

    /// The token counts. `None` when the answer reported none.
    pub fn usage(&self) -> Option<Usage> {
        self.found.counts.usage()
    }

    /// Generated tokens. `None` when the answer did not report them.
    pub fn completion(&self) -> Option<u64> {
        self.found.counts.completion()
    }

    /// The last `usage` object as the peer wrote it, at most 16 KiB.
    pub fn raw_usage(&self) -> Option<&[u8]> {
        Some(&*self.found.usage).filter(|raw| !raw.is_empty())
    }

    /// The last `actual_usage` object as the peer wrote it, at most 16 KiB.
    pub fn raw_actual_usage(&self) -> Option<&[u8]> {
        Some(&*self.found.actual_usage).filter(|raw| !raw.is_empty())
    }

    /// The reason why the answer ended, in the peer's words, at most 256 bytes.
    pub fn raw_finish(&self) -> Option<&str> {
        let found = &self.found;
        let status = found.status.as_deref();
        let status = status.filter(|status| !matches!(*status, "in_progress" | "queued"));
        found
            .finish
            .as_deref()
            .or(found.incomplete.as_deref())
            .or(status)
    }

    /// The reason why the answer ended, in the words of the chat API.
    pub fn finish_reason(&self) -> Option<&str> {
        self.raw_finish().map(chat_word)
    }

    /// The model that answered, at most 256 bytes.
    pub fn model(&self) -> Option<&str> {
        self.found.model.as_deref()
    }

    /// The answer's id, at most 256 bytes.
    pub fn id(&self) -> Option<&str> {
        self.found.id.as_deref()
    }

    /// Whether anything read so far is generated content: text, reasoning or a tool call.
    pub fn has_content(&self) -> bool {
        self.found.has_content
    }

    /// Whether the answer reached its own end: the terminal event or finish reason of a stream, or
    /// the last bracket of a document.
    pub fn is_complete(&self) -> bool {
        self.found.complete
    }
}

impl Found {
    /// `may_tell`: a search has not ruled out that the event is telling.
    fn event(&mut self, event: Event<'_>, first: &mut u8, may_tell: bool) {
        let Event { name, data } = event;
        self.events += 1;
        if data.trim_ascii_end() == b"[DONE]" {
            self.complete = true;
            return;
        }
        if !self.has_content {
            self.has_content = content::is_in(data);
        }
        let is_last = LAST_EVENTS.contains(&name);
        self.complete |= is_last;
        let is_first = *first < FIRST_EVENTS && (self.id.is_none() || self.model.is_none());
        *first = first.saturating_add(1);
        if is_first || is_last || (may_tell && is_telling(data)) {
            Answer::default().feed(data, |member, value| {
                self.complete |= match member {
                    Member::Finish => true,
                    Member::StopType => value != b"none",
                    Member::Type => LAST_EVENTS.contains(&value),
                    _ => false,
                };
                self.member(member, value);
            });
        }
    }

    fn member(&mut self, member: Member, value: &[u8]) {
        match member {
            Member::Usage => {
                self.counts.take(value);
                keep(&mut self.usage, value);
            }
            Member::ActualUsage => keep(&mut self.actual_usage, value),
            // Timings have fields of their own, which count where usage has no number.
            Member::Timings => self.counts.take(value),
            // An event may mention ids of other objects, but the answer's own id comes first.
            Member::Id if self.id.is_none() => self.id = text(value),
            Member::Model if self.model.is_none() => self.model = text(value),
            Member::Finish => self.finish = text(value),
            // `none` occurs in the events before the last one.
            Member::StopType if value != b"none" => self.finish = text(value),
            Member::Evaluated => self.counts.evaluated(value),
            Member::Status => self.status = text(value),
            Member::Incomplete => self.incomplete = text(value),
            Member::Id | Member::Model | Member::Type | Member::StopType => {}
        }
    }
}

fn keep(slot: &mut Vec<u8>, value: &[u8]) {
    slot.clear();
    slot.extend_from_slice(value);
}

fn text(value: &[u8]) -> Option<Box<str>> {
    let value = unescaped(value);
    (!value.is_empty()).then(|| String::from_utf8_lossy(&value).into())
}

#[cfg(test)]
mod tests;
