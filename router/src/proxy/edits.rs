//! What is changed of a peer's answer on its way to the client, decided once by its head.
//!
//! What is held for it is bounded by the answer and by all answers together; without room the rest of a
//! document, or of a line, passes unchanged. A compressed body that is to be changed is decoded and leaves without its encoding; one that
//! cannot be decoded here passes untouched.

use std::io;

use answers::inflate::Inflate;
use bytes::Bytes;
use http::header::{self, HeaderName};
use http::{HeaderMap, StatusCode, response};

use super::respond;
use crate::content::filter::Filter;
use crate::content::postprocess::{self, Document, HELD_MAX, Handler, Outcome};
use crate::state::Route;
use service::budget::{ByteBudget, Held};

/// Headers that describe the bytes a peer sent, and say nothing of what is made of them.
const OF_THE_BYTES: [HeaderName; 7] = [
    header::CONTENT_LENGTH,
    header::CONTENT_ENCODING,
    header::ETAG,
    header::ACCEPT_RANGES,
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
];

/// The changes of one answer.
#[derive(Debug)]
pub(super) struct Edits {
    inflate: Option<Box<Inflate>>,
    /// Came, and has not been looked at. Empty where `inflate` has it.
    chunk: Bytes,
    stage: Stage,
    /// For what the stage holds.
    room: Room,
    /// A handler looks at it: what becomes of it is counted.
    is_counted: bool,
}

/// Room in memory for one answer.
#[derive(Debug)]
pub(super) struct Room {
    held: Held,
    /// Of all together.
    limit: u64,
}

impl Room {
    /// So much needs no room: most answers and lines are smaller.
    const FREE: usize = 64 << 10;

    /// None taken yet.
    pub(super) fn new(budget: &ByteBudget, limit: u64) -> Self {
        Self {
            held: budget.hold(),
            limit,
        }
    }

    /// Whether there is room for `bytes` in all.
    fn is_for(&mut self, bytes: usize) -> bool {
        let bytes = if bytes > Self::FREE { bytes as u64 } else { 0 };
        self.held.set(bytes, self.limit)
    }
}

#[derive(Debug)]
enum Stage {
    Events(Filter),
    Document(Document),
}

/// A part of a body.
#[derive(Debug, Default)]
pub(super) struct Part {
    /// As the engine made it.
    pub made: Bytes,
    /// What is left of it for the client.
    pub left: Bytes,
}

impl Edits {
    /// Judges by the head. `None` where nothing may be changed.
    pub(super) fn of(
        route: &Route,
        asked_for_usage: bool,
        answer: &response::Parts,
        room: impl FnOnce() -> Room,
    ) -> Option<Box<Self>> {
        let options = &route.options;
        let headers = &answer.headers;
        let is_stream = respond::is_event_stream(headers);
        let is_whole = answer.status.is_success()
            && answer.status != StatusCode::PARTIAL_CONTENT
            && (is_stream || respond::is_json(headers));
        let handler = postprocess::handler(options.postprocess.value)
            .filter(|_| is_whole && !options.transparent.value);
        let usage_filter = asked_for_usage && is_stream;
        if handler.is_none() && !usage_filter {
            return None;
        }
        let edits = match encoding(headers) {
            Encoding::None if !is_stream && is_too_long(headers) => None,
            Encoding::None => Some(None),
            Encoding::Known(inflate) => Some(Some(inflate)),
            Encoding::Unknown => None,
        };
        let Some(inflate) = edits else {
            if handler.is_some() {
                route.state.metrics.postprocessed(Outcome::Passed);
            }
            return None;
        };
        Some(Box::new(Self {
            inflate,
            chunk: Bytes::new(),
            stage: Stage::new(is_stream, usage_filter, handler)?,
            room: room(),
            is_counted: handler.is_some(),
        }))
    }

    /// Whether the body comes compressed, and is decoded.
    pub(super) fn decodes(&self) -> bool {
        self.inflate.is_some()
    }

    /// Takes away what a head says of the bytes that are not sent.
    pub(super) fn fix(headers: &mut HeaderMap) {
        for name in OF_THE_BYTES {
            headers.remove(name);
        }
    }

