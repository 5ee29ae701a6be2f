//! Corrects answers for the client: a route's handler removes and renames members that an engine
//! adds and that break its clients.
//!
//! A handler sees one JSON object at a time, the data of an event or a whole document. It edits the
//! object by splices, so all other bytes stay as they were. Anything that is not understood passes
//! unchanged. To add a handler, add a file here, an arm of [`handler`] and a variant of
//! [`Postprocess`].

mod document;
mod editor;
mod repeat;
mod shape;
mod strip_actual_usage;
mod vllm_format;

use std::fmt;
use std::sync::Arc;

use answers::cursor::{Cursor, Span};
use router_config::valid::Postprocess;

pub use self::document::Document;
pub use self::editor::Editor;
pub use self::shape::Edits;

/// Bytes of one stream line, or of one document, that are held for rewriting. A longer one passes
/// unchanged.
pub const HELD_MAX: usize = 8 << 20;

/// Rewrites answers.
pub trait Handler: fmt::Debug + Sync {
    /// A key that every change needs. JSON without it is not examined.
    fn key(&self) -> &'static str;

    /// Takes the object at the cursor and adds its edits. `None` when the object is not understood;
    /// its edits are then discarded.
    fn edit(&self, json: &[u8], cursor: &mut Cursor<'_>, edits: &mut Edits) -> Option<Span>;
}

/// What rewrites the answers to one request.
#[derive(Clone, Debug)]
pub struct Rewriter {
    /// The route's handler.
    pub handler: Option<&'static dyn Handler>,
    /// The model's name for the client, as a JSON string.
    pub model: Option<Arc<[u8]>>,
}

impl From<&'static dyn Handler> for Rewriter {
    fn from(handler: &'static dyn Handler) -> Self {
        Self {
            handler: Some(handler),
            model: None,
        }
    }
}

/// What happened to an answer for which a handler is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Something in it was changed.
    Changed,
    /// Nothing needed a change.
    Unchanged,
    /// It could not be examined: too long, or in an encoding that is not decoded here.
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

/// The handler for a route's `postprocess`.
pub fn handler(postprocess: Postprocess) -> Option<&'static dyn Handler> {
    match postprocess {
        Postprocess::None => None,
        Postprocess::StripActualUsage => Some(&strip_actual_usage::StripActualUsage),
        Postprocess::VllmFormat => Some(&vllm_format::VllmFormat),
    }
}

#[cfg(test)]
mod tests;
