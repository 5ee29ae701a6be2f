//! Edits of a peer's answer on its way to the client. The head of the answer decides which ones
//! apply.
//!
//! Held bytes are bounded per answer and for all answers together. Without room, the rest of a
//! document or of a line passes unchanged. A compressed body is decoded for its edits and sent
//! without its encoding. A body that cannot be decoded here passes untouched.

use std::io;
use std::sync::Arc;

use answers::inflate::Inflate;
use bytes::Bytes;
use http::header::{self, HeaderName};
use http::{HeaderMap, StatusCode, response};

use super::respond::Media;
use crate::content::filter::Filter;
use crate::content::postprocess::{self, Document, HELD_MAX, Outcome, Rewriter};
use crate::state::Route;
use service::budget::{ByteBudget, Held};

/// Headers that describe the peer's original bytes. They are wrong for an edited body.
const OF_THE_BYTES: [HeaderName; 7] = [
    header::CONTENT_LENGTH,
    header::CONTENT_ENCODING,
    header::ETAG,
    header::ACCEPT_RANGES,
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
];

/// The edits of one answer.
#[derive(Debug)]
pub(super) struct Edits {
    inflate: Option<Box<Inflate>>,
    /// Received and not processed yet. Empty where `inflate` holds the input.
    chunk: Bytes,
    stage: Stage,
    /// Memory reserved for bytes that the stage holds.
    room: Room,
    /// A handler processes this answer, so the result is counted.
    is_counted: bool,
}

/// Memory for one answer.
#[derive(Debug)]
pub(super) struct Room {
    held: Held,
    /// The budget that all answers share.
    limit: u64,
}

impl Room {
    /// Bytes that need no reservation: most answers and lines are smaller.
    const FREE: usize = 64 << 10;

    /// `None` until the first reservation.
    pub(super) fn new(budget: &ByteBudget, limit: u64) -> Self {
        Self {
            held: budget.hold(),
            limit,
        }
    }

    /// Whether there is room for `bytes` in total.
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
    /// As the engine sent it.
    pub made: Bytes,
    /// Edited for the client.
    pub left: Bytes,
}

impl Edits {
    /// Chooses the edits by the head of an answer. `None` where nothing may be changed. `model` is
    /// the model's name for the client, a JSON string.
    pub(super) fn of(
        route: &Route,
        asked_for_usage: bool,
        model: Option<Arc<[u8]>>,
        answer: &response::Parts,
        media: Media,
        room: impl FnOnce() -> Room,
    ) -> Option<Box<Self>> {
        let options = &route.options;
        let headers = &answer.headers;
        let is_stream = media == Media::EventStream;
        let is_whole = answer.status.is_success()
            && answer.status != StatusCode::PARTIAL_CONTENT
            && (is_stream || media == Media::Json);
        let handler = postprocess::handler(options.postprocess.value)
            .filter(|_| is_whole && !options.transparent.value);
        let usage_filter = asked_for_usage && is_stream;
        let model = model.filter(|_| is_whole);
        if handler.is_none() && model.is_none() && !usage_filter {
            return None;
        }
        let is_counted = handler.is_some();
        let rewriter = (is_counted || model.is_some()).then_some(Rewriter { handler, model });
        let edits = match encoding(headers) {
            Encoding::None if !is_stream && is_too_long(headers) => None,
            Encoding::None => Some(None),
            Encoding::Known(inflate) => Some(Some(inflate)),
            Encoding::Unknown => None,
        };
        let Some(inflate) = edits else {
            if is_counted {
                route.state.metrics.postprocessed(Outcome::Passed);
            }
            return None;
        };
        Some(Box::new(Self {
            inflate,
            chunk: Bytes::new(),
            stage: Stage::new(is_stream, usage_filter, rewriter)?,
            room: room(),
            is_counted,
        }))
    }

    /// Whether the body arrives compressed and is decoded here.
    pub(super) fn decodes(&self) -> bool {
        self.inflate.is_some()
    }

    /// Removes the headers that describe the original bytes.
    pub(super) fn fix(headers: &mut HeaderMap) {
        for name in OF_THE_BYTES {
            headers.remove(name);
        }
    }

    /// Adds a chunk. Drain [`part`](Self::part) first.
    pub(super) fn feed(&mut self, chunk: Bytes) {
        match &mut self.inflate {
            Some(inflate) => inflate.feed(chunk),
            None => self.chunk = chunk,
        }
    }

    /// The next part of the received bytes; `None` when more input is needed.
    ///
    /// # Errors
    ///
    /// The body does not match its `Content-Encoding`.
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

    /// Whether the whole body is held before any byte passes.
    pub(super) fn holds_all(&self) -> bool {
        matches!(self.stage, Stage::Document(_))
    }

    /// Whether bytes are still unsent, or the end has not been processed yet.
    pub(super) fn holds(&self) -> bool {
        self.inflate.is_some() || !self.chunk.is_empty() || self.stage.holds()
    }

    /// Ends the body. Returns the remaining bytes, and whether the body was complete.
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

    /// The result for the answer, if it is counted.
    pub(super) fn outcome(&self) -> Option<Outcome> {
        self.is_counted.then(|| match &self.stage {
            Stage::Events(filter) => filter.outcome(),
            Stage::Document(document) => document.outcome(),
        })
    }
}

impl Stage {
    /// `None` for a document that nothing rewrites.
    fn new(is_stream: bool, usage_filter: bool, rewriter: Option<Rewriter>) -> Option<Self> {
        Some(match is_stream {
            true => Self::Events(Filter::rewriting(usage_filter, rewriter)),
            false => Self::Document(Document::new(rewriter?)),
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

/// The length of this document alone shows that it will not be held.
fn is_too_long(headers: &HeaderMap) -> bool {
    let length = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok());
    let length: Option<u64> = length.and_then(|length| length.parse().ok());
    length.is_some_and(|length| length > HELD_MAX as u64)
}
