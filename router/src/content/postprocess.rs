//! Answers, put right for the client: a route's handler removes and renames members that an engine
//! adds and its clients stumble over.
//!
//! A handler sees one JSON object at a time, the data of an event or a whole document, and edits it
//! by splices, so that what it does not name stays the byte it was. Whatever is not understood
//! passes as it came. A handler is a file here, an arm of [`handler`] and a word of [`Postprocess`].

mod document;
mod editor;
mod repeat;
mod shape;
mod strip_actual_usage;
mod vllm_format;

use std::fmt;

use answers::cursor::{Cursor, Span};
use router_config::valid::Postprocess;

pub use self::document::Document;
pub use self::editor::Editor;
pub use self::shape::Edits;

/// Bytes of one line of a stream, or of one document, that are held to be rewritten; a longer one
/// passes unchanged.
pub const HELD_MAX: usize = 8 << 20;

/// Rewrites answers.
pub trait Handler: fmt::Debug + Sync {
    /// A key without which there is nothing to change: JSON that does not hold it is not looked at.
    fn key(&self) -> &'static str;

    /// Takes the object at the cursor and adds its edits; `None` when it is not understood, which
    /// discards them.
    fn edit(&self, json: &[u8], cursor: &mut Cursor<'_>, edits: &mut Edits) -> Option<Span>;
}

/// What became of an answer that a handler was meant for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Something in it was changed.
    Changed,
    /// There was nothing to change.
    Unchanged,
    /// It could not be looked at: too long, or in an encoding that is not decoded here.
    Passed,
}

impl Outcome {
    /// Every outcome, in label order.
    pub const ALL: [Self; 3] = [Self::Changed, Self::Unchanged, Self::Passed];

    /// The label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
            Self::Passed => "passed",
        }
    }
}

/// The handler that a route's `postprocess` names.
pub fn handler(postprocess: Postprocess) -> Option<&'static dyn Handler> {
    match postprocess {
        Postprocess::None => None,
        Postprocess::StripActualUsage => Some(&strip_actual_usage::StripActualUsage),
        Postprocess::VllmFormat => Some(&vllm_format::VllmFormat),
    }
}

#[cfg(test)]
mod tests;