    /// Takes a chunk. Drain [`part`](Self::part) first.
    pub(super) fn feed(&mut self, chunk: Bytes) {
        match &mut self.inflate {
            Some(inflate) => inflate.feed(chunk),
            None => self.chunk = chunk,
        }
    }

    /// The next part of what came; `None` when more must come.
    ///
    /// # Errors
    ///
    /// The body is not what its encoding says.
    pub(super) fn part(&mut self) -> io::Result<Option<Part>> {
        let made = match &mut self.inflate {
            Some(inflate) => inflate.decode()?,
            None => Some(std::mem::take(&mut self.chunk)).filter(|chunk| !chunk.is_empty()),
        };
        Ok(made.map(|made| {
            let left = self.stage.feed(&made);
            let left = match self.room.is_for(self.stage.held()) {
                true => left,
                false => joined(left, self.stage.let_go()),
            };
            Part { made, left }
        }))
    }

    /// Whether nothing of the body passes before it is whole.
    pub(super) fn holds_all(&self) -> bool {
        matches!(self.stage, Stage::Document(_))
    }

    /// Whether there is something that has not been sent, or the end is still to be judged.
    pub(super) fn holds(&self) -> bool {
        self.inflate.is_some() || !self.chunk.is_empty() || self.stage.holds()
    }

    /// The body is over: what is left of it, and whether it was whole.
    pub(super) fn finish(&mut self) -> (Part, io::Result<()>) {
        let (made, result) = match &mut self.inflate {
            None => (Bytes::new(), Ok(())),
            Some(inflate) => match inflate.finish() {
                Ok(made) => (made, Ok(())),
                Err(error) => (Bytes::new(), Err(error)),
            },
        };
        let left = joined(self.stage.feed(&made), self.stage.finish());
        (Part { made, left }, result)
    }

    /// What became of the answer, where it is counted.
    pub(super) fn outcome(&self) -> Option<Outcome> {
        self.is_counted.then(|| match &self.stage {
            Stage::Events(filter) => filter.outcome(),
            Stage::Document(document) => document.outcome(),
        })
    }
}

impl Stage {
    /// `None` for a document without a handler.
    fn new(
        is_stream: bool,
        usage_filter: bool,
        handler: Option<&'static dyn Handler>,
    ) -> Option<Self> {
        Some(match is_stream {
            true => Self::Events(Filter::new(usage_filter, handler)),
            false => Self::Document(Document::new(handler?)),
        })
    }

    fn feed(&mut self, made: &Bytes) -> Bytes {
        match self {
            Self::Events(filter) => filter.feed(made),
            Self::Document(document) => document.feed(made),
        }
    }

    fn holds(&self) -> bool {
        match self {
            Self::Events(filter) => filter.holds(),
            Self::Document(document) => document.holds(),
        }
    }

    fn held(&self) -> usize {
        match self {
            Self::Events(filter) => filter.held(),
            Self::Document(document) => document.held(),
        }
    }

    fn let_go(&mut self) -> Bytes {
        match self {
            Self::Events(filter) => filter.let_go(),
            Self::Document(document) => document.let_go(),
        }
    }

    fn finish(&mut self) -> Bytes {
        match self {
            Self::Events(filter) => filter.finish(),
            Self::Document(document) => document.finish(),
        }
    }
}

fn joined(first: Bytes, last: Bytes) -> Bytes {
    match [first, last] {
        [none, some] | [some, none] if none.is_empty() => some,
        [first, last] => [first, last].concat().into(),
    }
}

enum Encoding {
    None,
    Known(Box<Inflate>),
    Unknown,
}

fn encoding(headers: &HeaderMap) -> Encoding {
    let mut encodings = headers.get_all(header::CONTENT_ENCODING).iter();
    let known = match (encodings.next(), encodings.next()) {
        (None, _) => return Encoding::None,
        (Some(one), None) if one.as_bytes().eq_ignore_ascii_case(b"identity") => {
            return Encoding::None;
        }
        (Some(one), None) => Inflate::of(one.as_bytes()).map(Box::new),
        _ => None,
    };
    known.map_or(Encoding::Unknown, Encoding::Known)
}

/// A document whose length alone says that it will not be held.
fn is_too_long(headers: &HeaderMap) -> bool {
    let length = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok());
    let length: Option<u64> = length.and_then(|length| length.parse().ok());
    length.is_some_and(|length| length > HELD_MAX as u64)
}
